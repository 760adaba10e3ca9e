/* lua_pages.c - the Lua face of the ops on keys and values in pages (kernels/ops.def), for ganymede.nn.pages. */
#include "gm_lua.h"

#include "lua_ops.h"

/* The blocks of x and of the pool must have the same heads: both cut there alone, in the same way. */
static void check_heads(lua_State *L, const gm_value *pool, const gm_value *x)
{
    char a[256], b[256];
    bool same = pool->ndim == 4 && x->ndim == 4 && pool->shape[1] == x->shape[2] && !x->layout.partial &&
                x->layout.n_cuts[2] == pool->layout.n_cuts[1] &&
                gm_layout_dim_axes(&x->layout, 2) == gm_layout_dim_axes(&pool->layout, 1);
    for (int d = 0; same && d < 4; d++) same = (d == 1 || !pool->layout.n_cuts[d]) && (d == 2 || !x->layout.n_cuts[d]);
    if (!same)
        luaL_error(L, "pages_write: %s into the pool %s; only heads may be cut, and in both in the same way",
                   gm_value_describe(x, a, sizeof a), gm_value_describe(pool, b, sizeof b));
}

static gm_value *check_whole(lua_State *L, int arg)
{
    gm_value *v = gm_check_value(L, arg);
    for (int d = 0; d < v->ndim; d++)
        if (v->layout.n_cuts[d]) luaL_error(L, "pages: the pages and counts of rows must be whole on every rank");
    return v;
}

/* pages_write(pool (pages, heads, page, d), x (b, s, heads, d), index (b, n), count (b)) -> pool, which has x at the
 * last s of the `count` positions of each row */
static int pages_write(lua_State *L)
{
    gm_value *pool = gm_check_value(L, 1), *x = gm_check_value(L, 2);
    gm_value *index = check_whole(L, 3), *count = check_whole(L, 4);
    gm_attrs  a = gm_attrs_default();
    check_heads(L, pool, x);
    gm_check_written(L, pool, "pages_write");
    gm_tensor *in[3] = {x->local, index->local, count->local}, *out[1] = {pool->local};
    gm_call    call = {GM_OP_pages_write, 3, 1, in, out, &a};
    L_TRY(L, gm_run(pool->rank->device, &call));
    gm_value_touched(pool);
    lua_settop(L, 1);
    return 1;
}

/* attention_paged(q (b, s, h, d), k, v (pages, heads, page, d), index (b, n), count (b), scale|nil, window|nil,
 * softcap|nil) -> (b, s, h, d) */
static int attention_paged(lua_State *L)
{
    gm_attrs  a = gm_attrs_default();
    gm_value *in[5];
    for (int i = 0; i < 5; i++) in[i] = gm_check_value(L, i + 1);
    a.scale = luaL_optnumber(L, 6, 0);
    a.window = luaL_optinteger(L, 7, 0);
    a.softcap = luaL_optnumber(L, 8, 0);
    return gm_apply_one(L, GM_OP_attention_paged, 5, in, &a);
}

int gm_open_pages(lua_State *L)
{
    static const gm_declaration functions[] = {
        GM_FUNCTION("pages_write", pages_write, "pool tensor, x tensor, index tensor, count tensor"),
        GM_FUNCTION("attention_paged", attention_paged,
                    "q tensor, k tensor, v tensor, index tensor, count tensor, scale number?, window integer?, softcap "
                    "number?"),
        GM_LAST_FUNCTION};
    gm_declare(L, functions);
    return 0;
}
