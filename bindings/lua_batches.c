/* lua_batches.c - batches of a loader as values of this rank: whole, or in pieces (the micro-batches of a pipeline).
 *
 * Each is cut along its samples by the batch axes of the mesh as it is when it is asked for. A rank holds the block
 * that gm_batch_block says; whoever makes batches in Lua asks batch_piece and batch_rows for the same geometry. */
#include "lua_data.h"

#include <string.h>
#include "../host/autograd/padding.h"

/* How batches are cut for this rank: by the mesh as it is now. */
static int batch_cuts(const gm_rank *r, gm_batch_cut *cuts)
{
    uint32_t axes = gm_mesh_batch_axes(&r->mesh);
    int      n = 0;
    for (int a = 0; a < r->mesh.n_axes; a++)
        if (axes & 1u << a) cuts[n++] = (gm_batch_cut){r->coordinate[a], r->mesh.axis[a].size};
    return n;
}

/* A block of rows as the value (count, shape...), cut along its first dimension by the batch axes; takes t. */
static gm_status take_rows(gm_rank *r, gm_tensor *t, int64_t count, gm_value **out)
{
    int64_t   all[GM_MAX_DIMS] = {count};
    gm_layout layout = gm_layout_cut(0, gm_mesh_batch_axes(&r->mesh));
    for (int d = 1; d < t->ndim; d++) all[d] = t->shape[d];
    return gm_value_take_block(r, t, &layout, t->ndim, all, out);
}

/* A tensor (count, shape...) of which this rank has `rows` rows, pushed; data NULL: on meta. */
static int push_rows(lua_State *L, gm_dtype dtype, int64_t count, int64_t rows, int ndim, const int64_t *shape,
                     const void *data)
{
    gm_rank   *r = gm_lua_rank(L);
    int64_t    local[GM_MAX_DIMS + 1] = {rows};
    gm_device *dev;
    gm_tensor *t = NULL;
    gm_value  *v;
    gm_handle *h = gm_push_handle(L);
    if (ndim == GM_MAX_DIMS) return luaL_error(L, "samples have %d dimensions already", ndim);
    memcpy(local + 1, shape, (size_t)ndim * sizeof *shape);
    L_TRY(L, gm_rank_device(r, &dev));
    gm_rank_place(r, "data");
    L_TRY(L, gm_tensor_new(dev, dtype, ndim + 1, local, &t));
    size_t    bytes = (size_t)gm_tensor_numel(t) * gm_dtype_size(dtype);
    gm_status st = data ? gm_device_write(dev, gm_tensor_data(t), data, bytes) : GM_OK;
    if (st != GM_OK) gm_tensor_release(t);
    else st = take_rows(r, t, count, &v);
    if (st != GM_OK) return gm_raise(L, st);
    gm_handle_fill(r, h, v, "data");
    return 1;
}

/* The rows from row `at` of this rank's blocks on as the tensors x and y of `count` samples, pushed. */
static int push_samples(lua_State *L, const gm_loader *l, const gm_batch *b, int64_t at, int64_t count, int64_t rows)
{
    int64_t                   shape[GM_MAX_DIMS];
    const gm_transform_chain *p = gm_loader_transforms(l);
    gm_dtype                  dtype = gm_transform_chain_dtype(p);
    size_t                    bytes = (size_t)gm_transform_chain_numel(p) * gm_dtype_size(dtype);
    int                       ndim = gm_transform_chain_shape(p, shape);
    push_rows(L, dtype, count, rows, ndim, shape, b->x ? (const char *)b->x + (size_t)at * bytes : NULL);
    gm_dtype y_dtype = gm_loader_y_dtype(l);
    size_t   y_bytes = gm_dtype_size(y_dtype);
    ndim = gm_loader_y_shape(l, shape);
    for (int k = 0; k < ndim; k++) y_bytes *= (size_t)shape[k];
    push_rows(L, y_dtype, count, rows, ndim, shape, b->y ? (const char *)b->y + (size_t)at * y_bytes : NULL);
    return 2;
}

/* All pieces of a batch as two lists, of their x and of their y, pushed. */
static int push_pieces(lua_State *L, const gm_loader *l, const gm_batch *b, int n, const gm_batch_cut *cuts)
{
    int64_t at = 0, first, own, rows;
    int     x = lua_gettop(L) + 1, y = x + 1;
    lua_createtable(L, (int)b->pieces, 0);
    lua_createtable(L, (int)b->pieces, 0);
    for (int64_t k = 0; k < b->pieces; k++, at += rows) {
        int64_t count = gm_batch_piece(b->count, b->pieces, k, &first);
        gm_batch_block(n, cuts, count, &first, &own, &rows);
        push_samples(L, l, b, at, count, rows);
        lua_rawseti(L, y, (int)k + 1);
        lua_rawseti(L, x, (int)k + 1);
    }
    return 2;
}

/* loader_next(l, pieces = nil) -> x, y, count, list of sample numbers; nothing at the end of the epoch. x and y are the
 * whole batch, cut by the batch axes of the mesh as it is now; with a number of pieces, lists of so many of each, or of
 * as many as there are samples. */
static int loader_next(lua_State *L)
{
    const gm_batch *b;
    gm_batch_cut    cuts[GM_BATCH_CUTS_MAX];
    gm_loader      *l = gm_check_loader(L, 1);
    bool            whole = lua_isnoneornil(L, 2);
    int64_t         pieces = whole ? 1 : gm_check_integer(L, 2), first, own, rows;
    int             n = batch_cuts(gm_lua_rank(L), cuts);
    gm_check_argument(L, pieces > 0, 2, "a batch has at least one piece");
    L_OR_NIL(L, gm_loader_cut(l, pieces, n, cuts));
    L_OR_NIL(L, gm_loader_next(l, &b));
    if (!b->count) return 0;
    gm_batch_block(n, cuts, b->count, &first, &own, &rows);
    if (whole) push_samples(L, l, b, 0, b->count, rows);
    else push_pieces(L, l, b, n, cuts);
    lua_pushnumber(L, (lua_Number)b->count);
    lua_createtable(L, b->samples ? (int)b->count : 0, 0);
    for (int64_t i = 0; b->samples && i < b->count; i++) {
        lua_pushnumber(L, (lua_Number)b->samples[i]);
        lua_rawseti(L, -2, (int)i + 1);
    }
    return 4;
}

/* batch_piece(count, pieces, k) -> where piece k (from 0) of a batch begins, from 0, and its samples */
static int batch_piece(lua_State *L)
{
    int64_t count = gm_check_integer(L, 1), pieces = gm_check_integer(L, 2), k = gm_check_integer(L, 3), first;
    gm_check_argument(L, pieces > 0 && pieces <= count && k >= 0 && k < pieces, 3, "there is no such piece");
    int64_t n = gm_batch_piece(count, pieces, k, &first);
    lua_pushnumber(L, (lua_Number)first);
    lua_pushnumber(L, (lua_Number)n);
    return 2;
}

/* batch_rows(count) -> where this rank's rows of a batch begin (from 0), how many are its own, and how many its block
 * has, padding included */
static int batch_rows(lua_State *L)
{
    gm_batch_cut cuts[GM_BATCH_CUTS_MAX];
    int64_t      count = gm_check_integer(L, 1), first, own, rows;
    gm_check_argument(L, count >= 0, 1, "a count is not negative");
    gm_batch_block(batch_cuts(gm_lua_rank(L), cuts), cuts, count, &first, &own, &rows);
    lua_pushnumber(L, (lua_Number)first);
    lua_pushnumber(L, (lua_Number)own);
    lua_pushnumber(L, (lua_Number)rows);
    return 3;
}

/* batch_value(block of rows, count) -> the whole batch, of which this rank holds the block; what of that is padding
 * becomes zero */
static int batch_value(lua_State *L)
{
    gm_rank   *r = gm_lua_rank(L);
    gm_value  *block = gm_check_value(L, 1), *v;
    int64_t    count = gm_check_integer(L, 2);
    gm_handle *h = gm_push_handle(L);
    gm_check_argument(L, block->ndim > 0 && gm_layout_is_replicated(&block->layout), 1, "a block of rows was expected");
    gm_tensor_retain(block->local);
    gm_status st = take_rows(r, block->local, count, &v);
    if (st != GM_OK) return gm_raise(L, st);
    gm_handle_fill(r, h, v, "data");
    L_TRY(L, gm_padding_finish(v));
    return 1;
}

int gm_open_batches(lua_State *L)
{
    static const gm_declaration fns[] = {
        GM_FUNCTION("loader_next", loader_next, "loader object, pieces integer?"),
        GM_FUNCTION("batch_piece", batch_piece, "count integer, pieces integer, piece integer"),
        GM_FUNCTION("batch_rows", batch_rows, "count integer"),
        GM_FUNCTION("batch_value", batch_value, "block tensor, count integer"), GM_LAST_FUNCTION};
    gm_declare(L, fns);
    return 0;
}
