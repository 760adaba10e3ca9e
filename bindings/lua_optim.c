/* lua_optim.c - the Lua face of host/optim/optimizer.h: userdata "gm.optimizer". */
#include "gm_lua.h"

#include <stdlib.h>
#include <string.h>
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

/* List of { lr_scale, weight_decay, trust } at arg, one a parameter; absent fields take the defaults. */
static gm_optimizer_item *push_items(lua_State *L, int arg, int n, double weight_decay)
{
    if (lua_isnoneornil(L, arg)) return NULL;
    luaL_checktype(L, arg, LUA_TTABLE);
    gm_optimizer_item *items = lua_newuserdata(L, ((size_t)n + 1) * sizeof *items);
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, arg, i + 1);
        items[i].lr_scale = gm_field_number(L, lua_gettop(L), "lr_scale", 1);
        items[i].weight_decay = gm_field_number(L, lua_gettop(L), "weight_decay", weight_decay);
        lua_getfield(L, -1, "trust");
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

/* optimizer(name in optimizers.def, parameters, attributes, items or nil) */
static int optimizer(lua_State *L)
{
    gm_attrs a;
    gm_op    op = GM_OP_COUNT;
    int      n;
    gm_op_parse(names[gm_check_option(L, 1, NULL, names)], &op);
    lua_settop(L, 4);
    gm_read_attrs(L, 3, &a);
    gm_value         **parameters = gm_push_values(L, 2, &n);
    gm_optimizer_item *items = push_items(L, 4, n, a.weight_decay);
    box               *b = lua_newuserdata(L, sizeof *b);
    b->optimizer = NULL;
    luaL_getmetatable(L, OPTIMIZER);
    lua_setmetatable(L, -2);
    L_TRY(L, gm_optimizer_new(gm_lua_rank(L), op, n, parameters, &a, items, &b->optimizer));
    return 1;
}

/* o:step{ lr, clip = 1, loss_scale = 1, control = nil } */
static int step(lua_State *L)
{
    gm_optimizer *o = check_optimizer(L);
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_getfield(L, 2, "lr");
    double lr = luaL_checknumber(L, -1);
    double clip = gm_field_number(L, 2, "clip", 1), scale = gm_field_number(L, 2, "loss_scale", 1);
    lua_getfield(L, 2, "control");
    gm_tensor *control = lua_isnil(L, -1) ? NULL : gm_control_tensor(gm_check_control(L, lua_gettop(L)));
    L_TRY(L, gm_optimizer_step(o, lr, clip, scale, control));
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

/* o:offload(tier, fraction): this part of the states rests in the rank's tier from here on; before the first step */
static int offload(lua_State *L)
{
    L_TRY(L, gm_optimizer_offload(check_optimizer(L), gm_check_tier(L, 2), luaL_checknumber(L, 3)));
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
            gm_push_state(L, i, name, t, gm_optimizer_parameter(o, i), gm_optimizer_layout(o, i));
            lua_rawseti(L, -2, ++n);
        }
    return 1;
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
        GM_FUNCTION("offload", offload, "optimizer object, tier object, fraction number"),
        GM_FUNCTION("room", room, "optimizer object, kind string"),
        GM_FUNCTION("state", state, "optimizer object"),
        GM_FUNCTION("steps", steps, "optimizer object"),
        GM_FUNCTION("set_steps", set_steps, "optimizer object, n integer"),
        GM_FUNCTION("set_skipped", set_skipped, "optimizer object, n integer"),
        GM_FUNCTION("missed", missed, "optimizer object"),
        GM_FUNCTION("set_missed", set_missed, "optimizer object, updates table"),
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
