/* lua_run_op.c - any op of ops.def on any backend, with raw attributes: what specs compare backends by. */
#include "gm_lua.h"

#include <string.h>
#include "../kernels/cpu/amx.h"
#include "../kernels/cpu/cpu.h"

#define MAX_TENSORS 256

/* The entries 1..n of the table at arg: tensors, nil or false; true entries of outputs are marked. */
static int read_list(lua_State *L, int arg, gm_tensor **t, bool *make)
{
    luaL_checktype(L, arg, LUA_TTABLE);
    int n = (int)gm_field_number(L, arg, "n", (double)lua_objlen(L, arg));
    gm_check_argument(L, n >= 0 && n <= MAX_TENSORS, arg, "too many tensors");
    for (int i = 0; i < n; i++) {
        t[i] = NULL;
        lua_rawgeti(L, arg, i + 1);
        if (make) make[i] = lua_isboolean(L, -1) && lua_toboolean(L, -1);
        gm_value *v = lua_isboolean(L, -1) ? NULL : gm_opt_value(L, lua_gettop(L));
        if (v) t[i] = v->local;
        lua_pop(L, 1);
    }
    return n;
}

/* The call by the backend's table: over the same memory where it can be reached, else on a device of its own. */
static gm_status run_by(gm_rank *r, gm_device *dev, const char *name, const gm_call *c)
{
    const gm_backend *be = gm_backend_find(name);
    if (be && (!be->has_data || be->on_host == dev->backend->on_host)) return gm_run_with(dev, be, c);
    if (!be && !strcmp(name, dev->backend->name)) return gm_run(dev, c);
    if (r->other && strcmp(name, r->other->backend->name)) {
        gm_device_free(r->other);
        r->other = NULL;
    }
    if (!r->other) GM_TRY(gm_device_new(name, 1, &r->other));
    return gm_run_elsewhere(dev, r->other, c);
}

/* run_op(backend, op, inputs, outputs, attributes) -> list of outputs. outputs: a tensor where the op
 * updates in place, true where a new one is wanted, false or nil where none is. */
static int run_op(lua_State *L)
{
    gm_rank    *r = gm_lua_rank(L);
    gm_device  *dev;
    gm_op       op;
    gm_tensor  *in[MAX_TENSORS], *out[MAX_TENSORS];
    bool        make[MAX_TENSORS];
    gm_spec     spec[GM_MAX_OUT];
    gm_attrs    a;
    const char *name = luaL_checkstring(L, 1);
    if (!gm_op_parse(luaL_checkstring(L, 2), &op)) return gm_bad_argument(L, 2, "there is no such op");
    L_TRY(L, gm_rank_device(r, &dev));
    gm_read_attrs(L, 5, &a);
    int     n_in = read_list(L, 3, in, NULL), n_out = read_list(L, 4, out, make);
    gm_call c = {.op = op, .n_in = n_in, .n_out = n_out, .in = in, .out = out, .attrs = &a};
    L_TRY(L, gm_infer(&c, n_out <= GM_MAX_OUT ? spec : NULL));
    lua_createtable(L, n_out, 0);
    for (int i = 0; i < n_out; i++) {
        if (make[i]) {
            gm_handle *h = gm_push_handle(L);
            gm_value  *v;
            gm_check_argument(L, n_out <= GM_MAX_OUT, 4, "outputs of a multi-tensor op are given, not made");
            L_TRY(L, gm_value_new(r, gm_op_name(op), spec[i].dtype, spec[i].ndim, spec[i].shape, &v));
            gm_handle_fill(r, h, v, gm_op_name(op));
            out[i] = v->local;
        } else {
            lua_rawgeti(L, 4, i + 1);
        }
        lua_rawseti(L, -2, i + 1);
    }
    L_TRY(L, run_by(r, dev, name, &c));
    return 1;
}

/* has_backend(name) -> boolean, and why not */
static int has_backend(lua_State *L)
{
    bool there = gm_device_exists(luaL_checkstring(L, 1));
    lua_pushboolean(L, there);
    if (there) return 1;
    lua_pushstring(L, gm_last_error());
    return 2;
}

/* amx_refusal() -> nil where products use the tiles of AMX; else why not, and whether the processor has them */
static int amx_refusal(lua_State *L)
{
    lua_pushstring(L, gm_amx_refusal());
    lua_pushboolean(L, gm_amx_exists());
    return 2;
}

/* pairs_slow() -> does this processor multiply pairs of bf16 more slowly than f32? */
static int pairs_slow(lua_State *L)
{
    lua_pushboolean(L, gm_cpu_pairs_slow());
    return 1;
}

/* emulates_avx512() -> is this a build for tests, which runs the tables of AVX-512 by other instructions? */
static int emulates_avx512(lua_State *L)
{
    lua_pushboolean(L, gm_cpu_emulates_avx512());
    return 1;
}

/* op_list() -> list of { name, inputs, outputs, attributes } */
static int op_list(lua_State *L)
{
    lua_createtable(L, GM_OP_COUNT, 0);
    for (int i = 0; i < GM_OP_COUNT; i++) {
        const char *const field[] = {"name",    gm_op_name((gm_op)i),    "inputs",     gm_op_inputs((gm_op)i),
                                     "outputs", gm_op_outputs((gm_op)i), "attributes", gm_op_attrs((gm_op)i)};
        lua_createtable(L, 0, 4);
        for (int k = 0; k < 8; k += 2) {
            lua_pushstring(L, field[k + 1]);
            lua_setfield(L, -2, field[k]);
        }
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* function_list() -> list of { name, op }: what unary, binary and compare know */
static int function_list(lua_State *L)
{
    lua_createtable(L, GM_FN_COUNT, 0);
    for (int i = GM_FN_none + 1; i < GM_FN_COUNT; i++) {
        gm_op op = i < GM_FN_add ? GM_OP_unary : i < GM_FN_eq ? GM_OP_binary : GM_OP_compare;
        lua_createtable(L, 0, 2);
        lua_pushstring(L, gm_function_name((gm_function)i));
        lua_setfield(L, -2, "name");
        lua_pushstring(L, gm_op_name(op));
        lua_setfield(L, -2, "op");
        lua_rawseti(L, -2, i);
    }
    return 1;
}

/* keeps_zero(op, attributes) -> does the list of ops promise zeros for zeros? */
static int keeps_zero(lua_State *L)
{
    gm_op    op;
    gm_attrs a;
    if (!gm_op_parse(luaL_checkstring(L, 1), &op)) return gm_bad_argument(L, 1, "there is no such op");
    gm_read_attrs(L, 2, &a);
    lua_pushboolean(L, gm_keeps_zero(op, &a));
    return 1;
}

int gm_open_run_op(lua_State *L)
{
    static const gm_declaration functions[] = {
        GM_FUNCTION("run_op", run_op, "backend string, op string, inputs table, outputs table, attributes table?"),
        GM_FUNCTION("has_backend", has_backend, "name string"),
        GM_FUNCTION("amx_refusal", amx_refusal, ""),
        GM_FUNCTION("pairs_slow", pairs_slow, ""),
        GM_FUNCTION("emulates_avx512", emulates_avx512, ""),
        GM_FUNCTION("op_list", op_list, ""),
        GM_FUNCTION("function_list", function_list, ""),
        GM_FUNCTION("keeps_zero", keeps_zero, "op string, attributes table?"),
        GM_LAST_FUNCTION};
    gm_declare(L, functions);
    return 0;
}
