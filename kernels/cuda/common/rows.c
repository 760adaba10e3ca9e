/* rows.c - tensors as rows, and grids over them (rows.h). */
#include "rows.h"

/* Dimension d becomes the innermost of the rows, or joins the one before it. */
static void add_dim(gm_row_view *r, int64_t shape, int64_t stride)
{
    int last = r->ndim - 1;
    if (shape == 1) return;
    if (r->ndim && r->stride[last] == shape * stride) {
        r->shape[last] *= shape;
        r->stride[last] = stride;
        return;
    }
    r->shape[r->ndim] = shape;
    r->stride[r->ndim++] = stride;
}

static bool has_vectors(const gm_row_view *r, gm_dtype t)
{
    int64_t size = (int64_t)gm_dtype_size(t);
    if (r->step != 1 || (uintptr_t)r->data % 16) return false;
    for (int d = 0; d < r->ndim; d++)
        if (r->stride[d] * size % 16) return false;
    return true;
}

gm_row_view gm_rows_of(const gm_tensor *t, int dim)
{
    gm_row_view r = {0};
    if (!t) return r;
    r.data = gm_tensor_data(t);
    r.step = dim < 0 ? 1 : t->shape[dim] == 1 ? 1 : t->stride[dim];
    for (int d = 0; d < t->ndim; d++)
        if (d != dim) add_dim(&r, t->shape[d], t->stride[d]);
    r.vectors = has_vectors(&r, t->dtype);
    return r;
}

gm_row_view gm_rows_last(const gm_tensor *t) { return gm_rows_of(t, t ? t->ndim - 1 : 0); }
gm_row_view gm_rows_single(const gm_tensor *t) { return gm_rows_of(t, 0); }

int64_t gm_rows_count(const gm_tensor *t, int dim)
{
    int64_t n = 1;
    for (int d = 0; d < t->ndim; d++)
        if (d != dim) n *= t->shape[d];
    return n;
}

bool gm_rows_even(const gm_row_view *r, int64_t n, gm_dtype t)
{
    int64_t lanes = 16 / (int64_t)gm_dtype_size(t);
    if (!r->data) return true;
    return r->ndim <= 1 && (n == 0 || (r->vectors && n % lanes == 0 && n / lanes < INT32_MAX / 2));
}

/* Of the teams from half of GM_TEAM_MOST on: the one whose last turn leaves the fewest threads of `threads` idle. */
static int64_t team_for_turns(int64_t threads)
{
    int64_t best = GM_TEAM_MOST;
    for (int64_t team = GM_TEAM_MOST; team >= GM_TEAM_MOST / 2; team -= 32)
        if ((threads + team - 1) / team * team < (threads + best - 1) / best * best) best = team;
    return best;
}

gm_cuda_grid gm_rows_grid(int64_t rows, int64_t n, gm_dtype t, int packs, int32_t *team)
{
    int64_t each = packs * (16 / (int64_t)gm_dtype_size(t)), threads = (n + each - 1) / each;
    threads = threads > GM_TEAM_MOST ? team_for_turns(threads) : (threads + 31) / 32 * 32;
    *team = threads < 32 ? 32 : (int32_t)threads;
    int     block = *team == 32 ? 32 * GM_TEAM_ROWS : *team;
    int64_t together = block / *team;
    return (gm_cuda_grid){.x = (rows + together - 1) / together, .block = block, .shared = 32 * sizeof(double)};
}
