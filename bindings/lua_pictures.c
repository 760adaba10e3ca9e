/* lua_pictures.c - the Lua face of pictures: datasets of them, what they leave out, headers of files, contact sheets.
 * As in lua_data.c, a call that fails for what it read returns nil, message, kind. */
#include "lua_data.h"

#include <stdio.h>
#include <string.h>

#include "../host/data/sheet.h"

/* A table of texts as a list, left on the stack as a userdata; its strings stay in the table. */
const char **gm_push_texts(lua_State *L, int arg, int *n)
{
    luaL_checktype(L, arg, LUA_TTABLE);
    *n = (int)lua_objlen(L, arg);
    const char **list = lua_newuserdata(L, ((size_t)*n + 1) * sizeof *list);
    for (int i = 0; i < *n; i++) {
        lua_rawgeti(L, arg, i + 1);
        list[i] = luaL_checkstring(L, -1);
        lua_pop(L, 1);
    }
    return list;
}

/* dataset_folder(root, { channels, skip_damaged }, list of classes = nil) -> dataset, its classes, files left out,
 * pictures of each class */
static int dataset_folder(lua_State *L)
{
    const char       *root = luaL_checkstring(L, 1);
    gm_folder_options o = {.channels = gm_field_whole(L, 2, "channels", 3),
                           .skip_damaged = gm_field_flag(L, 2, "skip_damaged")};
    if (!lua_isnoneornil(L, 3)) o.classes = gm_push_texts(L, 3, &o.n_classes);
    gm_dataset_box *b = gm_push_dataset(L);
    L_OR_NIL(L, gm_folder_dataset_new(root, &o, &b->dataset));
    lua_createtable(L, (int)b->dataset->classes, 0);
    for (int64_t k = 0; k < b->dataset->classes; k++) {
        lua_pushstring(L, gm_folder_class(b->dataset, k));
        lua_rawseti(L, -2, (int)k + 1);
    }
    lua_pushnumber(L, (lua_Number)gm_folder_left_out(b->dataset));
    lua_createtable(L, (int)b->dataset->classes, 0);
    for (int64_t k = 0; k < b->dataset->classes; k++) {
        lua_pushnumber(L, (lua_Number)gm_folder_count(b->dataset, k));
        lua_rawseti(L, -2, (int)k + 1);
    }
    return 4;
}

/* dataset_tar(list of paths, { channels, classes, skip_damaged }) -> dataset, members left out */
static int dataset_tar(lua_State *L)
{
    int            n;
    const char   **paths = gm_push_texts(L, 1, &n);
    gm_tar_options o = {.channels = gm_field_whole(L, 2, "channels", 3),
                        .classes = gm_field_whole(L, 2, "classes", 0),
                        .skip_damaged = gm_field_flag(L, 2, "skip_damaged")};
    gm_check_argument(L, n >= 1, 1, "at least one file is needed");
    gm_dataset_box *b = gm_push_dataset(L);
    L_OR_NIL(L, gm_tar_dataset_new(paths, n, &o, &b->dataset));
    lua_pushnumber(L, (lua_Number)gm_tar_others(b->dataset));
    return 2;
}

/* dataset_arrays(x, name of x or nil, y or nil, name of y or nil, { classes, tokens }) -> dataset */
static int dataset_arrays(lua_State *L)
{
    gm_array_options o = {.classes = gm_field_whole(L, 5, "classes", 0), .tokens = gm_field_flag(L, 5, "tokens")};
    gm_dataset_box  *b = gm_push_dataset(L);
    L_OR_NIL(L, gm_array_dataset_new(luaL_checkstring(L, 1), luaL_optstring(L, 2, NULL), luaL_optstring(L, 3, NULL),
                                     luaL_optstring(L, 4, NULL), &o, &b->dataset));
    return 1;
}

/* dataset_mix(list of datasets, list of weights, length, seed) -> dataset, list of the samples of each */
static int dataset_mix(lua_State *L)
{
    int          n = (int)(luaL_checktype(L, 1, LUA_TTABLE), lua_objlen(L, 1));
    gm_dataset **parts = lua_newuserdata(L, ((size_t)n + 1) * sizeof *parts);
    double      *weights = lua_newuserdata(L, ((size_t)n + 1) * sizeof *weights);
    gm_check_argument(L, n >= 1, 1, "at least one dataset is needed");
    for (int k = 0; k < n; k++) {
        lua_rawgeti(L, 1, k + 1);
        parts[k] = gm_check_dataset(L, lua_gettop(L));
        lua_rawgeti(L, 2, k + 1);
        weights[k] = luaL_checknumber(L, -1);
        lua_pop(L, 2);
    }
    gm_dataset_box *b = gm_push_dataset(L);
    L_OR_NIL(L, gm_mix_dataset_new(parts, weights, n, gm_check_integer(L, 3), (uint64_t)gm_check_integer(L, 4),
                                   &b->dataset));
    lua_createtable(L, n, 0);
    for (int k = 0; k < n; k++) {
        lua_pushnumber(L, (lua_Number)gm_mix_count(b->dataset, k));
        lua_rawseti(L, -2, k + 1);
    }
    return 2;
}

/* dataset_damage_count(d) -> number of samples that were found damaged and left out */
static int dataset_damage_count(lua_State *L)
{
    gm_damage *m = gm_check_dataset(L, 1)->damage;
    lua_pushnumber(L, m ? (lua_Number)gm_damage_count(m) : 0);
    return 1;
}

/* dataset_damage(d) -> number of samples that were found damaged and left out, list of messages that are new */
static int dataset_damage(lua_State *L)
{
    gm_damage *m = gm_check_dataset(L, 1)->damage;
    char       text[512];
    lua_pushnumber(L, m ? (lua_Number)gm_damage_count(m) : 0);
    lua_newtable(L);
    for (int i = 1; m && gm_damage_take(m, text, sizeof text); i++) {
        lua_pushstring(L, text);
        lua_rawseti(L, -2, i);
    }
    return 2;
}

/* A value of this shape with these bytes, in the handle on the top of the stack. */
static gm_status fill(lua_State *L, gm_handle *h, gm_dtype dtype, int ndim, const int64_t *shape, const void *bytes)
{
    gm_rank         *r = gm_lua_rank(L);
    gm_value        *v;
    gm_host_elements to;
    GM_TRY(gm_value_new(r, "data", dtype, ndim, shape, &v));
    gm_handle_fill(r, h, v, "data");
    GM_TRY(gm_host_open(h->value->local, &to));
    gm_status st = GM_OK;
    if (to.data) {
        memcpy(to.data, bytes, (size_t)gm_tensor_numel(h->value->local) * gm_dtype_size(dtype));
        st = gm_host_changed(&to);
    } else st = GM_FAIL(GM_EINVAL, "samples have no values on this device");
    gm_host_close(&to);
    return st;
}

int gm_push_image_sample(lua_State *L, const gm_dataset *d, int64_t epoch, int64_t i)
{
    gm_handle *hx = gm_push_handle(L), *hy = gm_push_handle(L);
    gm_image   im = {0};
    int64_t    y[GM_MAX_DIMS];
    gm_status  st = gm_dataset_y_numel(d) <= GM_MAX_DIMS ? gm_dataset_image(d, (uint64_t)epoch, i, NULL, &im, y)
                                                         : GM_FAIL(GM_EINVAL, "too many targets");
    if (st == GM_OK) st = fill(L, hx, GM_U8, 3, (int64_t[]){im.channels, im.height, im.width}, im.pixels);
    if (st == GM_OK) st = fill(L, hy, GM_I64, d->y_ndim, d->y_shape, y);
    gm_image_free(&im);
    L_OR_NIL(L, st);
    return 2;
}

/* image_header(path) -> { format, height, width, channels, bits } */
static int image_header(lua_State *L)
{
    const char     *path = luaL_checkstring(L, 1);
    gm_image        im = {0};
    gm_image_header h;
    gm_status       st = gm_image_load(path, &im);
    if (st == GM_OK) st = gm_image_header_read(&(gm_encoded){im.file, im.file_size, path}, &h);
    gm_image_free(&im);
    L_OR_NIL(L, st);
    lua_createtable(L, 0, 5);
    lua_pushstring(L, h.format);
    lua_setfield(L, -2, "format");
    const struct {
        const char *name;
        double      value;
    } numbers[] = {
        {"height", (double)h.height}, {"width", (double)h.width}, {"channels", h.channels}, {"bits", h.bits}};
    for (int k = 0; k < 4; k++) {
        lua_pushnumber(L, numbers[k].value);
        lua_setfield(L, -2, numbers[k].name);
    }
    return 1;
}

/* image_sheet(path, dataset, list of samples from 0, { columns, size }) -> true: writes a contact sheet */
static int image_sheet(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    gm_dataset *d = gm_check_dataset(L, 2);
    luaL_checktype(L, 3, LUA_TTABLE);
    int      n = (int)lua_objlen(L, 3);
    int64_t *samples = lua_newuserdata(L, ((size_t)n + 1) * sizeof *samples);
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, 3, i + 1);
        samples[i] = gm_check_integer(L, lua_gettop(L));
        lua_pop(L, 1);
    }
    L_OR_NIL(L,
             gm_sheet_write(path, d, samples, n, gm_field_whole(L, 4, "columns", 8), gm_field_whole(L, 4, "size", 96)));
    lua_pushboolean(L, 1);
    return 1;
}

int gm_open_pictures(lua_State *L)
{
    static const gm_declaration fns[] = {
        GM_FUNCTION("dataset_folder", dataset_folder, "root string, about table, classes table?"),
        GM_FUNCTION("dataset_tar", dataset_tar, "paths table, about table"),
        GM_FUNCTION("dataset_arrays", dataset_arrays,
                    "x string, x_name string?, y string?, y_name string?, about table"),
        GM_FUNCTION("dataset_mix", dataset_mix, "datasets table, weights table, length integer, seed integer"),
        GM_FUNCTION("dataset_damage", dataset_damage, "dataset object"),
        GM_FUNCTION("dataset_damage_count", dataset_damage_count, "dataset object"),
        GM_FUNCTION("image_header", image_header, "path string"),
        GM_FUNCTION("image_sheet", image_sheet, "path string, dataset object, samples table, about table"),
        GM_LAST_FUNCTION};
    gm_declare(L, fns);
    return 0;
}
