/* lua_convolution.c - convolutions of 1, 2 and 3 dimensions: convolution, transposed_convolution. */
#include "docs/docs.h"
#include "docs/convolution.def"
#include "lua_ops.h"

/* The list at the top of the stack must have `space` entries. */
static void check_length(lua_State *L, int arg, const char *name, int space)
{
    int n = (int)gm_check_list(L, lua_gettop(L), arg);
    if (n != space)
        gm_bad_argument(L, arg,
                        lua_pushfstring(L, "%s has %d numbers, and the tensor has %d dimension%s of space", name, n,
                                        space, space == 1 ? "" : "s"));
}

static int64_t whole_number(lua_State *L, int arg, const char *name)
{
    lua_Number v = lua_tonumber(L, -1);
    if (lua_type(L, -1) != LUA_TNUMBER || v != (lua_Number)(int64_t)v || v < -0x1p53 || v > 0x1p53)
        gm_bad_argument(L, arg, lua_pushfstring(L, "%s holds whole numbers", name));
    return (int64_t)v;
}

/* The pair { low, high } or the number at the top of the stack, which it pops. */
static void read_pair(lua_State *L, int arg, const char *name, int64_t *low, int64_t *high)
{
    if (high && lua_istable(L, -1)) {
        if (gm_check_list(L, lua_gettop(L), arg) != 2)
            gm_bad_argument(L, arg, lua_pushfstring(L, "%s of a dimension is a number or { in front, behind }", name));
        lua_rawgeti(L, -1, 1);
        *low = whole_number(L, arg, name);
        lua_rawgeti(L, -2, 2);
        *high = whole_number(L, arg, name);
        lua_pop(L, 3);
        return;
    }
    *low = whole_number(L, arg, name);
    if (high) *high = *low;
    lua_pop(L, 1);
}

/* A field of the options at arg: a number for all dimensions of space, or a list. high: of padding, else NULL. */
static void read_sizes(lua_State *L, int arg, const char *name, int space, gm_sizes *low, gm_sizes *high)
{
    lua_getfield(L, arg, name);
    bool list = lua_istable(L, -1);
    if (list) check_length(L, arg, name, space);
    for (int d = 0; d < space && !lua_isnil(L, -1); d++) {
        if (list) lua_rawgeti(L, -1, d + 1);
        else lua_pushvalue(L, -1);
        read_pair(L, arg, name, &low->at[d], high ? &high->at[d] : NULL);
    }
    lua_pop(L, 1);
}

/* convolution(x, w, b or nil, { stride, padding, dilation, groups, activation }), and transposed_convolution with
 * output_padding: which the op. */
static int convolve(lua_State *L)
{
    gm_attrs  a = gm_attrs_default();
    gm_op     op = (gm_op)gm_declared(L)->which;
    gm_value *in[3] = {gm_check_value(L, 1), gm_check_value(L, 2), gm_opt_value(L, 3)};
    int       space = in[0]->ndim - 2;
    lua_settop(L, 4);
    if (!lua_isnil(L, 4) && space >= 1 && space <= GM_SPACE) { /* else the op refuses x */
        read_sizes(L, 4, "stride", space, &a.stride, NULL);
        read_sizes(L, 4, "dilation", space, &a.dilation, NULL);
        read_sizes(L, 4, "padding", space, &a.pad_low, &a.pad_high);
        if (op == GM_OP_transposed_convolution) read_sizes(L, 4, "output_padding", space, &a.output_padding, NULL);
        a.groups = (int64_t)gm_field_number(L, 4, "groups", 1);
        lua_getfield(L, 4, "activation");
        if (!lua_isnil(L, -1) && !gm_function_parse(lua_tostring(L, -1), &a.function))
            return gm_bad_argument(L, 4, lua_pushfstring(L, "there is no activation '%s'", lua_tostring(L, -1)));
    }
    return gm_apply_one(L, op, 3, in, &a);
}

#define OPTIONS                                                                                                   \
    {"stride", "integer|table", "1", "[1,inf)", "how far apart the places of the kernel are"},                    \
        {"padding", "integer|table", "0", "[0,inf)",                                                              \
         "zeros around each dimension: a number, or a list with a number or { in front, behind } for each"},      \
        {"dilation", "integer|table", "1", "[1,inf)", "how far apart the elements that a kernel reads are"},      \
        {"groups", "integer", "1", "[1,inf)", "channels are so many groups, each with outputs of its own"},       \
    {                                                                                                             \
        "activation", "string", "none", NULL, "the activation, applied in the kernel: relu, gelu, ..., as linear" \
    }

static const gm_lua_option options[] = {OPTIONS, GM_LAST_OPTION};
static const gm_lua_option transposed[] = {
    OPTIONS,
    {"output_padding", "integer|table", "0", "[0,inf)", "how much longer the result is, less than the stride"},
    GM_LAST_OPTION};

int gm_open_convolution(lua_State *L)
{
    static const gm_declaration functions[] = {
        {"convolution", convolve, "x tensor, w tensor, b tensor|boolean?, options options?", options, NULL,
         GM_OP_convolution, 0, doc_convolution},
        {"transposed_convolution", convolve, "x tensor, w tensor, b tensor|boolean?, options options?", transposed,
         NULL, GM_OP_transposed_convolution, 0, doc_transposed_convolution},
        GM_LAST_FUNCTION};
    lua_getfield(L, -1, "ops");
    gm_declare(L, functions);
    lua_pop(L, 1);
    return 0;
}
