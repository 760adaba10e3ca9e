/* lua_autograd.c - gradients: backward, leaves, no_grad, custom functions. */
#include "gm_lua.h"

#include <stdlib.h>
#include <string.h>
#include "../host/autograd/padding.h"
#include "../host/autograd/sparse.h"
#include "../host/parallel/redistribute.h"
#include "docs/docs.h"
#include "docs/autograd.def"

/* backward's options at arg -> retain_graph */
static bool backward_options(lua_State *L, int arg)
{
    bool retain = false;
    if (lua_isnoneornil(L, arg)) return false;
    for (lua_pushnil(L); lua_next(L, arg); lua_pop(L, 1)) {
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
        if (!strcmp(key, "create_graph"))
            luaL_error(L,
                       "backward: there are no gradients of gradients (create_graph): what a backward computes is not "
                       "recorded");
        if (strcmp(key, "retain_graph")) luaL_error(L, "backward has no option '%s'; it takes retain_graph", key);
        if (!lua_isboolean(L, -1))
            luaL_error(L, "backward: retain_graph is true or false, not a %s", luaL_typename(L, -1));
        retain = lua_toboolean(L, -1);
    }
    return retain;
}

/* backward(loss [, seed gradient or nil] [, { retain_graph = false }]) */
static int backward(lua_State *L)
{
    bool      only = lua_istable(L, 2);
    gm_value *loss = gm_check_value(L, 1), *seed = only ? NULL : gm_opt_value(L, 2);
    bool      retain = backward_options(L, only ? 2 : 3);
    void     *outer = loss->rank->caller;
    loss->rank->caller = L;
    gm_status st = gm_tape_backward(loss, seed, retain); /* releases the graph: cannot be tried twice */
    gm_lua_rank(L)->caller = outer;
    return st == GM_OK ? 0 : gm_raise(L, st);
}

/* requires_grad(t [, on]) -> boolean, or t when it was set */
static int requires_grad(lua_State *L)
{
    gm_value *v = gm_check_value(L, 1);
    if (lua_isnoneornil(L, 2)) {
        lua_pushboolean(L, v->requires_grad);
        return 1;
    }
    L_TRY(L, gm_value_require_grad(v, lua_toboolean(L, 2)));
    lua_settop(L, 1);
    return 1;
}

/* v's gradient as a value: cut as v is. What is still a sum over ranks is summed here, for the reader alone. */
static gm_status read_grad(gm_value *v, gm_value **out)
{
    gm_value  *g = NULL;
    gm_layout  layout;
    gm_tensor *t = gm_value_final_grad(v, &layout);
    if (!t) GM_TRY(gm_sparse_whole(v, &t));
    else {
        gm_tensor_retain(t);
        gm_padding_show_gradient(v);
    }
    GM_TRY(gm_value_take_block(v->rank, t, &layout, v->ndim, v->shape, &g));
    if (!layout.partial) {
        *out = g;
        return GM_OK;
    }
    layout.partial = 0;
    v->rank->no_grad++;
    gm_status st = gm_redistribute(v->rank, g, &layout, out);
    v->rank->no_grad--;
    gm_value_release(g);
    return st;
}

/* retain_grad(t) -> t, whose gradient backward keeps from now on */
static int retain_grad(lua_State *L)
{
    L_TRY(L, gm_value_retain_grad(gm_check_value(L, 1)));
    lua_settop(L, 1);
    return 1;
}

/* grad(t) -> tensor that shares the gradient's memory, or nil. Collective while the gradient is a sum over ranks that
 * has not been made: then the tensor is a copy. */
static int grad(lua_State *L)
{
    gm_value *v = gm_check_value(L, 1), *g;
    if (v->node && !v->keeps_grad)
        return luaL_error(
            L,
            "grad: this tensor was computed by '%s', and gradients of computed tensors are not kept; call "
            "t:retain_grad() before backward",
            gm_node_name(v->node));
    if (!gm_value_has_grad(v)) return 0;
    gm_handle *h = gm_push_handle(L);
    L_TRY(L, read_grad(v, &g));
    gm_handle_fill(v->rank, h, g, "grad");
    return 1;
}

static int detach(lua_State *L)
{
    gm_value  *v = gm_check_value(L, 1), *d;
    gm_handle *h = gm_push_handle(L);
    L_TRY(L, gm_value_detach(v, &d));
    gm_handle_fill(v->rank, h, d, "detach");
    return 1;
}

/* zero_grad(list of parameters) */
static int zero_grad(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    for (int i = 1, n = (int)lua_objlen(L, 1); i <= n; i++) {
        lua_rawgeti(L, 1, i);
        gm_value_zero_grad(gm_check_value(L, -1));
        lua_pop(L, 1);
    }
    return 0;
}

/* wide_gradients(list of parameters, on): those of 16 bits hold their gradients in f32, or no longer */
static int wide_gradients(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    bool on = lua_toboolean(L, 2);
    for (int i = 1, n = (int)lua_objlen(L, 1); i <= n; i++) {
        lua_rawgeti(L, 1, i);
        gm_value *v = gm_check_value(L, -1);
        if (v->param) L_TRY(L, gm_value_set_wide_grad(v, on));
        lua_pop(L, 1);
    }
    return 0;
}

/* grad_clear(t): the gradient of the parameter t becomes zeros, as if a loss had not depended on its numbers */
static int grad_clear(lua_State *L)
{
    gm_value *v = gm_check_value(L, 1);
    gm_check_argument(L, v->param != NULL, 1, "a tensor that requires a gradient");
    L_TRY(L, gm_value_clear_grad(v));
    return 0;
}

/* grad_part(t) -> this rank's term of the gradient, or nil: its block, sharing memory. No communication. */
static int grad_part(lua_State *L)
{
    gm_value  *v = gm_check_value(L, 1), *g;
    gm_layout  layout;
    gm_tensor *t = gm_value_final_grad(v, &layout);
    if (!t) return 0;
    gm_handle *h = gm_push_handle(L);
    gm_tensor_retain(t);
    gm_padding_show_gradient(v);
    L_TRY(L, gm_value_take(v->rank, t, &g));
    gm_handle_fill(v->rank, h, g, "grad_part");
    return 1;
}

/* grad_summed(list of parameters): who reduced their gradients in place says that they are the sums now */
static int grad_summed(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    for (int i = 1, n = (int)lua_objlen(L, 1); i <= n; i++) {
        lua_rawgeti(L, 1, i);
        gm_value *v = gm_check_value(L, -1);
        if (v->param) v->param->grad_partial = 0;
        lua_pop(L, 1);
    }
    return 0;
}

/* no_grad(+1 or -1): entering and leaving a region that records nothing; returns the depth. */
static int no_grad(lua_State *L)
{
    gm_rank *r = gm_lua_rank(L);
    int      depth = r->no_grad + (int)luaL_checkinteger(L, 1);
    if (depth < 0) return luaL_error(L, "no_grad was left more often than entered");
    r->no_grad = depth;
    lua_pushinteger(L, depth);
    return 1;
}

/* A Lua function called from the tape: kept in the registry, called by gm_call_from_c on whatever
 * coroutine runs backward (rank->caller), never on the one that recorded it, which may be dead. */
typedef struct lua_callback {
    gm_rank *rank;
    int      ref;
} lua_callback;

static void push_borrowed(lua_State *L, gm_rank *r, gm_value *v)
{
    if (!v) {
        lua_pushnil(L);
        return;
    }
    gm_handle *h = gm_push_handle(L);
    gm_value_retain(v);
    gm_handle_fill(r, h, v, "custom function");
}

/* Runs in a protected call: arguments and results travel in the struct behind the light userdata. */
typedef struct call_frame {
    const lua_callback *callback;
    int                 n_in, n_out;
    gm_value *const    *in;
    const bool         *want; /* NULL: it is not told */
    gm_value          **out;
} call_frame;

static void push_wanted(lua_State *L, int n, const bool *want)
{
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        lua_pushboolean(L, want[i]);
        lua_rawseti(L, -2, i + 1);
    }
}

static int call_protected(lua_State *L)
{
    call_frame *f = lua_touserdata(L, 1);
    gm_rank    *r = gm_lua_rank(L);
    luaL_checkstack(L, f->n_in + f->n_out + 6, "custom function");
    lua_rawgeti(L, LUA_REGISTRYINDEX, f->callback->ref);
    for (int i = 0; i < f->n_in; i++) push_borrowed(L, r, f->in[i]);
    if (f->want) push_wanted(L, f->n_out, f->want);
    lua_call(L, f->n_in + (f->want != NULL), f->n_out);
    for (int i = 0; i < f->n_out; i++) {
        gm_value *v = gm_opt_value(L, lua_gettop(L) - f->n_out + 1 + i);
        if (v) gm_value_retain(f->out[i] = v);
    }
    return 0;
}

static gm_status call_lua(void *context, int n_in, gm_value *const *in, int n_out, const bool *want, gm_value **out)
{
    lua_callback *c = context;
    call_frame    f = {c, n_in, n_out, in, want, out};
    lua_State    *L = c->rank->caller;
    lua_pushcfunction(L, call_protected);
    lua_pushlightuserdata(L, &f);
    return gm_call_from_c(L, 1, 0);
}

static void release_lua(void *context)
{
    lua_callback *c = context;
    luaL_unref(c->rank->main, LUA_REGISTRYINDEX, c->ref);
    free(c);
}

static int read_values(lua_State *L, int arg, gm_value **out)
{
    luaL_checktype(L, arg, LUA_TTABLE);
    int n = (int)lua_objlen(L, arg);
    if (n > GM_MAX_OUT) gm_bad_argument(L, arg, "too many tensors for a custom function");
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, arg, i + 1);
        out[i] = gm_check_value(L, lua_gettop(L));
        lua_pop(L, 1);
    }
    return n;
}

gm_callback gm_check_callback(lua_State *L, int arg)
{
    luaL_checktype(L, arg, LUA_TFUNCTION);
    lua_pushvalue(L, arg);
    int           ref = luaL_ref(L, LUA_REGISTRYINDEX);
    lua_callback *c = malloc(sizeof *c);
    if (!c) {
        luaL_unref(L, LUA_REGISTRYINDEX, ref);
        luaL_error(L, "no memory for a custom function");
    }
    *c = (lua_callback){gm_lua_rank(L), ref};
    return (gm_callback){call_lua, c, release_lua};
}

/* record_custom(inputs, outputs, backward [, splits]): makes the outputs depend on the inputs; see gm.custom. */
static int record_custom(lua_State *L)
{
    gm_value   *in[GM_MAX_OUT], *out[GM_MAX_OUT];
    int         n_in = read_values(L, 1, in), n_out = read_values(L, 2, out);
    gm_callback backward = gm_check_callback(L, 3);
    gm_status   st = gm_record_custom(gm_lua_rank(L), n_in, in, n_out, out, backward, lua_toboolean(L, 4));
    return st == GM_OK ? 0 : gm_raise(L, st);
}

/* loss_seed(dtype) -> a scalar of this dtype: what backward of a loss begins with, 1 or the loss scale */
static int loss_seed(lua_State *L)
{
    gm_dtype   dtype = gm_check_dtype(L, 1);
    gm_handle *h = gm_push_handle(L);
    gm_value  *v;
    L_TRY(L, gm_loss_seed(gm_lua_rank(L), dtype, &v));
    gm_handle_fill(gm_lua_rank(L), h, v, "loss_seed");
    return 1;
}

int gm_open_autograd(lua_State *L)
{
    static const gm_declaration functions[] = {
        GM_PUBLIC(backward, backward, "loss tensor, seed tensor|boolean|table?, options table?"),
        GM_PUBLIC(requires_grad, requires_grad, "t tensor, on boolean?"),
        GM_PUBLIC(grad, grad, "t tensor"),
        GM_PUBLIC(retain_grad, retain_grad, "t tensor"),
        GM_PUBLIC(detach, detach, "t tensor"),
        GM_FUNCTION("zero_grad", zero_grad, "parameters table"),
        GM_FUNCTION("wide_gradients", wide_gradients, "parameters table, on boolean"),
        GM_FUNCTION("grad_clear", grad_clear, "t tensor"),
        GM_FUNCTION("grad_part", grad_part, "t tensor"),
        GM_FUNCTION("grad_summed", grad_summed, "parameters table"),
        GM_FUNCTION("loss_seed", loss_seed, "dtype string"),
        GM_FUNCTION("no_grad", no_grad, "change integer"),
        GM_FUNCTION("record_custom", record_custom, "inputs table, outputs table, backward function, splits boolean?"),
        GM_LAST_FUNCTION};
    gm_declare(L, functions);
    return 0;
}
