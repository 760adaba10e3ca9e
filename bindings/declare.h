/* declare.h - what every C function that Lua can call is declared by: its name as users say it, its arguments, its
 * options.
 *
 * All calls go through one entry. It refuses surplus arguments, missing ones, values of another type, and unknown or
 * wrong options; only then the function runs. The words of the refusal are made in lua/ganymede/base/signature.lua,
 * which reads the same declarations (core.signature). A function without a declaration cannot be registered.
 *
 * Arguments are a list in words: "x tensor, dim integer|table?, keepdim boolean?". A type with ? may be nil or left
 * out; `...` at the end repeats the last argument. The types are
 *     tensor object (userdata)   number integer   string   boolean   table   function   any (nil too)
 *     options                    a table that holds what `options` lists, and nothing else */
#ifndef GM_DECLARE_H
#define GM_DECLARE_H

#include <lua.h>

/* One option of a function. */
typedef struct {
    const char *name;
    const char *type;    /* number integer string boolean tensor */
    const char *initial; /* its default, in words */
    const char *range;   /* of numbers, as an interval: "[0,1)", "(0,inf)"; NULL: any that is finite */
    const char *doc;     /* one sentence */
} gm_lua_option;

typedef struct {
    const char          *name;
    lua_CFunction        fn;
    const char          *arguments;
    const gm_lua_option *options; /* ends with a NULL name; NULL where no argument has the type `options` */
    const char          *instead; /* what to do where an argument too many was meant in another way, or NULL */
    int                  which;   /* in what functions that share `fn` differ */
    int                  flag;
    const char          *doc; /* what the reference says (docs/docs.h); NULL: users do not call it */
} gm_declaration;

/* Only the first three differ from NULL and 0 in most. */
#define GM_FUNCTION(name, fn, arguments)            \
    {                                               \
        name, fn, arguments, NULL, NULL, 0, 0, NULL \
    }
/* One that users call: name without quotation marks, as in GM_DOC(name, ...). */
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

/* Adds the functions of a list, which ends with GM_LAST_FUNCTION, to the table on the top of the stack. */
void gm_declare(lua_State *L, const gm_declaration *list);
/* The declaration of the function that runs. */
const gm_declaration *gm_declared(lua_State *L);
/* Raises "bad argument #2 to 'sum' (why)" at the caller's line, with the name as declared. */
int gm_bad_argument(lua_State *L, int arg, const char *why);
#define gm_check_argument(L, holds, arg, why) ((void)((holds) || gm_bad_argument(L, arg, why)))
/* The place in a list, which ends with NULL, of the string at arg; of `initial` where there is none. */
int gm_check_option(lua_State *L, int arg, const char *initial, const char *const *list);
/* The userdata at arg, whose metatable is called so. */
void *gm_check_object(lua_State *L, int arg, const char *name);

int gm_open_signatures(lua_State *L); /* core.signature */

#endif
