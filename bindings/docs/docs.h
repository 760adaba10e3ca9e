/* docs.h - the texts of the reference for functions of C, one `.def` a family beside this file: GM_DOC(name, text)
 * makes doc_name, which the declaration of that function takes up (declare.h). One that is missing does not compile,
 * one that is left over is a warning.
 *
 * A text is read by lua/ganymede/reference/text.lua, as the comments above functions of Lua are. Its first line says
 * in one sentence what the function does. Then come tags, each at the start of a line, with more lines that belong
 * to it:
 *     @param NAME text   one for each argument of the declaration, which says its type
 *     @return, @shape, @dtype, @formula, @unit, @error
 *     @gradient names    of arguments that have one, or none
 *     @layout text       what ranks do
 *     @see NAME, NAME    other entries
 *     @example           lines of Lua; `EXPRESSION --> what it gives` is tried by a spec */
#ifndef GM_DOCS_H
#define GM_DOCS_H

#define GM_DOC(name, text) static const char doc_##name[] = text;

#endif
