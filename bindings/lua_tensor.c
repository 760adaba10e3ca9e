/* lua_tensor.c - making tensors, reading and writing their elements. Ops are in lua_ops.c; methods are
 * put together in lua/ganymede/tensor/init.lua. Element indices count from 1.
 *
 * Shapes and indices are global. Reading elements of a tensor that is cut or partial is collective: every rank
 * gathers it (or sums it) first. Writing is not: each rank writes what its block has. */
#include "../kernels/graph_host.h"
#include "gm_lua.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../host/checkpoint/files.h"
#include "../host/parallel/redistribute.h"
#include "docs/docs.h"
#include "docs/tensor.def"

/* Bytes that rest elsewhere (gm_home) are here until others are brought. */
static void *brought(lua_State *L, const gm_tensor *t)
{
    gm_status st = gm_storage_open(t->storage);
    if (st != GM_OK) gm_raise(L, st);
    void *p = gm_tensor_data(t);
    gm_storage_close(t->storage, false);
    return p;
}

/* The address of a tensor that has values: on a GPU only gm_device_* may go there, on meta it is what is known. */
static void *need_data(lua_State *L, const gm_tensor *t)
{
    void *p = gm_tensor_data(t);
    if (!p) p = gm_tensor_known(t);
    if (!p && gm_tensor_has_data(t)) p = brought(L, t);
    if (p || !gm_tensor_numel(t)) return p;
    lua_pushfstring(
        L,
        "%sthis tensor has no values here: the device is meta, as in `check`, which has no data. What depends "
        "on data, on random numbers or on other ranks cannot be read, constants up to %d KiB can (gm.tensor, "
        "gm.arange, gm.zeros). Work with ops in place of reading (ops.where, comparisons)",
        gm_push_users_line(L), (int)(GM_KNOWN_BYTES / 1024));
    lua_error(L);
    return NULL;
}

/* The elements where they can be read and written, with the strides of t: its own, or a copy, which Lua owns and
 * which `send` takes back. Pushes one value that keeps them. */
static void *elements(lua_State *L, gm_tensor *t, bool read)
{
    gm_device *dev = t->storage->device;
    void      *known = read ? gm_tensor_known(t) : gm_tensor_know(t);
    void      *data = read ? need_data(L, t) : gm_tensor_data(t);
    if (gm_host_is_free(dev, read ? "to read numbers" : "to write numbers") != GM_OK) gm_raise(L, GM_EINVAL);
    if (dev->backend->on_host || known) {
        lua_pushnil(L);
        return known ? known : data;
    }
    void     *copy = lua_newuserdata(L, gm_host_reach(t) + 1);
    gm_status st = read ? gm_device_read(dev, copy, data, gm_host_reach(t)) : GM_OK;
    if (st != GM_OK) gm_raise(L, st);
    return copy;
}

static void send(lua_State *L, const gm_tensor *t, const void *copy)
{
    gm_status st = GM_OK;
    if (copy != gm_tensor_data(t) && copy != gm_tensor_known(t))
        st = gm_device_write(t->storage->device, gm_tensor_data(t), copy, gm_host_reach(t));
    if (st != GM_OK) gm_raise(L, st);
}

static double load(lua_State *L, const gm_tensor *t, int64_t at)
{
    double v = 0;
    need_data(L, t);
    gm_status st = gm_host_load(t, at, &v);
    if (st != GM_OK) gm_raise(L, st);
    return v;
}

/* empty(shape, dtype [, shared]): shared: in memory that the ranks of this machine share, where they do */
static int empty(lua_State *L)
{
    gm_rank   *r = gm_lua_rank(L);
    int64_t    shape[GM_MAX_DIMS];
    int        ndim = gm_check_shape(L, 1, shape);
    gm_dtype   dtype = gm_opt_dtype(L, 2, r->default_dtype);
    gm_handle *h = gm_push_handle(L);
    gm_value  *v;
    if (lua_toboolean(L, 3)) L_TRY(L, gm_value_new_shared(r, "empty", dtype, ndim, shape, &v));
    else L_TRY(L, gm_value_new(r, "empty", dtype, ndim, shape, &v));
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

static void store_number(lua_State *L, const gm_tensor *t, void *data, int64_t i)
{
    if (lua_isboolean(L, -1)) gm_store(t->dtype, data, i, lua_toboolean(L, -1));
    else if (lua_type(L, -1) == LUA_TNUMBER) gm_store(t->dtype, data, i, lua_tonumber(L, -1));
    else luaL_error(L, "tensor: element %d is a %s, not a number", (int)i + 1, luaL_typename(L, -1));
}

/* Stores the list on the top of the stack as dimensions d.. of t, whose elements are at data, from element `at` on. */
static int64_t store_list(lua_State *L, const gm_tensor *t, void *data, int d, int64_t at)
{
    if (d == t->ndim) {
        store_number(L, t, data, at);
        return at + 1;
    }
    if (!lua_istable(L, -1) || (int64_t)lua_objlen(L, -1) != t->shape[d])
        luaL_error(L, "tensor: the lists at depth %d differ in length", d + 1);
    luaL_checkstack(L, 6, "nested lists");
    gm_check_list(L, lua_gettop(L), 1);
    for (int64_t i = 1; i <= t->shape[d]; i++) {
        lua_rawgeti(L, -1, (int)i);
        at = store_list(L, t, data, d + 1, at);
        lua_pop(L, 1);
    }
    return at;
}

/* tensor(nested list or number, dtype, shape or nil): with a shape the list is flat, row by row. */
static int from(lua_State *L)
{
    gm_rank *r = gm_lua_rank(L);
    int64_t  shape[GM_MAX_DIMS], n = 1;
    bool     flat = !lua_isnoneornil(L, 3);
    gm_check_argument(L, lua_istable(L, 1) || lua_isnumber(L, 1), 1,
                      "a number or a (nested) list of numbers was expected");
    gm_dtype   dtype = gm_opt_dtype(L, 2, r->default_dtype);
    int        ndim = flat ? gm_check_shape(L, 3, shape) : list_shape(L, 1, shape);
    gm_handle *h = gm_push_handle(L);
    gm_value  *v;
    L_TRY(L, gm_value_new(r, "tensor", dtype, ndim, shape, &v));
    gm_handle_fill(r, h, v, "tensor");
    void *to = elements(L, v->local, false);
    lua_pushvalue(L, 1);
    if (!flat) store_list(L, v->local, to, 0, 0);
    for (int d = 0; d < ndim; d++) n *= shape[d];
    if (flat) gm_check_list(L, 1, 1);
    if (flat && (int64_t)lua_objlen(L, -1) != n)
        return luaL_error(L, "tensor: %d numbers for a shape of %d elements", (int)lua_objlen(L, -1), (int)n);
    for (int64_t i = 0; flat && i < n; i++) {
        lua_rawgeti(L, -1, (int)i + 1);
        store_number(L, v->local, to, i);
        lua_pop(L, 1);
    }
    send(L, v->local, to);
    lua_pop(L, 2);
    return 1;
}

/* Elements i of t become i. */
static void store_places(const gm_tensor *t, void *to, int64_t n)
{
    if (t->dtype == GM_I64)
        for (int64_t i = 0; i < n; i++) ((int64_t *)to)[i] = i;
    else if (t->dtype == GM_F32)
        for (int64_t i = 0; i < n; i++) ((float *)to)[i] = (float)i;
    else
        for (int64_t i = 0; i < n; i++) gm_store(t->dtype, to, i, (double)i);
}

/* arange(n, dtype) -> 0, 1, ..., n - 1 */
static int arange(lua_State *L)
{
    gm_rank   *r = gm_lua_rank(L);
    int64_t    n = gm_check_integer(L, 1);
    gm_dtype   dtype = gm_opt_dtype(L, 2, GM_I64);
    gm_handle *h = gm_push_handle(L);
    gm_value  *v;
    L_TRY(L, gm_value_new(r, "arange", dtype, 1, &n, &v));
    gm_handle_fill(r, h, v, "arange");
    void *to = elements(L, v->local, false);
    store_places(v->local, to, n);
    send(L, v->local, to);
    lua_settop(L, 3);
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

/* local_tensor(t) -> this rank's block, padding included, sharing t's memory: an ordinary tensor of this rank alone,
 * without history */
static int local_tensor(lua_State *L)
{
    gm_value  *v = gm_check_value(L, 1), *local;
    gm_handle *h = gm_push_handle(L);
    gm_tensor_retain(v->local);
    gm_status st = gm_value_take(v->rank, v->local, &local);
    if (st != GM_OK) return gm_raise(L, st);
    local->guarded = v->guarded || v->node;
    gm_handle_fill(v->rank, h, local, "local_tensor");
    return 1;
}

/* is_cut(t [, d]): is it, or its dimension d, cut, or t partial? */
static int is_cut(lua_State *L)
{
    gm_value *v = gm_check_value(L, 1);
    if (lua_isnoneornil(L, 2)) lua_pushboolean(L, !gm_layout_is_replicated(&v->layout));
    else lua_pushboolean(L, v->layout.partial || v->layout.n_cuts[gm_check_dim_arg(L, 2, v->ndim)]);
    return 1;
}

static int is_contiguous(lua_State *L)
{
    lua_pushboolean(L, gm_tensor_is_contiguous(gm_check_value(L, 1)->local));
    return 1;
}

/* v itself, or the whole of it on every rank (a new handle is pushed, which holds it): collective then. */
static gm_value *gathered(lua_State *L, gm_value *v)
{
    gm_value *whole = NULL;
    if (gm_layout_is_replicated(&v->layout)) return v;
    gm_handle *h = gm_push_handle(L);
    v->rank->no_grad++;
    gm_status st = gm_gather_value(v->rank, v, &whole);
    v->rank->no_grad--;
    if (st != GM_OK) gm_raise(L, st);
    gm_handle_fill(v->rank, h, whole, "gather");
    return whole;
}

/* The index at arg.. into a tensor of v's shape, from 0. */
static void check_index(lua_State *L, const gm_value *v, int arg, int n, int64_t *index)
{
    if (n != v->ndim) luaL_error(L, "%d indices for a tensor with %d dimensions", n, v->ndim);
    for (int d = 0; d < n; d++) {
        int64_t i = gm_check_integer(L, arg + d);
        if (i < 1 || i > v->shape[d])
            gm_bad_argument(L, arg + d, lua_pushfstring(L, "index %d is outside 1..%d", (int)i, (int)v->shape[d]));
        index[d] = i - 1;
    }
}

/* get(t, i, ...): collective if t is cut or partial */
static int get(lua_State *L)
{
    gm_value *v = gm_check_value(L, 1);
    int64_t   index[GM_MAX_DIMS], at = 0;
    check_index(L, v, 2, lua_gettop(L) - 1, index);
    gm_tensor *t = gathered(L, v)->local;
    for (int d = 0; d < t->ndim; d++) at += index[d] * t->stride[d];
    lua_pushnumber(L, load(L, t, at));
    return 1;
}

/* set(t, i, ..., value): every rank calls it; those that hold the element write it */
static int set(lua_State *L)
{
    gm_value  *v = gm_check_value(L, 1);
    int        n = lua_gettop(L);
    int64_t    index[GM_MAX_DIMS], local[GM_MAX_DIMS], logical[GM_MAX_DIMS], at = 0;
    gm_box     box;
    bool       here = true;
    lua_Number x = luaL_checknumber(L, n);
    check_index(L, v, 2, n - 2, index);
    gm_check_written(L, v, "set");
    gm_layout_block(&v->rank->mesh, &v->layout, v->rank->coordinate, v->ndim, v->shape, &box, local, logical);
    for (int d = 0; d < v->ndim; d++) {
        int64_t i = index[d] - box.offset[d];
        here = here && i >= 0 && i < logical[d];
        at += i * v->local->stride[d];
    }
    if (here) L_TRY(L, gm_host_store(v->local, at, x));
    gm_value_touched(v);
    return 0;
}

/* item(t): the one element; collective if t is cut or partial */
static int item(lua_State *L)
{
    gm_value *v = gm_check_value(L, 1);
    for (int d = 0; d < v->ndim; d++)
        if (v->shape[d] != 1) {
            numel(L);
            return luaL_error(L, "item: the tensor has %d elements, not one", (int)lua_tointeger(L, -1));
        }
    gm_tensor *t = gathered(L, v)->local;
    lua_pushnumber(L, load(L, t, 0));
    return 1;
}

static void push_list(lua_State *L, const gm_tensor *t, const void *data, int d, int64_t at)
{
    if (d == t->ndim) {
        lua_pushnumber(L, gm_load(t->dtype, data, at));
        return;
    }
    luaL_checkstack(L, 3, "nested lists");
    lua_createtable(L, (int)t->shape[d], 0);
    for (int64_t i = 0; i < t->shape[d]; i++) {
        push_list(L, t, data, d + 1, at + i * t->stride[d]);
        lua_rawseti(L, -2, (int)i + 1);
    }
}

/* totable(t): nested lists; collective if t is cut or partial */
static int totable(lua_State *L)
{
    gm_tensor *t = gathered(L, gm_check_value(L, 1))->local;
    push_list(L, t, elements(L, t, true), 0, 0);
    return 1;
}

/* checksum(t) -> that of the bytes of this rank's block, as text */
static int checksum(lua_State *L)
{
    char       text[12];
    gm_tensor *t = gm_check_value(L, 1)->local;
    if (!gm_tensor_is_contiguous(t)) return luaL_error(L, "checksum: the tensor is a view with gaps");
    const size_t n = (size_t)gm_tensor_numel(t) * gm_dtype_size(t->dtype);
    snprintf(text, sizeof text, "%08x", n ? gm_crc32c(0, elements(L, t, true), n) : 0);
    lua_pushstring(L, text);
    return 1;
}

/* version(t) -> a number that differs after its bytes were written in place */
static int version(lua_State *L)
{
    lua_pushinteger(L, (lua_Integer)gm_check_value(L, 1)->local->storage->version);
    return 1;
}

/* become(t, other): t's handle holds other's value from now on, in the scope that t lives in */
static int become(lua_State *L)
{
    gm_value  *other = gm_check_value(L, 2);
    gm_handle *h = gm_check_handle(L, 1);
    gm_value_retain(other);
    gm_value_release(h->value);
    h->value = other;
    return 0;
}

/* data(t) -> light userdata, dtype name: for the FFI view; contiguous tensors only. */
static int data(lua_State *L)
{
    gm_value  *v = gm_check_value(L, 1);
    gm_tensor *t = v->local;
    char       have[256];
    if (!gm_layout_is_replicated(&v->layout))
        return luaL_error(L, "data: %s: a rank has its block only; :local_tensor():data() is that",
                          gm_value_describe(v, have, sizeof have));
    if (!gm_tensor_is_contiguous(t))
        return luaL_error(L, "data: the tensor is not contiguous; call :contiguous() first");
    if (t->storage->home && !t->storage->opens)
        return luaL_error(L,
                          "data: this parameter rests in parts on several ranks (zero stage 3), and its block is here "
                          "only while an op uses it; ask for the address inside gm.gathered(p, function() ... end)");
    if (need_data(L, t) && gm_tensor_data(t) && !t->storage->device->backend->on_host)
        return luaL_error(L, "data: the elements are on the %s device; :totable(), :get() and :item() copy them",
                          t->storage->device->backend->name);
    if (gm_host_is_free(t->storage->device, "to take the address of numbers") != GM_OK) gm_raise(L, GM_EINVAL);
    lua_pushlightuserdata(L, need_data(L, t));
    lua_pushstring(L, gm_dtype_name(t->dtype));
    return 2;
}

/* is_known(t): has this rank's block values that can be read? On the meta device only those of constants. */
static int is_known(lua_State *L)
{
    const gm_tensor *t = gm_check_value(L, 1)->local;
    lua_pushboolean(L, gm_tensor_has_data(t) || gm_tensor_known(t) || !gm_tensor_numel(t));
    return 1;
}

/* forget(t): on the meta device its values are not known any more: it stands for data */
static int forget(lua_State *L)
{
    gm_tensor_forget(gm_check_value(L, 1)->local);
    return 0;
}

static int default_dtype(lua_State *L)
{
    lua_pushstring(L, gm_dtype_name(gm_lua_rank(L)->default_dtype));
    return 1;
}

static int set_default_dtype(lua_State *L)
{
    gm_dtype t = gm_check_dtype(L, 1);
    gm_check_argument(L, gm_dtype_is_float(t), 1, "the default dtype is f32, f64, bf16 or f16");
    gm_lua_rank(L)->default_dtype = t;
    return 0;
}

/* The list of dtypes.def: { name =, bytes =, kind = "wide" | "narrow" | "whole" }. */
static void push_dtypes(lua_State *L)
{
    static const char *const kinds[] = {[GM_WIDE] = "wide", [GM_NARROW] = "narrow", [GM_WHOLE] = "whole"};
    lua_createtable(L, GM_DTYPE_COUNT, 0);
    for (int t = 0; t < GM_DTYPE_COUNT; t++) {
        lua_createtable(L, 0, 3);
        gm_set_text(L, "name", gm_dtype_name((gm_dtype)t));
        gm_set_number(L, "bytes", (double)gm_dtype_size((gm_dtype)t));
        gm_set_text(L, "kind", kinds[gm_dtype_kind_of((gm_dtype)t)]);
        lua_rawseti(L, -2, t + 1);
    }
}

int gm_open_tensor(lua_State *L)
{
    static const gm_declaration functions[] = {
        GM_FUNCTION("empty", empty, "shape table, dtype string?, shared boolean?"),
        GM_FUNCTION("tensor", from, "values number|table, dtype string?, shape table?"),
        GM_FUNCTION("arange", arange, "n integer, dtype string?"),
        GM_PUBLIC(shape, shape, "t tensor"),
        GM_PUBLIC(size, size, "t tensor, dim integer"),
        GM_PUBLIC(dim, dim, "t tensor"),
        GM_PUBLIC(numel, numel, "t tensor"),
        GM_PUBLIC(dtype, dtype, "t tensor"),
        GM_PUBLIC(is_contiguous, is_contiguous, "t tensor"),
        GM_PUBLIC(local_tensor, local_tensor, "t tensor"),
        GM_FUNCTION("is_cut", is_cut, "t tensor, dim integer?"),
        GM_PUBLIC(get, get, "t tensor, index integer?, ..."),
        GM_PUBLIC(set, set, "t tensor, index_and_value number, ..."),
        GM_PUBLIC(item, item, "t tensor"),
        GM_PUBLIC(totable, totable, "t tensor"),
        GM_FUNCTION("checksum", checksum, "t tensor"),
        GM_FUNCTION("version", version, "t tensor"),
        GM_FUNCTION("become", become, "t tensor, other tensor"),
        GM_FUNCTION("data", data, "t tensor"),
        GM_FUNCTION("is_known", is_known, "t tensor"),
        GM_FUNCTION("forget", forget, "t tensor"),
        GM_PUBLIC(default_dtype, default_dtype, ""),
        GM_PUBLIC(set_default_dtype, set_default_dtype, "dtype string"),
        GM_LAST_FUNCTION};
    gm_declare(L, functions);
    push_dtypes(L);
    lua_setfield(L, -2, "dtypes");
    return 0;
}
