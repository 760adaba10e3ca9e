/* lua_tensor.c - making tensors, reading and writing their elements. Ops are in lua_ops.c; methods are
 * put together in lua/ganymede/tensor.lua. Element indices count from 1. */
#include "gm_lua.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../kernels/philox.h"

/* Elements live in host memory that may be read; meta tensors have none. */
static void *need_data(lua_State *L, const gm_tensor *t)
{
    void *p = gm_tensor_data(t);
    if (!p && gm_tensor_numel(t))
        luaL_error(L, "this tensor has no values: the device is meta, which knows shapes only");
    return p;
}

/* empty(shape, dtype) */
static int empty(lua_State *L)
{
    gm_rank   *r = gm_lua_rank(L);
    int64_t    shape[GM_MAX_DIMS];
    int        ndim = gm_check_shape(L, 1, shape);
    gm_dtype   dtype = gm_opt_dtype(L, 2, r->default_dtype);
    gm_handle *h = gm_push_handle(L);
    gm_value  *v;
    L_TRY(L, gm_value_new(r, "empty", dtype, ndim, shape, &v));
    gm_handle_fill(r, h, v, "empty");
    return 1;
}

/* Shape of a nested list of numbers: the lengths along its first elements. */
static int list_shape(lua_State *L, int arg, int64_t *shape)
{
    int ndim = 0;
    lua_pushvalue(L, arg);
    while (lua_istable(L, -1)) {
        if (ndim == GM_MAX_DIMS) luaL_error(L, "tensor: lists nested deeper than %d", GM_MAX_DIMS);
        shape[ndim++] = (int64_t)lua_objlen(L, -1);
        lua_rawgeti(L, -1, 1);
        lua_remove(L, -2);
    }
    lua_pop(L, 1);
    return ndim;
}

static void store_number(lua_State *L, gm_tensor *t, int64_t i)
{
    if (lua_isboolean(L, -1)) gm_store(t->dtype, gm_tensor_data(t), i, lua_toboolean(L, -1));
    else if (lua_type(L, -1) == LUA_TNUMBER) gm_store(t->dtype, gm_tensor_data(t), i, lua_tonumber(L, -1));
    else luaL_error(L, "tensor: element %d is a %s, not a number", (int)i + 1, luaL_typename(L, -1));
}

/* Stores the list on the top of the stack as dimensions d.. of t, from element `at` on. */
static int64_t store_list(lua_State *L, gm_tensor *t, int d, int64_t at)
{
    if (d == t->ndim) {
        store_number(L, t, at);
        return at + 1;
    }
    if (!lua_istable(L, -1) || (int64_t)lua_objlen(L, -1) != t->shape[d])
        luaL_error(L, "tensor: the lists at depth %d differ in length", d + 1);
    luaL_checkstack(L, 2, "nested lists");
    for (int64_t i = 1; i <= t->shape[d]; i++) {
        lua_rawgeti(L, -1, (int)i);
        at = store_list(L, t, d + 1, at);
        lua_pop(L, 1);
    }
    return at;
}

/* from(nested list or number, dtype, shape or nil): with a shape the list is flat, row by row. */
static int from(lua_State *L)
{
    gm_rank *r = gm_lua_rank(L);
    int64_t  shape[GM_MAX_DIMS], n = 1;
    bool     flat = !lua_isnoneornil(L, 3);
    luaL_argcheck(L, lua_istable(L, 1) || lua_isnumber(L, 1), 1, "a number or a (nested) list of numbers was expected");
    gm_dtype   dtype = gm_opt_dtype(L, 2, r->default_dtype);
    int        ndim = flat ? gm_check_shape(L, 3, shape) : list_shape(L, 1, shape);
    gm_handle *h = gm_push_handle(L);
    gm_value  *v;
    L_TRY(L, gm_value_new(r, "tensor", dtype, ndim, shape, &v));
    gm_handle_fill(r, h, v, "tensor");
    need_data(L, v->local);
    lua_pushvalue(L, 1);
    if (!flat) store_list(L, v->local, 0, 0);
    for (int d = 0; d < ndim; d++) n *= shape[d];
    if (flat && (int64_t)lua_objlen(L, -1) != n)
        return luaL_error(L, "tensor: %d numbers for a shape of %d elements", (int)lua_objlen(L, -1), (int)n);
    for (int64_t i = 0; flat && i < n; i++) {
        lua_rawgeti(L, -1, (int)i + 1);
        store_number(L, v->local, i);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return 1;
}

/* fill(t, value): in place. */
static int fill(lua_State *L)
{
    gm_value *v = gm_check_value(L, 1);
    gm_attrs  a = gm_attrs_default();
    a.value = luaL_checknumber(L, 2);
    gm_call c = {.op = GM_OP_fill, .n_out = 1, .out = &v->local, .attrs = &a};
    L_TRY(L, gm_run(v->rank->device, &c));
    gm_value_touched(v);
    lua_settop(L, 1);
    return 1;
}

/* copy(dst, src): in place, any dtypes, same shape; no gradient passes. */
static int copy(lua_State *L)
{
    gm_value *dst = gm_check_value(L, 1), *src = gm_check_value(L, 2);
    gm_attrs  a = gm_attrs_default();
    a.dtype = dst->local->dtype;
    gm_call c = {.op = GM_OP_copy, .n_in = 1, .n_out = 1, .in = &src->local, .out = &dst->local, .attrs = &a};
    L_TRY(L, gm_run(dst->rank->device, &c));
    gm_value_touched(dst);
    lua_settop(L, 1);
    return 1;
}

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

static gm_status run_random(gm_value *v, gm_op op, const gm_attrs *a)
{
    gm_call c = {.op = op, .n_out = 1, .out = &v->local, .attrs = a};
    return gm_run(v->rank->device, &c);
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
    L_TRY(L, run_random(v, op, &a));
    return 1;
}

static gm_status initialise(gm_value *v, const char *name, const char *kind, gm_attrs a)
{
    gm_rank *r = v->rank;
    a.stream = (gm_stream){gm_stream_key(r->seed, GM_PURPOSE_INIT, gm_hash_text(GM_HASH_START, name)), 0};
    if (!strcmp(kind, "constant")) return run_random(v, GM_OP_fill, &a);
    if (!strcmp(kind, "uniform")) return run_random(v, GM_OP_uniform, &a);
    if (!strcmp(kind, "normal")) return run_random(v, GM_OP_normal, &a);
    return GM_FAIL(GM_EINVAL, "parameter %s: there is no initializer kind '%s'; constant, uniform and normal exist",
                   name, kind);
}

/* parameter(name, shape, dtype, initializer { kind, ... }): a leaf that requires a gradient. Its
 * numbers depend on (seed, name) only. */
static int parameter(lua_State *L)
{
    gm_rank    *r = gm_lua_rank(L);
    int64_t     shape[GM_MAX_DIMS];
    const char *name = luaL_checkstring(L, 1);
    int         ndim = gm_check_shape(L, 2, shape);
    gm_dtype    dtype = gm_check_dtype(L, 3);
    luaL_checktype(L, 4, LUA_TTABLE);
    gm_attrs a = random_attrs(L, 4);
    a.value = gm_field_number(L, 4, "value", 0);
    lua_getfield(L, 4, "kind");
    const char *kind = luaL_checkstring(L, -1);
    gm_handle  *h = gm_push_handle(L);
    gm_value   *v;
    L_TRY(L, gm_value_new(r, "parameter", dtype, ndim, shape, &v));
    gm_handle_fill(r, h, v, "parameter");
    L_TRY(L, initialise(v, name, kind, a));
    L_TRY(L, gm_value_require_grad(v, true));
    return 1;
}

static int shape(lua_State *L)
{
    gm_value *v = gm_check_value(L, 1);
    lua_createtable(L, v->ndim, 0);
    for (int d = 0; d < v->ndim; d++) {
        lua_pushnumber(L, (lua_Number)v->shape[d]);
        lua_rawseti(L, -2, d + 1);
    }
    return 1;
}

static int size(lua_State *L)
{
    gm_value *v = gm_check_value(L, 1);
    lua_pushnumber(L, (lua_Number)v->shape[gm_check_dim_arg(L, 2, v->ndim)]);
    return 1;
}

static int dim(lua_State *L)
{
    lua_pushinteger(L, gm_check_value(L, 1)->ndim);
    return 1;
}

static int numel(lua_State *L)
{
    gm_value *v = gm_check_value(L, 1);
    int64_t   n = 1;
    for (int d = 0; d < v->ndim; d++) n *= v->shape[d];
    lua_pushnumber(L, (lua_Number)n);
    return 1;
}

static int dtype(lua_State *L)
{
    lua_pushstring(L, gm_dtype_name(gm_check_value(L, 1)->local->dtype));
    return 1;
}

static int is_contiguous(lua_State *L)
{
    lua_pushboolean(L, gm_tensor_is_contiguous(gm_check_value(L, 1)->local));
    return 1;
}

/* Position in elements of the index at arg.. (from the tensor's first element). */
static int64_t element_at(lua_State *L, const gm_tensor *t, int arg, int n)
{
    int64_t at = 0;
    if (n != t->ndim) luaL_error(L, "%d indices for a tensor with %d dimensions", n, t->ndim);
    for (int d = 0; d < n; d++) {
        int64_t i = gm_check_integer(L, arg + d);
        if (i < 1 || i > t->shape[d])
            luaL_argerror(L, arg + d, lua_pushfstring(L, "index %d is outside 1..%d", (int)i, (int)t->shape[d]));
        at += (i - 1) * t->stride[d];
    }
    return at;
}

static int get(lua_State *L)
{
    gm_tensor *t = gm_check_value(L, 1)->local;
    int64_t    at = element_at(L, t, 2, lua_gettop(L) - 1);
    lua_pushnumber(L, gm_load(t->dtype, need_data(L, t), at));
    return 1;
}

static int set(lua_State *L)
{
    gm_value  *v = gm_check_value(L, 1);
    int        n = lua_gettop(L);
    int64_t    at = element_at(L, v->local, 2, n - 2);
    lua_Number x = luaL_checknumber(L, n);
    gm_store(v->local->dtype, need_data(L, v->local), at, x);
    gm_value_touched(v);
    return 0;
}

static int item(lua_State *L)
{
    gm_tensor *t = gm_check_value(L, 1)->local;
    if (gm_tensor_numel(t) != 1)
        return luaL_error(L, "item: the tensor has %d elements, not one", (int)gm_tensor_numel(t));
    lua_pushnumber(L, gm_load(t->dtype, need_data(L, t), 0));
    return 1;
}

static void push_list(lua_State *L, const gm_tensor *t, int d, int64_t at)
{
    if (d == t->ndim) {
        lua_pushnumber(L, gm_load(t->dtype, gm_tensor_data(t), at));
        return;
    }
    luaL_checkstack(L, 3, "nested lists");
    lua_createtable(L, (int)t->shape[d], 0);
    for (int64_t i = 0; i < t->shape[d]; i++) {
        push_list(L, t, d + 1, at + i * t->stride[d]);
        lua_rawseti(L, -2, (int)i + 1);
    }
}

static int totable(lua_State *L)
{
    gm_tensor *t = gm_check_value(L, 1)->local;
    need_data(L, t);
    push_list(L, t, 0, 0);
    return 1;
}

/* data(t) -> light userdata, dtype name: for the FFI view; contiguous tensors only. */
static int data(lua_State *L)
{
    gm_tensor *t = gm_check_value(L, 1)->local;
    if (!gm_tensor_is_contiguous(t))
        return luaL_error(L, "data: the tensor is not contiguous; call :contiguous() first");
    lua_pushlightuserdata(L, need_data(L, t));
    lua_pushstring(L, gm_dtype_name(t->dtype));
    return 2;
}

static int default_dtype(lua_State *L)
{
    lua_pushstring(L, gm_dtype_name(gm_lua_rank(L)->default_dtype));
    return 1;
}

static int set_default_dtype(lua_State *L)
{
    gm_dtype t = gm_check_dtype(L, 1);
    luaL_argcheck(L, gm_dtype_computes(t), 1, "the default dtype is f32 or f64");
    gm_lua_rank(L)->default_dtype = t;
    return 0;
}

int gm_open_tensor(lua_State *L)
{
    static const luaL_Reg functions[] = {{"empty", empty},
                                         {"from", from},
                                         {"fill", fill},
                                         {"copy", copy},
                                         {"random", random_tensor},
                                         {"parameter", parameter},
                                         {"shape", shape},
                                         {"size", size},
                                         {"dim", dim},
                                         {"numel", numel},
                                         {"dtype", dtype},
                                         {"is_contiguous", is_contiguous},
                                         {"get", get},
                                         {"set", set},
                                         {"item", item},
                                         {"totable", totable},
                                         {"data", data},
                                         {"default_dtype", default_dtype},
                                         {"set_default_dtype", set_default_dtype},
                                         {NULL, NULL}};
    luaL_register(L, NULL, functions);
    return 0;
}
