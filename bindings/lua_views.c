/* lua_views.c - the ops of core.ops that copy, view or join tensors: cast, clone, reshape, permute, narrow, cat, ...
 * Dimensions and places count from 1, or from -1 at the end. */
#include "lua_ops.h"

#include "../host/autograd/apply.h"
#include "docs/docs.h"
#include "docs/views.def"

/* cast(x, dtype): x itself when it has that dtype; contiguous(x): x itself when it is. */
static int cast(lua_State *L)
{
    gm_attrs  a = gm_attrs_default();
    gm_value *x = gm_check_value(L, 1);
    a.dtype = gm_check_dtype(L, 2);
    lua_settop(L, 1);
    return a.dtype == x->local->dtype ? 1 : gm_apply_one(L, GM_OP_copy, 1, &x, &a);
}

static int contiguous(lua_State *L)
{
    gm_attrs  a = gm_attrs_default();
    gm_value *x = gm_check_value(L, 1);
    lua_settop(L, 1);
    return gm_tensor_is_contiguous(x->local) ? 1 : gm_apply_one(L, GM_OP_copy, 1, &x, &a);
}

static int clone(lua_State *L)
{
    gm_attrs  a = gm_attrs_default();
    gm_value *x = gm_check_value(L, 1);
    return gm_apply_one(L, GM_OP_copy, 1, &x, &a);
}

static int reshape(lua_State *L)
{
    int64_t   shape[GM_MAX_DIMS];
    gm_value *x = gm_check_value(L, 1);
    int       n = gm_check_sizes(L, 2, shape);
    PUSH(L, "reshape", gm_reshape(gm_lua_rank(L), x, n, shape, &y));
}

static int expand(lua_State *L)
{
    int64_t   shape[GM_MAX_DIMS];
    gm_value *x = gm_check_value(L, 1);
    int       n = gm_check_sizes(L, 2, shape);
    PUSH(L, "expand", gm_expand(gm_lua_rank(L), x, n, shape, &y));
}

static int permute(lua_State *L)
{
    int64_t   list[GM_MAX_DIMS];
    int       order[GM_MAX_DIMS];
    gm_value *x = gm_check_value(L, 1);
    int       n = gm_check_sizes(L, 2, list);
    if (n != x->ndim) return luaL_error(L, "permute: %d dimensions named for a tensor with %d", n, x->ndim);
    for (int d = 0; d < n; d++) order[d] = (int)(list[d] < 0 ? list[d] + n : list[d] - 1);
    PUSH(L, "permute", gm_permute(gm_lua_rank(L), x, order, &y));
}

static int narrow(lua_State *L)
{
    gm_value *x = gm_check_value(L, 1);
    int       d = gm_check_dim_arg(L, 2, x->ndim);
    int64_t   start = gm_check_integer(L, 3), length = gm_check_integer(L, 4);
    PUSH(L, "narrow", gm_narrow(gm_lua_rank(L), x, d, start - 1, length, &y));
}

/* select(x, d, i): of a dimension that is cut, a value that is partial over the axes that cut it */
static int select_(lua_State *L)
{
    gm_value *x = gm_check_value(L, 1);
    int       d = gm_check_dim_arg(L, 2, x->ndim);
    int64_t   i = gm_check_integer(L, 3);
    PUSH(L, "select", gm_select(gm_lua_rank(L), x, d, i < 0 ? i + x->shape[d] : i - 1, &y));
}

int gm_push_unbound(lua_State *L, gm_value *x, int d, gm_value **y)
{
    gm_rank   *r = gm_lua_rank(L);
    gm_handle *h[GM_MAX_OUT];
    gm_value  *all[GM_MAX_OUT];
    int        n = x->shape[d] < GM_MAX_OUT ? (int)x->shape[d] : GM_MAX_OUT; /* more: refused */
    for (int i = 0; i < n; i++) h[i] = gm_push_handle(L);
    L_TRY(L, gm_unbind(r, x, d, all));
    for (int i = 0; i < n; i++) gm_handle_fill(r, h[i], y[i] = all[i], "unbind");
    return n;
}

/* unbind(x, d) -> the slices x:select(d, i), one after the other */
static int unbind(lua_State *L)
{
    gm_value *x = gm_check_value(L, 1), *y[GM_MAX_OUT];
    return gm_push_unbound(L, x, gm_check_dim_arg(L, 2, x->ndim), y);
}

static int patchify(lua_State *L)
{
    gm_value *x = gm_check_value(L, 1);
    int64_t   p = gm_check_integer(L, 2);
    PUSH(L, "patchify", gm_patchify(gm_lua_rank(L), x, p, &y));
}

/* cat(list, d) */
static int cat(lua_State *L)
{
    int n = (int)gm_check_list(L, 1, 1);
    if (n < 1) return gm_bad_argument(L, 1, "a list of at least one tensor was expected");
    lua_settop(L, 2);
    gm_value **x = lua_newuserdata(L, (size_t)n * sizeof *x);
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, 1, i + 1);
        if (!gm_test_handle(L, -1)) return gm_bad_argument(L, 1, lua_pushfstring(L, "entry %d is no tensor", i + 1));
        x[i] = gm_check_value(L, lua_gettop(L));
        lua_pop(L, 1);
    }
    int d = gm_check_dim_arg(L, 2, x[0]->ndim);
    PUSH(L, "cat", gm_cat(gm_lua_rank(L), n, x, d, &y));
}

/* pad(x, before, after, value, mode): lists of so many places in each dimension */
static int pad(lua_State *L)
{
    gm_value *x = gm_check_value(L, 1);
    int64_t   before[GM_MAX_DIMS], after[GM_MAX_DIMS];
    int       n = gm_check_shape(L, 2, before), m = gm_check_shape(L, 3, after);
    gm_check_argument(L, n == x->ndim && m == n, 2, "two lists with a number for each dimension were expected");
    static const char *const modes[] = {
        [GM_PAD_VALUE] = "constant", [GM_PAD_REFLECT] = "reflect", [GM_PAD_REPLICATE] = "replicate", NULL};
    double      value = luaL_checknumber(L, 4);
    gm_pad_mode mode = (gm_pad_mode)luaL_checkoption(L, 5, "constant", modes);
    PUSH(L, "pad", gm_pad(gm_lua_rank(L), x, before, after, mode, value, &y));
}

int gm_open_views(lua_State *L)
{
    static const gm_declaration functions[] = {
        GM_PUBLIC(cast, cast, "x tensor, dtype string"),
        GM_PUBLIC(contiguous, contiguous, "x tensor"),
        GM_PUBLIC(clone, clone, "x tensor"),
        GM_PUBLIC(reshape, reshape, "x tensor, shape integer|table?, ..."),
        GM_PUBLIC(expand, expand, "x tensor, shape integer|table?, ..."),
        GM_PUBLIC(permute, permute, "x tensor, order integer|table?, ..."),
        GM_PUBLIC(narrow, narrow, "x tensor, dim integer, start integer, length integer"),
        GM_PUBLIC(select, select_, "x tensor, dim integer, index integer"),
        GM_PUBLIC(unbind, unbind, "x tensor, dim integer"),
        GM_PUBLIC(patchify, patchify, "x tensor, patch integer"),
        GM_PUBLIC(cat, cat, "tensors table, dim integer"),
        GM_LAST_FUNCTION};
    static const gm_declaration to[] = {GM_PUBLIC(to, cast, "x tensor, dtype string"), GM_LAST_FUNCTION};
    static const gm_declaration parts[] = {
        GM_FUNCTION("pad", pad, "x tensor, before table, after table, value number, mode string?"), GM_LAST_FUNCTION};
    lua_getfield(L, -1, "ops");
    gm_declare(L, functions);
    lua_pop(L, 1);
    gm_declare(L, to); /* the method */
    gm_declare(L, parts);
    return 0;
}
