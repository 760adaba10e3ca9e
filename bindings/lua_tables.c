/* lua_tables.c - bags of rows of tables, gradients of tables as the rows that were touched, and cumsum. */
#include "lua_ops.h"

#include "../host/autograd/sparse.h"
#include "../host/gradients/sparse_sum.h"
#include "docs/docs.h"
#include "docs/tables.def"

/* embedding_bag(w (rows, width), index (b, t, n), bounds (t + 1), weights (b, t, n) or nil) -> (b, t, width); partial
 * over axes that cut the rows */
static int embedding_bag(lua_State *L)
{
    gm_value *in[4] = {gm_check_value(L, 1), gm_check_value(L, 2), gm_check_value(L, 3), gm_opt_value(L, 4)};
    gm_attrs  a = gm_attrs_default();
    return gm_apply_one(L, GM_OP_embedding_bag, 4, in, &a);
}

/* cumsum(x, dim, reverse) */
static int cumsum(lua_State *L)
{
    gm_value *x = gm_check_value(L, 1);
    gm_attrs  a = gm_attrs_default();
    a.dim = lua_isnoneornil(L, 2) ? 0 : gm_check_dim_arg(L, 2, x->ndim);
    a.inverse = lua_toboolean(L, 3);
    return gm_apply_one(L, GM_OP_cumsum, 1, &x, &a);
}

/* sparse_gradient(table [, on]) -> boolean, or the table when it was told */
static int sparse_gradient(lua_State *L)
{
    gm_value *v = gm_check_value(L, 1);
    if (lua_isnoneornil(L, 2)) {
        lua_pushboolean(L, v->param && v->param->sparse);
        return 1;
    }
    L_TRY(L, gm_value_set_sparse(v, lua_toboolean(L, 2)));
    lua_settop(L, 1);
    return 1;
}

/* Pushes a tensor of the gradient. */
static void push_part(lua_State *L, gm_value *v, gm_tensor *t)
{
    gm_value  *made;
    gm_handle *h = gm_push_handle(L);
    gm_tensor_retain(t);
    gm_status st = gm_value_take(v->rank, t, &made);
    if (st != GM_OK) gm_raise(L, st);
    gm_handle_fill(v->rank, h, made, "sparse_rows");
}

/* sparse_rows(table) -> the rows that were touched, i64 (n), then -1, and their gradients (n, width); nil: none. They
 * share memory with the gradient of this rank. No communication. */
static int sparse_rows(lua_State *L)
{
    gm_value  *v = gm_check_value(L, 1);
    gm_tensor *row, *sum;
    if (!gm_value_sparse_grad(v, &row, &sum)) return 0;
    push_part(L, v, row);
    push_part(L, v, sum);
    return 2;
}

/* sparse_sum(tables): their sparse gradients are sums over the ranks that share a batch now */
static int sparse_sum(lua_State *L)
{
    int        n;
    gm_value **tables = gm_push_values(L, 1, &n);
    gm_status  st = gm_sparse_sum(gm_lua_rank(L), tables, n); /* no second try: other ranks have had their part */
    return st == GM_OK ? 0 : gm_raise(L, st);
}

int gm_open_tables(lua_State *L)
{
    static const gm_declaration ops[] = {
        GM_PUBLIC(embedding_bag, embedding_bag, "w tensor, index tensor, bounds tensor, weights tensor?"),
        GM_PUBLIC(cumsum, cumsum, "x tensor, dim integer?, reverse boolean?"),
        GM_LAST_FUNCTION,
    };
    static const gm_declaration functions[] = {
        GM_FUNCTION("sparse_gradient", sparse_gradient, "table tensor, on boolean?"),
        GM_FUNCTION("sparse_rows", sparse_rows, "table tensor"),
        GM_FUNCTION("sparse_sum", sparse_sum, "tables table"),
        GM_LAST_FUNCTION,
    };
    lua_getfield(L, -1, "ops");
    gm_declare(L, ops);
    lua_pop(L, 1);
    gm_declare(L, functions);
    return 0;
}
