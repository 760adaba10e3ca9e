/* redistribute_test.c - from any layout to any on up to nine ranks: the blocks that come out are those that the
 * global tensor has there, to the bit (whole numbers in f64), and so are gradients; what is sent is what the plan
 * said. */
#include <stdlib.h>

#include "redistribute_blocks.h"
#include "../../host/autograd/apply.h"
#include "threads_transport.h"

#define CASES 8

typedef struct job {
    int        ndim;
    int64_t    shape[MOST_DIMS];
    gm_layout  from, to;
    double     padding;
    uint64_t   which, sent[MOST_RANKS], planned;
    gm_tensor *block[MOST_RANKS]; /* of `to`; copies without a device are kept below */
    double    *values[MOST_RANKS], *grad[MOST_RANKS];
    uint32_t   grad_partial[MOST_RANKS];
} job;

static double *copy_out(const gm_tensor *t)
{
    size_t  n = (size_t)gm_tensor_numel(t);
    double *values = malloc((n + 1) * sizeof *values);
    assert_non_null(values);
    assert_true(gm_tensor_is_contiguous(t));
    if (n) memcpy(values, gm_tensor_data(t), n * sizeof *values);
    return values;
}

static uint64_t bytes_sent(const gm_comm *c)
{
    gm_traffic entries[64];
    uint64_t   bytes = 0;
    int        n = gm_comm_traffic(c, entries, 64);
    assert_in_range(n, 0, 64);
    for (int i = 0; i < n; i++) bytes += entries[i].bytes;
    return bytes;
}

static void forward_and_back(gm_rank *r, job *j)
{
    gm_layout seed_layout = j->to;
    gm_value *x = NULL, *y = NULL, *seed = NULL;
    OK(gm_value_take_block(r, block_of(r, &j->from, j->ndim, j->shape, j->which, j->padding), &j->from, j->ndim,
                           j->shape, &x));
    OK(gm_value_require_grad(x, true));
    gm_comm_reset_traffic(r->comm);
    OK(gm_redistribute(r, x, &j->to, &y));
    j->sent[r->rank] = bytes_sent(r->comm);
    j->values[r->rank] = copy_out(y->local);
    if (y == x) {
        assert_true(gm_layout_equal(&j->from, &j->to));
    } else {
        seed_layout.partial = 0; /* a sum's terms all have the sum's gradient */
        OK(gm_value_take_block(r, block_of(r, &seed_layout, j->ndim, j->shape, j->which + 1, 0), &seed_layout, j->ndim,
                               j->shape, &seed));
        OK(gm_tape_backward(y, seed, false));
        assert_true(x->param->grad_set);
        j->grad[r->rank] = copy_out(x->param->grad);
        j->grad_partial[r->rank] = x->param->grad_partial;
    }
    gm_value_release(seed);
    gm_value_release(y);
    gm_value_release(x);
}

static void run_jobs(gm_rank *r, void *context)
{
    job *jobs = context;
    for (int k = 0; k < CASES; k++) forward_and_back(r, &jobs[k]);
}

/* Blocks of every rank against tensor `which`; terms are added up at the first of those that hold them. */
static void expect_blocks(const gm_mesh *mesh, const job *j, const gm_layout *l, double *const *values, uint64_t which,
                          bool clean, const char *what)
{
    int members[MOST_RANKS];
    for (int rank = 0; rank < gm_mesh_size(mesh); rank++) {
        block_walk w = walk_block(mesh, l, rank, j->ndim, j->shape);
        int        n = gm_mesh_members(mesh, l->partial, rank, members);
        for (int64_t i = 0; i < w.n; i++) {
            int64_t at = global_index(&w, i);
            double  sum = 0, want = at < 0 ? 0 : whole_number(which, at);
            if (at < 0 && !clean) continue;
            for (int m = 0; m < n; m++) sum += values[members[m]][i];
            if (sum != want) {
                char a[100], b[100];
                fail_msg("%s, %s to %s: element %d of rank %d is %g, not %g", what,
                         gm_layout_describe(mesh, &j->from, j->ndim, a, sizeof a),
                         gm_layout_describe(mesh, &j->to, j->ndim, b, sizeof b), (int)i, rank, sum, want);
            }
        }
    }
}

static void check_job(const gm_mesh *mesh, job *j)
{
    uint64_t sent = 0;
    int      world = gm_mesh_size(mesh);
    expect_blocks(mesh, j, &j->to, j->values, j->which, j->padding == 0, "values");
    for (int rank = 0; rank < world; rank++) sent += j->sent[rank];
    assert_int_equal(sent, j->planned);
    if (j->grad[0]) {
        gm_layout grad = j->from;
        grad.partial = 0; /* nothing in the seed is partial, so nothing in the gradient is */
        for (int rank = 0; rank < world; rank++) assert_int_equal(j->grad_partial[rank], 0);
        expect_blocks(mesh, j, &grad, j->grad, j->which + 1, true, "gradients");
    }
    for (int rank = 0; rank < world; rank++) {
        free(j->values[rank]);
        free(j->grad[rank]);
    }
}

static job draw_job(unit_random *r, const gm_mesh *mesh, uint64_t which)
{
    job                  j = {.ndim = 1 + (int)unit_below(r, MOST_DIMS), .which = which};
    gm_redistribute_step steps[GM_MAX_REDISTRIBUTE_STEPS];
    int                  n;
    for (int d = 0; d < j.ndim; d++) j.shape[d] = 1 + unit_below(r, 13);
    j.from = draw_layout_of(r, mesh, j.ndim, true);
    j.to = draw_layout_of(r, mesh, j.ndim, true);
    j.padding = unit_below(r, 2) ? NAN : 0; /* NaN: whatever of the padding gets into the tensor shows */
    OK(gm_redistribute_plan(mesh, &j.from, &j.to, j.ndim, j.shape, 8, steps, &n));
    for (int i = 0; i < n; i++) j.planned += steps[i].bytes;
    return j;
}

void gm_test_redistribute_any_to_any(void **state)
{
    (void)state;
    unit_random r = {29};
    for (int round = 0; round < 60; round++) {
        gm_mesh mesh = draw_mesh(&r);
        job     jobs[CASES];
        for (int k = 0; k < CASES; k++) jobs[k] = draw_job(&r, &mesh, (uint64_t)(round * CASES + k) * 10000);
        run_ranks(&mesh, run_jobs, jobs);
        for (int k = 0; k < CASES; k++) check_job(&mesh, &jobs[k]);
    }
}

/* ---- what needs a form of its own ---- */

static void bare(gm_rank *r, void *context)
{
    (void)context;
    gm_layout  cut = gm_layout_cut(0, 1), whole = gm_layout_replicated(), sum = whole;
    gm_tensor *scalar = NULL, *out = NULL, *t = NULL, *turned = NULL;
    gm_value  *x = NULL, *y = NULL;
    sum.partial = 1;
    /* scalars: partial to whole and back */
    OK(gm_tensor_new(r->device, GM_F64, 0, NULL, &scalar));
    *(double *)gm_tensor_data(scalar) = 1 << r->rank;
    OK(gm_redistribute_block(r, scalar, &sum, &whole, 0, NULL, &out));
    assert_true(*(double *)gm_tensor_data(out) == 7);
    assert_true(*(double *)gm_tensor_data(scalar) == 1 << r->rank); /* what was given is left alone */
    gm_tensor_release(scalar);
    OK(gm_redistribute_block(r, out, &whole, &sum, 0, NULL, &scalar));
    assert_true(*(double *)gm_tensor_data(scalar) == (r->rank ? 0 : 7));
    gm_tensor_release(out);
    gm_tensor_release(scalar);
    /* strided blocks, more ranks than rows, integers; gathered as a value */
    OK(gm_tensor_new(r->device, GM_I64, 2, (int64_t[]){5, 1}, &t));
    for (int i = 0; i < 5; i++) ((int64_t *)gm_tensor_data(t))[i] = 10 * r->rank + i;
    OK(gm_tensor_permute(t, (int[]){1, 0}, &turned));
    OK(gm_value_take_block(r, turned, &cut, 2, (int64_t[]){2, 5}, &x));
    OK(gm_gather_value(r, x, &y));
    assert_int_equal(gm_tensor_numel(y->local), 10);
    for (int i = 0; i < 10; i++) assert_int_equal(((int64_t *)gm_tensor_data(y->local))[i], 10 * (i / 5) + i % 5);
    assert_false(y->requires_grad);
    FAILS(GM_ESHAPE, "is no block of a tensor (9, 5) laid out (data, -)",
          gm_redistribute_block(r, t, &cut, &whole, 2, (int64_t[]){9, 5}, &out));
    gm_value_release(y);
    gm_value_release(x);
    gm_tensor_release(t);
}

void gm_test_redistribute_blocks(void **state)
{
    (void)state;
    run_world(3, bare, NULL);
}

/* A gradient that is a sum over ranks comes back as the layout of x has it: scattered where x is cut, reduced where
 * x is partial, left alone where x is whole. */
static void partial_gradients(gm_rank *r, void *context)
{
    (void)context;
    int64_t   rows[1] = {4}, matrix[2] = {3, 4};
    gm_layout cut = gm_layout_cut(0, 1), whole = gm_layout_replicated(), sum = whole;
    sum.partial = 1;
    for (int kind = 0; kind < 3; kind++) {
        const gm_layout *lx = kind == 0 ? &cut : kind == 1 ? &sum : &whole;
        gm_value        *x = NULL, *y = NULL, *m = NULL, *in[2], *z = NULL, *seed = NULL;
        gm_attrs         a = gm_attrs_default();
        a.function = GM_FN_add;
        OK(gm_value_take_block(r, block_of(r, lx, 1, rows, 1, 0), lx, 1, rows, &x));
        OK(gm_value_take_block(r, block_of(r, &cut, 2, matrix, 2, 0), &cut, 2, matrix, &m));
        OK(gm_value_require_grad(x, true));
        OK(gm_gather_value(r, x, &y));
        in[0] = m; /* rows cut over the ranks: each has a part of the sum that is y's gradient */
        in[1] = y;
        OK(gm_apply(r, GM_OP_binary, 2, in, &a, 1, NULL, &z));
        OK(gm_value_take_block(r, block_of(r, &cut, 2, matrix, 3, 0), &cut, 2, matrix, &seed));
        OK(gm_tape_backward(z, seed, false));
        assert_int_equal(x->param->grad_partial, kind == 2 ? 1 : 0);
        gm_layout  lg = *lx;
        gm_tensor *grad = x->param->grad, *all = NULL;
        lg.partial = x->param->grad_partial;
        OK(gm_redistribute_block(r, grad, &lg, &whole, 1, rows, &all));
        for (int i = 0; i < 4; i++) {
            double want = 0;
            for (int k = 0; k < 3; k++) want += whole_number(3, 4 * k + i);
            assert_true(((double *)gm_tensor_data(all))[i] == want);
        }
        gm_tensor_release(all);
        gm_value_release(seed);
        gm_value_release(z);
        gm_value_release(y);
        gm_value_release(m);
        gm_value_release(x);
    }
}

void gm_test_redistribute_partial_gradients(void **state)
{
    (void)state;
    run_world(2, partial_gradients, NULL);
}
