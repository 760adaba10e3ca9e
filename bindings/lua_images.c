/* lua_images.c - ops on tensors (n, c, ...) of images: batch norm and pooling. They are in core.ops, as those of
 * lua_ops.c; core.resized_rows is what ganymede.tensor.composed makes interpolation of where ranks share images. */
#include "../host/parallel/sharded/batch_norm.h"
#include "../host/parallel/sharded/group_norm.h"
#include "../host/parallel/sharded/resize.h"
#include "docs/docs.h"
#include "docs/images.def"
#include "lua_ops.h"

/* The tensor in this field of the options at arg, which stays on the stack, and so alive; NULL: there is none. */
static gm_value *tensor_field(lua_State *L, int arg, const char *name)
{
    if (lua_isnoneornil(L, arg)) return NULL;
    lua_getfield(L, arg, name);
    return lua_isnil(L, -1) ? NULL : gm_check_value(L, lua_gettop(L));
}

/* batch_norm(x, w, b, { eps, mean, variance }) -> y, and without given statistics mean and variance too */
static int batch_norm(lua_State *L)
{
    gm_rank  *r = gm_lua_rank(L);
    gm_value *in[GM_BN_INPUTS] = {gm_check_value(L, 1), gm_opt_value(L, 2), gm_opt_value(L, 3)}, *out[3];
    lua_settop(L, 4);
    double eps = gm_field_number(L, 4, "eps", 1e-5);
    in[GM_BN_MEAN] = tensor_field(L, 4, "mean");
    in[GM_BN_VARIANCE] = tensor_field(L, 4, "variance");
    bool       given = in[GM_BN_MEAN] != NULL;
    gm_handle *h[3];
    for (int i = 0; i < 3; i++) h[i] = gm_push_handle(L);
    L_TRY(L, gm_batch_norm(r, in, eps, &out[0], given ? NULL : &out[1], given ? NULL : &out[2]));
    for (int i = 0; i < (given ? 1 : 3); i++) gm_handle_fill(r, h[i], out[i], "batch_norm");
    if (given) lua_pop(L, 2);
    return given ? 1 : 3;
}

/* group_norm(x, groups, w, b, eps): what ganymede.nn.group_norm is where no group is cut */
static int group_norm(lua_State *L)
{
    gm_value *in[GM_GN_INPUTS] = {gm_check_value(L, 1), gm_opt_value(L, 3), gm_opt_value(L, 4)};
    int64_t   groups = gm_check_integer(L, 2);
    double    eps = luaL_checknumber(L, 5);
    PUSH(L, "group_norm", gm_group_norm(gm_lua_rank(L), in, groups, eps, &y));
}

/* A number for each dimension of the images of x: one for all, or a list. nil: `otherwise`. */
static gm_sizes sizes_at(lua_State *L, int arg, const gm_value *x, gm_sizes otherwise)
{
    int      dims = x->ndim - 2;
    int64_t  list[GM_MAX_DIMS];
    gm_sizes s = otherwise;
    if (lua_isnoneornil(L, arg)) return s;
    bool one = lua_isnumber(L, arg);
    int  n = one ? dims : gm_check_shape(L, arg, list);
    if (dims < 1 || dims > GM_SPACE) return s; /* inference refuses x */
    if (n != dims)
        gm_bad_argument(L, arg,
                        lua_pushfstring(L, "%d numbers for images of %d dimension%s", n, dims, dims == 1 ? "" : "s"));
    for (int d = 0; d < n; d++) {
        int64_t v = one ? gm_check_integer(L, arg) : list[d];
        if (v < INT32_MIN || v > INT32_MAX) gm_bad_argument(L, arg, "the number is too large");
        s.at[d] = v;
    }
    return s;
}

static gm_attrs windows_at(lua_State *L, const gm_value *x)
{
    gm_attrs a = gm_attrs_default();
    a.kernel = sizes_at(L, 2, x, a.kernel);
    a.stride = sizes_at(L, 3, x, a.kernel);
    a.pad_low = a.pad_high = sizes_at(L, 4, x, a.pad_low);
    return a;
}

/* Pushes the largest elements, and their places where they are wanted. */
static int max_pool_of(lua_State *L, gm_value *x, gm_attrs *a, bool places)
{
    gm_rank   *r = gm_lua_rank(L);
    gm_value  *out[2];
    const bool want[2] = {true, places};
    a->name = gm_declared(L)->name;
    gm_handle *y = gm_push_handle(L), *index = places ? gm_push_handle(L) : NULL;
    L_TRY(L, gm_apply(r, GM_OP_max_pool, 1, &x, a, 2, want, out));
    gm_handle_fill(r, y, out[0], a->name);
    if (places) gm_handle_fill(r, index, out[1], a->name);
    return places ? 2 : 1;
}

/* max_pool(x, kernel, stride, padding, dilation, { ceil_mode, places }) */
static int max_pool(lua_State *L)
{
    gm_value *x = gm_check_value(L, 1);
    gm_attrs  a = windows_at(L, x);
    a.dilation = sizes_at(L, 5, x, a.dilation);
    a.ceil_mode = gm_field_flag(L, 6, "ceil_mode");
    return max_pool_of(L, x, &a, gm_field_flag(L, 6, "places"));
}

/* The result of adaptive pooling has at least one element a dimension: 0 would mean windows of one size. */
static gm_attrs result_at(lua_State *L, int arg, const gm_value *x)
{
    gm_attrs a = gm_attrs_default();
    a.output = sizes_at(L, arg, x, a.output);
    for (int d = 0; d < x->ndim - 2 && d < GM_SPACE; d++)
        if (a.output.at[d] < 1) gm_bad_argument(L, arg, "a size of the result is below 1");
    return a;
}

/* adaptive_max_pool(x, size, { places }) */
static int adaptive_max_pool(lua_State *L)
{
    gm_value *x = gm_check_value(L, 1);
    gm_attrs  a = result_at(L, 2, x);
    return max_pool_of(L, x, &a, gm_field_flag(L, 3, "places"));
}

/* avg_pool(x, kernel, stride, padding, { ceil_mode, count_include_pad, divisor }) */
static int avg_pool(lua_State *L)
{
    gm_value *x = gm_check_value(L, 1);
    gm_attrs  a = windows_at(L, x);
    lua_settop(L, 5);
    a.ceil_mode = gm_field_flag(L, 5, "ceil_mode");
    a.divisor = (int64_t)gm_field_number(L, 5, "divisor", 0);
    if (!lua_isnil(L, 5)) {
        lua_getfield(L, 5, "count_include_pad");
        a.count_include_pad = lua_isnil(L, -1) || lua_toboolean(L, -1);
        lua_pop(L, 1);
    }
    return gm_apply_one(L, GM_OP_avg_pool, 1, &x, &a);
}

/* adaptive_avg_pool(x, size) */
static int adaptive_avg_pool(lua_State *L)
{
    gm_value *x = gm_check_value(L, 1);
    gm_attrs  a = result_at(L, 2, x);
    return gm_apply_one(L, GM_OP_avg_pool, 1, &x, &a);
}

/* resized_rows(x, dim, size, places, scale, next) -> the rows along dim that `size` rows of an image of another size
 * read; places: "nearest", "linear" or "corners"; scale: rows of x for each of them; next: those behind */
static int resized_rows(lua_State *L)
{
    static const char *const places[] = {"nearest", "linear", "corners", NULL};
    gm_value                *x = gm_check_value(L, 1);
    int64_t                  dim = gm_check_integer(L, 2) - 1;
    L_TRY(L, gm_check_dim("interpolate", x->ndim, &dim));
    gm_halo_axis axis = {.n = x->shape[dim],
                         .out = gm_check_integer(L, 3),
                         .scale = luaL_checknumber(L, 5),
                         .places = luaL_checkoption(L, 4, NULL, places),
                         .next = lua_toboolean(L, 6)};
    PUSH(L, "interpolate", gm_resized_rows(gm_lua_rank(L), x, (int)dim, &axis, &y));
}

#define CEIL_MODE                                                                                        \
    {                                                                                                    \
        "ceil_mode", "boolean", "false", NULL,                                                           \
            "round the number of windows up, not down; no window begins in the padding behind the image" \
    }
#define PLACES                                                                                                     \
    {                                                                                                              \
        "places", "boolean", "false", NULL, "give the place of each largest element in its image too, from 0: i64" \
    }
static const gm_lua_option norm_options[] = {
    {"eps", "number", "1e-5", "[0,inf)", "a number that is added to the variance"},
    {"mean", "tensor", "that of x", NULL, "(c): what is subtracted from each channel; given with variance"},
    {"variance", "tensor", "that of x", NULL, "(c): what each channel is divided by the root of; given with mean"},
    GM_LAST_OPTION};
static const gm_lua_option max_options[] = {CEIL_MODE, PLACES, GM_LAST_OPTION};
static const gm_lua_option places_options[] = {PLACES, GM_LAST_OPTION};
static const gm_lua_option avg_options[] = {
    CEIL_MODE,
    {"count_include_pad", "boolean", "true", NULL, "elements of the padding count, as zeros"},
    {"divisor", "integer", "the number of elements", "[1,inf)", "what the sum of a window is divided by"},
    GM_LAST_OPTION};

int gm_open_images(lua_State *L)
{
    static const gm_declaration functions[] = {
        {"batch_norm", batch_norm, "x tensor, w tensor|boolean?, b tensor|boolean?, options options?", norm_options,
         NULL, 0, 0, doc_batch_norm},
        {"max_pool", max_pool,
         "x tensor, kernel integer|table, stride integer|table?, padding integer|table?, dilation integer|table?, "
         "options options?",
         max_options, NULL, 0, 0, doc_max_pool},
        {"avg_pool", avg_pool,
         "x tensor, kernel integer|table, stride integer|table?, padding integer|table?, options options?", avg_options,
         NULL, 0, 0, doc_avg_pool},
        GM_PUBLIC(adaptive_avg_pool, adaptive_avg_pool, "x tensor, size integer|table"),
        {"adaptive_max_pool", adaptive_max_pool, "x tensor, size integer|table, options options?", places_options, NULL,
         0, 0, doc_adaptive_max_pool},
        GM_LAST_FUNCTION};
    static const gm_declaration parts[] = {
        GM_FUNCTION("group_norm", group_norm,
                    "x tensor, groups integer, w tensor|boolean?, b tensor|boolean?, eps number"),
        GM_FUNCTION("resized_rows", resized_rows,
                    "x tensor, dim integer, size integer, places string, scale number, next boolean"),
        GM_LAST_FUNCTION};
    gm_declare(L, parts);
    lua_getfield(L, -1, "ops");
    gm_declare(L, functions);
    lua_pop(L, 1);
    return 0;
}
