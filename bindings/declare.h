/* declare.h - the declaration of a C function that Lua can call: its name as users write it, its arguments and its
 * options.
 *
 * All calls go through one entry. It refuses surplus arguments, missing ones, values of another type, and unknown or
 * wrong options. Only then it calls the function. lua/ganymede/base/signature.lua makes the message of a refusal; it
 * reads the same declarations (core.signature). A function without a declaration cannot be registered.
 *
 * Arguments are a list in words: "x tensor, dim integer|table?, keepdim boolean?". An argument whose type ends with ?
 * may be nil or left out. `...` at the end repeats the last argument. The types are
 *     tensor object (userdata)   number integer   string   boolean   table   function   any (also nil)
 *     options                    a table that may hold only what `options` lists */
#ifndef GM_DECLARE_H
#define GM_DECLARE_H

#include <lua.h>

/* One option of a function. */
typedef struct {
    const char *name;
    const char *type;    /* number integer string boolean tensor; "integer|table": a number or a list of them */
    const char *initial; /* its default, in words */
    const char *range;   /* of a number, as an interval: "[0,1)", "(0,inf)"; NULL: any finite number */
    const char *doc;     /* one sentence */
} gm_lua_option;

typedef struct {
    const char          *name;
    lua_CFunction        fn;
    const char          *arguments;
    const gm_lua_option *options; /* ends with a NULL name; NULL: no argument has the type `options` */
    const char          *instead; /* what messages suggest when a call has a surplus argument; NULL: nothing */
    int                  which;   /* this and `flag` tell apart functions that share `fn` */
    int                  flag;
    const char          *doc; /* its text in the reference (docs/docs.h); NULL: users do not call it */
} gm_declaration;

/* A declaration with name, function and arguments only. */
#define GM_FUNCTION(name, fn, arguments)            \
    {                                               \
        name, fn, arguments, NULL, NULL, 0, 0, NULL \
    }
/* The same for a function that users call, with its text; name without quotation marks, as in GM_DOC(name, ...). */
#define GM_PUBLIC(name, fn, arguments)                     \
    {                                                      \
#name, fn, arguments, NULL, NULL, 0, 0, doc_##name \
    }
#define GM_LAST_OPTION               \
    {                                \
        NULL, NULL, NULL, NULL, NULL \
    }
#define GM_LAST_FUNCTION                         \
    {                                            \
        NULL, NULL, NULL, NULL, NULL, 0, 0, NULL \
    }

/* Adds the functions of a list, which ends with GM_LAST_FUNCTION, to the table at the top of the stack. */
void gm_declare(lua_State *L, const gm_declaration *list);
/* The declaration of the function that is running. */
const gm_declaration *gm_declared(lua_State *L);
/* Raises "bad argument #2 to 'sum' (why)" at the caller's line, with the name as declared. */
int gm_bad_argument(lua_State *L, int arg, const char *why);
#define gm_check_argument(L, holds, arg, why) ((void)((holds) || gm_bad_argument(L, arg, why)))
/* The place of the string at arg in a list, which ends with NULL; the place of `initial` if arg is nil or left out.
 * Raises for a string that is not in the list. */
int gm_check_option(lua_State *L, int arg, const char *initial, const char *const *list);
/* The userdata at arg, whose metatable has this name. Raises for anything else. */
void *gm_check_object(lua_State *L, int arg, const char *name);

int gm_open_signatures(lua_State *L); /* core.signature */

#endif
