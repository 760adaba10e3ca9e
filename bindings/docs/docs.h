/* docs.h - makes the texts of the reference for C functions. Each .def file beside this one has the texts for one
 * binding file, which includes it.
 *
 * GM_DOC(name, text) defines the string doc_name. The declaration of the function refers to it (GM_PUBLIC in
 * declare.h). A missing text does not compile; the compiler warns of a text that nothing uses.
 *
 * lua/ganymede/reference/text.lua reads these texts in the same format as the comments above Lua functions. The first
 * sentence says what the function does; more sentences may follow. Then come tags. A tag stands at the start of a line
 * and goes on until the next tag:
 *     @param NAME text   one for each argument; the declaration gives its type
 *     @return, @shape, @dtype, @formula, @unit, @error
 *     @gradient names    the arguments that have a gradient, or "none"
 *     @layout text       when the call is collective, and what happens to values that lie on several ranks
 *     @see NAME, NAME    other entries
 *     @example           lines of Lua; a spec runs each `EXPRESSION --> RESULT` and compares */
#ifndef GM_DOCS_H
#define GM_DOCS_H

#define GM_DOC(name, text) static const char doc_##name[] = text;

#endif
