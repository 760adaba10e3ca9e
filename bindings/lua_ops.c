/* lua_ops.c - differentiable ops: core.ops.*, what ganymede.tensor.ops hands to users. Dimensions count from
 * 1, or from -1 at the end. Every function returns new tensors. Copies, views and cat are in lua_views.c. */
#include "lua_ops.h"

#include <string.h>
#include "../host/parallel/sharded/ring.h"
#include "../kernels/philox.h"
#include "docs/docs.h"
#include "docs/ops.def"

int gm_apply_one(lua_State *L, gm_op op, int n_in, gm_value *const *in, gm_attrs *a)
{
    gm_value  *y;
    gm_handle *h = gm_push_handle(L);
    a->name = gm_declared(L)->name;
    L_TRY(L, gm_apply_first(gm_lua_rank(L), op, n_in, in, a, &y));
    gm_handle_fill(gm_lua_rank(L), h, y, a->name);
    return 1;
}

int gm_apply_two(lua_State *L, gm_op op, gm_value *x, gm_attrs *a, const char *name)
{
    gm_rank   *r = gm_lua_rank(L);
    gm_value  *out[2];
    gm_handle *h[2];
    for (int i = 0; i < 2; i++) h[i] = gm_push_handle(L);
    L_TRY(L, gm_apply(r, op, 1, &x, a, 2, NULL, out));
    for (int i = 0; i < 2; i++) gm_handle_fill(r, h[i], out[i], name);
    return 2;
}

/* A number as a tensor of no dimensions, of the dtype of the other operand. */
static int push_scalar(lua_State *L, double v, gm_dtype dtype, gm_value **out)
{
    gm_rank   *r = gm_lua_rank(L);
    gm_attrs   a = gm_attrs_default();
    gm_handle *h = gm_push_handle(L);
    L_TRY(L, gm_value_new(r, "number", dtype, 0, NULL, out));
    gm_handle_fill(r, h, *out, "number");
    a.value = v;
    gm_call c = {.op = GM_OP_fill, .n_out = 1, .out = &(*out)->local, .attrs = &a};
    L_TRY(L, gm_run(r->device, &c));
    return 0;
}

/* alpha x + beta for tensor-number sums, differences and products; false: not of that kind. */
static bool as_affine(gm_function f, bool number_first, double c, gm_attrs *a)
{
    if (f == GM_FN_add) a->beta = c;
    else if (f == GM_FN_mul) a->alpha = c;
    else if (f == GM_FN_sub) {
        a->alpha = number_first ? -1 : 1;
        a->beta = number_first ? c : -c;
    } else return false;
    return true;
}

/* binary functions and comparisons: which the function, flag the op. */
static int binary(lua_State *L)
{
    gm_function f = (gm_function)gm_declared(L)->which;
    gm_op       op = (gm_op)gm_declared(L)->flag;
    gm_attrs    a = gm_attrs_default();
    gm_value   *in[2] = {NULL, NULL};
    bool        first = lua_type(L, 1) == LUA_TNUMBER, second = lua_type(L, 2) == LUA_TNUMBER;
    if (!first) in[0] = gm_check_value(L, 1);
    if (!second) in[1] = gm_check_value(L, 2);
    if (first && second) return gm_bad_argument(L, 1, "one of the two must be a tensor");
    lua_settop(L, 2);
    if (first || second) {
        double c = lua_tonumber(L, first ? 1 : 2);
        if (as_affine(f, first, c, &a)) return gm_apply_one(L, GM_OP_affine, 1, first ? &in[1] : &in[0], &a);
        if (f == GM_FN_pow && second) {
            a.function = GM_FN_power;
            a.value = c;
            return gm_apply_one(L, GM_OP_unary, 1, in, &a);
        }
        push_scalar(L, c, (first ? in[1] : in[0])->local->dtype, first ? &in[0] : &in[1]);
    }
    a.function = f;
    return gm_apply_one(L, op, 2, in, &a);
}

static int where(lua_State *L)
{
    gm_attrs  a = gm_attrs_default();
    gm_value *in[3] = {gm_check_value(L, 1), NULL, NULL};
    gm_dtype  dtype = GM_F32;
    lua_settop(L, 3);
    for (int i = 1; i < 3; i++)
        if (lua_type(L, i + 1) != LUA_TNUMBER) dtype = (in[i] = gm_check_value(L, i + 1))->local->dtype;
    if (!in[1] && !in[2]) dtype = gm_lua_rank(L)->default_dtype;
    for (int i = 1; i < 3; i++)
        if (!in[i]) push_scalar(L, lua_tonumber(L, i + 1), dtype, &in[i]);
    return gm_apply_one(L, GM_OP_where, 3, in, &a);
}

/* matmul(a, b [, { transpose_a, transpose_b, alpha }]) */
static int matmul(lua_State *L)
{
    gm_attrs  a = gm_attrs_default();
    gm_value *in[2] = {gm_check_value(L, 1), gm_check_value(L, 2)};
    a.transpose_a = gm_field_flag(L, 3, "transpose_a");
    a.transpose_b = gm_field_flag(L, 3, "transpose_b");
    a.alpha = gm_field_number(L, 3, "alpha", 1);
    return gm_apply_one(L, GM_OP_matmul, 2, in, &a);
}

/* linear(x, w, b or nil, activation or nil): x (..., in), w (out, in) -> (..., out); collective where layouts are such
 * that operands travel */
static int linear(lua_State *L)
{
    gm_value   *x = gm_check_value(L, 1), *w = gm_check_value(L, 2), *b = gm_opt_value(L, 3);
    gm_function f = GM_FN_none;
    const char *name = luaL_optstring(L, 4, "none");
    if (!gm_function_parse(name, &f))
        return gm_bad_argument(L, 4, lua_pushfstring(L, "there is no activation '%s'", name));
    gm_attrs a = gm_attrs_default();
    a.function = f;
    return gm_apply_one(L, GM_OP_linear, 3, (gm_value *[]){x, w, b}, &a);
}

/* layer_norm(x, w, b, eps), rms_norm(x, w, eps), and with a residual added first
 * add_layer_norm(x, residual, w, b, eps) -> y, x + residual, add_rms_norm(x, residual, w, eps) -> the same.
 * which: the op; flag: whether there is a residual. */
static int norm(lua_State *L)
{
    gm_op     op = (gm_op)gm_declared(L)->which;
    bool      residual = gm_declared(L)->flag, want[4] = {true, residual};
    gm_rank  *r = gm_lua_rank(L);
    gm_attrs  a = gm_attrs_default();
    int       parameters = op == GM_OP_layer_norm ? 2 : 1, arg = residual ? 3 : 2;
    gm_value *in[4] = {gm_check_value(L, 1), residual ? gm_check_value(L, 2) : NULL}, *out[4];
    for (int i = 0; i < parameters; i++) in[2 + i] = gm_opt_value(L, arg + i);
    a.eps = luaL_optnumber(L, arg + parameters, a.eps);
    a.name = gm_declared(L)->name;
    gm_handle *h = gm_push_handle(L), *sum = residual ? gm_push_handle(L) : NULL;
    L_TRY(L, gm_apply(r, op, 2 + parameters, in, &a, 2 + parameters, want, out));
    gm_handle_fill(r, h, out[0], a.name);
    if (residual) gm_handle_fill(r, sum, out[1], a.name);
    return residual ? 2 : 1;
}

/* softmax(x, d = -1), log_softmax: which the op. */
static int softmax(lua_State *L)
{
    gm_attrs  a = gm_attrs_default();
    gm_value *x = gm_check_value(L, 1);
    gm_op     op = (gm_op)gm_declared(L)->which;
    if (!lua_isnoneornil(L, 2)) a.dim = gm_check_dim_arg(L, 2, x->ndim ? x->ndim : 1);
    PUSH(L, gm_op_name(op), gm_softmax(gm_lua_rank(L), op, x, &a, &y));
}

/* The tensor in this field of the options at arg, which stays on the stack, and so alive; NULL: there is none. */
static gm_value *tensor_field(lua_State *L, int arg, const char *name)
{
    if (!lua_istable(L, arg)) return NULL;
    lua_getfield(L, arg, name);
    return lua_isnil(L, -1) ? NULL : gm_check_value(L, lua_gettop(L));
}

/* Of an attention over probabilities (b, h, s, t): its options at arg into *a; dropout takes
 * the next stream; mask, limits and bias become in[3] to in[5], borrowed from the stack, or NULL. */
static void attention_options(lua_State *L, int arg, int64_t b, int64_t h, int64_t s, int64_t t, gm_attrs *a,
                              gm_value **in)
{
    gm_rank *r = gm_lua_rank(L);
    in[3] = in[4] = in[5] = NULL;
    *a = gm_attrs_default();
    if (lua_isnoneornil(L, arg)) return;
    luaL_checktype(L, arg, LUA_TTABLE);
    a->causal = gm_field_flag(L, arg, "causal");
    a->window = (int64_t)gm_field_number(L, arg, "window", 0);
    a->prefix_mask = gm_field_flag(L, arg, "prefix_mask");
    a->softcap = gm_field_number(L, arg, "softcap", 0);
    a->scale = gm_field_number(L, arg, "scale", 0);
    a->p = gm_field_number(L, arg, "dropout", 0);
    if (a->p > 0) {
        if (gm_rank_next_stream(r, GM_PURPOSE_DROPOUT, &a->stream) != GM_OK) gm_raise(L, GM_ENOMEM);
        a->box = gm_rank_batch_box(r, 4, (int64_t[]){b, h, s, t});
    }
    in[3] = tensor_field(L, arg, "key_mask");
    in[4] = tensor_field(L, arg, "limits");
    in[5] = tensor_field(L, arg, "bias");
}

/* Angles have no gradient, and the dtype of statistics: *v becomes itself without its history, in the dtype that goes
 * with x. It stays on the stack. */
static int frequencies_of(lua_State *L, gm_dtype x, gm_value **v)
{
    gm_rank   *r = gm_lua_rank(L);
    gm_attrs   a = gm_attrs_default();
    gm_value  *plain, *cast;
    gm_handle *h = gm_push_handle(L);
    L_TRY(L, gm_value_detach(*v, &plain));
    gm_handle_fill(r, h, *v = plain, "frequency");
    a.dtype = gm_dtype_wide(x);
    if (plain->local->dtype == a.dtype) return 0;
    h = gm_push_handle(L);
    L_TRY(L, gm_apply_first(r, GM_OP_copy, 1, &plain, &a, &cast));
    gm_handle_fill(r, h, *v = cast, "frequency");
    return 0;
}

/* rotary(x, frequency [, { positions, offset, rotated, interleaved, scale, inverse }]) */
static int rotary(lua_State *L)
{
    gm_attrs  a = gm_attrs_default();
    gm_value *in[3] = {gm_check_value(L, 1), gm_check_value(L, 2), NULL};
    lua_settop(L, 3);
    frequencies_of(L, in[0]->local->dtype, &in[1]);
    if (!lua_isnil(L, 3)) {
        a.first = (int64_t)gm_field_number(L, 3, "offset", 0);
        a.rotated = (int64_t)gm_field_number(L, 3, "rotated", 0);
        a.interleaved = gm_field_flag(L, 3, "interleaved");
        a.inverse = gm_field_flag(L, 3, "inverse");
        a.alpha = gm_field_number(L, 3, "scale", 1);
        in[2] = tensor_field(L, 3, "positions");
    }
    return gm_apply_one(L, GM_OP_rotary, 3, in, &a);
}

/* Field `balance` of the options: nil, true or false. */
static gm_ring_balance balance_of(lua_State *L, int arg)
{
    if (lua_isnoneornil(L, arg)) return GM_RING_AUTO;
    lua_getfield(L, arg, "balance");
    gm_ring_balance b = lua_isnil(L, -1) ? GM_RING_AUTO : lua_toboolean(L, -1) ? GM_RING_ZIGZAG : GM_RING_CONTIGUOUS;
    lua_pop(L, 1);
    return b;
}

/* The attention of in[0..2], with the options at `arg`. */
static int attend(lua_State *L, int arg, gm_value **in)
{
    gm_attrs a;
    bool     four = in[0]->ndim == 4 && in[1]->ndim == 4;
    attention_options(L, arg, four ? in[0]->shape[0] : 0, four ? in[0]->shape[2] : 0, four ? in[0]->shape[1] : 0,
                      four ? in[1]->shape[1] : 0, &a, in);
    a.balance = balance_of(L, arg);
    int64_t n = in[5] && in[5]->ndim == 4 ? in[5]->shape[0] : 0, b = four ? in[0]->shape[0] : 0;
    if (n && b % n) return luaL_error(L, "attention: %d biases do not divide a batch of %d", (int)n, (int)b);
    return gm_apply_one(L, GM_OP_attention, 6, in, &a);
}

/* attention(q, k, v, options): q (b, s, h, d), k and v (b, t, hk, d) -> (b, s, h, d); collective where s is cut */
static int attention(lua_State *L)
{
    gm_value *in[6] = {gm_check_value(L, 1), gm_check_value(L, 2), gm_check_value(L, 3)};
    return attend(L, 4, in);
}

/* attention_part(q (b, s, h, d), k and v (b, t, hk, d), options) -> o (b, s, h, d) and the log of the sum of exp of its
 * scores (b, h, s), by which attention to several sets of keys is put together. Of this rank's blocks; no gradient. */
static int attention_part(lua_State *L)
{
    gm_value  *in[6] = {gm_check_value(L, 1), gm_check_value(L, 2), gm_check_value(L, 3)}, *out[2];
    gm_attrs   a;
    gm_rank   *r = gm_lua_rank(L);
    const bool want[2] = {true, true};
    lua_settop(L, 4);
    attention_options(L, 4, 0, 0, 0, 0, &a, in);
    a.name = gm_declared(L)->name;
    gm_handle *o = gm_push_handle(L), *lse = gm_push_handle(L);
    L_TRY(L, gm_apply(r, GM_OP_attention, 6, in, &a, 2, want, out));
    gm_handle_fill(r, o, out[0], a.name);
    gm_handle_fill(r, lse, out[1], a.name);
    return 2;
}

/* attention_packed(qkv (b, s, h, 3, d), options) -> (b, s, h, d) */
static int attention_packed(lua_State *L)
{
    gm_value *qkv = gm_check_value(L, 1), *in[6] = {NULL};
    char      have[256];
    if (qkv->ndim != 5 || qkv->shape[3] != 3)
        return luaL_error(L, "attention_packed: qkv is (batch, sequence, heads, 3, head size), not %s",
                          gm_value_describe(qkv, have, sizeof have));
    lua_settop(L, 2);
    gm_push_unbound(L, qkv, 3, in);
    return attend(L, 2, in);
}

/* documents(segment (b, s)) -> (b, s, 3) */
static int documents(lua_State *L)
{
    gm_attrs  a = gm_attrs_default();
    gm_value *segment = gm_check_value(L, 1);
    return gm_apply_one(L, GM_OP_documents, 1, &segment, &a);
}

/* embedding(w (rows, width), index (...), padding index or nil) -> (..., width); partial over axes that cut the rows */
static int embedding(lua_State *L)
{
    gm_value *in[2] = {gm_check_value(L, 1), gm_check_value(L, 2)};
    gm_attrs  a = gm_attrs_default();
    if (!lua_isnoneornil(L, 3)) a.padding_index = gm_check_integer(L, 3);
    return gm_apply_one(L, GM_OP_embedding, 2, in, &a);
}

static gm_attrs loss_options(lua_State *L, int arg)
{
    gm_attrs a = gm_attrs_default();
    a.ignore_index = (int64_t)gm_field_number(L, arg, "ignore_index", -100);
    a.label_smoothing = gm_field_number(L, arg, "label_smoothing", 0);
    return a;
}

/* linear_cross_entropy(x (..., in), w (c, in), b or nil, target (...), { rows, places, and those of cross_entropy })
 * -> sum of the losses, and with places = true where the largest logit of each row is */
static int linear_cross_entropy(lua_State *L)
{
    gm_rank   *r = gm_lua_rank(L);
    gm_value  *x = gm_check_value(L, 1), *w = gm_check_value(L, 2), *b = gm_opt_value(L, 3);
    gm_value  *target = gm_check_value(L, 4), *scale = tensor_field(L, 5, "scale"), *sum, *places = NULL;
    gm_attrs   a = loss_options(L, 5);
    int64_t    rows = (int64_t)gm_field_number(L, 5, "rows", 0x1p53);
    bool       wanted = gm_field_flag(L, 5, "places");
    gm_handle *h = gm_push_handle(L), *best = wanted ? gm_push_handle(L) : NULL;
    L_TRY(L, gm_linear_cross_entropy(r, x, w, b, target, scale, &a, rows, &sum, wanted ? &places : NULL));
    gm_handle_fill(r, h, sum, "linear_cross_entropy");
    if (wanted) gm_handle_fill(r, best, places, "linear_cross_entropy");
    return wanted ? 2 : 1;
}

/* cross_entropy(logits (..., c), target (...), { ignore_index, label_smoothing, scale }) -> loss (...) */
static int cross_entropy(lua_State *L)
{
    gm_attrs  a = loss_options(L, 3);
    gm_value *logits = gm_check_value(L, 1), *target = gm_check_value(L, 2), *scale = tensor_field(L, 3, "scale");
    PUSH(L, "cross_entropy", gm_cross_entropy(gm_lua_rank(L), logits, target, scale, &a, &y));
}

/* dropout(x, p): drops always; whether to is the module's business. p = 0 returns x. */
static int dropout(lua_State *L)
{
    gm_attrs  a = gm_attrs_default();
    gm_value *x = gm_check_value(L, 1);
    a.p = luaL_checknumber(L, 2);
    if (a.p == 0) {
        lua_settop(L, 1);
        return 1;
    }
    L_TRY(L, gm_rank_next_stream(gm_lua_rank(L), GM_PURPOSE_DROPOUT, &a.stream));
    a.box = gm_rank_batch_box(gm_lua_rank(L), x->ndim, x->shape);
    return gm_apply_one(L, GM_OP_dropout, 1, &x, &a);
}

/* sum(x, d or list or nil, keepdim), and mean: flag. */
static int sum(lua_State *L)
{
    gm_attrs  a = gm_attrs_default();
    gm_value *x = gm_check_value(L, 1);
    double    n = 1;
    a.dims = gm_opt_dims(L, 2, x->ndim);
    a.keepdim = lua_toboolean(L, 3);
    for (int d = 0; d < x->ndim; d++)
        if (!a.dims || a.dims & 1u << d) n *= (double)x->shape[d];
    gm_apply_one(L, GM_OP_sum, 1, &x, &a);
    if (!gm_declared(L)->flag) return 1;
    gm_value *s = gm_check_value(L, lua_gettop(L));
    a = gm_attrs_default();
    a.alpha = 1 / n;
    return gm_apply_one(L, GM_OP_affine, 1, &s, &a);
}

/* max(x, d, keepdim) -> values, indices from 0; min: which the op. */
static int extreme(lua_State *L)
{
    gm_attrs  a = gm_attrs_default();
    gm_value *x = gm_check_value(L, 1);
    gm_op     op = (gm_op)gm_declared(L)->which;
    a.dim = gm_check_dim_arg(L, 2, x->ndim);
    a.keepdim = lua_toboolean(L, 3);
    return gm_apply_two(L, op, x, &a, gm_op_name(op));
}

/* top_k(x, k) -> values, indices from 0, (..., k): of the last dimension, the largest first */
static int top_k(lua_State *L)
{
    gm_attrs a = gm_attrs_default();
    a.k = gm_check_integer(L, 2);
    return gm_apply_two(L, GM_OP_top_k, gm_check_value(L, 1), &a, "top_k");
}

static int argmax(lua_State *L)
{
    gm_attrs  a = gm_attrs_default();
    gm_value *x = gm_check_value(L, 1);
    if (!lua_isnoneornil(L, 2)) a.dim = gm_check_dim_arg(L, 2, x->ndim);
    a.keepdim = lua_toboolean(L, 3);
    return gm_apply_one(L, GM_OP_argmax, 1, &x, &a);
}

#define LOSS_OPTIONS                                                                              \
    {"ignore_index", "integer", "-100", NULL, "targets of this value add nothing to the loss"},   \
        {"scale", "tensor", "not known", NULL, "(): what backward will bring to each loss"},      \
    {                                                                                             \
        "label_smoothing", "number", "0", NULL, "share of the target that all classes have alike" \
    }

static const gm_lua_option attention_settings[] = {
    {"causal", "boolean", "false", NULL, "a query sees the keys up to its own place; the last of both are level"},
    {"window", "integer", "all", "[1,inf)", "causal: a query sees so many keys, the last up to its own place"},
    {"softcap", "number", "none", "(0,inf)", "scores s become softcap tanh(s / softcap)"},
    {"scale", "number", "1/sqrt(d)", NULL, "what products of queries and keys are multiplied by"},
    {"dropout", "number", "0", NULL, "share of the probabilities that become zero, rounded to a multiple of 1/65,536"},
    {"key_mask", "tensor", "none", NULL, "(b, t): keys that are seen, 1, and those that are not, 0"},
    {"prefix_mask", "boolean", "false", NULL, "in each row of key_mask ones come before zeros; another is an error"},
    {"limits", "tensor", "none", NULL, "(b, s, 2) i64: the first key that a query may see, from 0, and the end"},
    {"bias", "tensor", "none", NULL, "(n, h, s, t): added to scores, after softcap; sample i takes number i modulo n"},
    {"balance", "boolean", "where it pays", NULL, "share the queries of a causal attention out anew?"},
    GM_LAST_OPTION};
static const gm_lua_option rotary_options[] = {
    {"positions", "tensor", "offset, offset + 1, ...", NULL, "(s) or (b, s), i64 or i32: the positions, from 0"},
    {"offset", "integer", "0", "[0,inf)", "the position of the first row, where positions are not given"},
    {"rotated", "integer", "all", "[1,inf)", "how many entries of the last dimension but one are turned"},
    {"interleaved", "boolean", "false", NULL, "pairs are neighbours, (2 j, 2 j + 1), not halves, (j, j + r)"},
    {"scale", "number", "1", NULL, "what the turned elements are multiplied by"},
    {"inverse", "boolean", "false", NULL, "turn the other way"},
    GM_LAST_OPTION};
static const gm_lua_option loss_options_[] = {LOSS_OPTIONS, GM_LAST_OPTION};
static const gm_lua_option head_options[] = {
    LOSS_OPTIONS,
    {"rows", "integer", "all of them", "[1,inf)", "rows of x of which logits exist at a time"},
    {"places", "boolean", "false", NULL, "give the place of the largest logit of each row too"},
    GM_LAST_OPTION};
static const gm_lua_option matmul_options[] = {
    {"transpose_a", "boolean", "false", NULL, "take a with its last two dimensions exchanged"},
    {"transpose_b", "boolean", "false", NULL, "take b with its last two dimensions exchanged"},
    {"alpha", "number", "1", NULL, "what the product is multiplied by"},
    GM_LAST_OPTION};

#define WITH_OPTIONS(name, fn, arguments, options)            \
    {                                                         \
#name, fn, arguments, options, NULL, 0, 0, doc_##name \
    }
#define ONE_OF(name, fn, arguments, which, flag)                  \
    {                                                             \
#name, fn, arguments, NULL, NULL, which, flag, doc_##name \
    }

static const gm_declaration functions[] = {
#define GM_UNARY(name)                                                           \
    ONE_OF(name, GM_FN_##name == GM_FN_clamp ? gm_clamp : gm_unary,              \
           GM_FN_##name == GM_FN_clamp   ? "x tensor, low number?, high number?" \
           : GM_FN_##name == GM_FN_power ? "x tensor, exponent number"           \
                                         : "x tensor",                           \
           GM_FN_##name, 0),
#define GM_BINARY(name)  ONE_OF(name, binary, "a tensor|number, b tensor|number", GM_FN_##name, GM_OP_binary),
#define GM_COMPARE(name) ONE_OF(name, binary, "a tensor|number, b tensor|number", GM_FN_##name, GM_OP_compare),
#include "../kernels/functions.def"
#undef GM_UNARY
#undef GM_BINARY
#undef GM_COMPARE
    GM_PUBLIC(where, where, "condition tensor, a tensor|number, b tensor|number"),
    WITH_OPTIONS(matmul, matmul, "a tensor, b tensor, options options?", matmul_options),
    GM_PUBLIC(linear, linear, "x tensor, w tensor, b tensor|boolean?, activation string?"),
    ONE_OF(layer_norm, norm, "x tensor, w tensor|boolean?, b tensor|boolean?, eps number?", GM_OP_layer_norm, 0),
    ONE_OF(add_layer_norm, norm, "x tensor, residual tensor, w tensor|boolean?, b tensor|boolean?, eps number?",
           GM_OP_layer_norm, 1),
    ONE_OF(rms_norm, norm, "x tensor, w tensor|boolean?, eps number?", GM_OP_rms_norm, 0),
    ONE_OF(add_rms_norm, norm, "x tensor, residual tensor, w tensor|boolean?, eps number?", GM_OP_rms_norm, 1),
    ONE_OF(softmax, softmax, "x tensor, dim integer?", GM_OP_softmax, 0),
    ONE_OF(log_softmax, softmax, "x tensor, dim integer?", GM_OP_log_softmax, 0),
    WITH_OPTIONS(attention, attention, "q tensor, k tensor, v tensor, options options?", attention_settings),
    WITH_OPTIONS(attention_packed, attention_packed, "qkv tensor, options options?", attention_settings),
    GM_PUBLIC(documents, documents, "segments tensor"),
    WITH_OPTIONS(rotary, rotary, "x tensor, frequency tensor, options options?", rotary_options),
    GM_PUBLIC(embedding, embedding, "w tensor, index tensor, padding_index integer?"),
    WITH_OPTIONS(cross_entropy, cross_entropy, "logits tensor, target tensor, options options?", loss_options_),
    WITH_OPTIONS(linear_cross_entropy, linear_cross_entropy,
                 "x tensor, w tensor, b tensor|boolean?, target tensor, options options?", head_options),
    GM_PUBLIC(dropout, dropout, "x tensor, p number"),
    ONE_OF(sum, sum, "x tensor, dim integer|table?, keepdim boolean?", 0, 0),
    ONE_OF(mean, sum, "x tensor, dim integer|table?, keepdim boolean?", 0, 1),
    {"max", extreme, "x tensor, dim integer, keepdim boolean?", NULL,
     "the largest of all elements is x:reshape(x:numel()):max(1); of two tensors x:maximum(y)", GM_OP_max, 0, doc_max},
    {"min", extreme, "x tensor, dim integer, keepdim boolean?", NULL,
     "the smallest of all elements is x:reshape(x:numel()):min(1); of two tensors x:minimum(y)", GM_OP_min, 0, doc_min},
    GM_PUBLIC(argmax, argmax, "x tensor, dim integer?, keepdim boolean?"),
    GM_PUBLIC(top_k, top_k, "x tensor, k integer"),
    GM_LAST_FUNCTION};

static const gm_declaration inner[] = {
    GM_FUNCTION("attention_part", attention_part, "q tensor, k tensor, v tensor, options table?"), GM_LAST_FUNCTION};

int gm_open_ops(lua_State *L)
{
    lua_newtable(L);
    gm_declare(L, functions);
    lua_setfield(L, -2, "ops");
    gm_declare(L, inner);
    return 0;
}
