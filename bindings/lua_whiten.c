/* lua_whiten.c - the Lua face of host/optim/whiten.h. */
#include "gm_lua.h"

#include "../host/optim/whiten.h"

/* whiten(c, least): in place; this rank's matrices of c (..., n, n), f64, whose last two dimensions nothing cuts */
static int whiten(lua_State *L)
{
    gm_value  *v = gm_check_value(L, 1);
    gm_tensor *t = v->local;
    double     least = luaL_checknumber(L, 2);
    gm_check_written(L, v, "whiten");
    gm_check_argument(L, t->ndim >= 2 && t->dtype == GM_F64 && t->shape[t->ndim - 1] == t->shape[t->ndim - 2], 1,
                      "must be square matrices of f64");
    gm_check_argument(L, t->shape[t->ndim - 1] == v->shape[v->ndim - 1] && gm_tensor_is_contiguous(t), 1,
                      "must be contiguous, and whole matrices on each rank");
    gm_check_argument(L, t->shape[t->ndim - 1] <= 16384, 1, "has more than 16,384 rows");
    gm_check_argument(L, least >= 0, 2, "must be 0 or more");
    L_TRY(L, gm_whiten(t, least));
    return 0;
}

int gm_open_whiten(lua_State *L)
{
    static const gm_declaration functions[] = {GM_FUNCTION("whiten", whiten, "c tensor, least number"),
                                               GM_LAST_FUNCTION};
    gm_declare(L, functions);
    return 0;
}
