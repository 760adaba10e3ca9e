/* lua_few_bits.c - ops on weights of 8 or 4 bits (kernels/few_bits.h): quantize, dequantize, linear_quantized. */
#include "docs/docs.h"
#include "docs/few_bits.def"
#include "lua_ops.h"

static gm_attrs kind_options(lua_State *L, int arg)
{
    gm_attrs a = gm_attrs_default();
    a.bits = (int64_t)gm_field_number(L, arg, "bits", 8);
    a.group = (int64_t)gm_field_number(L, arg, "group", 32);
    return a;
}

/* quantize(w (n, k), { bits, group }) -> codes (n, bytes) u8 */
static int quantize(lua_State *L)
{
    gm_attrs  a = kind_options(L, 2);
    gm_value *w = gm_check_value(L, 1);
    return gm_apply_one(L, GM_OP_quantize, 1, &w, &a);
}

/* dequantize(codes (n, bytes), columns, { bits, group, dtype, index }) -> (n, columns), or index.shape + (columns) */
static int dequantize(lua_State *L)
{
    gm_attrs  a = kind_options(L, 3);
    gm_value *in[2] = {gm_check_value(L, 1), NULL};
    a.columns = gm_check_integer(L, 2);
    lua_settop(L, 3);
    if (!lua_isnil(L, 3)) {
        lua_getfield(L, 3, "dtype");
        a.dtype = gm_opt_dtype(L, 4, GM_F32);
        lua_getfield(L, 3, "index");
        if (!lua_isnil(L, 5)) in[1] = gm_check_value(L, 5);
    }
    return gm_apply_one(L, GM_OP_dequantize, 2, in, &a);
}

/* linear_quantized(x (..., in), codes (out, bytes), b (out) or nil, activation or nil, { bits, group }) -> y */
static int linear_quantized(lua_State *L)
{
    gm_attrs    a = kind_options(L, 5);
    gm_value   *in[3] = {gm_check_value(L, 1), gm_check_value(L, 2), gm_opt_value(L, 3)};
    const char *name = luaL_optstring(L, 4, "none");
    if (!gm_function_parse(name, &a.function))
        return gm_bad_argument(L, 4, lua_pushfstring(L, "there is no activation '%s'", name));
    return gm_apply_one(L, GM_OP_linear_quantized, 3, in, &a);
}

#define KIND                                                                                              \
    {"bits", "integer", "8", NULL, "8 or 4"},                                                             \
    {                                                                                                     \
        "group", "integer", "32", "[32,inf)", "how many numbers of a row share a scale: a multiple of 32" \
    }

static const gm_lua_option kind[] = {KIND, GM_LAST_OPTION};
static const gm_lua_option numbers[] = {KIND,
                                        {"dtype", "string", "f32", NULL, "the dtype of the result"},
                                        {"index", "tensor", "all rows", NULL, "the rows to take, from 0: i64 or i32"},
                                        GM_LAST_OPTION};

int gm_open_few_bits(lua_State *L)
{
    static const gm_declaration functions[] = {
        {"quantize", quantize, "w tensor, options options?", kind, NULL, 0, 0, doc_quantize},
        {"dequantize", dequantize, "codes tensor, columns integer, options options?", numbers, NULL, 0, 0,
         doc_dequantize},
        {"linear_quantized", linear_quantized,
         "x tensor, codes tensor, b tensor|boolean?, activation string?, options options?", kind, NULL, 0, 0,
         doc_linear_quantized},
        GM_LAST_FUNCTION};
    lua_getfield(L, -1, "ops");
    gm_declare(L, functions);
    lua_pop(L, 1);
    return 0;
}
