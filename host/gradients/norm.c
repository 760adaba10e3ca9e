/* norm.c - see norm.h. Sums of squares are one kernel over all tensors, and stay on the device until somebody reads
 * them; other powers go piece by piece in f64, and wait for each. */
#include "norm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../comm/comm.h"
#include "../parallel/redistribute.h"

#define PIECE (INT64_C(1) << 18) /* elements worked on at a time: 2 MiB of f64, three of which are held */

typedef struct norm {
    gm_rank      *rank;
    gm_device    *device;
    double        p;
    int           n;
    gm_norm_item *items; /* partial ones replaced by their sums */
    uint32_t     *axes;  /* that cut each */
    bool          sent;  /* other ranks may have had their part of something */
    gm_tensor   **owned; /* those sums, and lists for the kernel */
    gm_tensor   **list;
} norm;

int gm_norm_gradients(gm_value *const *parameters, int n, gm_norm_item *items)
{
    int k = 0;
    for (int i = 0; i < n; i++) {
        if (!gm_value_grad(parameters[i])) continue;
        items[k] = (gm_norm_item){parameters[i]->param->grad, parameters[i]->layout};
        items[k++].layout.partial = parameters[i]->param->grad_partial;
    }
    return k;
}

/* Powers of absolute values add up, the largest wins; NaN stays NaN. */
static double join(double p, double a, double b)
{
    if (!isinf(p)) return a + b;
    return isnan(a) || a > b ? a : b;
}

/* First output of an op, new. */
static gm_status run(const norm *m, gm_op op, gm_tensor *in, const gm_attrs *attrs, gm_tensor **out)
{
    gm_tensor *to[2] = {NULL};
    gm_spec    spec[2];
    gm_status  st = GM_OK;
    gm_call    c = {.op = op, .n_in = 1, .n_out = op == GM_OP_max ? 2 : 1, .in = &in, .out = to, .attrs = attrs};
    GM_TRY(gm_infer(&c, spec));
    for (int i = 0; i < c.n_out && st == GM_OK; i++)
        st = gm_tensor_new(m->device, spec[i].dtype, spec[i].ndim, spec[i].shape, &to[i]);
    if (st == GM_OK) st = gm_run(m->device, &c);
    gm_tensor_release(to[1]);
    if (st == GM_OK) *out = to[0];
    else gm_tensor_release(to[0]);
    return st;
}

/* Replaces *t by an op of it. */
static gm_status become(const norm *m, gm_op op, const gm_attrs *attrs, gm_tensor **t)
{
    gm_tensor *y = NULL;
    GM_TRY(run(m, op, *t, attrs, &y));
    gm_tensor_release(*t);
    *t = y;
    return GM_OK;
}

/* *total = join(*total, sum of |x|^p or largest |x|) over a flat, non-empty tensor. */
static gm_status add_piece(const norm *m, gm_tensor *flat, double *total)
{
    gm_attrs   cast = gm_attrs_default(), absolute = cast, power = cast, all = cast;
    gm_tensor *t = NULL;
    gm_status  st;
    cast.dtype = GM_F64;
    absolute.function = GM_FN_abs;
    power.function = GM_FN_power;
    power.value = m->p;
    all.dim = 0;
    GM_TRY(run(m, GM_OP_copy, flat, &cast, &t));
    GM_TRY_OR(become(m, GM_OP_unary, &absolute, &t), st, done);
    if (!isinf(m->p) && m->p != 1) GM_TRY_OR(become(m, GM_OP_unary, &power, &t), st, done);
    GM_TRY_OR(become(m, isinf(m->p) ? GM_OP_max : GM_OP_sum, &all, &t), st, done);
    double piece;
    if (gm_tensor_data(t)) {
        GM_TRY_OR(gm_host_load(t, 0, &piece), st, done);
        *total = join(m->p, *total, piece);
    }
done:
    gm_tensor_release(t);
    return st;
}

static gm_status add_block(const norm *m, gm_tensor *block, double *total)
{
    gm_attrs   a = gm_attrs_default();
    gm_tensor *t = block, *flat = NULL, *piece;
    int64_t    n = gm_tensor_numel(block);
    gm_status  st;
    if (gm_tensor_is_contiguous(block)) gm_tensor_retain(t);
    else GM_TRY(run(m, GM_OP_copy, block, &a, &t));
    GM_TRY_OR(gm_tensor_reshape(t, 1, &n, &flat), st, done);
    for (int64_t at = 0; at < n && st == GM_OK; at += PIECE) {
        GM_TRY_OR(gm_tensor_narrow(flat, 0, at, n - at < PIECE ? n - at : PIECE, &piece), st, done);
        st = add_piece(m, piece, total);
        gm_tensor_release(piece);
    }
done:
    gm_tensor_release(flat);
    gm_tensor_release(t);
    return st;
}

/* The squares of the items cut by exactly these axes, of this rank's blocks: f64 (). */
static gm_status sum_squares(const norm *m, uint32_t axes, gm_tensor **sum)
{
    gm_attrs a = gm_attrs_default();
    int      k = 0;
    for (int i = 0; i < m->n; i++)
        if (m->axes[i] == axes) m->list[k++] = m->items[i].block;
    GM_TRY(gm_tensor_new(m->device, GM_F64, 0, NULL, sum));
    gm_call   c = {.op = GM_OP_sum_squares, .n_in = k, .n_out = 1, .in = m->list, .out = sum, .attrs = &a};
    gm_status st = gm_run(m->device, &c);
    if (st == GM_OK) return GM_OK;
    gm_tensor_release(*sum);
    *sum = NULL;
    return st;
}

/* What each member of the group of `axes` has, f64 (members), in order of the group. */
static gm_status gather(const norm *m, uint32_t axes, gm_tensor *mine, gm_tensor **all)
{
    gm_comm  *comm;
    gm_group *g;
    GM_TRY(gm_rank_comm(m->rank, &comm));
    GM_TRY(gm_comm_group(comm, axes, &g));
    GM_TRY(gm_tensor_new(m->device, GM_F64, 1, (int64_t[]){gm_group_size(g)}, all));
    gm_status st = gm_comm_all_gather(comm, g, mine, 0, *all, NULL);
    if (st == GM_OK) return GM_OK;
    gm_tensor_release(*all);
    *all = NULL;
    return st;
}

/* *total joined over the group of `axes`, in order of the group. */
static gm_status over_group(const norm *m, uint32_t axes, double *total)
{
    gm_tensor *mine = NULL, *all = NULL;
    double    *parts = NULL;
    gm_status  st;
    if (!axes) return GM_OK;
    GM_TRY(gm_tensor_new(m->device, GM_F64, 1, (int64_t[]){1}, &mine));
    if (gm_tensor_data(mine)) GM_TRY_OR(gm_host_store(mine, 0, *total), st, done);
    GM_TRY_OR(gather(m, axes, mine, &all), st, done);
    if (!gm_tensor_data(all)) goto done;
    size_t n = (size_t)all->shape[0];
    parts = malloc(n * sizeof *parts);
    st = parts ? GM_OK : GM_FAIL(GM_ENOMEM, "no memory for the norms of %zu ranks", n);
    if (st == GM_OK) st = gm_device_read(m->device, parts, gm_tensor_data(all), n * sizeof *parts);
    if (st != GM_OK) goto done;
    *total = 0;
    for (size_t i = 0; i < n; i++) *total = join(m->p, *total, parts[i]);
done:
    free(parts);
    gm_tensor_release(mine);
    gm_tensor_release(all);
    return st;
}

/* What the items cut by exactly these axes add up to, over all ranks. */
static gm_status add_set(const norm *m, uint32_t axes, double *total)
{
    double part = 0;
    for (int i = 0; i < m->n; i++)
        if (m->axes[i] == axes) GM_TRY(add_block(m, m->items[i].block, &part));
    GM_TRY(over_group(m, axes, &part));
    *total = join(m->p, *total, part);
    return GM_OK;
}

/* The same for squares, as one more term on the device. */
static gm_status add_term(const norm *m, uint32_t axes, gm_norm_terms *out)
{
    gm_tensor *sum, *mine = NULL;
    if (out->n == GM_CONTROL_TERMS)
        return GM_FAIL(GM_EINVAL, "norm: parameters are cut in more than %d ways", GM_CONTROL_TERMS);
    GM_TRY(sum_squares(m, axes, &sum));
    if (!axes) {
        out->term[out->n++] = sum;
        return GM_OK;
    }
    gm_status st = gm_tensor_reshape(sum, 1, (int64_t[]){1}, &mine);
    if (st == GM_OK) st = gather(m, axes, mine, &out->term[out->n]);
    if (st == GM_OK) out->n++;
    gm_tensor_release(mine);
    gm_tensor_release(sum);
    return st;
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
        m->sent = true;
        GM_TRY(gm_redistribute_block(m->rank, it->block, &from, &to, it->block->ndim, it->block->shape, &m->owned[i]));
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

static void end(norm *m)
{
    for (int i = 0; m->owned && i < m->n; i++) gm_tensor_release(m->owned[i]);
    free(m->items);
    free(m->owned);
    free(m->list);
    free(m->axes);
}

/* The items, without partial ones; end() frees it, also after an error. */
static gm_status begin(gm_rank *r, const gm_norm_item *items, int n, double p, norm *m)
{
    *m = (norm){.rank = r, .p = p, .n = n};
    GM_TRY(gm_rank_device(r, &m->device));
    m->items = malloc((size_t)n * sizeof *m->items);
    m->owned = calloc((size_t)n, sizeof *m->owned);
    m->list = malloc((size_t)n * sizeof *m->list);
    m->axes = malloc((size_t)n * sizeof *m->axes);
    if (!m->axes || !m->items || !m->owned || !m->list)
        return GM_FAIL(GM_ENOMEM, "no memory for a list of %d tensors", n);
    memcpy(m->items, items, (size_t)n * sizeof *items);
    GM_TRY(reduce_partial(m));
    for (int i = 0; i < n; i++) m->axes[i] = gm_layout_cut_axes(&m->items[i].layout);
    return GM_OK;
}

/* Each set of axes as a term, or into *total. */
static gm_status add_all(norm *m, gm_norm_terms *terms, double *total)
{
    for (int i = 0; i < m->n; i++) {
        if (!is_first(m, i)) continue;
        gm_rank_place(m->rank, "norm");
        m->sent |= m->axes[i] != 0;
        GM_TRY(terms ? add_term(m, m->axes[i], terms) : add_set(m, m->axes[i], total));
    }
    return GM_OK;
}

gm_status gm_layout_squares(gm_rank *r, const gm_norm_item *items, int n, gm_norm_terms *out)
{
    norm m;
    *out = (gm_norm_terms){0};
    if (!n) return GM_OK;
    gm_status st = begin(r, items, n, 2, &m);
    if (st == GM_OK) st = add_all(&m, out, NULL);
    end(&m);
    if (st != GM_OK) gm_norm_terms_release(out);
    return m.sent ? gm_comm_once(st) : st;
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
    gm_status st = begin(r, items, n, p, &m);
    if (st == GM_OK) st = add_all(&m, NULL, &total);
    *out = root(p, total);
    end(&m);
    return m.sent ? gm_comm_once(st) : st;
}
