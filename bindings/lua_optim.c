/* lua_optim.c - the Lua face of host/optim/optimizer.h: userdata "gm.optimizer". */
#include "gm_lua.h"

#include <stdlib.h>
#include <string.h>
#include "../kernels/philox.h"
#include "../kernels/states.h"
#include "../host/optim/step_control.h"
#include "../host/optim/optimizer.h"

#define OPTIMIZER "gm.optimizer"

typedef struct box {
    gm_optimizer *optimizer;
} box;

static gm_optimizer *check_optimizer(lua_State *L)
{
    box *b = gm_check_object(L, 1, OPTIMIZER);
    if (!b->optimizer) gm_bad_argument(L, 1, "this optimizer was closed");
    return b->optimizer;
}

/* List of { lr_scale, weight_decay, trust, attrs: which list of attributes, states: GM_STATES_*, site: by which random
 * words are drawn (default: its number) } at arg, one for each parameter; absent fields take the defaults. n_attrs:
 * lists of attributes. */
static gm_optimizer_item *push_items(lua_State *L, int arg, int n, int n_attrs, const gm_attrs *attrs)
{
    if (lua_isnoneornil(L, arg)) return NULL;
    luaL_checktype(L, arg, LUA_TTABLE);
    gm_optimizer_item *items = lua_newuserdata(L, ((size_t)n + 1) * sizeof *items);
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, arg, i + 1);
        items[i].lr_scale = gm_field_number(L, lua_gettop(L), "lr_scale", 1);
        int place = (int)gm_field_number(L, lua_gettop(L), "attrs", 1);
        gm_check_argument(L, place >= 1 && place <= n_attrs, arg, "there is no such list of attributes");
        items[i].attrs = place - 1;
        items[i].states = (int64_t)gm_field_number(L, lua_gettop(L), "states", GM_STATES_F32);
        items[i].weight_decay = gm_field_number(L, lua_gettop(L), "weight_decay", attrs[place - 1].weight_decay);
        lua_getfield(L, -1, "trust");
        lua_getfield(L, -2, "site");
        items[i].site = lua_isnil(L, -1) ? (uint64_t)i : gm_hash_text(GM_HASH_START, luaL_checkstring(L, -1));
        lua_pop(L, 1);
        items[i].trust = lua_isnil(L, -1) || lua_toboolean(L, -1);
        lua_pop(L, 1);
        lua_pop(L, 1);
    }
    return items;
}

static const char *const names[] = {
#define GM_OPTIMIZER(name, ...) #name,
#include "../kernels/optimizers.def"
#undef GM_OPTIMIZER
    NULL};

/* The attributes at arg, or a list of such tables. */
static gm_attrs *push_attrs(lua_State *L, int arg, int *n)
{
    int many = lua_istable(L, arg) ? (int)lua_objlen(L, arg) : 0;
    *n = many ? many : 1;
    gm_attrs *attrs = lua_newuserdata(L, (size_t)*n * sizeof *attrs);
    if (!many) gm_read_attrs(L, arg, attrs);
    for (int i = 0; i < many; i++) {
        lua_rawgeti(L, arg, i + 1);
        gm_read_attrs(L, lua_gettop(L), &attrs[i]);
        lua_pop(L, 1);
    }
    return attrs;
}

/* optimizer(name in optimizers.def, parameters, attributes or a list of them, items or nil) */
static int optimizer(lua_State *L)
{
    gm_op op = GM_OP_COUNT;
    int   n, n_attrs;
    gm_op_parse(names[gm_check_option(L, 1, NULL, names)], &op);
    lua_settop(L, 4);
    gm_attrs          *attrs = push_attrs(L, 3, &n_attrs);
    gm_value         **parameters = gm_push_values(L, 2, &n);
    gm_optimizer_item *items = push_items(L, 4, n, n_attrs, attrs);
    box               *b = lua_newuserdata(L, sizeof *b);
    b->optimizer = NULL;
    luaL_getmetatable(L, OPTIMIZER);
    lua_setmetatable(L, -2);
    L_TRY(L, gm_optimizer_new(gm_lua_rank(L), op, n, parameters, n_attrs, attrs, items, &b->optimizer));
    return 1;
}

gm_update gm_check_update(lua_State *L, int arg)
{
    gm_update u;
    luaL_checktype(L, arg, LUA_TTABLE);
    lua_getfield(L, arg, "lr");
    u.lr = luaL_checknumber(L, -1);
    u.clip = gm_field_number(L, arg, "clip", 1);
    u.loss_scale = gm_field_number(L, arg, "loss_scale", 1);
    lua_getfield(L, arg, "control");
    u.control = lua_isnil(L, -1) ? NULL : gm_control_tensor(gm_check_control(L, lua_gettop(L)));
    return u;
}

/* o:step{ lr, clip = 1, loss_scale = 1, control = nil } */
static int step(lua_State *L)
{
    gm_optimizer *o = check_optimizer(L);
    gm_update     u = gm_check_update(L, 2);
    L_TRY(L, gm_optimizer_step(o, u.lr, u.clip, u.loss_scale, u.control));
    return 0;
}

void gm_push_state(lua_State *L, int i, const char *name, gm_tensor *t, const gm_value *p, const gm_layout *layout)
{
    gm_rank  *r = gm_lua_rank(L);
    gm_value *v;
    lua_createtable(L, 0, 4);
    lua_pushinteger(L, i + 1);
    lua_setfield(L, -2, "parameter");
    lua_pushstring(L, name);
    lua_setfield(L, -2, "name");
    lua_pushboolean(L, t->storage->home && !t->storage->block);
    lua_setfield(L, -2, "resting");
    gm_handle *h = gm_push_handle(L);
    gm_tensor_retain(t);
    gm_status st = gm_value_take_block(r, t, layout, p->ndim, p->shape, &v);
    if (st != GM_OK) gm_raise(L, st);
    gm_handle_fill(r, h, v, "optimizer state");
    lua_setfield(L, -2, "tensor");
}

/* o:offload(tier, fraction, unit: bytes of gradients and parameters that go to the host together, for updates there):
 * this part of the states rests in the tier from here on; before the first step */
static int offload(lua_State *L)
{
    L_TRY(L, gm_optimizer_offload(check_optimizer(L), gm_check_tier(L, 2), luaL_checknumber(L, 3),
                                  (uint64_t)luaL_checknumber(L, 4)));
    return 0;
}

/* o:room(kind: "host" or "disk") -> bytes that all states take of a tier, and those of the parameter that has most */
static int room(lua_State *L)
{
    uint64_t all, largest;
    gm_optimizer_room(check_optimizer(L), gm_check_tier_kind(L, 2), &all, &largest);
    lua_pushnumber(L, (lua_Number)all);
    lua_pushnumber(L, (lua_Number)largest);
    return 2;
}

/* Instead of a tensor: place and bytes of a state that is kept in fewer bits. */
static void push_compact(lua_State *L, int i, int k, const char *name, const gm_tensor *t)
{
    lua_createtable(L, 0, 5);
    gm_set_number(L, "parameter", i + 1);
    gm_set_number(L, "place", k + 1);
    gm_set_number(L, "bytes", (double)gm_tensor_numel(t) * (double)gm_dtype_size(t->dtype));
    lua_pushstring(L, name);
    lua_setfield(L, -2, "name");
    lua_pushboolean(L, t->storage->home && !t->storage->block);
    lua_setfield(L, -2, "resting");
}

/* o:state() -> list of { parameter = index, name, tensor, resting: outside of memory? } sharing the moments' memory,
 * laid out as the gradient */
static int state(lua_State *L)
{
    gm_optimizer *o = check_optimizer(L);
    int           n = 0;
    lua_newtable(L);
    for (int i = 0; i < gm_optimizer_parameters(o); i++)
        for (int k = 0;; k++) {
            const char *name;
            gm_tensor  *t;
            L_TRY(L, gm_optimizer_state(o, i, k, &name, &t));
            if (!t) break;
            if (gm_optimizer_is_compact(o, i, k)) push_compact(L, i, k, name, t);
            else gm_push_state(L, i, name, t, gm_optimizer_parameter(o, i), gm_optimizer_layout(o, i));
            lua_rawseti(L, -2, ++n);
        }
    return 1;
}

/* The parameter and the place of an entry of o:state() without a tensor, from 0. */
static void check_entry(lua_State *L, gm_optimizer *o, int *i, int *k)
{
    *i = (int)gm_check_integer(L, 2) - 1;
    *k = (int)gm_check_integer(L, 3) - 1;
    gm_check_argument(L, *i >= 0 && *i < gm_optimizer_parameters(o), 2, "there is no such parameter");
    gm_check_argument(L, *k >= 0 && gm_optimizer_is_compact(o, *i, *k), 3, "no state in fewer bits has this place");
}

/* o:numbers(parameter, place) -> a new tensor of f32, of a state that is kept in fewer bits */
static int numbers(lua_State *L)
{
    gm_optimizer *o = check_optimizer(L);
    gm_rank      *r = gm_lua_rank(L);
    int           i, k;
    gm_tensor    *t;
    gm_value     *v;
    check_entry(L, o, &i, &k);
    gm_handle      *h = gm_push_handle(L);
    const gm_value *p = gm_optimizer_parameter(o, i);
    L_TRY(L, gm_optimizer_numbers(o, i, k, &t));
    L_TRY(L, gm_value_take_block(r, t, gm_optimizer_layout(o, i), p->ndim, p->shape, &v));
    gm_handle_fill(r, h, v, "optimizer state");
    return 1;
}

/* o:set_numbers(parameter, place, tensor): of a tensor as numbers gives it */
static int set_numbers(lua_State *L)
{
    gm_optimizer *o = check_optimizer(L);
    int           i, k;
    check_entry(L, o, &i, &k);
    L_TRY(L, gm_optimizer_set_numbers(o, i, k, gm_check_value(L, 4)->local));
    return 0;
}

static int steps(lua_State *L)
{
    lua_pushnumber(L, (lua_Number)gm_optimizer_steps(check_optimizer(L)));
    return 1;
}

static int set_steps(lua_State *L)
{
    int64_t n = gm_check_integer(L, 2);
    gm_check_argument(L, n >= 0, 2, "a number of steps is not negative");
    gm_optimizer_set_steps(check_optimizer(L), n);
    return 0;
}

/* o:set_skipped(n): of the steps made, n were left out in all */
static int set_skipped(lua_State *L)
{
    gm_optimizer_set_skipped(check_optimizer(L), gm_check_integer(L, 2));
    return 0;
}

/* o:missed() -> list of numbers, one a parameter: updates that were made without it */
static int missed(lua_State *L)
{
    gm_optimizer *o = check_optimizer(L);
    lua_createtable(L, gm_optimizer_parameters(o), 0);
    for (int i = 0; i < gm_optimizer_parameters(o); i++) {
        double n;
        L_TRY(L, gm_optimizer_missed(o, i, &n));
        lua_pushnumber(L, n);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* o:set_missed(list) */
static int set_missed(lua_State *L)
{
    gm_optimizer *o = check_optimizer(L);
    int           n = gm_optimizer_parameters(o);
    luaL_checktype(L, 2, LUA_TTABLE);
    double *list = lua_newuserdata(L, ((size_t)n + 1) * sizeof *list);
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, 2, i + 1);
        list[i] = luaL_checknumber(L, -1);
        lua_pop(L, 1);
    }
    L_TRY(L, gm_optimizer_set_missed(o, list));
    return 0;
}

/* o:prepare(lr): the step block as the next step will have it */
static int prepare(lua_State *L)
{
    gm_optimizer_prepare(check_optimizer(L), luaL_checknumber(L, 2));
    return 0;
}

/* o:regrouped() -> grows whenever a graph of a step from before does not fit any more (gm_optimizer_regrouped) */
static int regrouped(lua_State *L)
{
    lua_pushnumber(L, (lua_Number)gm_optimizer_regrouped(check_optimizer(L)));
    return 1;
}

/* o:set_momentum(m): momentum or beta1 from the next step on */
static int set_momentum(lua_State *L)
{
    L_TRY(L, gm_optimizer_set_momentum(check_optimizer(L), luaL_checknumber(L, 2)));
    return 0;
}

static int bytes(lua_State *L)
{
    lua_pushnumber(L, (lua_Number)gm_optimizer_bytes(check_optimizer(L)));
    return 1;
}

static int close(lua_State *L)
{
    box *b = gm_check_object(L, 1, OPTIMIZER);
    gm_optimizer_free(b->optimizer);
    b->optimizer = NULL;
    return 0;
}

int gm_open_optim(lua_State *L)
{
    static const gm_declaration methods[] = {
        GM_FUNCTION("step", step, "optimizer object, values table"),
        GM_FUNCTION("offload", offload, "optimizer object, tier object, fraction number, unit number"),
        GM_FUNCTION("room", room, "optimizer object, kind string"),
        GM_FUNCTION("state", state, "optimizer object"),
        GM_FUNCTION("numbers", numbers, "optimizer object, parameter integer, place integer"),
        GM_FUNCTION("set_numbers", set_numbers, "optimizer object, parameter integer, place integer, values tensor"),
        GM_FUNCTION("steps", steps, "optimizer object"),
        GM_FUNCTION("set_steps", set_steps, "optimizer object, n integer"),
        GM_FUNCTION("set_skipped", set_skipped, "optimizer object, n integer"),
        GM_FUNCTION("missed", missed, "optimizer object"),
        GM_FUNCTION("set_missed", set_missed, "optimizer object, updates table"),
        GM_FUNCTION("regrouped", regrouped, "optimizer object"),
        GM_FUNCTION("prepare", prepare, "optimizer object, lr number"),
        GM_FUNCTION("set_momentum", set_momentum, "optimizer object, momentum number"),
        GM_FUNCTION("bytes", bytes, "optimizer object"),
        GM_FUNCTION("close", close, "optimizer object"),
        GM_LAST_FUNCTION};
    static const gm_declaration functions[] = {
        GM_FUNCTION("optimizer", optimizer, "kind string, parameters table, attributes table?, items table?"),
        GM_LAST_FUNCTION};
    gm_new_class(L, OPTIMIZER, methods, close);
    gm_declare(L, functions);
    return 0;
}
