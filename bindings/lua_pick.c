/* lua_pick.c - the Lua face of host/text/pick.h: pick(logits, rule, seen) -> token. */
#include "gm_lua.h"

#include "../host/text/pick.h"

/* The tokens of the list at arg, as a block that the garbage collector owns. */
static int64_t *tokens_at(lua_State *L, int arg, int64_t *n)
{
    *n = (int64_t)gm_check_list(L, arg, arg);
    int64_t *seen = lua_newuserdata(L, (size_t)(*n + 1) * sizeof *seen);
    for (int64_t i = 0; i < *n; i++) {
        lua_rawgeti(L, arg, (int)i + 1);
        seen[i] = gm_check_integer(L, -1);
        lua_pop(L, 1);
    }
    return seen;
}

/* The numbers of t as doubles, in a block that the garbage collector owns. */
static double *numbers_of(lua_State *L, const gm_value *v)
{
    const gm_tensor *t = v->local;
    int64_t          n = gm_tensor_numel(t);
    if (!gm_layout_is_replicated(&v->layout) || !gm_tensor_is_contiguous(t) || !gm_dtype_is_float(t->dtype))
        gm_bad_argument(L, 1, "logits are a contiguous tensor of floats that every rank has whole");
    double   *out = lua_newuserdata(L, (size_t)(n + 1) * sizeof *out);
    void     *raw = lua_newuserdata(L, (size_t)(n + 1) * sizeof *out);
    gm_status st = gm_device_read(v->rank->device, raw, gm_tensor_data(t), (size_t)n * gm_dtype_size(t->dtype));
    if (st != GM_OK) gm_raise(L, st);
    for (int64_t i = 0; i < n; i++) out[i] = gm_load(t->dtype, raw, i);
    return out;
}

/* pick(logits (n), { temperature, top_k, top_p, min_p, penalty, seed, prompt, position }, seen = list of tokens) */
static int pick(lua_State *L)
{
    const gm_value *v = gm_check_value(L, 1);
    luaL_checktype(L, 2, LUA_TTABLE);
    gm_pick_rule rule = {.temperature = gm_field_number(L, 2, "temperature", 0),
                         .top_k = (int64_t)gm_field_number(L, 2, "top_k", 0),
                         .top_p = gm_field_number(L, 2, "top_p", 1),
                         .min_p = gm_field_number(L, 2, "min_p", 0),
                         .penalty = gm_field_number(L, 2, "penalty", 1),
                         .seed = (uint64_t)gm_field_number(L, 2, "seed", 0),
                         .prompt = (uint64_t)gm_field_number(L, 2, "prompt", 0),
                         .position = (uint64_t)gm_field_number(L, 2, "position", 0)};
    int64_t      n_seen, token;
    int64_t     *seen = tokens_at(L, 3, &n_seen);
    double      *score = numbers_of(L, v);
    L_TRY(L, gm_pick(score, gm_tensor_numel(v->local), &rule, seen, n_seen, &token));
    lua_pushnumber(L, (lua_Number)token);
    return 1;
}

int gm_open_pick(lua_State *L)
{
    static const gm_declaration functions[] = {GM_FUNCTION("pick", pick, "logits tensor, rule table, seen table"),
                                               GM_LAST_FUNCTION};
    gm_declare(L, functions);
    return 0;
}
