/* lua_experts.c - the Lua face of host/parallel/sharded/experts.h: tokens to the experts that were chosen for them. */
#include "gm_lua.h"

#include <string.h>

#include "../host/parallel/sharded/experts.h"

static gm_value *field_value(lua_State *L, int arg, const char *name)
{
    lua_getfield(L, arg, name);
    gm_value *v = gm_opt_value(L, -1);
    lua_pop(L, 1); /* the table holds it */
    return v;
}

static gm_function activation_of(lua_State *L, int arg)
{
    gm_function f = GM_FN_none;
    lua_getfield(L, arg, "activation");
    if (!lua_isnil(L, -1) && !gm_function_parse(luaL_checkstring(L, -1), &f))
        luaL_error(L, "experts: there is no activation '%s'", lua_tostring(L, -1));
    lua_pop(L, 1);
    return f;
}

/* experts(x (..., h), index i64 (..., k), weight (..., k), { up (E, f, h), up_bias (E, f), down (E, h, f),
 * down_bias (E, h), gate (E, f, h), gate_bias (E, f), activation, room }) -> (..., h); biases, activation and room
 * (what experts_capacity let through) may be left out; gated activations alone have a gate. weight: f32 beside x of 16
 * bits. Collective over the axes that cut the experts. */
static int experts(lua_State *L)
{
    gm_rank  *r = gm_lua_rank(L);
    gm_value *x = gm_check_value(L, 1), *index = gm_check_value(L, 2), *weight = gm_check_value(L, 3), *y;
    luaL_checktype(L, 4, LUA_TTABLE);
    gm_experts_layer layer = {field_value(L, 4, "up"),   field_value(L, 4, "up_bias"),
                              field_value(L, 4, "down"), field_value(L, 4, "down_bias"),
                              field_value(L, 4, "gate"), field_value(L, 4, "gate_bias"),
                              activation_of(L, 4),       (int64_t)gm_field_number(L, 4, "room", 0)};
    if (!layer.up || !layer.down) return luaL_error(L, "experts: up and down are needed");
    gm_handle *h = gm_push_handle(L);
    L_TRY(L, gm_experts(r, x, index, weight, &layer, &y));
    gm_handle_fill(r, h, y, "experts");
    return 1;
}

/* experts_capacity(index, experts, capacity) -> index, -1 where an expert has no place left; collective */
static int experts_capacity(lua_State *L)
{
    gm_rank   *r = gm_lua_rank(L);
    gm_value  *index = gm_check_value(L, 1), *kept;
    int64_t    n = gm_check_integer(L, 2), capacity = gm_check_integer(L, 3);
    gm_handle *h = gm_push_handle(L);
    L_TRY(L, gm_experts_capacity(r, index, n, capacity, &kept));
    gm_handle_fill(r, h, kept, "experts_capacity");
    return 1;
}

/* experts_counts(index, experts, dtype|nil) -> (experts): choices of each; a sum not made yet where index is cut */
static int experts_counts(lua_State *L)
{
    gm_rank   *r = gm_lua_rank(L);
    gm_value  *index = gm_check_value(L, 1), *counts;
    int64_t    n = gm_check_integer(L, 2);
    gm_dtype   dtype = gm_opt_dtype(L, 3, r->default_dtype);
    gm_handle *h = gm_push_handle(L);
    L_TRY(L, gm_experts_counts(r, index, n, dtype, &counts));
    gm_handle_fill(r, h, counts, "experts_counts");
    return 1;
}

/* experts_noise(x, "normal", mean, std) or (x, "uniform", low, high) -> as x; not differentiable */
static int experts_noise(lua_State *L)
{
    gm_rank    *r = gm_lua_rank(L);
    gm_attrs    a = gm_attrs_default();
    gm_value   *x = gm_check_value(L, 1), *y;
    const char *kind = luaL_checkstring(L, 2);
    bool        normal = !strcmp(kind, "normal");
    gm_check_argument(L, normal || !strcmp(kind, "uniform"), 2, "normal or uniform");
    a.low = a.mean = luaL_checknumber(L, 3);
    a.high = a.std = luaL_checknumber(L, 4);
    gm_handle *h = gm_push_handle(L);
    L_TRY(L, gm_experts_noise(r, x, normal ? GM_OP_normal : GM_OP_uniform, &a, &y));
    gm_handle_fill(r, h, y, "experts_noise");
    return 1;
}

int gm_open_experts(lua_State *L)
{
    static const gm_declaration functions[] = {
        GM_FUNCTION("experts", experts, "x tensor, index tensor, weight tensor, about table"),
        GM_FUNCTION("experts_capacity", experts_capacity, "index tensor, experts integer, capacity integer"),
        GM_FUNCTION("experts_counts", experts_counts, "index tensor, experts integer, dtype string?"),
        GM_FUNCTION("experts_noise", experts_noise, "x tensor, kind string, a number, b number"), GM_LAST_FUNCTION};
    gm_declare(L, functions);
    return 0;
}
