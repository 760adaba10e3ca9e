/* lua_float8.c - ops on floats of 8 bits (kernels/float8.h): float8_scale, float8_encode, float8_product, those with
 * scales of blocks, and the dense layer made of them, linear_float8. */
#include "docs/docs.h"
#include "docs/float8.def"
#include "lua_ops.h"
#include <string.h>

#include "../kernels/float8.h"
#include "../host/parallel/sharded/sharded.h"

/* The format that the options at arg name. */
static gm_attrs format_option(lua_State *L, int arg)
{
    gm_attrs    a = gm_attrs_default();
    const char *name = NULL;
    if (lua_istable(L, arg)) {
        lua_getfield(L, arg, "format");
        name = lua_tostring(L, -1); /* the table keeps it */
        lua_pop(L, 1);
    }
    if (name && strcmp(name, "e4m3") != 0 && strcmp(name, "e5m2") != 0)
        gm_bad_argument(L, arg, lua_pushfstring(L, "format is '%s', should be 'e4m3' or 'e5m2'", name));
    a.format = name && !strcmp(name, "e5m2") ? GM_FLOAT8_E5M2 : GM_FLOAT8_E4M3;
    return a;
}

static bool flag_option(lua_State *L, int arg, const char *name)
{
    if (!lua_istable(L, arg)) return false;
    lua_getfield(L, arg, name);
    bool given = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return given;
}

/* float8_scale(x (...), { format }) -> scale () */
static int float8_scale(lua_State *L)
{
    gm_attrs  a = format_option(L, 2);
    gm_value *x = gm_check_value(L, 1);
    return gm_apply_one(L, GM_OP_float8_scale, 1, &x, &a);
}

/* The scale at arg in the dtype that goes with numbers of `dtype`; what is pushed for it stays on the stack. */
static gm_value *check_scale(lua_State *L, int arg, gm_dtype dtype)
{
    gm_value *scale = gm_check_value(L, arg), *cast;
    gm_attrs  a = gm_attrs_default();
    a.dtype = gm_dtype_wide(dtype);
    if (!gm_dtype_is_float(scale->local->dtype))
        gm_bad_argument(L, arg, lua_pushfstring(L, "a scale is a float, not %s", gm_dtype_name(scale->local->dtype)));
    if (scale->local->dtype == a.dtype) return scale;
    gm_apply_one(L, GM_OP_copy, 1, &scale, &a);
    cast = gm_check_value(L, lua_gettop(L));
    return cast;
}

/* float8_encode(x (..., k), scale (), { format }) -> codes (..., k), turned (k, ...) u8 */
static int float8_encode(lua_State *L)
{
    gm_rank   *r = gm_lua_rank(L);
    gm_attrs   a = format_option(L, 3);
    gm_value  *in[2] = {gm_check_value(L, 1), NULL}, *out[3];
    const bool want[3] = {true, true, false};
    gm_handle *h[2];
    in[1] = check_scale(L, 2, in[0]->local->dtype);
    for (int i = 0; i < 2; i++) h[i] = gm_push_handle(L);
    L_TRY(L, gm_apply(r, GM_OP_float8_encode, 2, in, &a, 3, want, out));
    for (int i = 0; i < 2; i++) gm_handle_fill(r, h[i], out[i], "float8_encode");
    return 2;
}

/* float8_block_encode(x (..., k), { format, square }) -> codes (..., k), scales, turned (k, ...), turned_scales */
static int float8_block_encode(lua_State *L)
{
    gm_rank   *r = gm_lua_rank(L);
    gm_attrs   a = format_option(L, 2);
    gm_value  *x = gm_check_value(L, 1), *out[4];
    const bool want[4] = {true, true, true, true};
    gm_handle *h[4];
    a.square = flag_option(L, 2, "square");
    for (int i = 0; i < 4; i++) h[i] = gm_push_handle(L);
    L_TRY(L, gm_apply(r, GM_OP_float8_block_encode, 1, &x, &a, 4, want, out));
    for (int i = 0; i < 4; i++) gm_handle_fill(r, h[i], out[i], "float8_block_encode");
    return 4;
}

/* float8_product(a (..., k) u8, b (n, k) u8, a_scale (), b_scale (), { format, dtype }) -> (..., n) */
static int product(lua_State *L, gm_op op)
{
    gm_attrs  a = format_option(L, 5);
    gm_value *in[5] = {gm_check_value(L, 1), gm_check_value(L, 2), NULL, NULL, NULL};
    lua_settop(L, 5);
    a.dtype = GM_F32;
    a.square = flag_option(L, 5, "square");
    if (!lua_isnil(L, 5)) {
        lua_getfield(L, 5, "dtype");
        a.dtype = gm_opt_dtype(L, 6, GM_F32);
    }
    for (int i = 2; i < 4; i++) in[i] = check_scale(L, i + 1, a.dtype);
    return gm_apply_one(L, op, 5, in, &a);
}

static int float8_product(lua_State *L) { return product(L, GM_OP_float8_product); }

/* float8_block_product(a, b, a_scales, b_scales, { format, square, dtype }): likewise, with scales of blocks */
static int float8_block_product(lua_State *L) { return product(L, GM_OP_float8_block_product); }

/* The tensors of x, w and the gradient that the option `name` of the table at arg lists. */
static void scales_option(lua_State *L, int arg, const char *name, gm_value **out)
{
    if (!lua_istable(L, arg)) return;
    lua_getfield(L, arg, name);
    if (!lua_isnil(L, -1)) {
        gm_check_argument(L, lua_istable(L, -1) && lua_objlen(L, -1) == 3, arg,
                          lua_pushfstring(L, "%s should be a list of 3 tensors: those of x, w and the gradient", name));
        for (int i = 0; i < 3; i++) {
            lua_rawgeti(L, -1, i + 1);
            out[i] = gm_check_value(L, lua_gettop(L)); /* the table keeps it */
            lua_pop(L, 1);
        }
    }
    lua_pop(L, 1);
}

/* linear_float8(x (..., in), w (out, in), b (out) or nil, { scale, needed, blocks }) -> y (..., out) */
static int linear_float8(lua_State *L)
{
    gm_value        *x = gm_check_value(L, 1), *w = gm_check_value(L, 2), *b = gm_opt_value(L, 3);
    gm_float8_scales given = {{NULL, NULL, NULL}, {NULL, NULL, NULL}, flag_option(L, 4, "blocks")};
    scales_option(L, 4, "scale", given.scale);
    scales_option(L, 4, "needed", given.needed);
    PUSH(L, "linear_float8", gm_linear_float8(gm_lua_rank(L), x, w, b, &given, &y));
}

#define FORMAT                                                                                                         \
    {                                                                                                                  \
        "format", "string", "e4m3", NULL, "e4m3, for values, or e5m2, for gradients: bits of exponent and of fraction" \
    }

#define SQUARE(what)                                                                          \
    {                                                                                         \
        "square", "boolean", "false", NULL, what " of 128 x 128 numbers, not of 128 of a row" \
    }
#define DTYPE                                                     \
    {                                                             \
        "dtype", "string", "f32", NULL, "the dtype of the result" \
    }

static const gm_lua_option format[] = {FORMAT, GM_LAST_OPTION};
static const gm_lua_option of_product[] = {FORMAT, DTYPE, GM_LAST_OPTION};
static const gm_lua_option blocks[] = {FORMAT, SQUARE("scales are"), GM_LAST_OPTION};
static const gm_lua_option block_product[] = {FORMAT, SQUARE("scales of b are"), DTYPE, GM_LAST_OPTION};

static const gm_lua_option scales[] = {
    {"scale", "tensor|table", "found when a tensor is read", NULL,
     "the scales of x, w and the gradient: a list of 3 tensors"},
    {"needed", "tensor|table", "none", NULL,
     "a list of 3 tensors, which are raised to the scales that x, w and the gradient "
     "need on this rank"},
    {"blocks", "boolean", "false", NULL, "scales are those of blocks of 128 numbers, and gradients are in e4m3"},
    GM_LAST_OPTION};

int gm_open_float8(lua_State *L)
{
    static const gm_declaration functions[] = {
        {"float8_scale", float8_scale, "x tensor, options options?", format, NULL, 0, 0, doc_float8_scale},
        {"float8_encode", float8_encode, "x tensor, scale tensor, options options?", format, NULL, 0, 0,
         doc_float8_encode},
        {"float8_product", float8_product, "a tensor, b tensor, a_scale tensor, b_scale tensor, options options?",
         of_product, NULL, 0, 0, doc_float8_product},
        {"float8_block_encode", float8_block_encode, "x tensor, options options?", blocks, NULL, 0, 0,
         doc_float8_block_encode},
        {"float8_block_product", float8_block_product,
         "a tensor, b tensor, a_scales tensor, b_scales tensor, options options?", block_product, NULL, 0, 0,
         doc_float8_block_product},
        {"linear_float8", linear_float8, "x tensor, w tensor, b tensor|boolean?, options options?", scales, NULL, 0, 0,
         doc_linear_float8},
        GM_LAST_FUNCTION};
    lua_getfield(L, -1, "ops");
    gm_declare(L, functions);
    lua_pop(L, 1);
    return 0;
}
