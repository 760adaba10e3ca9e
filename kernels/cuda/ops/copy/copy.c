/* copy.c - fill, copy, and scale, which may also change the dtype. A copy within a dtype moves bits. The driver copies
 * if neither side has gaps. Otherwise a kernel moves cells of as many bytes as strides and addresses allow, up to 16.
 * If rows become columns, it moves tiles, so that both sides are read and written along their memory. */
#include "copy_args.h"

#include <stdio.h>
#include <string.h>

/* Divides by `by` what counts elements of `operands` maps, whose innermost dimension is dense. */
static bool in_larger_cells(gm_map *m, int operands, size_t size, const void *const *address)
{
    for (int lanes = (int)(16 / size); lanes > 1; lanes /= 2) {
        gm_map  cells = *m;
        size_t  sizes[GM_MAP_OPERANDS] = {size, size, size, size};
        bool    dense = true;
        int64_t inner = m->shape[m->ndim - 1];
        for (int o = 0; o < operands; o++) dense = dense && m->stride[o][m->ndim - 1] == 1;
        if (!dense || inner % lanes || !gm_map_vectors(&cells, operands, lanes, address, sizes)) continue;
        for (int o = 0; o < operands; o++)
            for (int d = 0; d < cells.ndim; d++) cells.stride[o][d] /= lanes;
        *m = cells;
        m->step[0] = lanes; /* what one cell has, for the caller */
        return true;
    }
    return false;
}

static size_t cell_size(gm_map *m, int operands, size_t size, const void *const *address)
{
    return in_larger_cells(m, operands, size, address) ? size * (size_t)m->step[0] : size;
}

gm_status cuda_fill(gm_device *dev, const gm_call *call)
{
    const gm_tensor *y = call->out[0];
    gm_map_args      a = {.out = gm_tensor_data(y)};
    unsigned char    bytes[16];
    char             name[GM_CUDA_NAME];
    size_t           size = gm_dtype_size(y->dtype);
    for (size_t i = 0; i < 16 / size; i++) gm_store(y->dtype, bytes, (int64_t)i, call->attrs->value);
    memcpy(a.pattern, bytes, 16);
    gm_map_tensors(&a.map, 1, &y);
    size = cell_size(&a.map, 1, size, (const void *[]){a.out});
    snprintf(name, sizeof name, "gm_fill_%d", (int)size);
    return GM_LAUNCH(dev, name, gm_map_grid(dev, &a.map), a);
}

/* The dimension that x, but not y, has dense; -1: there is none worth a tile. */
static int dense_in_x(const gm_map *m)
{
    int inner = m->ndim - 1;
    if (m->stride[0][inner] != 1 || m->stride[1][inner] < 2 || m->shape[inner] < 8) return -1;
    for (int d = 0; d < inner; d++)
        if (m->stride[1][d] == 1 && m->shape[d] >= 8) return d;
    return -1;
}

/* Rows, columns, lines and planes of both sides are whole packs of 16 bytes. */
static bool is_even(const gm_turn_args *a, size_t size)
{
    int64_t lanes = (int64_t)(16 / size);
    bool    even = (size == 2 || size == 4) && (uintptr_t)a->x % 16 == 0 && (uintptr_t)a->y % 16 == 0;
    even = even && a->rows % lanes == 0 && a->columns % lanes == 0 && a->x_column % lanes == 0 && a->y_row % lanes == 0;
    for (int d = 0; d < a->map.ndim && even; d++)
        even = a->map.shape[d] == 1 || (a->map.stride[0][d] % lanes == 0 && a->map.stride[1][d] % lanes == 0);
    return even;
}

static gm_status turn(gm_device *dev, const gm_map *m, int row, size_t size, const void *x, void *y)
{
    int          inner = m->ndim - 1, n = 0;
    int64_t      shape[GM_MAX_DIMS], stride[2][GM_MAX_DIMS];
    char         name[GM_CUDA_NAME];
    gm_turn_args a = {.x = x,
                      .y = y,
                      .rows = m->shape[row],
                      .columns = m->shape[inner],
                      .x_column = m->stride[1][inner],
                      .y_row = m->stride[0][row]};
    for (int d = 0; d < inner; d++) {
        if (d == row) continue;
        shape[n] = m->shape[d];
        for (int o = 0; o < 2; o++) stride[o][n] = m->stride[o][d];
        n++;
    }
    gm_map_of(&a.map, n, shape, 2, stride);
    a.planes_at_once = a.map.n < 65535 ? a.map.n : 65535;
    bool         even = is_even(&a, size);
    int64_t      side = even ? GM_PLATE : GM_TILE, down = (a.rows + side - 1) / side;
    gm_cuda_grid g = {.x = down * ((a.columns + side - 1) / side),
                      .y = (int)a.planes_at_once,
                      .block = GM_TILE * GM_TILE_LINES,
                      .shared = even ? GM_PLATE * (GM_PLATE * size + GM_PLATE_GAP) : GM_TILE * (GM_TILE + 1) * size};
    snprintf(name, sizeof name, even ? "gm_turn_even_%d" : "gm_turn_%d", (int)size);
    return GM_LAUNCH(dev, name, g, a);
}

static gm_status move(gm_device *dev, const gm_tensor *x, const gm_tensor *y)
{
    gm_map_args a = {.in = {gm_tensor_data(x)}, .out = gm_tensor_data(y)};
    size_t      size = gm_dtype_size(x->dtype);
    char        name[GM_CUDA_NAME];
    gm_map_tensors(&a.map, 2, (const gm_tensor *[]){y, x});
    if (a.map.n == 0) return GM_OK;
    if (a.map.ndim == 1 && a.map.stride[0][0] == 1 && a.map.stride[1][0] == 1)
        return gm_cuda_copy(dev, a.out, a.in[0], (size_t)a.map.n * size);
    int row = dense_in_x(&a.map);
    if (row >= 0) return turn(dev, &a.map, row, size, a.in[0], a.out);
    size = cell_size(&a.map, 2, size, (const void *[]){a.out, a.in[0]});
    snprintf(name, sizeof name, "gm_move_%d", (int)size);
    return GM_LAUNCH(dev, name, gm_map_grid(dev, &a.map), a);
}

static bool has_cast(gm_dtype t) { return t == GM_F32 || t == GM_BF16 || t == GM_F16; }

static bool is_dense(const gm_map *m) { return m->stride[0][m->ndim - 1] == 1 && m->stride[1][m->ndim - 1] == 1; }

/* Kernel `base`_<x>_<y> for items of 8 where it can be, else `base`_any. */
static gm_status between(gm_device *dev, const char *base, const gm_tensor *x, const gm_tensor *y, gm_map_args *a)
{
    char        name[GM_CUDA_NAME];
    const void *address[] = {gm_tensor_data(y), gm_tensor_data(x)};
    size_t      sizes[] = {2, 2}; /* 16 bytes an address, also for two vectors of f32 */
    a->out = gm_tensor_data(y);
    a->in[0] = address[1];
    a->from = x->dtype;
    a->to = y->dtype;
    gm_map_tensors(&a->map, 2, (const gm_tensor *[]){y, x});
    bool items = has_cast(x->dtype) && has_cast(y->dtype) && is_dense(&a->map) &&
                 gm_map_vectors(&a->map, 2, 8, address, sizes);
    if (items) snprintf(name, sizeof name, "%s_%s_%s", base, gm_dtype_name(x->dtype), gm_dtype_name(y->dtype));
    else snprintf(name, sizeof name, "%s_any", base);
    return GM_LAUNCH(dev, name, gm_map_grid(dev, &a->map), *a);
}

static gm_status cast(gm_device *dev, const gm_tensor *x, const gm_tensor *y)
{
    gm_map_args a = {0};
    return between(dev, "gm_cast", x, y, &a);
}

gm_status cuda_scale(gm_device *dev, const gm_call *call)
{
    gm_map_args a = {.function = call->attrs->accumulate};
    a.in[1] = gm_tensor_data(call->in[1]);
    return between(dev, "gm_scale", call->in[0], call->out[0], &a);
}

gm_status cuda_copy(gm_device *dev, const gm_call *call)
{
    const gm_tensor *x = call->in[0], *y = call->out[0];
    return x->dtype == y->dtype ? move(dev, x, y) : cast(dev, x, y);
}
