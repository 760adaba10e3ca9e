/* lua_sharded.c - the Lua face of host/parallel/sharded: ops on cut tensors that communicate inside. */
#include "gm_lua.h"

#include "../host/parallel/sharded/sharded.h"

/* sharded_linear(x, w, keep_gathered or nil): x (..., in), w (out, in) -> (..., out); collective */
static int sharded_linear(lua_State *L)
{
    gm_value  *x = gm_check_value(L, 1), *w = gm_check_value(L, 2), *y;
    gm_rank   *r = gm_lua_rank(L);
    bool       keep = lua_toboolean(L, 3);
    gm_handle *h = gm_push_handle(L);
    L_TRY(L, gm_sharded_linear(r, x, w, keep, &y));
    gm_handle_fill(r, h, y, "linear");
    return 1;
}

/* Fills the handles of y and, with a residual, of the sum, which are on the top of the stack; how many there are. */
static int fill_norm(gm_rank *r, gm_handle *h, gm_handle *sum, gm_value *const *out, const char *name)
{
    gm_handle_fill(r, h, out[0], name);
    if (!sum) return 1;
    gm_handle_fill(r, sum, out[1], name);
    return 2;
}

/* sharded_layer_norm(x, residual or nil, w or nil, b or nil, eps) -> y, and x + residual with a residual; collective
 * where the last dimension is cut, as all of the following */
static int sharded_layer_norm(lua_State *L)
{
    gm_rank  *r = gm_lua_rank(L);
    gm_value *x = gm_check_value(L, 1), *residual = gm_opt_value(L, 2), *w = gm_opt_value(L, 3),
             *b = gm_opt_value(L, 4);
    gm_value  *out[2];
    double     eps = luaL_optnumber(L, 5, 1e-5);
    gm_handle *h = gm_push_handle(L), *sum = residual ? gm_push_handle(L) : NULL;
    L_TRY(L, gm_sharded_layer_norm(r, x, residual, w, b, eps, &out[0], &out[1]));
    return fill_norm(r, h, sum, out, "layer_norm");
}

/* sharded_rms_norm(x, residual or nil, w or nil, eps) -> y, and x + residual with a residual */
static int sharded_rms_norm(lua_State *L)
{
    gm_rank   *r = gm_lua_rank(L);
    gm_value  *x = gm_check_value(L, 1), *residual = gm_opt_value(L, 2), *w = gm_opt_value(L, 3), *out[2];
    double     eps = luaL_optnumber(L, 4, 1e-5);
    gm_handle *h = gm_push_handle(L), *sum = residual ? gm_push_handle(L) : NULL;
    L_TRY(L, gm_sharded_rms_norm(r, x, residual, w, eps, &out[0], &out[1]));
    return fill_norm(r, h, sum, out, "rms_norm");
}

/* sharded_cross_entropy(logits (..., c), target (...), { ignore_index, label_smoothing }) -> loss (...) */
static int sharded_cross_entropy(lua_State *L)
{
    gm_attrs  a = gm_attrs_default();
    gm_rank  *r = gm_lua_rank(L);
    gm_value *logits = gm_check_value(L, 1), *target = gm_check_value(L, 2), *loss;
    a.ignore_index = (int64_t)gm_field_number(L, 3, "ignore_index", -100);
    a.label_smoothing = gm_field_number(L, 3, "label_smoothing", 0);
    gm_handle *h = gm_push_handle(L);
    L_TRY(L, gm_sharded_cross_entropy(r, logits, target, &a, &loss));
    gm_handle_fill(r, h, loss, "cross_entropy");
    return 1;
}

/* sharded_embedding(w (rows, width), index (...), padding index or nil) -> (..., width), partial over the axes that cut
 * the rows of w */
static int sharded_embedding(lua_State *L)
{
    gm_rank   *r = gm_lua_rank(L);
    gm_value  *w = gm_check_value(L, 1), *index = gm_check_value(L, 2), *y;
    int64_t    padding = lua_isnoneornil(L, 3) ? -1 : gm_check_integer(L, 3);
    gm_handle *h = gm_push_handle(L);
    L_TRY(L, gm_sharded_embedding(r, w, index, padding, &y));
    gm_handle_fill(r, h, y, "embedding");
    return 1;
}

/* sharded_argmax(x (..., n)) -> i64 (...), places from 0 */
static int sharded_argmax(lua_State *L)
{
    gm_rank   *r = gm_lua_rank(L);
    gm_value  *x = gm_check_value(L, 1), *index;
    gm_handle *h = gm_push_handle(L);
    L_TRY(L, gm_sharded_argmax(r, x, &index));
    gm_handle_fill(r, h, index, "argmax");
    return 1;
}

int gm_open_sharded(lua_State *L)
{
    static const luaL_Reg functions[] = {{"sharded_linear", sharded_linear},
                                         {"sharded_layer_norm", sharded_layer_norm},
                                         {"sharded_rms_norm", sharded_rms_norm},
                                         {"sharded_cross_entropy", sharded_cross_entropy},
                                         {"sharded_embedding", sharded_embedding},
                                         {"sharded_argmax", sharded_argmax},
                                         {NULL, NULL}};
    luaL_register(L, NULL, functions);
    return 0;
}
