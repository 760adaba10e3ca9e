/* lua_parameter.c - tensors whose numbers are drawn: random ones, and the parameters of modules.
 *
 * A number is a function of the stream and of its element's place in the whole tensor, so that blocks of a parameter
 * have the bits of the whole one. */
#include "gm_lua.h"

#include <string.h>
#include "../host/autograd/layout_rules/rules.h"
#include "../host/gradients/parts.h"
#include "../host/gradients/stored.h"
#include "../host/parallel/redistribute.h"
#include "../kernels/philox.h"

/* Options of the random makers: { low, high } or { mean, std, truncated }. */
static gm_attrs random_attrs(lua_State *L, int arg)
{
    gm_attrs a = gm_attrs_default();
    a.low = gm_field_number(L, arg, "low", 0);
    a.high = gm_field_number(L, arg, "high", 1);
    a.mean = gm_field_number(L, arg, "mean", 0);
    a.std = gm_field_number(L, arg, "std", 1);
    a.truncated = gm_field_flag(L, arg, "truncated");
    return a;
}

/* random("uniform"|"normal", shape, dtype, options, seed or nil) */
static int random_tensor(lua_State *L)
{
    gm_rank   *r = gm_lua_rank(L);
    gm_op      op = !strcmp(luaL_checkstring(L, 1), "normal") ? GM_OP_normal : GM_OP_uniform;
    int64_t    shape[GM_MAX_DIMS];
    int        ndim = gm_check_shape(L, 2, shape);
    gm_dtype   dtype = gm_opt_dtype(L, 3, r->default_dtype);
    gm_attrs   a = random_attrs(L, 4);
    gm_handle *h = gm_push_handle(L);
    gm_value  *v;
    L_TRY(L, gm_value_new(r, gm_op_name(op), dtype, ndim, shape, &v));
    gm_handle_fill(r, h, v, gm_op_name(op));
    if (lua_isnumber(L, 5))
        a.stream = (gm_stream){gm_stream_key((uint64_t)gm_check_integer(L, 5), GM_PURPOSE_USER, 0), 0};
    else L_TRY(L, gm_rank_next_stream(r, GM_PURPOSE_USER, &a.stream));
    L_TRY(L, gm_draw_block(v, op, &a));
    return 1;
}

static gm_status initialise(gm_value *v, const char *name, const char *kind, gm_attrs a)
{
    gm_rank *r = v->rank;
    a.stream = (gm_stream){gm_stream_key(r->seed, GM_PURPOSE_INIT, gm_hash_text(GM_HASH_START, name)), 0};
    if (!strcmp(kind, "constant")) return gm_draw_block(v, GM_OP_fill, &a);
    if (!strcmp(kind, "uniform")) return gm_draw_block(v, GM_OP_uniform, &a);
    if (!strcmp(kind, "normal")) return gm_draw_block(v, GM_OP_normal, &a);
    return GM_FAIL(GM_EINVAL, "parameter %s: there is no initializer kind '%s'; constant, uniform and normal exist",
                   name, kind);
}

/* parameter(name, shape, dtype, initializer { kind, ... }, layout or nil): a leaf that requires a gradient. Its
 * numbers depend on (seed, name) only: a block has those of the whole tensor. */
static int parameter(lua_State *L)
{
    gm_rank    *r = gm_lua_rank(L);
    int64_t     shape[GM_MAX_DIMS];
    const char *name = luaL_checkstring(L, 1);
    int         ndim = gm_check_shape(L, 2, shape);
    gm_dtype    dtype = gm_check_dtype(L, 3);
    luaL_checktype(L, 4, LUA_TTABLE);
    gm_attrs  a = random_attrs(L, 4);
    gm_layout layout = gm_layout_replicated();
    a.value = gm_field_number(L, 4, "value", 0);
    if (!lua_isnoneornil(L, 5)) gm_check_layout(L, 5, &r->mesh, &layout);
    lua_getfield(L, 4, "kind");
    const char *kind = luaL_checkstring(L, -1);
    gm_handle  *h = gm_push_handle(L);
    gm_value   *v;
    L_TRY(L, gm_layout_check(&r->mesh, &layout, ndim));
    L_TRY(L, gm_value_new_block(r, "parameter", dtype, &layout, ndim, shape, &v));
    gm_handle_fill(r, h, v, "parameter");
    L_TRY(L, initialise(v, name, kind, a));
    L_TRY(L, gm_value_require_grad(v, true));
    return 1;
}

/* zero_row(t, row): element `row` of dimension 1 becomes zero, in any layout; every rank calls it */
static int zero_row(lua_State *L)
{
    gm_value  *v = gm_check_value(L, 1);
    int64_t    row = gm_check_integer(L, 2) - 1, local[GM_MAX_DIMS], logical[GM_MAX_DIMS];
    gm_box     box;
    char       have[256];
    gm_tensor *t = NULL;
    if (v->layout.partial)
        return luaL_error(L, "zero_row: %s is a sum over ranks that has not been made; redistribute it first",
                          gm_value_describe(v, have, sizeof have));
    gm_check_argument(L, v->ndim && row >= 0 && row < v->shape[0], 2, "there is no such row");
    gm_layout_block(&v->rank->mesh, &v->layout, v->rank->coordinate, v->ndim, v->shape, &box, local, logical);
    row -= box.offset[0];
    lua_settop(L, 1);
    if (row < 0 || row >= logical[0]) return 1;
    L_TRY(L, gm_tensor_narrow(v->local, 0, row, 1, &t));
    gm_status st = gm_run_one(v->rank->device, GM_OP_fill, NULL, NULL, t);
    gm_tensor_release(t);
    if (st != GM_OK) return gm_raise(L, st);
    gm_value_touched(v);
    return 1;
}

/* ---- parameters that rest in parts (host/gradients/stored.h) ---- */

/* parameter_store(t, owners: list of axes, least elements): the parameter rests in parts (host/gradients/stored.h) */
static int parameter_store(lua_State *L)
{
    gm_value *v = gm_check_value(L, 1);
    int64_t   least = gm_check_integer(L, 3);
    lua_pushvalue(L, 2);
    L_TRY(L, gm_parameter_store(v, gm_pop_axis_set(L), least));
    return 0;
}

/* stored_limits(keep, ahead): bytes of gathered blocks that stay, and that come ahead; -1: the default */
static int stored_limits(lua_State *L)
{
    L_TRY(L, gm_stored_limits(gm_lua_rank(L), gm_check_integer(L, 1), gm_check_integer(L, 2)));
    return 0;
}

/* resting_part(t) -> what this rank holds of t while nobody uses it: its block, or its part of a parameter that rests
 * in parts; sharing memory. No communication. */
static int resting_part(lua_State *L)
{
    gm_value  *v = gm_check_value(L, 1), *part;
    gm_layout  layout;
    gm_tensor *t;
    L_TRY(L, gm_value_resting(v, &layout, &t));
    gm_handle *h = gm_push_handle(L);
    gm_tensor_retain(t);
    L_TRY(L, gm_value_take(v->rank, t, &part));
    gm_handle_fill(v->rank, h, part, "resting_part");
    return 1;
}

/* resting_axes(t) -> the names of the axes over which what resting_part gives is cut */
static int resting_axes(lua_State *L)
{
    gm_value  *v = gm_check_value(L, 1);
    gm_layout  layout;
    gm_tensor *t;
    int        n = 0;
    L_TRY(L, gm_value_resting(v, &layout, &t));
    const uint32_t set = gm_layout_cut_axes(&layout);
    lua_newtable(L);
    for (int a = 0; a < v->rank->mesh.n_axes; a++) {
        if (!(set & 1u << a)) continue;
        lua_pushstring(L, v->rank->mesh.axis[a].name);
        lua_rawseti(L, -2, ++n);
    }
    return 1;
}

/* owned_part(t) -> the numbers of t whose optimizer states belong to this rank: its block, or what ZeRO gives it of
 * that; maybe sharing memory. No communication, no gradient. */
static int owned_part(lua_State *L)
{
    gm_value  *v = gm_check_value(L, 1), *held, *part;
    gm_rank   *r = v->rank;
    gm_layout  layout;
    gm_tensor *t;
    L_TRY(L, gm_value_resting(v, &layout, &t));
    gm_handle *of_held = gm_push_handle(L), *h = gm_push_handle(L);
    gm_tensor_retain(t);
    L_TRY(L, gm_value_take_block(r, t, &layout, v->ndim, v->shape, &held));
    gm_handle_fill(r, of_held, held, "owned_part");
    r->no_grad++;
    gm_status st = gm_redistribute(r, held, gm_owned_layout(v), &part);
    r->no_grad--;
    L_TRY(L, st);
    gm_handle_fill(r, h, part, "owned_part");
    return 1;
}

/* parameter_hold(t, on): a block that is held stays where it is; collective over the ranks that have its parts */
static int parameter_hold(lua_State *L)
{
    gm_value   *v = gm_check_value(L, 1);
    gm_storage *s = v->local->storage;
    if (lua_toboolean(L, 2)) {
        L_TRY(L, gm_storage_open(s));
        return 0;
    }
    gm_value_touched(v); /* it may have been written by its address */
    gm_storage_close(s, true);
    return 0;
}

int gm_open_parameter(lua_State *L)
{
    static const gm_declaration functions[] = {
        GM_FUNCTION("random", random_tensor, "kind string, shape table, dtype string?, about table?, seed integer?"),
        GM_FUNCTION("parameter", parameter, "name string, shape table, dtype string, initializer table, layout table?"),
        GM_FUNCTION("parameter_store", parameter_store, "t tensor, owners table, least integer"),
        GM_FUNCTION("parameter_hold", parameter_hold, "t tensor, on boolean"),
        GM_FUNCTION("stored_limits", stored_limits, "keep integer, ahead integer"),
        GM_FUNCTION("resting_part", resting_part, "t tensor"),
        GM_FUNCTION("resting_axes", resting_axes, "t tensor"),
        GM_FUNCTION("owned_part", owned_part, "t tensor"),
        GM_FUNCTION("zero_row", zero_row, "t tensor, row integer"),
        GM_LAST_FUNCTION};
    gm_declare(L, functions);
    return 0;
}
