/* lua_layout.c - the Lua face of host/parallel: layouts of values, redistribution, norms, the gradient reducer.
 *
 * In Lua a layout is { cuts = { {"data"}, {}, {"row", "col"} }, partial = { "depth" } }: a list of axes for each
 * dimension, outermost first ("row.col" in one string will do), and the axes that the value is a sum over. Names
 * of axes that this mesh lacks because their size is 1 stand for nothing; names that no mesh has are errors. Where
 * dimensions are cut between units of several elements (layout.h), it has units = { 4, 0, 0 } besides. */
#include "gm_lua.h"

#include <stdlib.h>
#include <string.h>
#include "../host/autograd/padding.h"
#include "../host/gradients/norm.h"
#include "../host/parallel/redistribute.h"
#include "../host/gradients/reducer.h"
#include "docs/docs.h"
#include "docs/layout.def"

#define REDUCER "gm.reducer"

/* ---- layouts ---- */

/* Axes, as a list of names. */
static void push_axes(lua_State *L, const gm_mesh *mesh, int n, const uint8_t *axes)
{
    lua_createtable(L, n, 0);
    for (int k = 0; k < n; k++) {
        lua_pushstring(L, mesh->axis[axes[k]].name);
        lua_rawseti(L, -2, k + 1);
    }
}

/* The same for the axes of a mask. */
static void push_axis_set(lua_State *L, const gm_mesh *mesh, uint32_t set)
{
    uint8_t axes[GM_MAX_AXES];
    int     n = 0;
    for (int a = 0; a < mesh->n_axes; a++)
        if (set & 1u << a) axes[n++] = (uint8_t)a;
    push_axes(L, mesh, n, axes);
}

/* The units of all dimensions become a field of the layout at the top of the stack, if there are any. */
static void set_units(lua_State *L, const gm_value *v)
{
    bool any = false;
    for (int d = 0; d < v->ndim; d++) any |= v->layout.unit[d] != 0;
    if (!any) return;
    lua_createtable(L, v->ndim, 0);
    for (int d = 0; d < v->ndim; d++) {
        lua_pushinteger(L, v->layout.unit[d]);
        lua_rawseti(L, -2, d + 1);
    }
    lua_setfield(L, -2, "units");
}

/* layout(t) -> { cuts = { {axis, ...}, ... }, partial = { axis, ... } [, units = { number, ... }] } */
static int layout(lua_State *L)
{
    const gm_value *v = gm_check_value(L, 1);
    const gm_mesh  *mesh = &v->rank->mesh;
    lua_createtable(L, 0, 2);
    lua_createtable(L, v->ndim, 0);
    for (int d = 0; d < v->ndim; d++) {
        push_axes(L, mesh, v->layout.n_cuts[d], v->layout.cut[d]);
        lua_rawseti(L, -2, d + 1);
    }
    lua_setfield(L, -2, "cuts");
    push_axis_set(L, mesh, v->layout.partial);
    lua_setfield(L, -2, "partial");
    set_units(L, v);
    return 1;
}

/* Appends the axis called name; one of size 1 that the mesh lacks adds nothing. */
static int add_axis(lua_State *L, const gm_mesh *mesh, const char *name, int n, uint8_t *axes)
{
    char have[160];
    int  a = gm_mesh_axis(mesh, name);
    if (a < 0 && gm_mesh_may_lack(name)) return n;
    if (a < 0)
        luaL_error(L, "layout: there is no axis '%s'; this mesh has %s", name,
                   mesh->n_axes ? gm_mesh_describe(mesh, ~0u, have, sizeof have) : "one rank and no axes");
    if (n == GM_MAX_AXES) luaL_error(L, "layout: at most %d axes", GM_MAX_AXES);
    axes[n++] = (uint8_t)a;
    return n;
}

/* The names in the string at the top of the stack, between dots. */
static int add_names(lua_State *L, const gm_mesh *mesh, int n, uint8_t *axes)
{
    char name[sizeof mesh->axis[0].name];
    if (lua_type(L, -1) != LUA_TSTRING)
        luaL_error(L, "layout: an axis is named by a string, not a %s", luaL_typename(L, -1));
    const char *p = lua_tostring(L, -1);
    while (*p) {
        size_t length = strcspn(p, ".");
        if (length >= sizeof name) luaL_error(L, "layout: there is no axis '%s'", p);
        memcpy(name, p, length);
        name[length] = 0;
        n = add_axis(L, mesh, name, n, axes);
        p += length + (p[length] == '.');
    }
    return n;
}

/* Reads the value at the top of the stack (nil, false, a string or a list of names) and pops it; returns how many. */
static int pop_axes(lua_State *L, const gm_mesh *mesh, uint8_t *axes)
{
    int n = 0, at = lua_gettop(L);
    if (lua_istable(L, at))
        for (int i = 1; i <= (int)lua_objlen(L, at); i++) {
            lua_rawgeti(L, at, i);
            n = add_names(L, mesh, n, axes);
            lua_pop(L, 1);
        }
    else if (lua_toboolean(L, at)) n = add_names(L, mesh, n, axes);
    lua_settop(L, at - 1);
    return n;
}

uint32_t gm_pop_axis_set(lua_State *L)
{
    uint8_t  axes[GM_MAX_AXES];
    uint32_t set = 0;
    for (int k = pop_axes(L, &gm_lua_rank(L)->mesh, axes); k > 0; k--) set |= 1u << axes[k - 1];
    return set;
}

static void check_fields(lua_State *L, int arg)
{
    luaL_checktype(L, arg, LUA_TTABLE);
    for (lua_pushnil(L); lua_next(L, arg); lua_pop(L, 1)) {
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : luaL_typename(L, -2);
        if (strcmp(key, "cuts") && strcmp(key, "partial") && strcmp(key, "units"))
            luaL_error(L, "layout: there is no field '%s'; a layout is { cuts = {{...}, ...}, partial = {...} }", key);
    }
}

/* Units of dimensions that are cut; those of others say nothing. */
static void check_units(lua_State *L, int arg, gm_layout *out)
{
    lua_getfield(L, arg, "units");
    if (lua_istable(L, -1))
        for (int d = 0; d < GM_MAX_DIMS; d++) {
            lua_rawgeti(L, -1, d + 1);
            double unit = lua_tonumber(L, -1);
            if (unit < 0 || unit > INT32_MAX || unit != (int32_t)unit)
                luaL_error(L, "layout: units[%d] must be a whole number of elements", d + 1);
            if (out->n_cuts[d] && unit > 1) out->unit[d] = (int32_t)unit;
            lua_pop(L, 1);
        }
    else if (!lua_isnil(L, -1)) luaL_error(L, "layout: units is a list with a number for each dimension");
    lua_pop(L, 1);
}

void gm_check_layout(lua_State *L, int arg, const gm_mesh *mesh, gm_layout *out)
{
    uint8_t axes[GM_MAX_AXES];
    *out = gm_layout_replicated();
    check_fields(L, arg);
    lua_getfield(L, arg, "partial");
    for (int n = pop_axes(L, mesh, axes), k = 0; k < n; k++) out->partial |= 1u << axes[k];
    lua_getfield(L, arg, "cuts");
    if (lua_istable(L, -1)) {
        if (lua_objlen(L, -1) > GM_MAX_DIMS) luaL_error(L, "layout: cuts of more than %d dimensions", GM_MAX_DIMS);
        for (int d = 0; d < (int)lua_objlen(L, -1); d++) {
            lua_rawgeti(L, -1, d + 1);
            out->n_cuts[d] = (uint8_t)pop_axes(L, mesh, out->cut[d]);
        }
    } else if (!lua_isnil(L, -1)) luaL_error(L, "layout: cuts is a list with a list of axes for each dimension");
    lua_pop(L, 1);
    check_units(L, arg, out);
}

/* redistribute(t, layout) -> the same value laid out so; collective over the axes that differ */
static int redistribute(lua_State *L)
{
    gm_value *x = gm_check_value(L, 1), *y;
    gm_layout to;
    gm_check_layout(L, 2, &x->rank->mesh, &to);
    for (int d = 0; d < x->ndim; d++)
        if (to.unit[d] && x->shape[d] % to.unit[d])
            luaL_error(L, "layout: units[%d] = %d does not divide the %d elements of that dimension", d + 1,
                       (int)to.unit[d], (int)x->shape[d]);
    gm_handle *h = gm_push_handle(L);
    L_TRY(L, gm_redistribute(x->rank, x, &to, &y));
    gm_handle_fill(x->rank, h, y, "redistribute");
    return 1;
}

/* settle(t) -> t itself, or where it is partial its sum; collective over those axes then */
static int settle(lua_State *L)
{
    gm_value  *x = gm_check_value(L, 1), *y;
    gm_handle *h = gm_push_handle(L);
    if (!x->layout.partial) {
        lua_settop(L, 1);
        return 1;
    }
    L_TRY(L, gm_settle(x->rank, x, &y));
    gm_handle_fill(x->rank, h, y, "settle");
    return 1;
}

/* held_axes(t, gradient) -> the axes that cut what this rank holds of a parameter at rest, or of its gradient, and
 * those over which that is a term of a sum; nil: there is no gradient */
static int held_axes(lua_State *L)
{
    gm_value  *v = gm_check_value(L, 1);
    gm_layout  layout;
    gm_tensor *t;
    if (!lua_toboolean(L, 2)) L_TRY(L, gm_value_resting(v, &layout, &t));
    else if (!gm_value_final_grad(v, &layout)) return 0;
    push_axis_set(L, &v->rank->mesh, gm_layout_cut_axes(&layout));
    push_axis_set(L, &v->rank->mesh, layout.partial);
    return 2;
}

/* own_gradient(t) -> this rank's gradient as backward has made it, before any sum over ranks: its block, sharing
 * memory; the axes that cut it, and those over which it is a term of a sum; nil: there is none. No communication. */
static int own_gradient(lua_State *L)
{
    gm_value  *v = gm_check_value(L, 1), *g;
    gm_tensor *t = gm_value_grad(v);
    if (!t) return 0;
    gm_handle *h = gm_push_handle(L);
    gm_tensor_retain(t);
    gm_padding_show_gradient(v);
    L_TRY(L, gm_value_take(v->rank, t, &g));
    gm_handle_fill(v->rank, h, g, "own_gradient");
    push_axis_set(L, &v->rank->mesh, gm_layout_cut_axes(&v->layout));
    push_axis_set(L, &v->rank->mesh, v->param->grad_partial);
    return 3;
}

/* gather(t) -> the whole value on every rank */
static int gather(lua_State *L)
{
    gm_value  *x = gm_check_value(L, 1), *y;
    gm_handle *h = gm_push_handle(L);
    L_TRY(L, gm_gather_value(x->rank, x, &y));
    gm_handle_fill(x->rank, h, y, "gather");
    return 1;
}

/* ---- gradients ---- */

/* grad_norm(parameters, p = 2) -> p-norm of all their gradients together, whatever their layouts; p may be math.huge */
static int grad_norm(lua_State *L)
{
    int           n;
    double        norm, p = luaL_optnumber(L, 2, 2);
    gm_value    **parameters = gm_push_values(L, 1, &n);
    gm_norm_item *items = lua_newuserdata(L, ((size_t)n + 1) * sizeof *items);
    n = gm_norm_gradients(parameters, n, items);
    L_TRY(L, gm_layout_norm(gm_lua_rank(L), items, n, p, &norm));
    lua_pushnumber(L, norm);
    return 1;
}

typedef struct box {
    gm_reducer *reducer;
    int         n; /* parameters */
} box;

static box *check_reducer(lua_State *L)
{
    box *b = gm_check_object(L, 1, REDUCER);
    if (!b->reducer) gm_bad_argument(L, 1, "this reducer was freed");
    return b;
}

/* reducer_new(parameters, { bucket_bytes = 4 MiB, overlap = true, owners = axes, default none }) -> reducer. The sums
 * are shared out over the owners (reducer.h). */
static int reducer_new(lua_State *L)
{
    int      n;
    uint32_t owners = 0;
    double   bytes = gm_field_number(L, 2, "bucket_bytes", 0);
    bool     overlap = true;
    gm_check_argument(L, bytes >= 0 && bytes < 9e15, 2, "bucket_bytes is a number of bytes");
    if (lua_istable(L, 2)) {
        lua_getfield(L, 2, "overlap");
        overlap = lua_isnil(L, -1) || lua_toboolean(L, -1);
        lua_pop(L, 1);
        lua_getfield(L, 2, "owners");
        owners = gm_pop_axis_set(L);
    }
    gm_value **parameters = gm_push_values(L, 1, &n);
    box       *b = lua_newuserdata(L, sizeof *b);
    *b = (box){.n = n};
    luaL_getmetatable(L, REDUCER);
    lua_setmetatable(L, -2);
    L_TRY(L, gm_reducer_new(gm_lua_rank(L), parameters, n, (size_t)bytes, overlap, owners, &b->reducer));
    return 1;
}

/* reducer_arm(reducer, on): see reducer.h */
static int reducer_arm(lua_State *L)
{
    gm_reducer_arm(check_reducer(L)->reducer, lua_toboolean(L, 2));
    return 0;
}

/* reducer_finish(reducer): gradients are sums over all ranks now */
static int reducer_finish(lua_State *L)
{
    gm_status st = gm_reducer_finish(check_reducer(L)->reducer); /* no second try: other ranks have had their part */
    return st == GM_OK ? 0 : gm_raise(L, st);
}

/* reducer_gather(reducer): after an update, parameters are whole again on every rank */
static int reducer_gather(lua_State *L)
{
    gm_status st = gm_reducer_gather(check_reducer(L)->reducer);
    return st == GM_OK ? 0 : gm_raise(L, st);
}

/* reducer_unused(reducer) -> places, from 1, of the parameters that no loss touched in the last step */
static int reducer_unused(lua_State *L)
{
    box *b = check_reducer(L);
    int *places = lua_newuserdata(L, ((size_t)b->n + 1) * sizeof *places);
    int  n = gm_reducer_unused(b->reducer, places);
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        lua_pushinteger(L, places[i] + 1);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* reducer_info(reducer) -> { buckets =, bytes = } */
static int reducer_info(lua_State *L)
{
    const gm_reducer *d = check_reducer(L)->reducer;
    lua_createtable(L, 0, 2);
    lua_pushinteger(L, gm_reducer_buckets(d));
    lua_setfield(L, -2, "buckets");
    lua_pushnumber(L, (lua_Number)gm_reducer_bytes(d));
    lua_setfield(L, -2, "bytes");
    return 1;
}

/* reducer_free(reducer): gradients are ordinary ones again; twice does no harm */
static int reducer_free(lua_State *L)
{
    box *b = gm_check_object(L, 1, REDUCER);
    gm_reducer_free(b->reducer);
    b->reducer = NULL;
    return 0;
}

int gm_open_layout(lua_State *L)
{
    static const gm_declaration functions[] = {
        GM_PUBLIC(layout, layout, "t tensor"),
        GM_PUBLIC(redistribute, redistribute, "t tensor, layout table"),
        GM_PUBLIC(settle, settle, "t tensor"),
        {"gather", gather, "t tensor", NULL,
         "it makes t whole on every rank; rows of a table by index are ops.embedding(table, index)", 0, 0, doc_gather},
        GM_FUNCTION("grad_norm", grad_norm, "parameters table, p number?"),
        GM_FUNCTION("held_axes", held_axes, "t tensor, gradient boolean"),
        GM_FUNCTION("own_gradient", own_gradient, "t tensor"),
        GM_FUNCTION("reducer_new", reducer_new, "parameters table, about table?"),
        GM_FUNCTION("reducer_arm", reducer_arm, "reducer object, on boolean?"),
        GM_FUNCTION("reducer_info", reducer_info, "reducer object"),
        GM_FUNCTION("reducer_finish", reducer_finish, "reducer object"),
        GM_FUNCTION("reducer_gather", reducer_gather, "reducer object"),
        GM_FUNCTION("reducer_unused", reducer_unused, "reducer object"),
        GM_FUNCTION("reducer_free", reducer_free, "reducer object"),
        GM_LAST_FUNCTION};
    luaL_newmetatable(L, REDUCER);
    lua_pushcfunction(L, reducer_free);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
    gm_declare(L, functions);
    return 0;
}
