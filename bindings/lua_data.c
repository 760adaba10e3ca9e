/* lua_data.c - the Lua face of host/data: userdata "gm.dataset" and "gm.loader".
 *
 * Bad files are news for a person, not programming errors: where a call fails for what it read, it
 * returns nil, message, kind ("corrupt", "io", "invalid", "memory"), and lua/ganymede/data decides on
 * the exit status. Numbers of samples count from 0, as in the files. */
#include "lua_data.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../host/data/sampler.h"
#include "../host/data/token_file.h"

#define DATASET "gm.dataset"
#define LOADER  "gm.loader"

typedef struct loader_box {
    gm_loader *loader;
} loader_box; /* NULL once closed */

static void *push_box(lua_State *L, size_t size, const char *kind)
{
    void *b = lua_newuserdata(L, size);
    memset(b, 0, size);
    luaL_getmetatable(L, kind);
    lua_setmetatable(L, -2);
    return b;
}

gm_dataset_box *gm_push_dataset(lua_State *L) { return push_box(L, sizeof(gm_dataset_box), DATASET); }

gm_dataset *gm_check_dataset(lua_State *L, int arg)
{
    return ((gm_dataset_box *)gm_check_object(L, arg, DATASET))->dataset;
}

gm_loader *gm_check_loader(lua_State *L, int arg)
{
    loader_box *b = gm_check_object(L, arg, LOADER);
    if (!b->loader) gm_bad_argument(L, arg, "this loader was closed");
    return b->loader;
}

int64_t gm_field_whole(lua_State *L, int arg, const char *name, int64_t otherwise)
{
    double v = gm_field_number(L, arg, name, (double)otherwise);
    if (v != floor(v) || fabs(v) > 9007199254740992.0) luaL_error(L, "option '%s' should be a whole number", name);
    return (int64_t)v;
}

static int field_shape(lua_State *L, int arg, const char *name, int64_t *shape)
{
    lua_getfield(L, arg, name);
    int n = gm_check_shape(L, lua_gettop(L), shape);
    lua_pop(L, 1);
    return n;
}

static void set_shape(lua_State *L, const char *name, int ndim, const int64_t *shape)
{
    lua_createtable(L, ndim, 0);
    for (int i = 0; i < ndim; i++) {
        lua_pushnumber(L, (lua_Number)shape[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, name);
}

/* ---- datasets ---- */

/* dataset_idx(images, labels, classes) */
static int dataset_idx(lua_State *L)
{
    const char     *images = luaL_checkstring(L, 1), *labels = luaL_checkstring(L, 2);
    int64_t         classes = gm_check_integer(L, 3);
    gm_dataset_box *b = gm_push_dataset(L);
    L_OR_NIL(L, gm_idx_dataset_new(images, labels, classes, &b->dataset));
    return 1;
}

#define FILES_MAX 64

/* The list of file names in argument 1; the strings stay on the stack. */
static int check_paths(lua_State *L, const char **paths)
{
    int n = (int)(luaL_checktype(L, 1, LUA_TTABLE), lua_objlen(L, 1));
    gm_check_argument(L, n >= 1 && n <= FILES_MAX, 1, "1 to 64 files are possible");
    luaL_checkstack(L, FILES_MAX, "too many files");
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, 1, i + 1);
        paths[i] = luaL_checkstring(L, -1);
    }
    return n;
}

/* dataset_records(list of paths, { record, label_offset, x_offset, x_shape, classes, records = 0: any }) */
static int dataset_records(lua_State *L)
{
    const char      *paths[FILES_MAX];
    int              n = check_paths(L, paths);
    gm_record_layout o = {.record = (size_t)gm_field_whole(L, 2, "record", 0),
                          .label_offset = (size_t)gm_field_whole(L, 2, "label_offset", 0),
                          .x_offset = (size_t)gm_field_whole(L, 2, "x_offset", 0),
                          .classes = gm_field_whole(L, 2, "classes", 0),
                          .records = (size_t)gm_field_whole(L, 2, "records", 0)};
    o.x_ndim = field_shape(L, 2, "x_shape", o.x_shape);
    gm_check_argument(L, o.record > 0, 2, "record must be at least 1 byte");
    gm_dataset_box *b = gm_push_dataset(L);
    L_OR_NIL(L, gm_record_dataset_new(paths, n, &o, &b->dataset));
    return 1;
}

/* dataset_tokens(path, { width = 0: header, vocab_size, length, stride, begin, finish, end_token = -1: none }) */
static int dataset_tokens(lua_State *L)
{
    const char      *path = luaL_checkstring(L, 1);
    gm_token_options o = {.width = (int)gm_field_whole(L, 2, "width", 0),
                          .vocab_size = gm_field_whole(L, 2, "vocab_size", 0),
                          .length = gm_field_whole(L, 2, "length", 0),
                          .stride = gm_field_whole(L, 2, "stride", 0),
                          .begin = gm_field_number(L, 2, "begin", 0),
                          .end = gm_field_number(L, 2, "finish", 1),
                          .end_token = gm_field_whole(L, 2, "end_token", GM_NO_END_TOKEN)};
    gm_dataset_box  *b = gm_push_dataset(L);
    L_OR_NIL(L, gm_token_dataset_new(path, &o, &b->dataset));
    return 1;
}

/* dataset_pairs(list of paths, { length, stride, begin, finish, mask, shorter, seed }) */
static int dataset_pairs(lua_State *L)
{
    const char     *paths[FILES_MAX];
    int             n = check_paths(L, paths);
    gm_pair_options o = {.length = gm_field_whole(L, 2, "length", 0),
                         .stride = gm_field_whole(L, 2, "stride", 0),
                         .begin = gm_field_number(L, 2, "begin", 0),
                         .end = gm_field_number(L, 2, "finish", 1),
                         .mask = gm_field_number(L, 2, "mask", 0),
                         .shorter = gm_field_number(L, 2, "shorter", 0),
                         .seed = (uint64_t)gm_field_whole(L, 2, "seed", 0)};
    gm_dataset_box *b = gm_push_dataset(L);
    L_OR_NIL(L, gm_pair_dataset_new(paths, n, &o, &b->dataset));
    return 1;
}

/* dataset_clusters{ length, x_shape, classes, noise, seed, split } */
static int dataset_clusters(lua_State *L)
{
    int64_t         shape[GM_MAX_DIMS];
    int             ndim = field_shape(L, 1, "x_shape", shape);
    gm_dataset_box *b = gm_push_dataset(L);
    L_OR_NIL(L,
             gm_cluster_dataset_new(gm_field_whole(L, 1, "length", 0), ndim, shape, gm_field_whole(L, 1, "classes", 0),
                                    gm_field_number(L, 1, "noise", 0), (uint64_t)gm_field_whole(L, 1, "seed", 0),
                                    (uint64_t)gm_field_whole(L, 1, "split", 0), &b->dataset));
    return 1;
}

/* dataset_chains{ length, sequence_length, vocab_size, noise, seed, split } */
static int dataset_chains(lua_State *L)
{
    gm_dataset_box *b = gm_push_dataset(L);
    L_OR_NIL(L, gm_chain_dataset_new(gm_field_whole(L, 1, "length", 0), gm_field_whole(L, 1, "sequence_length", 0),
                                     gm_field_whole(L, 1, "vocab_size", 0), gm_field_number(L, 1, "noise", 0),
                                     (uint64_t)gm_field_whole(L, 1, "seed", 0),
                                     (uint64_t)gm_field_whole(L, 1, "split", 0), &b->dataset));
    return 1;
}

static int dataset_gc(lua_State *L)
{
    gm_dataset_box *b = lua_touserdata(L, 1);
    gm_dataset_release(b->dataset); /* NULL is allowed; a loader may hold on to it */
    b->dataset = NULL;
    return 0;
}

/* dataset_describe(d) -> { length, classes, x_dtype, x_shape, y_shape } of raw samples; sizes that differ are -1 */
static int dataset_describe(lua_State *L)
{
    const gm_dataset *d = gm_check_dataset(L, 1);
    lua_createtable(L, 0, 5);
    lua_pushnumber(L, (lua_Number)d->length);
    lua_setfield(L, -2, "length");
    lua_pushnumber(L, (lua_Number)d->classes);
    lua_setfield(L, -2, "classes");
    lua_pushstring(L, gm_dtype_name(d->x_dtype));
    lua_setfield(L, -2, "x_dtype");
    set_shape(L, "x_shape", d->x_ndim, d->x_shape);
    set_shape(L, "y_shape", d->y_ndim, d->y_shape);
    return 1;
}

/* dataset_get(d, sample, epoch = 0) -> raw x, y as tensors */
static int dataset_get(lua_State *L)
{
    gm_rank    *r = gm_lua_rank(L);
    gm_dataset *d = gm_check_dataset(L, 1);
    int64_t     i = gm_check_integer(L, 2), epoch = lua_isnoneornil(L, 3) ? 0 : gm_check_integer(L, 3);
    if (d->image) return gm_push_image_sample(L, d, epoch, i);
    gm_handle *hx = gm_push_handle(L), *hy = gm_push_handle(L);
    gm_value  *v;
    L_TRY(L, gm_value_new(r, "data", d->x_dtype, d->x_ndim, d->x_shape, &v));
    gm_handle_fill(r, hx, v, "data");
    L_TRY(L, gm_value_new(r, "data", d->y_real ? GM_F64 : GM_I64, d->y_ndim, d->y_shape, &v));
    gm_handle_fill(r, hy, v, "data");
    gm_host_elements x, y;
    L_TRY(L, gm_host_open(hx->value->local, &x));
    gm_status st = gm_host_open(hy->value->local, &y);
    bool      has_data = st == GM_OK && x.data && y.data;
    if (has_data) st = gm_dataset_read(d, (uint64_t)epoch, i, x.data, y.data);
    if (has_data && st == GM_OK) st = gm_host_changed(&x);
    if (has_data && st == GM_OK) st = gm_host_changed(&y);
    gm_host_close(&x);
    gm_host_close(&y);
    if (st == GM_OK && !has_data) return luaL_error(L, "samples have no values on this device");
    L_OR_NIL(L, st);
    return 2;
}

/* data_order(n, shuffle, seed, epoch, first, count) -> list of sample numbers */
static int data_order(lua_State *L)
{
    gm_sampler s;
    int64_t    n = gm_check_integer(L, 1), first = gm_check_integer(L, 5), count = gm_check_integer(L, 6), one;
    gm_sampler_init(&s, n, lua_toboolean(L, 2), (uint64_t)gm_check_integer(L, 3), (uint64_t)gm_check_integer(L, 4));
    lua_newtable(L);
    for (int64_t i = 0; i < count; i++) {
        L_TRY(L, gm_sampler_take(&s, first + i, 1, &one));
        lua_pushnumber(L, (lua_Number)one);
        lua_rawseti(L, -2, (int)i + 1);
    }
    return 1;
}

/* A list of whole numbers as a userdata, left on the stack. */
static int64_t *push_integers(lua_State *L, int arg, int64_t *n)
{
    luaL_checktype(L, arg, LUA_TTABLE);
    *n = (int64_t)lua_objlen(L, arg);
    int64_t *list = lua_newuserdata(L, (size_t)*n * sizeof *list + 1);
    for (int64_t i = 0; i < *n; i++) {
        lua_rawgeti(L, arg, (int)i + 1);
        list[i] = gm_check_integer(L, lua_gettop(L));
        lua_pop(L, 1);
    }
    return list;
}

/* tokens_write(path, width, vocab_size, list of tokens) -> true */
static int tokens_write(lua_State *L)
{
    int64_t  n;
    int64_t *tokens = push_integers(L, 4, &n);
    L_OR_NIL(L, gm_token_write(luaL_checkstring(L, 1), (int)gm_check_integer(L, 2), gm_check_integer(L, 3), tokens, n));
    lua_pushboolean(L, 1);
    return 1;
}

/* ---- transforms ---- */

int gm_field_numbers(lua_State *L, int at, const char *name, int most, double *to)
{
    lua_getfield(L, at, name);
    int n = lua_istable(L, -1) ? (int)lua_objlen(L, -1) : 0;
    for (int i = 0; i < n && n <= most; i++) {
        lua_rawgeti(L, -1, i + 1);
        to[i] = luaL_checknumber(L, -1);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return n;
}

static int read_numbers(lua_State *L, int at, const char *name, double *to, int most)
{
    int n = gm_field_numbers(L, at, name, most, to);
    if (n < 1 || n > most) luaL_error(L, "transform: '%s' must be a list of 1 to %d numbers", name, most);
    return n;
}

/* The transform described by the table on the top of the stack. */
static gm_status read_transform(lua_State *L, gm_transform *t)
{
    static const char *const kinds[] = {"normalize",    "crop",   "flip",         "resize", "center_crop",
                                        "resized_crop", "jitter", "rand_augment", "kernel", NULL};
    int                      top = lua_gettop(L);
    luaL_checktype(L, top, LUA_TTABLE);
    lua_getfield(L, top, "kind");
    int kind = gm_check_option(L, top + 1, NULL, kinds);
    lua_pop(L, 1);
    *t = (gm_transform){.kind = (gm_transform_kind)kind};
    if (kind == GM_NORMALIZE) {
        t->channels = read_numbers(L, top, "mean", t->mean, GM_CHANNELS_MAX);
        if (read_numbers(L, top, "std", t->std, GM_CHANNELS_MAX) != t->channels)
            luaL_error(L, "normalize: mean and std differ in length");
    } else if (kind == GM_RESIZED_CROP) {
        if (read_numbers(L, top, "scale", t->scale, 2) != 2 || read_numbers(L, top, "ratio", t->ratio, 2) != 2)
            luaL_error(L, "resized crop: scale and ratio are two numbers each");
    } else if (kind == GM_COLOR_JITTER && read_numbers(L, top, "amount", t->amount, 4) != 4)
        luaL_error(L, "color jitter: there are four amounts");
    t->height = gm_field_whole(L, top, "height", 0);
    t->width = gm_field_whole(L, top, "width", 0);
    t->padding = gm_field_whole(L, top, "padding", 0);
    t->probability = gm_field_number(L, top, "probability", 0);
    t->strength = gm_field_number(L, top, "strength", 0);
    t->ops = (int)gm_field_whole(L, top, "ops", 0);
    t->among = (uint32_t)gm_field_whole(L, top, "among", 0);
    return kind == GM_KERNEL ? gm_read_kernel(L, top, &t->kernel) : GM_OK;
}

/* The list of { kind = "mixup" or "cutmix", alpha, probability } in field `blends` of the table `arg`. */
static gm_blends read_blends(lua_State *L, int arg)
{
    static const char *const kinds[] = {"mixup", "cutmix", NULL};
    gm_blends                b = {0};
    lua_getfield(L, arg, "blends");
    int list = lua_gettop(L), n = lua_istable(L, list) ? (int)lua_objlen(L, list) : 0;
    gm_check_argument(L, n <= GM_BLENDS_MAX, arg, "samples are mixed in at most 4 ways");
    for (b.n = 0; b.n < n; b.n++) {
        lua_rawgeti(L, list, b.n + 1);
        int top = lua_gettop(L);
        lua_getfield(L, top, "kind");
        b.list[b.n].kind = (gm_blend_kind)gm_check_option(L, top + 1, NULL, kinds);
        b.list[b.n].alpha = gm_field_number(L, top, "alpha", 1);
        b.list[b.n].probability = gm_field_number(L, top, "probability", 1);
        lua_settop(L, list);
    }
    return b;
}

/* ---- loaders ---- */

/* loader_new(dataset, list of transforms, { batch_size, shuffle, drop_last, seed, prefetch, threads = 1, dtype,
 * blends }) */
static int loader_new(lua_State *L)
{
    gm_transform t[GM_TRANSFORMS_MAX];
    gm_dataset  *d = gm_check_dataset(L, 1);
    gm_device   *dev;
    int          n = (int)(luaL_checktype(L, 2, LUA_TTABLE), lua_objlen(L, 2));
    gm_check_argument(L, n <= GM_TRANSFORMS_MAX, 2, "too many transforms");
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, 2, i + 1);
        L_OR_NIL(L, read_transform(L, &t[i]));
        lua_pop(L, 1);
    }
    lua_getfield(L, 3, "dtype");
    gm_dtype dtype = gm_check_dtype(L, lua_gettop(L));
    L_TRY(L, gm_rank_device(gm_lua_rank(L), &dev));
    gm_loader_options o = {.batch_size = gm_field_whole(L, 3, "batch_size", 0),
                           .shuffle = gm_field_flag(L, 3, "shuffle"),
                           .drop_last = gm_field_flag(L, 3, "drop_last"),
                           .seed = (uint64_t)gm_field_whole(L, 3, "seed", 0),
                           .prefetch = (int)gm_field_whole(L, 3, "prefetch", 0),
                           .threads = (int)gm_field_whole(L, 3, "threads", 1),
                           .dtype = dtype,
                           .blends = read_blends(L, 3),
                           .no_data = !dev->backend->has_data};
    loader_box       *b = push_box(L, sizeof *b, LOADER);
    lua_pushvalue(L, 2);
    lua_setfenv(L, -2); /* what transforms point to lives until the threads have ended */
    L_OR_NIL(L, gm_loader_new(d, t, n, &o, &b->loader));
    return 1;
}

/* loader_close(l): stops the thread; twice is fine. As __gc it waits for the batch being assembled, no longer. */
static int loader_close(lua_State *L)
{
    loader_box *b = gm_check_object(L, 1, LOADER);
    gm_loader_free(b->loader);
    b->loader = NULL;
    return 0;
}

/* loader_seek(l, epoch, batch) -> true */
static int loader_seek(lua_State *L)
{
    int64_t epoch = gm_check_integer(L, 2), batch = gm_check_integer(L, 3);
    L_OR_NIL(L, gm_loader_seek(gm_check_loader(L, 1), (uint64_t)epoch, batch));
    lua_pushboolean(L, 1);
    return 1;
}

/* loader_order(l, list of sample numbers) -> true: the present epoch in this order */
static int loader_order(lua_State *L)
{
    int64_t  n;
    int64_t *list = push_integers(L, 2, &n);
    L_OR_NIL(L, gm_loader_order(gm_check_loader(L, 1), list, n));
    lua_pushboolean(L, 1);
    return 1;
}

/* loader_begin(l, first) -> true: the present epoch begins at this sample of its order, from 0 */
static int loader_begin(lua_State *L)
{
    int64_t first = gm_check_integer(L, 2);
    L_OR_NIL(L, gm_loader_begin(gm_check_loader(L, 1), first));
    lua_pushboolean(L, 1);
    return 1;
}

/* loader_length(l) -> batches of an epoch */
static int loader_length(lua_State *L)
{
    lua_pushnumber(L, (lua_Number)gm_loader_length(gm_check_loader(L, 1)));
    return 1;
}

/* loader_shapes(l) -> { x_dtype, x_shape, y_shape } of one sample as batches hold it */
static int loader_shapes(lua_State *L)
{
    int64_t          shape[GM_MAX_DIMS];
    const gm_loader *l = gm_check_loader(L, 1);
    lua_createtable(L, 0, 3);
    lua_pushstring(L, gm_dtype_name(gm_transform_chain_dtype(gm_loader_transforms(l))));
    lua_setfield(L, -2, "x_dtype");
    set_shape(L, "x_shape", gm_transform_chain_shape(gm_loader_transforms(l), shape), shape);
    set_shape(L, "y_shape", gm_loader_y_shape(l, shape), shape);
    return 1;
}

static void new_type(lua_State *L, const char *name, lua_CFunction gc)
{
    luaL_newmetatable(L, name);
    lua_pushcfunction(L, gc);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
}

/* dataset_checksum(dataset) -> text */
static int dataset_checksum(lua_State *L)
{
    uint32_t sum;
    L_OR_NIL(L, gm_dataset_checksum(gm_check_dataset(L, 1), &sum));
    char text[12];
    snprintf(text, sizeof text, "%08x", sum);
    lua_pushstring(L, text);
    return 1;
}

int gm_open_data(lua_State *L)
{
    static const gm_declaration fns[] = {
        GM_FUNCTION("dataset_idx", dataset_idx, "images string, labels string, classes integer"),
        GM_FUNCTION("dataset_records", dataset_records, "paths table, about table"),
        GM_FUNCTION("dataset_tokens", dataset_tokens, "path string, about table"),
        GM_FUNCTION("dataset_pairs", dataset_pairs, "paths table, about table"),
        GM_FUNCTION("dataset_clusters", dataset_clusters, "about table"),
        GM_FUNCTION("dataset_chains", dataset_chains, "about table"),
        GM_FUNCTION("dataset_describe", dataset_describe, "dataset object"),
        GM_FUNCTION("dataset_checksum", dataset_checksum, "dataset object"),
        GM_FUNCTION("dataset_get", dataset_get, "dataset object, sample integer, epoch integer?"),
        GM_FUNCTION("data_order", data_order,
                    "n integer, shuffle boolean?, seed integer, epoch integer, first integer, count integer"),
        GM_FUNCTION("tokens_write", tokens_write, "path string, width integer, vocab_size integer, tokens table"),
        GM_FUNCTION("loader_new", loader_new, "dataset object, transforms table, about table"),
        GM_FUNCTION("loader_close", loader_close, "loader object"),
        GM_FUNCTION("loader_seek", loader_seek, "loader object, epoch integer, batch integer"),
        GM_FUNCTION("loader_begin", loader_begin, "loader object, first integer"),
        GM_FUNCTION("loader_order", loader_order, "loader object, samples table"),
        GM_FUNCTION("loader_length", loader_length, "loader object"),
        GM_FUNCTION("loader_shapes", loader_shapes, "loader object"),
        GM_LAST_FUNCTION};
    gm_open_pictures(L);
    gm_open_table(L);
    gm_open_clicks(L);
    new_type(L, DATASET, dataset_gc);
    new_type(L, LOADER, loader_close);
    gm_declare(L, fns);
    return gm_open_batches(L);
}
