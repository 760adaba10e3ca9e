/* float8_blocks.c - see float8_blocks.h. */
#include "float8_blocks.h"

#include <inttypes.h>

#include "../../../kernels/float8.h"

#define OTHERWISE "; float8.scaling = \"current\" or \"delayed\" takes any sizes"

/* ---- which cuts ---- */

static bool is_even(const gm_rank *r, const gm_value *v, int d)
{
    return v->shape[d] == v->local->shape[d] * gm_layout_parts(&r->mesh, &v->layout, d);
}

static gm_status check_dim(const gm_rank *r, const gm_value *v, int d, const char *name, const char *what)
{
    if (!v->layout.n_cuts[d]) return GM_OK;
    int     parts = gm_layout_parts(&r->mesh, &v->layout, d);
    int64_t size = v->local->shape[d];
    if (is_even(r, v, d) && size % GM_FLOAT8_BLOCK == 0) return GM_OK;
    return GM_FAIL(GM_ESHAPE,
                   "linear_float8: the %" PRId64 " %s of %s are cut into %d parts of %" PRId64
                   "; with scales of blocks "
                   "they are cut between blocks, so their number is a multiple of %d" OTHERWISE,
                   v->shape[d], what, name, parts, size, parts * GM_FLOAT8_BLOCK);
}

/* Rows follow each other through all dimensions but the last. Those that a rank has without a gap begin with its part
 * of the last of these dimensions that is cut. */
static gm_status check_rows(const gm_rank *r, const gm_value *x)
{
    int     last = x->ndim - 1, cut = -1;
    int64_t run = 1;
    char    text[256];
    bool    even = true;
    for (int d = 0; d < last; d++)
        if (x->layout.n_cuts[d]) cut = d, even = even && is_even(r, x, d);
    if (cut < 0) return GM_OK;
    for (int d = cut; d < last; d++) run *= x->local->shape[d];
    if (even && run % GM_FLOAT8_BLOCK == 0) return GM_OK;
    return GM_FAIL(GM_ESHAPE,
                   "linear_float8: a rank has runs of %" PRId64
                   " rows of x, %s%s; with scales of blocks the gradient of "
                   "w needs multiples of %d rows, in parts of one size: choose batch_size and the length of sequences "
                   "so" OTHERWISE,
                   run, gm_value_describe(x, text, sizeof text), even ? "" : " (the parts differ)", GM_FLOAT8_BLOCK);
}

gm_status gm_float8_check_blocks(gm_rank *r, const gm_value *x, const gm_value *w, bool turned)
{
    GM_TRY(check_dim(r, x, x->ndim - 1, "x", "inputs"));
    GM_TRY(check_dim(r, w, 0, "w", "outputs"));
    GM_TRY(check_dim(r, w, 1, "w", "inputs"));
    return turned ? check_rows(r, x) : GM_OK;
}

/* ---- steps ---- */

gm_float8_coded gm_float8_code_blocks(gm_work *w, gm_tensor *t, bool square, bool straight, bool turned)
{
    gm_attrs   a = gm_attrs_default();
    gm_tensor *to[4] = {NULL, NULL, NULL, NULL};
    gm_spec    spec[GM_MAX_OUT];
    gm_call    c = {.op = GM_OP_float8_block_encode, .n_in = 1, .n_out = 4, .in = &t, .out = to, .attrs = &a};
    a.format = GM_FLOAT8_E4M3;
    a.square = square;
    GM_STEP(w, gm_infer(&c, spec));
    for (int i = 0; i < 4 && w->st == GM_OK; i++)
        if (i < 2 ? straight : turned) to[i] = gm_work_new(w, spec[i].dtype, spec[i].ndim, spec[i].shape);
    gm_work_into(w, c.op, 1, &t, &a, 4, to);
    return (gm_float8_coded){to[0], to[1], to[2], to[3]};
}

void gm_float8_multiply_blocks(gm_work *w, gm_tensor *a, gm_tensor *a_scales, gm_tensor *b, gm_tensor *b_scales,
                               bool square, gm_tensor *bias, bool accumulate, gm_tensor *to)
{
    gm_attrs at = gm_attrs_default();
    if (w->st != GM_OK) return;
    at.format = GM_FLOAT8_E4M3;
    at.square = square;
    at.accumulate = accumulate;
    at.dtype = to->dtype;
    gm_work_into(w, GM_OP_float8_block_product, 5, (gm_tensor *[]){a, b, a_scales, b_scales, bias}, &at, 1, &to);
}

gm_status gm_float8_take_scales(gm_rank *r, gm_tensor *scales, const gm_value *x, gm_value **out)
{
    int       last = x->ndim - 1;
    gm_layout layout = gm_layout_replicated();
    int64_t   shape[2] = {scales->shape[0], x->shape[last]};
    for (int d = 0; d < last; d++)
        for (int i = 0; i < x->layout.n_cuts[d]; i++) layout.cut[0][layout.n_cuts[0]++] = x->layout.cut[d][i];
    gm_layout_copy_dim(&layout, 1, &x->layout, last);
    shape[0] *= gm_layout_parts(&r->mesh, &layout, 0);
    return gm_value_take_block(r, scales, &layout, 2, shape, out);
}
