/* lua_ops.h - what lua_ops.c, lua_views.c and others share: running an op for its one result. */
#ifndef GM_LUA_OPS_H
#define GM_LUA_OPS_H

#include "gm_lua.h"

/* Runs an op and pushes its first output; collective where the layouts of the inputs make it so. */
int gm_apply_one(lua_State *L, gm_op op, int n_in, gm_value *const *in, gm_attrs *a);
/* Runs an op of one input on x and pushes both of its outputs, which bear this name. */
int gm_apply_two(lua_State *L, gm_op op, gm_value *x, gm_attrs *a, const char *name);
/* Pushes the slices of x along dimension d (from 0) and returns how many there are. y receives them, borrowed from the
 * stack. */
int gm_push_unbound(lua_State *L, gm_value *x, int d, gm_value **y);

/* Functions of one tensor (lua_unary.c): which one, says the declaration. */
int gm_unary(lua_State *L);
int gm_clamp(lua_State *L);

/* Pushes the value that a call gives in y. */
#define PUSH(L, name, expr)                          \
    do {                                             \
        gm_handle *h_ = gm_push_handle(L);           \
        gm_value  *y;                                \
        L_TRY(L, expr);                              \
        gm_handle_fill(gm_lua_rank(L), h_, y, name); \
        return 1;                                    \
    } while (0)

#endif
