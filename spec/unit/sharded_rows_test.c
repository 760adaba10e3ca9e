/* sharded_rows_test.c - norms, cross entropy, embedding and argmax on rows that are cut along the dimension worked
 * along, against the plain ops on whole tensors: outputs, every gradient, and the bytes sent. */
#include <stdlib.h>

#include "../../host/life.h"
#include "../../host/parallel/sharded/sharded.h"
#include "calls.h"
#include "redistribute_blocks.h"
#include "sums.h"
#include "threads_transport.h"

enum { LAYER, RMS, LOSS, TABLE, LARGEST };        /* the op */
enum { ABSENT, NUMBERS, FEW, PLACES, EVERY_ROW }; /* what an operand holds */

#define MOST_IN 4
#define PADDING 1000.0 /* in place of what is not there: it would be seen in any sum or largest entry */

typedef struct operand {
    int       kind, ndim;
    int64_t   shape[MOST_DIMS];
    gm_layout layout;
    double    shift;
    int64_t   below;  /* of places */
    int64_t   masked; /* of the last dimension, -inf from here on; 0: nothing is */
    bool      nan;    /* some rows hold NaN */
} operand;

typedef struct trial {
    int      op, n_in;
    gm_dtype dtype;
    operand  in[MOST_IN], factor; /* the output is multiplied by factor, if there is one */
    gm_attrs attrs;
    double   tolerance;
    uint64_t forward, backward; /* bytes sent by all ranks together, as expected */
    uint64_t sent[2][MOST_RANKS];
    uint64_t which;
} trial;

/* ---- operands ---- */

static double number_of(const trial *t, const operand *o, uint64_t which, int64_t i)
{
    int64_t last = o->ndim ? o->shape[o->ndim - 1] : 1, at = i % last, row = i / last;
    switch (o->kind) {
    case PLACES:
        return i % 4 == 3 && t->op == LOSS ? (double)t->attrs.ignore_index
                                           : (double)(gm_mix64(which + (uint64_t)i) % (uint64_t)o->below);
    case EVERY_ROW: return (double)(i % o->below);
    case FEW: return o->nan && row % 3 == 1 && at % 3 == 2 ? NAN : (double)(gm_mix64(which + (uint64_t)i) % 3);
    default: return o->masked && at >= o->masked ? -INFINITY : o->shift + whole_number(which, i) / 400;
    }
}

static gm_value *make(gm_rank *r, const trial *t, int i, bool cut)
{
    const operand   *o = i < 0 ? &t->factor : &t->in[i];
    bool             index = o->kind == PLACES || o->kind == EVERY_ROW;
    gm_layout        whole = gm_layout_replicated();
    const gm_layout *l = cut ? &o->layout : &whole;
    gm_tensor       *block = NULL;
    gm_value        *v = NULL;
    if (!o->kind) return NULL;
    block_walk w = walk_block(&r->mesh, l, r->rank, o->ndim, o->shape);
    OK(gm_tensor_new(r->device, index ? GM_I64 : t->dtype, o->ndim, w.local, &block));
    for (int64_t k = 0; k < w.n; k++) {
        int64_t at = global_index(&w, k);
        double  x = at < 0 ? (index ? 0 : PADDING) : number_of(t, o, t->which + (uint64_t)(100 * i), at);
        gm_store(block->dtype, gm_tensor_data(block), k, x);
    }
    OK(gm_value_take_block(r, block, l, o->ndim, o->shape, &v));
    if (!index && t->op != LARGEST) OK(gm_value_require_grad(v, true));
    return v;
}

/* ---- running ---- */

/* out[1]: the sum of a norm with a residual, or NULL. */
static gm_status run(gm_rank *r, const trial *t, gm_value *const *in, gm_value **out)
{
    static const gm_op ops[] = {GM_OP_layer_norm, GM_OP_rms_norm, GM_OP_cross_entropy, GM_OP_embedding, GM_OP_argmax};
    static const int   n_out[] = {4, 3, 3, 1, 1};
    gm_value          *all[4] = {NULL};
    bool               want[4] = {true, t->op <= RMS && in[1]};
    out[0] = out[1] = NULL;
    GM_TRY(gm_apply(r, ops[t->op], t->n_in, in, &t->attrs, n_out[t->op], want, all));
    out[0] = all[0];
    out[1] = all[1];
    return GM_OK;
}

static uint64_t bytes_sent(const gm_comm *c)
{
    gm_traffic entries[64];
    uint64_t   bytes = 0;
    int        n = gm_comm_traffic(c, entries, 64);
    for (int i = 0; i < n; i++) bytes += entries[i].bytes;
    return bytes;
}

static void times(gm_rank *r, gm_value **held, gm_value *by)
{
    gm_attrs  a = gm_attrs_default();
    gm_value *y = NULL;
    a.function = GM_FN_mul;
    if (!by) return;
    OK(gm_apply(r, GM_OP_binary, 2, (gm_value *[]){*held, by}, &a, 1, NULL, &y));
    gm_value_release(*held);
    *held = y;
}

/* d (output times the sum of a norm times the factor) . seed, a whole tensor of numbers of its own. */
static void run_backward(gm_rank *r, const trial *t, gm_value *const *out, gm_value *factor)
{
    gm_value *z = out[0], *seed = NULL;
    gm_layout l;
    gm_value_retain(z);
    times(r, &z, out[1]);
    times(r, &z, factor);
    l = z->layout;
    l.partial = 0;
    trial s = {.dtype = t->dtype, .in[0] = {.kind = NUMBERS, .ndim = z->ndim, .layout = l}, .which = t->which + 7777};
    memcpy(s.in[0].shape, z->shape, sizeof s.in[0].shape);
    seed = make(r, &s, 0, true);
    OK(gm_tape_backward(z, seed, false));
    gm_value_release(seed);
    gm_value_release(z);
}

/* ---- judging ---- */

/* A block of a tensor against the whole one: both the same, as far as rounding goes. */
static void expect_near(gm_rank *r, const trial *t, gm_tensor *block, const gm_layout *l, const gm_value *shape_of,
                        gm_tensor *whole, double least, const char *what, int i)
{
    gm_layout  to = gm_layout_replicated();
    gm_tensor *all = NULL;
    double     error = 0, largest = 0;
    OK(gm_redistribute_block(r, block, l, &to, shape_of->ndim, shape_of->shape, &all));
    assert_true(gm_tensor_is_contiguous(whole) && gm_tensor_is_contiguous(all));
    for (int64_t k = 0, n = gm_tensor_numel(whole); k < n; k++) {
        double a = gm_load(all->dtype, gm_tensor_data(all), k), b = gm_load(whole->dtype, gm_tensor_data(whole), k);
        if (isnan(a) || fabs(a - b) > error) error = isnan(a) ? INFINITY : fabs(a - b);
        largest = fmax(largest, fabs(b));
    }
    if (!(error <= t->tolerance * largest) || !(largest >= least))
        fail_msg("op %d, %s %d on rank %d of %d: wrong by %g of %g at most", t->op, what, i, r->rank, r->world, error,
                 largest);
    gm_tensor_release(all);
}

static gm_tensor *dense(gm_rank *r, gm_tensor *t)
{
    gm_tensor *y = NULL;
    gm_attrs   a = gm_attrs_default();
    OK(gm_tensor_new(r->device, t->dtype, t->ndim, t->shape, &y));
    OK(gm_run(r->device, &(gm_call){.op = GM_OP_copy, .n_in = 1, .n_out = 1, .in = &t, .out = &y, .attrs = &a}));
    return y;
}

static void expect_output(gm_rank *r, const trial *t, const gm_value *have, const gm_value *want, int i)
{
    assert_int_equal(have != NULL, want != NULL);
    if (!have) return;
    gm_tensor *whole = dense(r, want->local);
    assert_int_equal(have->ndim, want->ndim);
    assert_memory_equal(have->shape, want->shape, sizeof(int64_t) * (size_t)have->ndim);
    expect_near(r, t, have->local, &have->layout, have, whole, 1e-3, "output", i);
    gm_tensor_release(whole);
}

static void expect_gradient(gm_rank *r, const trial *t, const gm_value *have, const gm_value *want, int i)
{
    if (!have || !want->requires_grad) return;
    gm_layout l = have->layout;
    l.partial = have->param->grad_partial;
    assert_true(have->param->grad_set && want->param->grad_set);
    expect_near(r, t, have->param->grad, &l, have, want->param->grad, 1e-3, "gradient", i);
    block_walk w = walk_block(&r->mesh, &have->layout, r->rank, have->ndim, have->shape);
    for (int64_t k = 0; k < w.n; k++)
        if (global_index(&w, k) < 0)
            assert_true(gm_load(have->param->grad->dtype, gm_tensor_data(have->param->grad), k) == 0);
}

static void run_trial(gm_rank *r, void *context)
{
    trial    *t = context;
    gm_value *whole[MOST_IN] = {NULL}, *cut[MOST_IN] = {NULL}, *want[2], *have[2], *factor[2];
    for (int i = 0; i < t->n_in; i++) whole[i] = make(r, t, i, false), cut[i] = make(r, t, i, true);
    factor[0] = make(r, t, -1, false);
    factor[1] = make(r, t, -1, true);
    OK(run(r, t, whole, want));
    if (t->op != LARGEST) run_backward(r, t, want, factor[0]);
    gm_comm_reset_traffic(r->comm);
    OK(run(r, t, cut, have));
    t->sent[0][r->rank] = bytes_sent(r->comm);
    gm_comm_reset_traffic(r->comm);
    if (t->op != LARGEST) run_backward(r, t, have, factor[1]);
    t->sent[1][r->rank] = bytes_sent(r->comm);
    for (int i = 0; i < 2; i++) expect_output(r, t, have[i], want[i], i);
    for (int i = 0; i < t->n_in; i++) expect_gradient(r, t, cut[i], whole[i], i);
    expect_gradient(r, t, factor[1], factor[0], -1);
    for (int i = 0; i < t->n_in; i++) gm_value_release(whole[i]), gm_value_release(cut[i]);
    for (int i = 0; i < 2; i++) gm_value_release(want[i]), gm_value_release(have[i]), gm_value_release(factor[i]);
}

static void check(const gm_mesh *mesh, trial *t)
{
    static uint64_t which;
    uint64_t        sum[2] = {0, 0};
    t->which = which += 100000;
    run_ranks(mesh, run_trial, t);
    for (int i = 0; i < 2; i++)
        for (int rank = 0; rank < gm_mesh_size(mesh); rank++) sum[i] += t->sent[i][rank];
    assert_int_equal(sum[0], t->forward);
    assert_int_equal(sum[1], t->backward);
}

/* ---- the meshes, and what is cut on them ---- */

/* Rows (rows, 2, n): dimension 0 cut by `outer`, the last one by `along`. */
typedef struct site {
    gm_mesh  mesh;
    uint32_t outer, along;
} site;

#define SITES 6

static int sites(site *all)
{
    all[0] = (site){mesh_of("tensor", 2, "", 1, "", 1), 0, 1};
    all[1] = (site){mesh_of("tensor", 3, "", 1, "", 1), 0, 1};
    all[2] = (site){mesh_of("tensor", 4, "", 1, "", 1), 0, 1};
    all[3] = (site){mesh_of("data", 2, "tensor", 2, "", 1), 1, 2};
    all[4] = (site){mesh_of("data", 2, "tensor", 3, "", 1), 1, 2};
    all[5] = (site){mesh_of("row", 2, "col", 2, "", 1), 0, 3}; /* one dimension, two axes */
    return SITES;
}

static gm_layout layout_of(const site *s, int rows, int along)
{
    gm_layout l = along < 0 ? gm_layout_replicated() : gm_layout_cut(along, s->along);
    gm_layout r = gm_layout_cut(rows < 0 ? 0 : rows, s->outer);
    if (rows >= 0) gm_layout_copy_dim(&l, rows, &r, rows);
    return l;
}

/* Bytes that all ranks send when each group along the cut reduces `each` f64 numbers a row: every copy of the group
 * does so, and blocks of rows are padded to one size. */
static uint64_t row_bytes(const site *s, int64_t rows, uint64_t each)
{
    gm_layout l = layout_of(s, 0, -1);
    int64_t   local;
    uint64_t  p = (uint64_t)terms_of(&s->mesh, s->along), groups = (uint64_t)gm_mesh_size(&s->mesh) / p;
    gm_layout_local(&s->mesh, &l, 1, &rows, &local);
    return groups * sum_bytes(p, 8 * each * (uint64_t)local * 2);
}

/* The same where each rank works on a share of the rows, which are padded to p equal ones: slices are exchanged, and
 * what was made of their sums. */
static uint64_t shared_bytes(const site *s, int64_t rows, uint64_t each)
{
    gm_layout l = layout_of(s, 0, -1);
    int64_t   local, p = terms_of(&s->mesh, s->along);
    gm_layout_local(&s->mesh, &l, 1, &rows, &local);
    uint64_t groups = (uint64_t)(gm_mesh_size(&s->mesh) / p), padded = (uint64_t)((local * 2 + p - 1) / p * p);
    return groups * 2 * (uint64_t)(p - 1) * 8 * each * padded;
}

static operand rows_of(const site *s, int kind, int64_t n)
{
    return (operand){.kind = kind, .ndim = 3, .shape = {5, 2, n}, .layout = layout_of(s, 0, 2)};
}

static operand vector_of(const site *s, int64_t n)
{
    return (operand){.kind = NUMBERS, .ndim = 1, .shape = {n}, .layout = layout_of(s, -1, 0)};
}

static operand places_of(const site *s, int kind, int64_t below)
{
    return (operand){.kind = kind, .ndim = 2, .shape = {5, 2}, .layout = layout_of(s, 0, -1), .below = below};
}

static trial norm_trial(const site *s, int op, int64_t n, bool residual, bool parameters)
{
    trial t = {.op = op, .n_in = op == LAYER ? 4 : 3, .dtype = GM_F64, .attrs = gm_attrs_default(), .tolerance = 1e-12};
    t.in[0] = rows_of(s, NUMBERS, n);
    if (residual) t.in[1] = rows_of(s, NUMBERS, n);
    for (int i = 2; parameters && i < t.n_in; i++) t.in[i] = vector_of(s, n);
    t.factor = (operand){.kind = NUMBERS, .ndim = 3, .shape = {5, 2, n}}; /* whole: sliced for the product */
    t.forward = op == LAYER ? shared_bytes(s, 5, 2) : row_bytes(s, 5, 1);
    t.backward = row_bytes(s, 5, op == LAYER ? 2 : 1);
    return t;
}

void gm_test_sharded_norms(void **state)
{
    static const int64_t widths[] = {12, 7, 5}; /* 5 on four ranks: the last one has nothing */
    site                 all[SITES];
    (void)state;
    for (int k = 0, n = sites(all); k < n; k++)
        for (int op = LAYER; op <= RMS; op++)
            for (int i = 0; i < 3; i++) {
                trial t = norm_trial(&all[k], op, widths[i], i != 1, i != 2);
                if (i == 1) t.in[2].layout = gm_layout_replicated(); /* sliced, its gradient a sum over the slices */
                check(&all[k].mesh, &t);
            }
    trial wide = norm_trial(&all[1], LAYER, 40001, true, true); /* rows enough for several pieces */
    check(&all[1].mesh, &wide);
}

void gm_test_sharded_norm_of_large_means(void **state)
{
    site s = {mesh_of("tensor", 3, "", 1, "", 1), 0, 1};
    (void)state;
    trial t = norm_trial(&s, LAYER, 7, false, true);
    t.in[0].shift = 1e4;
    t.tolerance = 1e-11; /* numbers of 1e4 are known to 1e-12; differences of their squares would be to 1e-8 */
    check(&s.mesh, &t);
    t.dtype = GM_F32, t.forward /= 2, t.backward /= 2;
    /* f32 knows numbers of 1e4 to 5e-4, and a mean of them is rounded twice: about a spread of 1.5 that is 7e-4 */
    t.tolerance = 1e-3;
    check(&s.mesh, &t);
    t.in[0].shift = 0;
    t.tolerance = 1e-5;
    check(&s.mesh, &t);
}

static trial loss_trial(const site *s, int64_t classes, int64_t ignored, double smoothing)
{
    trial t = {.op = LOSS, .n_in = 2, .dtype = GM_F64, .attrs = gm_attrs_default(), .tolerance = 1e-12};
    t.attrs.ignore_index = ignored;
    t.attrs.label_smoothing = smoothing;
    t.in[0] = rows_of(s, NUMBERS, classes);
    t.in[1] = places_of(s, PLACES, classes);
    t.forward = row_bytes(s, 5, smoothing > 0 ? 4 : 3);
    return t;
}

void gm_test_sharded_cross_entropy(void **state)
{
    site all[SITES];
    (void)state;
    for (int k = 0, n = sites(all); k < n; k++) {
        for (int i = -1; i < 7; i++) {
            trial t = loss_trial(&all[k], 7, i < 0 ? -100 : i, i % 2 ? 0.1 : 0);
            check(&all[k].mesh, &t);
        }
        trial even = loss_trial(&all[k], 12, -100, 0), few = loss_trial(&all[k], 5, 0, 0.5);
        check(&all[k].mesh, &even);
        check(&all[k].mesh, &few);
        trial many = loss_trial(&all[k], 50257, 50256, 0.1); /* the classes of GPT-2: pieces of a row's gradient */
        check(&all[k].mesh, &many);
    }
}

/* The last rank's classes are all masked; a loss that is cut further along the classes' axis has a gradient that is a
 * sum over it, which is reduced. */
void gm_test_sharded_cross_entropy_edges(void **state)
{
    site s = {mesh_of("tensor", 3, "", 1, "", 1), 0, 1};
    (void)state;
    trial t = loss_trial(&s, 7, -100, 0);
    t.in[0].masked = 6; /* blocks of 3, 3 and 1 */
    t.in[1].below = 6;
    check(&s.mesh, &t);
    t.in[0].masked = 3;
    t.in[1].below = 3;
    check(&s.mesh, &t);
    t = loss_trial(&s, 7, 3, 0.1);
    t.in[0].shift = 1e3; /* exponentials of these overflow */
    check(&s.mesh, &t);
    t = loss_trial(&s, 7, -100, 0.1);
    t.factor = (operand){.kind = NUMBERS, .ndim = 2, .shape = {5, 2}, .layout = gm_layout_cut(0, 1)};
    t.backward = row_bytes(&s, 5, 1);
    check(&s.mesh, &t);
}

void gm_test_sharded_embedding(void **state)
{
    site all[SITES];
    (void)state;
    for (int k = 0, n = sites(all); k < n; k++)
        for (int64_t padding = -1; padding < 7; padding++) {
            trial t = {.op = TABLE, .n_in = 2, .dtype = GM_F64, .attrs = gm_attrs_default()};
            t.attrs.padding_index = padding;
            t.in[0] = (operand){.kind = NUMBERS, .ndim = 2, .shape = {7, 3}, .layout = layout_of(&all[k], -1, 0)};
            t.in[1] = places_of(&all[k], EVERY_ROW, 7);
            t.tolerance = 1e-15; /* the result is a row and zeros; gradients of a row are sums of two */
            check(&all[k].mesh, &t);
        }
}

void gm_test_sharded_argmax(void **state)
{
    static const int64_t widths[] = {12, 7, 5};
    site                 all[SITES];
    (void)state;
    for (int k = 0, n = sites(all); k < n; k++)
        for (int i = 0; i < 6; i++) {
            trial t = {.op = LARGEST, .n_in = 1, .dtype = GM_F64, .attrs = gm_attrs_default(), .tolerance = 0};
            t.in[0] = rows_of(&all[k], FEW, widths[i % 3]);
            t.in[0].nan = i >= 3;
            t.forward = row_bytes(&all[k], 5, 2);
            check(&all[k].mesh, &t);
        }
}

/* ---- on meta: 64 ranks, blocks of the last ones partly or wholly padding ---- */

static void pretend(const site *s, trial *t, int rank)
{
    gm_rank  *r = NULL;
    gm_value *in[MOST_IN], *out[2], *seed = NULL;
    OK(gm_rank_new(&r));
    OK(gm_rank_pretend(r, rank, gm_mesh_size(&s->mesh)));
    OK(gm_rank_set_mesh(r, &s->mesh));
    OK(gm_rank_open_device(r, "meta", 1));
    for (int i = 0; i < t->n_in; i++) {
        gm_dtype dtype = t->in[i].kind == PLACES ? GM_I64 : GM_F64;
        in[i] = NULL;
        if (!t->in[i].kind) continue;
        OK(gm_value_new_block(r, "test", dtype, &t->in[i].layout, t->in[i].ndim, t->in[i].shape, &in[i]));
        if (t->op != LARGEST && dtype == GM_F64) OK(gm_value_require_grad(in[i], true));
    }
    OK(run(r, t, in, out));
    t->forward -= bytes_sent(r->comm);
    gm_comm_reset_traffic(r->comm);
    if (t->op != LARGEST) {
        gm_layout l = out[0]->layout;
        l.partial = 0;
        OK(gm_value_new_block(r, "test", GM_F64, &l, out[0]->ndim, out[0]->shape, &seed));
        OK(gm_tape_backward(out[0], seed, false));
    }
    t->backward -= bytes_sent(r->comm);
    for (int i = 0; i < t->n_in; i++) gm_value_release(in[i]);
    for (int i = 0; i < 2; i++) gm_value_release(out[i]);
    gm_value_release(seed);
    gm_rank_free(r);
}

void gm_test_sharded_rows_meta(void **state)
{
    site  s = {mesh_of("row", 8, "col", 8, "", 1), 1, 2};
    trial all[4] = {norm_trial(&s, LAYER, 50, false, true),
                    norm_trial(&s, RMS, 50, false, false),
                    loss_trial(&s, 50257, -100, 0.1),
                    {.op = LARGEST, .n_in = 1, .attrs = gm_attrs_default(), .forward = row_bytes(&s, 5, 2)}};
    (void)state;
    all[3].in[0] = rows_of(&s, FEW, 50);
    for (int k = 0; k < 4; k++) {
        for (int rank = 0; rank < 64; rank++) pretend(&s, &all[k], rank);
        assert_int_equal(all[k].forward, 0); /* nothing is left of what was expected */
        assert_int_equal(all[k].backward, 0);
    }
}

/* ---- what is refused ---- */

static void refusals(gm_rank *r, void *context)
{
    site     *s = context;
    trial     t = loss_trial(s, 7, -100, 0);
    gm_value *in[MOST_IN] = {make(r, &t, 0, true), make(r, &t, 1, true), NULL, NULL}, *out[2], *w;
    bool      statistics[3] = {true, true, false};
    gm_value *all[3];
    FAILS(GM_EINVAL, "cross_entropy: there is no largest where the inputs are cut so",
          gm_apply(r, GM_OP_cross_entropy, 2, in, &t.attrs, 3, statistics, all));
    t.attrs.ignore_index = 99; /* so that some targets are -100 */
    FAILS(GM_EINVAL, "cross_entropy: target -100 at position 3 (from 0) of the block is none of 7 classes",
          run(r, &t, in, out));
    trial table = {.op = TABLE, .n_in = 2, .dtype = GM_F64, .attrs = gm_attrs_default()};
    table.in[0] = (operand){.kind = NUMBERS, .ndim = 2, .shape = {7, 3}, .layout = layout_of(s, -1, 0)};
    w = make(r, &table, 0, true);
    FAILS(GM_EINVAL, "embedding: index -100", call_embedding(r, w, in[1], -1, &out[0]));
    FAILS(GM_EINVAL, "padding_index 7 is neither -1 nor one of 7 rows", call_embedding(r, w, in[1], 7, &out[0]));
    trial norm = norm_trial(s, LAYER, 7, true, true);
    for (int i = 0; i < 4; i++) gm_value_release(in[i]), in[i] = make(r, &norm, i, true);
    in[0]->layout.partial = 2; /* a sum over col, the axis that cuts nothing */
    FAILS(GM_ESHAPE, "still a sum over ranks", run(r, &norm, in, out));
    in[0]->layout.partial = 0;
    in[1]->layout = gm_layout_cut(2, 2);
    FAILS(GM_ESHAPE, "cut in different ways: f64 (5, 2, 7) cut (-, -, row), f64 (5, 2, 7) cut (-, -, col)",
          run(r, &norm, in, out));
    in[1]->layout = in[0]->layout;
    gm_value_release(in[3]);
    in[3] = w;
    FAILS(GM_ESHAPE, "layer_norm: b is (7, 3), should be (7)", run(r, &norm, in, out));
    for (int i = 0; i < 4; i++) gm_value_release(in[i]);
}

void gm_test_sharded_rows_refuse(void **state)
{
    site s = {mesh_of("row", 2, "col", 2, "", 1), 0, 1};
    (void)state;
    run_ranks(&s.mesh, refusals, &s);
}
