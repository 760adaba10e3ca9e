/* lua_in_place.c - writing a whole tensor in place: fill_ and copy_. Single elements are written by lua_tensor.c.
 *
 * Each rank writes what its block has of the tensor; padding stays zero. No gradient passes through a write: where the
 * tape would have to know of it, it is refused (gm_value_write). */
#include "gm_lua.h"

#include <string.h>
#include "../host/parallel/redistribute.h"
#include "docs/docs.h"
#include "docs/in_place.def"

void gm_check_written(lua_State *L, const gm_value *v, const char *op)
{
    char have[256];
    if (v->layout.partial)
        luaL_error(L, "%s: %s is a sum over ranks that has not been made; redistribute it first", op,
                   gm_value_describe(v, have, sizeof have));
    gm_status st = gm_value_write(v, op);
    if (st != GM_OK) gm_raise(L, st);
}

static void check_source(lua_State *L, const gm_value *src)
{
    if (src->requires_grad && !src->rank->no_grad)
        luaL_error(
            L, "copy_: the tensor that is copied requires a gradient, and writes in place are not recorded; copy its "
               "detach(), or copy under gm.no_grad");
}

/* The part of v's block that is inside the tensor, as a view. */
static gm_status inside(const gm_value *v, gm_tensor **out)
{
    int64_t logical[GM_MAX_DIMS];
    gm_value_logical(v, logical);
    return gm_tensor_view(v->local, v->ndim, logical, v->local->stride, v->local->offset, out);
}

/* inside(t) -> sizes of what this rank's block has of the tensor, without padding */
static int sizes_inside(lua_State *L)
{
    gm_value *v = gm_check_value(L, 1);
    int64_t   logical[GM_MAX_DIMS];
    gm_value_logical(v, logical);
    lua_createtable(L, v->ndim, 0);
    for (int d = 0; d < v->ndim; d++) {
        lua_pushnumber(L, (lua_Number)logical[d]);
        lua_rawseti(L, -2, d + 1);
    }
    return 1;
}

/* fill(t, value): in place; padding stays zero. */
static int fill(lua_State *L)
{
    gm_value  *v = gm_check_value(L, 1);
    gm_tensor *t = NULL;
    gm_attrs   a = gm_attrs_default();
    gm_check_written(L, v, "fill_");
    a.value = luaL_checknumber(L, 2);
    L_TRY(L, inside(v, &t));
    gm_status st = gm_run_one(v->rank->device, GM_OP_fill, &a, NULL, t);
    gm_tensor_release(t);
    if (st != GM_OK) return gm_raise(L, st);
    gm_value_touched(v);
    lua_settop(L, 1);
    return 1;
}

static gm_status copy_blocks(const gm_value *dst, const gm_value *src)
{
    gm_tensor *to = NULL, *from = NULL;
    gm_attrs   a = gm_attrs_default();
    gm_status  st;
    a.dtype = dst->local->dtype;
    GM_TRY(inside(dst, &to));
    GM_TRY_OR(inside(src, &from), st, done);
    st = gm_run_one(dst->rank->device, GM_OP_copy, &a, from, to);
done:
    gm_tensor_release(from);
    gm_tensor_release(to);
    return st;
}

/* Laid out otherwise: src comes to dst's layout first, which may be collective. */
static gm_status copy_across(const gm_value *dst, gm_value *src)
{
    gm_value *like = NULL;
    dst->rank->no_grad++;
    gm_status st = gm_redistribute(dst->rank, src, &dst->layout, &like);
    dst->rank->no_grad--;
    if (st == GM_OK) st = copy_blocks(dst, like);
    gm_value_release(like);
    return st;
}

static gm_status copy_value(const gm_value *dst, gm_value *src)
{
    char a[256], b[256];
    if (gm_layout_equal(&dst->layout, &src->layout)) return copy_blocks(dst, src);
    if (dst->ndim != src->ndim || memcmp(dst->shape, src->shape, (size_t)dst->ndim * sizeof *dst->shape))
        return GM_FAIL(GM_ESHAPE, "copy_: %s into %s", gm_value_describe(src, a, sizeof a),
                       gm_value_describe(dst, b, sizeof b));
    return copy_across(dst, src);
}

/* copy(dst, src): in place, any dtypes, same shape; no gradient passes. Collective if the layouts differ. */
static int copy(lua_State *L)
{
    gm_value *dst = gm_check_value(L, 1), *src = gm_check_value(L, 2);
    gm_check_written(L, dst, "copy_");
    check_source(L, src);
    L_TRY(L, copy_value(dst, src));
    gm_value_touched(dst);
    lua_settop(L, 1);
    return 1;
}

int gm_open_in_place(lua_State *L)
{
    static const gm_declaration functions[] = {GM_PUBLIC(fill_, fill, "t tensor, value number"),
                                               GM_PUBLIC(copy_, copy, "t tensor, from tensor"),
                                               GM_FUNCTION("inside", sizes_inside, "t tensor"), GM_LAST_FUNCTION};
    gm_declare(L, functions);
    return 0;
}
