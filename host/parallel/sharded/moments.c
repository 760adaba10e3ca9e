/* moments.c - means and squares around them, of parts of lines that ranks have: merged as Chan, Golub and LeVeque
 * (1979) do, which loses nothing to a large mean. Norms of rows that are cut and batch norm use it. */
#include "rows.h"

gm_tensor *gm_rows_counts(gm_work *w, gm_group *g, const gm_layout *layout, const gm_value *x, uint32_t dims)
{
    int        p = gm_group_size(g), at[GM_MAX_AXES];
    int64_t    local[GM_MAX_DIMS], logical[GM_MAX_DIMS];
    gm_box     box;
    gm_tensor *t = gm_work_new(w, GM_F64, 2, (int64_t[]){p, 1});
    if (w->st != GM_OK || !gm_tensor_data(t)) return t;
    for (int i = 0; i < p; i++) {
        double n = 1;
        gm_mesh_coordinates(&w->rank->mesh, gm_group_member(g, i), at);
        gm_layout_block(&w->rank->mesh, layout, at, x->ndim, x->shape, &box, local, logical);
        for (int d = 0; d < x->ndim; d++) n *= dims & 1u << d ? (double)logical[d] : 1;
        GM_STEP(w, gm_host_store(t, i, n));
    }
    return t;
}

/* parts (p, 2, s): mean and squares around it of each rank's part of s lines; counts (p, 1) -> the same of the lines of
 * n elements, (2, s), in the dtype of the parts. */
static gm_tensor *merge(gm_work *w, int64_t n, gm_tensor *parts, gm_tensor *counts)
{
    gm_tensor *wide = gm_work_cast(w, parts, GM_F64), *means = gm_work_select(w, wide, 1, 0);
    gm_tensor *squares = gm_work_select(w, wide, 1, 1), *share = gm_work_affine(w, counts, 1 / (double)n, 0);
    gm_tensor *mean = gm_work_sum(w, gm_work_binary(w, GM_FN_mul, means, share), 1u << 0, false, NULL);
    gm_tensor *off = gm_work_unary(w, GM_FN_square, gm_work_binary(w, GM_FN_sub, means, mean));
    off = gm_work_binary(w, GM_FN_add, squares, gm_work_binary(w, GM_FN_mul, off, counts));
    gm_tensor *whole = gm_work_sum(w, off, 1u << 0, false, NULL);
    if (w->st != GM_OK) return NULL;
    gm_tensor *both = gm_work_new(w, parts->dtype, 2, (int64_t[]){2, parts->shape[2]});
    gm_work_copy(w, mean, gm_work_select(w, both, 0, 0));
    gm_work_copy(w, whole, gm_work_select(w, both, 0, 1));
    return both;
}

gm_tensor *gm_rows_merge(gm_work *w, gm_group *g, gm_tensor *here, gm_tensor *counts, int64_t n)
{
    if (w->st != GM_OK || !here->shape[1]) return here;
    int64_t    p = gm_group_size(g), each = here->shape[1] / p;
    gm_tensor *parts = gm_work_new(w, here->dtype, 2, (int64_t[]){2 * p, each});
    gm_rows_all_to_all(w, g, here, 1, parts, 0);
    parts = gm_work_shaped(w, parts, 3, (int64_t[]){p, 2, each});
    gm_tensor *mine = merge(w, n, parts, counts), *all = gm_work_like(w, here);
    gm_rows_all_gather(w, g, mine, 1, all, NULL);
    return all;
}
