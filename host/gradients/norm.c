/* norm.c - see norm.h. Sums of squares are one kernel over all tensors, and stay on the device until somebody reads
 * them; other powers go piece by piece in f64, and wait for each. */
#include "norm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../autograd/sparse.h"
#include "../autograd/work.h"
#include "../comm/comm.h"
#include "../parallel/redistribute.h"

#define PIECE (INT64_C(1) << 18) /* elements worked on at a time: 2 MiB of f64, three of which are held */

typedef struct norm {
    gm_work       work;
    double        p;
    int           n;
    gm_norm_item *items; /* partial ones replaced by their sums */
    uint32_t     *axes;  /* that cut each */
    gm_tensor   **owned; /* those sums, and lists for the kernel */
    gm_tensor   **list;
} norm;

int gm_norm_gradients(gm_value *const *parameters, int n, gm_norm_item *items)
{
    int k = 0;
    for (int i = 0; i < n; i++) {
        gm_layout  layout;
        gm_tensor *g = gm_value_final_grad(parameters[i], &layout), *row;
        bool       rows = !g && gm_value_sparse_grad(parameters[i], &row, &g);
        if (g) items[k++] = (gm_norm_item){g, layout, rows};
    }
    return k;
}

/* Powers of absolute values add up, the largest wins; NaN stays NaN. */
static double join(double p, double a, double b)
{
    if (!isinf(p)) return a + b;
    return isnan(a) || a > b ? a : b;
}

/* *total = join(*total, sum of |x|^p or largest |x|) over a flat, non-empty tensor. */
static void add_piece(norm *m, gm_tensor *flat, double *total)
{
    gm_work   *w = &m->work;
    bool       largest = isinf(m->p);
    gm_attrs   power = gm_attrs_default(), all = power;
    gm_tensor *t = gm_work_unary(w, GM_FN_abs, gm_work_cast(w, flat, GM_F64)), *out[2];
    double     piece = 0;
    power.function = GM_FN_power;
    power.value = m->p;
    all.dim = 0;
    if (!largest && m->p != 1) t = gm_work_run(w, GM_OP_unary, 1, &t, &power);
    gm_work_run_all(w, largest ? GM_OP_max : GM_OP_sum, 1, &t, &all, largest ? 2 : 1, out);
    if (w->st != GM_OK || !gm_tensor_data(out[0])) return;
    GM_STEP(w, gm_host_load(out[0], 0, &piece));
    *total = join(m->p, *total, piece);
}

static void add_block(norm *m, gm_tensor *block, double *total)
{
    gm_work   *w = &m->work;
    int        first = w->n_held;
    int64_t    n = gm_tensor_numel(block);
    gm_tensor *flat = gm_work_shaped(w, gm_work_contiguous(w, block), 1, &n);
    for (int64_t at = 0, mark = w->n_held; at < n && w->st == GM_OK; at += PIECE) {
        add_piece(m, gm_work_narrow(w, flat, 0, at, n - at < PIECE ? n - at : PIECE), total);
        gm_work_drop(w, (int)mark);
    }
    gm_work_drop(w, first);
}

/* Lists blocks of items cut by exactly these axes, from item *i on: all that are left, or one alone if gradients rest
 * in a tier (the squares of one after the other add up to the same bits). *i moves behind them. */
static int next_unit(norm *m, uint32_t axes, int *i)
{
    bool one = m->work.rank->rests.gradients;
    int  k = 0;
    for (; *i < m->n && !(one && k); (*i)++)
        if (m->axes[*i] == axes) m->list[k++] = m->items[*i].block;
    return k;
}

/* The squares of the items cut by exactly these axes, of this rank's blocks: f64 (). */
static gm_tensor *sum_squares(norm *m, uint32_t axes)
{
    gm_work   *w = &m->work;
    gm_tensor *sum = NULL;
    int        mark = w->n_held;
    for (int i = 0, k; w->st == GM_OK && (k = next_unit(m, axes, &i));) {
        gm_tensor *part = gm_work_new(w, GM_F64, 0, NULL);
        gm_work_into(w, GM_OP_sum_squares, k, m->list, NULL, 1, &part);
        sum = gm_work_keep(w, sum ? gm_work_binary(w, GM_FN_add, sum, part) : part);
        gm_work_drop(w, mark); /* a work holds few tensors */
        sum = gm_work_hold(w, sum);
    }
    return sum;
}

/* What each member of the group of `axes` has, f64 (members), in order of the group. */
static gm_tensor *gather(norm *m, uint32_t axes, gm_tensor *mine)
{
    gm_work  *w = &m->work;
    gm_comm  *comm = NULL;
    gm_group *g = NULL;
    GM_STEP(w, gm_rank_comm(w->rank, &comm));
    GM_STEP(w, gm_comm_group(comm, axes, &g));
    if (w->st != GM_OK) return NULL;
    gm_tensor *all = gm_work_new(w, GM_F64, 1, (int64_t[]){gm_group_size(g)});
    GM_STEP(w, gm_comm_all_gather(comm, g, mine, 0, all, NULL));
    return all;
}

/* *total joined over the group of `axes`, in order of the group. */
static void over_group(norm *m, uint32_t axes, double *total)
{
    gm_work *w = &m->work;
    double  *parts;
    if (!axes) return;
    gm_tensor *mine = gm_work_new(w, GM_F64, 1, (int64_t[]){1});
    if (mine && gm_tensor_data(mine)) GM_STEP(w, gm_host_store(mine, 0, *total));
    gm_tensor *all = gather(m, axes, mine);
    if (w->st != GM_OK || !gm_tensor_data(all)) return;
    size_t n = (size_t)all->shape[0];
    parts = malloc(n * sizeof *parts);
    if (!parts) GM_STEP(w, GM_FAIL(GM_ENOMEM, "no memory for the norms of %zu ranks", n));
    GM_STEP(w, gm_device_read(w->device, parts, gm_tensor_data(all), n * sizeof *parts));
    *total = 0;
    for (size_t i = 0; i < n && w->st == GM_OK; i++) *total = join(m->p, *total, parts[i]);
    free(parts);
}

/* What the items cut by exactly these axes add up to, over all ranks. */
static void add_set(norm *m, uint32_t axes, double *total)
{
    double part = 0;
    for (int i = 0; i < m->n; i++)
        if (m->axes[i] == axes) add_block(m, m->items[i].block, &part);
    over_group(m, axes, &part);
    *total = join(m->p, *total, part);
}

/* The same for squares, as one more term on the device. */
static void add_term(norm *m, uint32_t axes, gm_norm_terms *out)
{
    gm_work *w = &m->work;
    if (out->n == GM_CONTROL_TERMS)
        GM_STEP(w, GM_FAIL(GM_EINVAL, "norm: parameters are cut in more than %d ways", GM_CONTROL_TERMS));
    gm_tensor *sum = sum_squares(m, axes);
    if (axes) sum = gather(m, axes, gm_work_shaped(w, sum, 1, (int64_t[]){1}));
    if (w->st == GM_OK) out->term[out->n++] = gm_work_keep(w, sum);
}

/* Sums what is partial. A norm knows no global shapes and needs none: cuts stay as they are, so that a block is
 * reduced as if it were the tensor. */
static gm_status reduce_partial(norm *m)
{
    for (int i = 0; i < m->n; i++) {
        gm_norm_item *it = &m->items[i];
        gm_layout     from = gm_layout_replicated(), to = from;
        from.partial = it->layout.partial;
        if (!from.partial) continue;
        if (it->rows)
            return GM_FAIL(GM_EINVAL, "norm: a sparse gradient is still to be summed over ranks; sum gradients first");
        m->work.sent = true;
        GM_TRY(gm_redistribute_block(m->work.rank, it->block, &from, &to, it->block->ndim, it->block->shape,
                                     &m->owned[i]));
        it->block = m->owned[i];
        it->layout.partial = 0;
    }
    return GM_OK;
}

/* Is item i the first of its set of axes? */
static bool is_first(const norm *m, int i)
{
    for (int k = 0; k < i; k++)
        if (m->axes[k] == m->axes[i]) return false;
    return true;
}

static double root(double p, double total) { return isinf(p) || p == 1 ? total : pow(total, 1 / p); }

static gm_status end(norm *m)
{
    for (int i = 0; m->owned && i < m->n; i++) gm_tensor_release(m->owned[i]);
    free(m->items);
    free(m->owned);
    free(m->list);
    free(m->axes);
    return gm_work_end(&m->work);
}

/* The items, without partial ones; end() frees it, also after an error. */
static void begin(gm_rank *r, const gm_norm_item *items, int n, double p, norm *m)
{
    *m = (norm){.p = p, .n = n};
    gm_work_begin(&m->work, r, "norm");
    m->items = malloc((size_t)n * sizeof *m->items);
    m->owned = calloc((size_t)n, sizeof *m->owned);
    m->list = malloc((size_t)n * sizeof *m->list);
    m->axes = malloc((size_t)n * sizeof *m->axes);
    if (!m->axes || !m->items || !m->owned || !m->list) {
        GM_STEP(&m->work, GM_FAIL(GM_ENOMEM, "no memory for a list of %d tensors", n));
        return;
    }
    memcpy(m->items, items, (size_t)n * sizeof *items);
    GM_STEP(&m->work, reduce_partial(m));
    for (int i = 0; i < n; i++) m->axes[i] = gm_layout_cut_axes(&m->items[i].layout);
}

/* Each set of axes as a term, or into *total. */
static void add_all(norm *m, gm_norm_terms *terms, double *total)
{
    for (int i = 0; i < m->n && m->work.st == GM_OK; i++) {
        if (!is_first(m, i)) continue;
        m->work.sent |= m->axes[i] != 0;
        if (terms) add_term(m, m->axes[i], terms);
        else add_set(m, m->axes[i], total);
        gm_work_drop(&m->work, 0);
    }
}

gm_status gm_layout_squares(gm_rank *r, const gm_norm_item *items, int n, gm_norm_terms *out)
{
    norm m;
    *out = (gm_norm_terms){0};
    if (!n) return GM_OK;
    begin(r, items, n, 2, &m);
    add_all(&m, out, NULL);
    gm_status st = end(&m);
    if (st != GM_OK) gm_norm_terms_release(out);
    return st;
}

void gm_norm_terms_release(gm_norm_terms *t)
{
    for (int i = 0; i < t->n; i++) gm_tensor_release(t->term[i]);
    t->n = 0;
}

/* *total += the elements of a term. */
static gm_status read_term(gm_tensor *t, double *total)
{
    double sum = 0, one;
    for (int64_t i = 0; gm_tensor_data(t) && i < gm_tensor_numel(t); i++) {
        GM_TRY(gm_host_load(t, i, &one));
        sum += one;
    }
    *total += sum;
    return GM_OK;
}

static gm_status norm_of_squares(gm_rank *r, const gm_norm_item *items, int n, double *out)
{
    gm_norm_terms terms;
    double        total = 0;
    gm_status     st = GM_OK;
    GM_TRY(gm_layout_squares(r, items, n, &terms));
    for (int i = 0; i < terms.n && st == GM_OK; i++) st = read_term(terms.term[i], &total);
    gm_norm_terms_release(&terms);
    *out = sqrt(total);
    return st;
}

gm_status gm_layout_norm(gm_rank *r, const gm_norm_item *items, int n, double p, double *out)
{
    norm   m;
    double total = 0;
    *out = 0;
    if (!(p > 0)) return GM_FAIL(GM_EINVAL, "norm: p is %g; it should be above 0 (1, 2, 3, ... or infinity)", p);
    if (!n) return GM_OK;
    if (p == 2) return norm_of_squares(r, items, n, out);
    begin(r, items, n, p, &m);
    add_all(&m, NULL, &total);
    *out = root(p, total);
    return end(&m);
}
