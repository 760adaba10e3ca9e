/* lua_step_control.c - the Lua face of host/optim/step_control.h: userdata "gm.control". */
#include "gm_lua.h"

#include <stdlib.h>
#include <string.h>
#include "../host/optim/step_control.h"

#define CONTROL "gm.control"

typedef struct box {
    gm_control *control;
} box;

/* In the order of kernels/step_control.h. */
static const char *const names[GM_CONTROL_SIZE + 1] = {"loss",    "norm",   "factor", "go",    "loss_scale", "good",
                                                       "skipped", "halted", "cause",  "asked", "targets",    NULL};

gm_control *gm_check_control(lua_State *L, int arg)
{
    box *b = gm_check_object(L, arg, CONTROL);
    if (!b->control) gm_bad_argument(L, arg, "this control was closed");
    return b->control;
}

/* step_control() -> the control of a training run's steps */
static int step_control(lua_State *L)
{
    box *b = lua_newuserdata(L, sizeof *b);
    b->control = NULL;
    luaL_getmetatable(L, CONTROL);
    lua_setmetatable(L, -2);
    L_TRY(L, gm_control_new(gm_lua_rank(L), &b->control));
    return 1;
}

static int push_tensor(lua_State *L, gm_tensor *t, const char *what)
{
    gm_rank   *r = gm_lua_rank(L);
    gm_handle *h = gm_push_handle(L);
    gm_value  *v;
    gm_tensor_retain(t);
    gm_status st = gm_value_take(r, t, &v);
    if (st != GM_OK) return gm_raise(L, st);
    gm_handle_fill(r, h, v, what);
    return 1;
}

/* c:add(x): this rank's term of the step's loss, a tensor of one element (its block counts) or a number */
static int add(lua_State *L)
{
    gm_control *c = gm_check_control(L, 1);
    if (lua_type(L, 2) == LUA_TNUMBER) L_TRY(L, gm_control_add_number(c, lua_tonumber(L, 2)));
    else L_TRY(L, gm_control_add_loss(c, gm_check_value(L, 2)->local));
    return 0;
}

/* c:forget(): the terms so far are not of a step that goes on */
static int forget(lua_State *L)
{
    gm_control_forget(gm_check_control(L, 1));
    return 0;
}

#define MOST_NUMBERS 16 /* of an update */

/* c:ask(number, numbers): what this rank is asked for in the steps from here on; with what it makes their updates */
static int ask(lua_State *L)
{
    gm_control *c = gm_check_control(L, 1);
    double      asked = luaL_checknumber(L, 2), numbers[MOST_NUMBERS];
    int         n = (int)lua_objlen(L, 3);
    if (n > MOST_NUMBERS) return gm_bad_argument(L, 3, "at most 16 numbers");
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, 3, i + 1);
        numbers[i] = luaL_checknumber(L, -1);
        lua_pop(L, 1);
    }
    L_TRY(L, gm_control_ask(c, asked, numbers, n));
    return 0;
}

/* c:loss() -> f64 (3), the same memory each time: the loss so far, what this rank was asked for, and its term of a sum
 * that is 0 where all ranks make their updates with the same numbers */
static int loss(lua_State *L)
{
    gm_tensor *t;
    L_TRY(L, gm_control_loss(gm_check_control(L, 1), &t));
    return push_tensor(L, t, "loss of a step");
}

/* c:targets(counts): how many targets the step has, an f64 tensor whose elements add up to it */
static int targets(lua_State *L)
{
    L_TRY(L, gm_control_set_targets(gm_check_control(L, 1), gm_check_value(L, 2)->local));
    return 0;
}

/* c:decide(parameters, attributes of step_control), or c:decide(norm, attributes) */
static int decide(lua_State *L)
{
    gm_control *c = gm_check_control(L, 1);
    gm_attrs    rule;
    gm_read_attrs(L, 3, &rule);
    if (lua_type(L, 2) == LUA_TNUMBER) {
        L_TRY(L, gm_control_decide(c, NULL, 0, lua_tonumber(L, 2), &rule));
        return 0;
    }
    int           n;
    gm_value    **parameters = gm_push_values(L, 2, &n);
    gm_norm_item *items = lua_newuserdata(L, ((size_t)n + 1) * sizeof *items);
    n = gm_norm_gradients(parameters, n, items);
    L_TRY(L, gm_control_decide(c, items, n, 0, &rule));
    return 0;
}

static int send(lua_State *L)
{
    L_TRY(L, gm_control_send(gm_check_control(L, 1)));
    return 0;
}

/* c:take(wait) -> the oldest numbers that were sent, { loss =, norm =, ... }; nil where none are there */
static int take(lua_State *L)
{
    double numbers[GM_CONTROL_SIZE];
    bool   there;
    L_TRY(L, gm_control_take(gm_check_control(L, 1), lua_toboolean(L, 2), numbers, &there));
    if (!there) return 0;
    lua_createtable(L, 0, GM_CONTROL_SIZE);
    for (int i = 0; i < GM_CONTROL_SIZE; i++) {
        lua_pushnumber(L, numbers[i]);
        lua_setfield(L, -2, names[i]);
    }
    return 1;
}

/* c:sent() -> how many numbers have been sent and not taken */
static int sent(lua_State *L)
{
    lua_pushinteger(L, gm_control_sent(gm_check_control(L, 1)));
    return 1;
}

/* c:set(name, value) */
static int set(lua_State *L)
{
    int place = gm_check_option(L, 2, NULL, names);
    L_TRY(L, gm_control_set(gm_check_control(L, 1), place, luaL_checknumber(L, 3)));
    return 0;
}

/* c:tensor() -> the control tensor, f64: the same memory each time */
static int tensor(lua_State *L) { return push_tensor(L, gm_control_tensor(gm_check_control(L, 1)), "control"); }

/* c:scale_losses(on): do backward passes of losses begin with the loss scale? */
static int scale_losses(lua_State *L)
{
    L_TRY(L, gm_control_scale_losses(gm_check_control(L, 1), lua_toboolean(L, 2)));
    return 0;
}

static int resume(lua_State *L)
{
    L_TRY(L, gm_control_resume(gm_check_control(L, 1)));
    return 0;
}

static int close(lua_State *L)
{
    box *b = gm_check_object(L, 1, CONTROL);
    gm_control_free(b->control);
    b->control = NULL;
    return 0;
}

int gm_open_step_control(lua_State *L)
{
    static const gm_declaration methods[] = {
        GM_FUNCTION("add", add, "control object, x tensor|number"),
        GM_FUNCTION("forget", forget, "control object"),
        GM_FUNCTION("ask", ask, "control object, asked number, numbers table"),
        GM_FUNCTION("loss", loss, "control object"),
        GM_FUNCTION("targets", targets, "control object, counts tensor"),
        GM_FUNCTION("decide", decide, "control object, norm table|number, attributes table?"),
        GM_FUNCTION("send", send, "control object"),
        GM_FUNCTION("take", take, "control object, wait boolean?"),
        GM_FUNCTION("sent", sent, "control object"),
        GM_FUNCTION("set", set, "control object, name string, value number"),
        GM_FUNCTION("tensor", tensor, "control object"),
        GM_FUNCTION("resume", resume, "control object"),
        GM_FUNCTION("close", close, "control object"),
        GM_FUNCTION("scale_losses", scale_losses, "control object, on boolean?"),
        GM_LAST_FUNCTION};
    static const gm_declaration functions[] = {GM_FUNCTION("step_control", step_control, ""), GM_LAST_FUNCTION};
    gm_new_class(L, CONTROL, methods, close);
    gm_declare(L, functions);
    return 0;
}
