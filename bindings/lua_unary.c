/* lua_unary.c - core.ops.*: functions of the elements of one tensor, with up to two numbers beside it. lua_ops.c lists
 * them. */
#include "lua_ops.h"

#include <math.h>

/* A bound of clamp, as a number of x's dtype has it; where it is left out, `without`. */
static double bound(lua_State *L, int arg, gm_dtype dtype, double without)
{
    double room = 0;
    gm_store(dtype, &room, 0, luaL_optnumber(L, arg, without));
    return gm_load(dtype, &room, 0);
}

int gm_clamp(lua_State *L)
{
    gm_attrs  a = gm_attrs_default();
    gm_value *x = gm_check_value(L, 1);
    gm_check_argument(L, !lua_isnoneornil(L, 2) || !lua_isnoneornil(L, 3), 2, "low or high must be given");
    a.function = GM_FN_clamp;
    a.low = bound(L, 2, x->local->dtype, -INFINITY);
    a.high = bound(L, 3, x->local->dtype, INFINITY);
    if (a.low > a.high) {
        lua_pushfstring(L, "low is %f, above high, %f", a.low, a.high);
        return gm_bad_argument(L, 2, lua_tostring(L, -1));
    }
    return gm_apply_one(L, GM_OP_unary, 1, &x, &a);
}

/* unary functions: which one; power takes the exponent as argument 2. */
int gm_unary(lua_State *L)
{
    gm_attrs  a = gm_attrs_default();
    gm_value *x = gm_check_value(L, 1);
    a.function = (gm_function)gm_declared(L)->which;
    if (a.function == GM_FN_power) a.value = luaL_checknumber(L, 2);
    return gm_apply_one(L, GM_OP_unary, 1, &x, &a);
}
