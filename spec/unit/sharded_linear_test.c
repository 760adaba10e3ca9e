/* sharded_linear_test.c - gm_sharded_linear on up to 16 ranks that are threads, against three plain loops over the
 * whole matrices; and what it sends, against closed formulas.
 *
 * Whatever a block is padded with along the inner and outer size is NaN here, so that none of it may be read; padded
 * rows hold something finite. */
#include <stdlib.h>

#include "../../host/parallel/sharded/sharded.h"
#include "redistribute_blocks.h"
#include "threads_transport.h"

#define RANKS 16

/* ---- matrices ---- */

/* Between -1 and 1: element i of tensor `which`. */
static double number(uint64_t which, int64_t i) { return whole_number(which, i) / 1000; }

enum { OF_X = 1, OF_W, OF_DY };

typedef struct job {
    gm_mesh   mesh;
    gm_dtype  dtype;
    int64_t   x_shape[3], w_shape[2], y_shape[3];
    gm_layout x, w, y; /* y: as it must be */
    uint32_t  dw_partial;
    bool      keep;
    int       only;            /* OF_X, OF_W: the operand that wants a gradient; 0: both */
    double   *value[3][RANKS]; /* y, dx, dw; copies */
    uint64_t  forward[RANKS], backward[RANKS];
} job;

/* Appends cuts of a dimension, by axes that this mesh may lack. */
static void cut(const gm_mesh *mesh, gm_layout *l, int d, const char *a, const char *b, const char *c)
{
    const char *names[3] = {a, b, c};
    for (int i = 0; i < 3; i++)
        if (names[i] && gm_mesh_axis(mesh, names[i]) >= 0)
            l->cut[d][l->n_cuts[d]++] = (uint8_t)gm_mesh_axis(mesh, names[i]);
}

static double get(const gm_tensor *t, int64_t i)
{
    return t->dtype == GM_F64 ? ((double *)gm_tensor_data(t))[i] : (double)((float *)gm_tensor_data(t))[i];
}

static void set(gm_tensor *t, int64_t i, double x)
{
    if (t->dtype == GM_F64) ((double *)gm_tensor_data(t))[i] = x;
    else ((float *)gm_tensor_data(t))[i] = (float)x;
}

/* Is element i of a block padding of another dimension than the first? */
static bool beyond_rows(const block_walk *w, int64_t i)
{
    for (int d = w->ndim - 1; d > 0; d--) {
        if (i % w->local[d] >= w->logical[d]) return true;
        i /= w->local[d];
    }
    return w->ndim == 2 && i >= w->logical[0]; /* of w both are inner */
}

static gm_value *block(gm_rank *r, const job *j, const gm_layout *l, int ndim, const int64_t *shape, uint64_t which)
{
    gm_tensor *t = NULL;
    gm_value  *v = NULL;
    block_walk w = walk_block(&r->mesh, l, r->rank, ndim, shape);
    OK(gm_tensor_new(r->device, j->dtype, ndim, w.local, &t));
    for (int64_t i = 0; i < w.n; i++) {
        int64_t at = global_index(&w, i);
        set(t, i, at >= 0 ? number(which, at) : beyond_rows(&w, i) ? NAN : 7.5);
    }
    OK(gm_value_take_block(r, t, l, ndim, shape, &v));
    return v;
}

static double *copy_of(const gm_tensor *t)
{
    int64_t n = gm_tensor_numel(t);
    double *values = malloc((size_t)(n + 1) * sizeof *values);
    assert_true(values && gm_tensor_is_contiguous(t));
    for (int64_t i = 0; i < n; i++) values[i] = get(t, i);
    return values;
}

static uint64_t bytes_sent(gm_comm *c)
{
    gm_traffic entries[64];
    uint64_t   bytes = 0;
    int        n = gm_comm_traffic(c, entries, 64);
    assert_true(n <= 64);
    for (int i = 0; i < n; i++) bytes += entries[i].bytes;
    gm_comm_reset_traffic(c);
    return bytes;
}

/* ---- one layer ---- */

static void once(gm_rank *r, job *j, gm_value *x, gm_value *w)
{
    gm_value *y = NULL, *seed = NULL;
    gm_comm_reset_traffic(r->comm);
    OK(gm_sharded_linear(r, x, w, NULL, GM_FN_none, &y));
    j->forward[r->rank] = bytes_sent(r->comm);
    assert_true(gm_layout_equal(&y->layout, &j->y));
    for (int d = 0; d < 3; d++) assert_int_equal(y->shape[d], j->y_shape[d]);
    if (!j->value[0][r->rank]) j->value[0][r->rank] = copy_of(y->local);
    seed = block(r, j, &j->y, 3, j->y_shape, OF_DY);
    OK(gm_tape_backward(y, seed));
    j->backward[r->rank] = bytes_sent(r->comm);
    gm_value_release(seed);
    gm_value_release(y);
}

/* Twice: the second backward adds to the gradients of the first. */
static void layer(gm_rank *r, void *context)
{
    job      *j = context;
    gm_value *x = block(r, j, &j->x, 3, j->x_shape, OF_X), *w = block(r, j, &j->w, 2, j->w_shape, OF_W);
    r->keep_gathered = j->keep;
    OK(gm_value_require_grad(x, j->only != OF_W));
    OK(gm_value_require_grad(w, j->only != OF_X));
    once(r, j, x, w);
    once(r, j, x, w);
    assert_int_equal(x->grad_partial, 0);
    assert_int_equal(w->grad_partial, j->only == OF_X ? 0 : j->dw_partial);
    if (x->grad_set) j->value[1][r->rank] = copy_of(x->grad);
    if (w->grad_set) j->value[2][r->rank] = copy_of(w->grad);
    gm_value_release(w);
    gm_value_release(x);
}

/* y, 2 dx or 2 dw of the whole layer, by definition. */
static double *serial(const job *j, int what)
{
    int64_t m = j->x_shape[0] * j->x_shape[1], in = j->w_shape[1], out = j->w_shape[0];
    int64_t size = what == 0 ? m * out : what == 1 ? m * in : out * in;
    double *sum = calloc((size_t)size, sizeof *sum);
    assert_non_null(sum);
    for (int64_t row = 0; row < m; row++)
        for (int64_t o = 0; o < out; o++)
            for (int64_t i = 0; i < in; i++) {
                double x = number(OF_X, row * in + i), w = number(OF_W, o * in + i), dy = number(OF_DY, row * out + o);
                if (what == 0) sum[row * out + o] += x * w;
                if (what == 1) sum[row * in + i] += 2 * dy * w;
                if (what == 2) sum[o * in + i] += 2 * dy * x;
            }
    return sum;
}

/* Blocks of all ranks against the whole; terms are added up. Padding of results is zero but for padded rows of y. */
static void expect(const job *j, int what, double tolerance)
{
    static const char *const names[3] = {"y", "dx", "dw"};
    gm_layout                l = what == 0 ? j->y : what == 1 ? j->x : j->w;
    const int64_t           *shape = what == 0 ? j->y_shape : what == 1 ? j->x_shape : j->w_shape;
    uint32_t                 partial = what == 2 ? j->dw_partial : 0;
    double                  *want = serial(j, what), most = 0;
    int                      members[RANKS], ndim = what == 2 ? 2 : 3;
    int64_t                  size = 1;
    for (int d = 0; d < ndim; d++) size *= shape[d];
    for (int64_t i = 0; i < size; i++) most = fmax(most, fabs(want[i]));
    assert_true(most >= 1e-3); /* or there is nothing to compare */
    for (int rank = 0; rank < gm_mesh_size(&j->mesh); rank++) {
        block_walk w = walk_block(&j->mesh, &l, rank, ndim, shape);
        int        n = gm_mesh_members(&j->mesh, partial, rank, members);
        for (int64_t i = 0; i < w.n; i++) {
            int64_t at = global_index(&w, i);
            double  sum = 0, right = at < 0 ? 0 : want[at];
            if (what == 0 && at < 0 && !beyond_rows(&w, i)) continue;
            for (int m = 0; m < n; m++) sum += j->value[what][members[m]][i];
            if (!(fabs(sum - right) <= (at < 0 ? 0 : tolerance * most)))
                fail_msg("%s, element %d of rank %d is %.17g, not %.17g", names[what], (int)i, rank, sum, right);
        }
    }
    free(want);
}

static void release_job(job *j)
{
    for (int what = 0; what < 3; what++)
        for (int rank = 0; rank < RANKS; rank++) free(j->value[what][rank]);
}

/* Rounding of a sum of at most 602 products, in any order, is below 602 x 2^-53 times the sum of their magnitudes,
 * which is below 10 times the largest entry here: 7e-13 of it. In f32 only a layer of 24 terms is run. */
static void run_job(job *j)
{
    run_ranks(&j->mesh, layer, j);
    for (int what = 0; what < 3; what++)
        if (!what || !j->only || what == j->only) expect(j, what, j->dtype == GM_F64 ? 1e-12 : 1e-5);
        else assert_true(!j->value[what][0]);
}

static void sizes(job *j, int64_t b, int64_t s, int64_t in, int64_t out)
{
    int64_t x[3] = {b, s, in}, w[2] = {out, in}, y[3] = {b, s, out};
    j->dtype = GM_F64;
    memcpy(j->x_shape, x, sizeof x);
    memcpy(j->w_shape, w, sizeof w);
    memcpy(j->y_shape, y, sizeof y);
}

static gm_mesh mesh_of_four(int data, const char *a, int na, const char *b, int nb, const char *c, int nc)
{
    gm_mesh mesh = mesh_of("data", data, a, na, b, nb);
    if (nc > 1) OK(gm_mesh_add_axis(&mesh, c, nc));
    return mesh;
}

/* x (B, S, I); turned: w cut by row, col, and else by col, row. */
static job flat(int data, int depth, int q, bool turned, int64_t b, int64_t s, int64_t in, int64_t out)
{
    job j = {.mesh = mesh_of_four(data, "depth", depth, "row", q, "col", q)};
    sizes(&j, b, s, in, out);
    cut(&j.mesh, &j.x, 0, "data", "depth", "row");
    cut(&j.mesh, &j.x, 2, "col", NULL, NULL);
    cut(&j.mesh, &j.w, 0, turned ? "row" : "col", NULL, NULL);
    cut(&j.mesh, &j.w, 1, turned ? "col" : "row", NULL, NULL);
    j.y = j.x;
    j.dw_partial = gm_mesh_mask(&j.mesh, "data") | gm_mesh_mask(&j.mesh, "depth");
    return j;
}

/* second: the layer after, in which input and output have changed places. */
static job cube(int data, int q, bool second, int64_t b, int64_t s, int64_t in, int64_t out)
{
    job         j = {.mesh = mesh_of_four(data, "output", q, "input", q, "weight", q)};
    const char *inner = second ? "output" : "input", *last = second ? "input" : "output";
    sizes(&j, b, s, in, out);
    cut(&j.mesh, &j.x, 0, "data", "weight", inner);
    cut(&j.mesh, &j.x, 2, last, NULL, NULL);
    cut(&j.mesh, &j.w, 0, inner, NULL, NULL);
    cut(&j.mesh, &j.w, 1, last, "weight", NULL);
    cut(&j.mesh, &j.y, 0, "data", "weight", last);
    cut(&j.mesh, &j.y, 2, inner, NULL, NULL);
    j.dw_partial = gm_mesh_mask(&j.mesh, "data");
    return j;
}

static int64_t elements(const job *j, const gm_layout *l, int ndim, const int64_t *shape)
{
    return walk_block(&j->mesh, l, 0, ndim, shape).n;
}

/* What all ranks together send, in elements of blocks of x, w and y. */
static void expect_sent(const job *j, int64_t forward, int64_t backward)
{
    int64_t sent[2] = {0, 0}, size = (int64_t)gm_dtype_size(j->dtype);
    for (int rank = 0; rank < gm_mesh_size(&j->mesh); rank++) {
        sent[0] += (int64_t)j->forward[rank];
        sent[1] += (int64_t)j->backward[rank];
    }
    assert_int_equal(sent[0], forward * size);
    assert_int_equal(sent[1], backward * size);
}

/* A group of q in which each block travels in turn, or is summed: q (q-1) blocks; there are ranks / q such groups. So
 * each rank sends on average q-1 blocks of each kind: (q-1)/q of what a row or column of ranks holds. */
static void expect_flat_traffic(const job *j, int q, bool turned)
{
    int64_t x = elements(j, &j->x, 3, j->x_shape), w = elements(j, &j->w, 2, j->w_shape);
    int64_t y = elements(j, &j->y, 3, j->y_shape), each = (int64_t)gm_mesh_size(&j->mesh) * (q - 1);
    int64_t all = each * (w + (turned ? y : x));
    expect_sent(j, all, j->only ? all : 2 * all);
}

/* Each rank sends its block of x and w to q-1 others and takes part in the sum of y; in backward dy and, unless they
 * were kept, w for dx and x for dw are gathered, dx and dw scattered. */
static void expect_cube_traffic(const job *j, int q)
{
    int64_t x = elements(j, &j->x, 3, j->x_shape), w = elements(j, &j->w, 2, j->w_shape);
    int64_t y = elements(j, &j->y, 3, j->y_shape), each = (int64_t)gm_mesh_size(&j->mesh) * (q - 1);
    int64_t dx = j->only == OF_W ? 0 : x + (j->keep ? 0 : w), dw = j->only == OF_X ? 0 : w + (j->keep ? 0 : x);
    expect_sent(j, each * (x + w + y), each * (y + dx + dw));
}

/* ---- tests ---- */

void gm_test_sharded_linear_2d(void **state)
{
    (void)state;
    static const int64_t shapes[4][4] = {{12, 2, 12, 24}, {7, 3, 5, 7}, {4, 1, 4, 50}, {1, 2, 7, 2}};
    for (int q = 2; q <= 3; q++)
        for (int turned = 0; turned < 2; turned++)
            for (int k = 0; k < 4; k++) {
                const int64_t *s = shapes[k];
                job            j = flat(1, 1, q, turned, s[0], s[1], s[2], s[3]);
                j.dtype = k == 0 ? GM_F32 : GM_F64;
                run_job(&j);
                expect_flat_traffic(&j, q, turned);
                release_job(&j);
            }
}

/* Heads of 3 outputs stay whole, as the attention after them wants, and what comes in is cut by pairs. */
static void units(job *j)
{
    j->w.unit[0] = j->y.unit[2] = 3;
    j->w.unit[1] = j->x.unit[2] = 2;
}

void gm_test_sharded_linear_units(void **state)
{
    (void)state;
    job j = flat(1, 1, 2, false, 5, 2, 10, 15);
    units(&j);
    run_job(&j);
    expect_flat_traffic(&j, 2, false);
    release_job(&j);
    j = cube(1, 2, true, 5, 2, 10, 15);
    units(&j);
    run_job(&j);
    expect_cube_traffic(&j, 2);
    release_job(&j);
}

/* Products of more rows than are multiplied at once. */
void gm_test_sharded_linear_tall(void **state)
{
    (void)state;
    for (int turned = 0; turned < 2; turned++) {
        job j = flat(1, 1, 2, turned, 301, 2, 5, 270);
        run_job(&j);
        release_job(&j);
    }
}

void gm_test_sharded_linear_depth(void **state)
{
    (void)state;
    static const int worlds[3][3] = {{1, 2, 2}, {2, 1, 2}, {2, 2, 2}}; /* data, depth, q */
    for (int k = 0; k < 3; k++)
        for (int turned = 0; turned < 2; turned++) {
            const int *w = worlds[k];
            job        j = flat(w[0], w[1], w[2], turned, 13, 2, 5, 7);
            run_job(&j);
            expect_flat_traffic(&j, w[2], turned);
            release_job(&j);
        }
}

/* A mesh with a depth of one rank, against one without. */
void gm_test_sharded_linear_depth_one(void **state)
{
    (void)state;
    job two = flat(1, 1, 3, false, 7, 2, 11, 8), one = two;
    one.mesh = gm_mesh_of_one();
    OK(gm_mesh_add_axis(&one.mesh, "depth", 1));
    OK(gm_mesh_add_axis(&one.mesh, "row", 3));
    OK(gm_mesh_add_axis(&one.mesh, "col", 3));
    one.x = one.w = gm_layout_replicated();
    cut(&one.mesh, &one.x, 0, "depth", "row", NULL);
    cut(&one.mesh, &one.x, 2, "col", NULL, NULL);
    cut(&one.mesh, &one.w, 0, "col", NULL, NULL);
    cut(&one.mesh, &one.w, 1, "row", NULL, NULL);
    one.y = one.x;
    one.dw_partial = 1; /* of a sum of one term */
    run_job(&two);
    run_job(&one);
    for (int rank = 0; rank < 9; rank++) {
        int64_t n[3] = {elements(&two, &two.y, 3, two.y_shape), elements(&two, &two.x, 3, two.x_shape),
                        elements(&two, &two.w, 2, two.w_shape)};
        for (int what = 0; what < 3; what++)
            assert_memory_equal(one.value[what][rank], two.value[what][rank], (size_t)n[what] * sizeof(double));
    }
    release_job(&two);
    release_job(&one);
}

void gm_test_sharded_linear_3d(void **state)
{
    (void)state;
    static const int64_t shapes[3][4] = {{8, 2, 8, 12}, {7, 3, 5, 7}, {5, 1, 9, 50}};
    for (int k = 0; k < 3; k++)
        for (int keep = 0; keep < 2; keep++)
            for (int second = 0; second < 2; second++) {
                const int64_t *s = shapes[k];
                job            j = cube(k == 1 ? 2 : 1, 2, second, s[0], s[1], s[2], s[3]);
                j.keep = keep;
                run_job(&j);
                expect_cube_traffic(&j, 2);
                release_job(&j);
            }
}

/* Of rows that nobody asks about, or of a weight that is frozen, nothing is computed or gathered. */
void gm_test_sharded_linear_one_gradient(void **state)
{
    (void)state;
    for (int only = OF_X; only <= OF_W; only++)
        for (int keep = 0; keep < 2; keep++) {
            job j = cube(1, 2, false, 6, 2, 5, 7), two = flat(1, 1, 2, keep, 6, 2, 5, 7);
            j.keep = keep;
            j.only = two.only = only;
            run_job(&j);
            run_job(&two);
            expect_cube_traffic(&j, 2);
            expect_flat_traffic(&two, 2, keep);
            release_job(&j);
            release_job(&two);
        }
}

/* ---- on meta ---- */

static void pretend_layer(job *j, int rank, double *flops)
{
    gm_rank  *r = NULL;
    gm_value *x = NULL, *w = NULL, *y = NULL, *seed = NULL;
    OK(gm_rank_new(&r));
    OK(gm_rank_pretend(r, rank, gm_mesh_size(&j->mesh)));
    OK(gm_rank_set_mesh(r, &j->mesh));
    OK(gm_rank_open_device(r, "meta", 1));
    OK(gm_value_new_block(r, "test", j->dtype, &j->x, 3, j->x_shape, &x));
    OK(gm_value_new_block(r, "test", j->dtype, &j->w, 2, j->w_shape, &w));
    OK(gm_value_new_block(r, "test", j->dtype, &j->y, 3, j->y_shape, &seed));
    OK(gm_value_require_grad(x, true));
    OK(gm_value_require_grad(w, true));
    OK(gm_sharded_linear(r, x, w, NULL, GM_FN_none, &y));
    j->forward[rank % RANKS] += bytes_sent(r->comm);
    OK(gm_tape_backward(y, seed));
    j->backward[rank % RANKS] += bytes_sent(r->comm);
    *flops += r->device->counters[GM_OP_matmul].flops;
    gm_value_release(seed);
    gm_value_release(y);
    gm_value_release(w);
    gm_value_release(x);
    gm_rank_free(r);
}

/* 64 and 27 ranks: bytes by the formulas, and exactly the operations of the serial layer, shared out. */
static void pretend_job(job *j)
{
    double flops = 0, serial_flops = 6;
    for (int rank = 0; rank < gm_mesh_size(&j->mesh); rank++) pretend_layer(j, rank, &flops);
    for (int d = 0; d < 3; d++) serial_flops *= (double)j->x_shape[d];
    assert_true(flops == serial_flops * (double)j->w_shape[0]);
}

static void expect_folded(const job *j, int64_t forward, int64_t backward)
{
    int64_t sent[2] = {0, 0};
    for (int i = 0; i < RANKS; i++) {
        sent[0] += (int64_t)j->forward[i];
        sent[1] += (int64_t)j->backward[i];
    }
    assert_int_equal(sent[0], forward * 8);
    assert_int_equal(sent[1], backward * 8);
}

void gm_test_sharded_linear_meta(void **state)
{
    (void)state;
    job j = flat(1, 4, 4, false, 64, 10, 50, 257); /* 16 rows of blocks, 13 x 65 of w */
    pretend_job(&j);
    expect_folded(&j, 64 * 3 * (4 * 10 * 13 + 65 * 13), 64 * 3 * 2 * (4 * 10 * 13 + 65 * 13));
    j = cube(1, 3, false, 18, 5, 50, 100); /* x 2 x 5 x 17, w 34 x 6, y 2 x 5 x 34 */
    pretend_job(&j);
    expect_folded(&j, 27 * 2 * (170 + 204 + 340), 27 * 2 * (340 + 2 * (170 + 204)));
}

/* ---- plain layers ---- */

static void plain(gm_rank *r, void *context)
{
    const job *j = context;
    gm_value  *x = block(r, j, &j->x, 3, j->x_shape, OF_X), *w = block(r, j, &j->w, 2, j->w_shape, OF_W);
    gm_value  *y = NULL, *z = NULL;
    gm_comm_reset_traffic(r->comm);
    OK(gm_sharded_linear(r, x, w, NULL, GM_FN_none, &y));
    assert_int_equal(bytes_sent(r->comm), 0);
    OK(gm_linear(r, x, w, NULL, GM_FN_none, &z));
    assert_true(gm_layout_equal(&y->layout, &j->y) && gm_layout_equal(&z->layout, &j->y));
    assert_memory_equal(gm_tensor_data(y->local), gm_tensor_data(z->local),
                        (size_t)gm_tensor_numel(y->local) * sizeof(double));
    gm_value_release(z);
    gm_value_release(y);
    gm_value_release(w);
    gm_value_release(x);
}

/* 1D: nothing is sent. Cut along O, so is y; along I, y is partial. */
void gm_test_sharded_linear_plain(void **state)
{
    (void)state;
    for (int row = 0; row < 2; row++) {
        job j = {.mesh = mesh_of("data", 2, "tensor", 2, NULL, 1)};
        sizes(&j, 4, 3, 6, 8);
        cut(&j.mesh, &j.x, 0, "data", NULL, NULL);
        j.y = j.x;
        if (row) cut(&j.mesh, &j.x, 2, "tensor", NULL, NULL);
        cut(&j.mesh, &j.w, row, "tensor", NULL, NULL);
        if (row) j.y.partial = gm_mesh_mask(&j.mesh, "tensor");
        else cut(&j.mesh, &j.y, 2, "tensor", NULL, NULL);
        run_ranks(&j.mesh, plain, &j);
    }
}
