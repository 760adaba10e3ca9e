/* linear_job.c - see linear_job.h. */
#include "calls.h"
#include "linear_job.h"
#include "../../host/life.h"

/* ---- matrices ---- */

/* Between -1 and 1: element i of tensor `which`. */
static double number(uint64_t which, int64_t i) { return whole_number(which, i) / 1000; }

void cut(const gm_mesh *mesh, gm_layout *l, int d, const char *a, const char *b, const char *c)
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

/* Is element i of a block padding of the inner or outer size, and not of rows of x or y? */
static bool beyond_rows(const block_walk *w, int64_t i)
{
    int last = w->ndim - 1;
    return i % w->local[last] >= w->logical[last] || (w->ndim == 2 && i / w->local[1] >= w->logical[0]);
}

gm_value *job_block(gm_rank *r, const job *j, const gm_layout *l, int ndim, const int64_t *shape, uint64_t which)
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

uint64_t bytes_sent(gm_comm *c)
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

/* Nothing but dx comes of the first half. */
static void in_halves(gm_rank *r, job *j, gm_value *in[3], gm_value *y, gm_value *seed)
{
    gm_tape *t = gm_tape_take(r);
    int      n = in[0]->requires_grad;
    bool     had[3];
    for (int i = 0; i < 3; i++) had[i] = in[i] && gm_value_grad(in[i]);
    double *dw = had[1] ? copy_of(in[1]->param->grad) : NULL;
    OK(gm_tape_run(
        r, t,
        &(gm_tape_job){.pass = GM_TAPE_INPUT, .n = 1, .outputs = &y, .seeds = &seed, .n_inputs = n, .inputs = in}));
    j->first[r->rank] = bytes_sent(r->comm);
    for (int i = 0; i < 3; i++)
        if (in[i]) assert_int_equal(gm_value_grad(in[i]) != NULL, had[i] || (i == 0 && n));
    for (int64_t i = 0; dw && i < gm_tensor_numel(in[1]->param->grad); i++)
        assert_true(get(in[1]->param->grad, i) == dw[i]);
    free(dw);
    OK(gm_tape_run(r, t, &(gm_tape_job){.pass = GM_TAPE_WEIGHT}));
    gm_tape_free(t);
}

static void once(gm_rank *r, job *j, gm_value *x, gm_value *w, gm_value *b)
{
    gm_value *y = NULL, *seed = NULL;
    gm_comm_reset_traffic(r->comm);
    OK(call_linear(r, x, w, b, j->f, &y));
    j->forward[r->rank] = bytes_sent(r->comm);
    assert_true(gm_layout_equal(&y->layout, &j->y));
    for (int d = 0; d < 3; d++) assert_int_equal(y->shape[d], j->y_shape[d]);
    if (!j->value[0][r->rank]) j->value[0][r->rank] = copy_of(y->local);
    gm_layout whole = j->y;
    whole.partial = 0;
    seed = job_block(r, j, &whole, 3, j->y_shape, OF_DY);
    j->first[r->rank] = 0;
    if (j->halves) in_halves(r, j, (gm_value *[]){x, w, b}, y, seed);
    else OK(gm_tape_backward(y, seed, false));
    j->backward[r->rank] = j->first[r->rank] + bytes_sent(r->comm);
    gm_value_release(seed);
    gm_value_release(y);
}

/* The gradient of a leaf: not partial but as it must be. */
static void take(gm_rank *r, job *j, int what, gm_value *v, bool wanted, uint32_t partial)
{
    assert_int_equal(gm_value_grad(v) != NULL, wanted);
    if (wanted) assert_int_equal(v->param->grad_partial, partial);
    if (wanted) j->value[what][r->rank] = copy_of(v->param->grad);
    gm_value_release(v);
}

/* Twice: the second backward adds to the gradients of the first. */
static void layer(gm_rank *r, void *context)
{
    job      *j = context;
    gm_value *x = job_block(r, j, &j->x, 3, j->x_shape, OF_X), *w = job_block(r, j, &j->w, 2, j->w_shape, OF_W);
    gm_value *b = j->biased ? job_block(r, j, &j->b, 1, j->w_shape, OF_B) : NULL;
    r->keep_gathered = j->keep;
    OK(gm_value_require_grad(x, j->only != OF_W));
    OK(gm_value_require_grad(w, j->only != OF_X));
    if (b) OK(gm_value_require_grad(b, !j->only));
    once(r, j, x, w, b);
    once(r, j, x, w, b);
    take(r, j, 1, x, j->only != OF_W, 0);
    take(r, j, 2, w, j->only != OF_X, j->dw_partial);
    if (b) take(r, j, 3, b, !j->only, j->db_partial);
}

/* Output o of a row of x, and its derivative. */
static double output(const job *j, int64_t row, int64_t o, double *slope)
{
    double sum = j->biased ? number(OF_B, o) : 0;
    for (int64_t i = 0, in = j->w_shape[1]; i < in; i++) sum += number(OF_X, row * in + i) * number(OF_W, o * in + i);
    *slope = 1;
    if (j->f == GM_FN_none) return sum;
    double y = 1 / (1 + exp(-sum));
    *slope = y * (1 - y);
    return y;
}

/* y, 2 dx, 2 dw or 2 db of the whole layer, by definition. */
static double *serial(const job *j, int what, int64_t *size)
{
    int64_t m = j->x_shape[0] * j->x_shape[1], in = j->w_shape[1], out = j->w_shape[0];
    *size = what == 0 ? m * out : what == 1 ? m * in : what == 2 ? out * in : out;
    double *sum = calloc((size_t)*size, sizeof *sum);
    assert_non_null(sum);
    for (int64_t row = 0; row < m; row++)
        for (int64_t o = 0; o < out; o++) {
            double slope, y = output(j, row, o, &slope), dy = 2 * number(OF_DY, row * out + o) * slope;
            if (what == 0) sum[row * out + o] = y;
            if (what == 3) sum[o] += dy;
            for (int64_t i = 0; i < in; i++) {
                if (what == 1) sum[row * in + i] += dy * number(OF_W, o * in + i);
                if (what == 2) sum[o * in + i] += dy * number(OF_X, row * in + i);
            }
        }
    return sum;
}

/* Blocks of all ranks against the whole; terms are added up. Padding of results is zero but for padded rows of y. */
static void expect(const job *j, int what, double tolerance)
{
    static const char *const names[4] = {"y", "dx", "dw", "db"};
    const gm_layout         *layouts[4] = {&j->y, &j->x, &j->w, &j->b};
    const int64_t           *shapes[4] = {j->y_shape, j->x_shape, j->w_shape, j->w_shape};
    uint32_t                 partial = what == 2 ? j->dw_partial : what == 3 ? j->db_partial : what ? 0 : j->y.partial;
    int                      members[RANKS], ndim = 3 - (what == 2) - 2 * (what == 3);
    int64_t                  size;
    double                  *want = serial(j, what, &size), most = 0;
    for (int64_t i = 0; i < size; i++) most = fmax(most, fabs(want[i]));
    assert_true(most >= 1e-3); /* or there is nothing to compare */
    for (int rank = 0; rank < gm_mesh_size(&j->mesh); rank++) {
        block_walk w = walk_block(&j->mesh, layouts[what], rank, ndim, shapes[what]);
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

void release_job(job *j)
{
    for (int what = 0; what < 4; what++)
        for (int rank = 0; rank < RANKS; rank++) {
            free(j->value[what][rank]);
            j->value[what][rank] = NULL;
        }
}

void run_job(job *j)
{
    run_ranks(&j->mesh, layer, j);
    for (int what = 0; what < 4; what++)
        if (j->value[what][0]) expect(j, what, j->dtype == GM_F64 ? 1e-12 : 1e-5);
}

void sizes(job *j, int64_t b, int64_t s, int64_t in, int64_t out)
{
    int64_t x[3] = {b, s, in}, w[2] = {out, in}, y[3] = {b, s, out};
    j->dtype = GM_F64;
    memcpy(j->x_shape, x, sizeof x);
    memcpy(j->w_shape, w, sizeof w);
    memcpy(j->y_shape, y, sizeof y);
}

gm_mesh mesh_of_four(int data, const char *a, int na, const char *b, int nb, const char *c, int nc)
{
    gm_mesh mesh = mesh_of("data", data, a, na, b, nb);
    if (nc > 1) OK(gm_mesh_add_axis(&mesh, c, nc));
    return mesh;
}

job flat(int data, int depth, int q, bool turned, int64_t b, int64_t s, int64_t in, int64_t out)
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

job cube(int data, int q, bool second, bool rows, int64_t b, int64_t s, int64_t in, int64_t out)
{
    job         j = {.mesh = mesh_of_four(data, "output", q, "input", q, "weight", q)};
    const char *inner = second ? "output" : "input", *last = second ? "input" : "output";
    sizes(&j, b, s, in, out);
    cut(&j.mesh, &j.x, 0, "data", "weight", inner);
    cut(&j.mesh, &j.x, 2, last, NULL, NULL);
    cut(&j.mesh, &j.w, 0, inner, rows ? "weight" : NULL, NULL);
    cut(&j.mesh, &j.w, 1, last, rows ? NULL : "weight", NULL);
    cut(&j.mesh, &j.y, 0, "data", "weight", last);
    cut(&j.mesh, &j.y, 2, inner, NULL, NULL);
    j.dw_partial = gm_mesh_mask(&j.mesh, "data");
    return j;
}

job column(int data, int sequence, int tensor, int64_t b, int64_t s, int64_t in, int64_t out)
{
    job j = {.mesh = mesh_of("data", data, "sequence", sequence, "tensor", tensor)};
    sizes(&j, b, s, in, out);
    cut(&j.mesh, &j.x, 0, "data", NULL, NULL);
    cut(&j.mesh, &j.x, 1, "sequence", NULL, NULL);
    cut(&j.mesh, &j.w, 0, "tensor", NULL, NULL);
    j.y = j.x;
    cut(&j.mesh, &j.y, 2, "tensor", NULL, NULL);
    j.dw_partial = j.db_partial = gm_mesh_mask(&j.mesh, "data") | gm_mesh_mask(&j.mesh, "sequence");
    cut(&j.mesh, &j.b, 0, "tensor", NULL, NULL);
    return j;
}

job gathered(int data, int sequence, int tensor, int dim, int64_t b, int64_t s, int64_t in, int64_t out)
{
    job j = column(data, sequence, tensor, b, s, in, out);
    cut(&j.mesh, &j.x, dim, "tensor", NULL, NULL);
    return j;
}

int64_t elements(const job *j, const gm_layout *l, int ndim, const int64_t *shape)
{
    return walk_block(&j->mesh, l, 0, ndim, shape).n;
}

void expect_sent(const job *j, int64_t forward, int64_t backward)
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
void expect_flat_traffic(const job *j, int q, bool turned)
{
    int64_t x = elements(j, &j->x, 3, j->x_shape), w = elements(j, &j->w, 2, j->w_shape);
    int64_t y = elements(j, &j->y, 3, j->y_shape), each = (int64_t)gm_mesh_size(&j->mesh) * (q - 1);
    int64_t all = each * (w + (turned ? y : x));
    expect_sent(j, all, j->only ? all : 2 * all);
}

/* Each rank sends its block of x and w to q-1 others and takes part in the sum of y; in backward dy and, unless they
 * were kept, w for dx and x for dw are gathered, dx and dw scattered. */
void expect_cube_traffic(const job *j, int q)
{
    int64_t x = elements(j, &j->x, 3, j->x_shape), w = elements(j, &j->w, 2, j->w_shape);
    int64_t y = elements(j, &j->y, 3, j->y_shape), each = (int64_t)gm_mesh_size(&j->mesh) * (q - 1);
    int64_t dx = j->only == OF_W ? 0 : x + (j->keep ? 0 : w), dw = j->only == OF_X ? 0 : w + (j->keep ? 0 : x);
    expect_sent(j, each * (x + w + y), each * (y + dx + dw));
}

/* ---- on meta ---- */

void pretend_layer(job *j, int rank, double *flops)
{
    gm_rank  *r = NULL;
    gm_value *x = NULL, *w = NULL, *b = NULL, *y = NULL, *seed = NULL;
    gm_layout whole = j->y;
    whole.partial = 0;
    OK(gm_rank_new(&r));
    OK(gm_rank_pretend(r, rank, gm_mesh_size(&j->mesh)));
    OK(gm_rank_set_mesh(r, &j->mesh));
    OK(gm_rank_open_device(r, "meta", 1));
    r->keep_gathered = j->keep;
    OK(gm_value_new_block(r, "test", j->dtype, &j->x, 3, j->x_shape, &x));
    OK(gm_value_new_block(r, "test", j->dtype, &j->w, 2, j->w_shape, &w));
    if (j->biased) OK(gm_value_new_block(r, "test", j->dtype, &j->b, 1, j->w_shape, &b));
    OK(gm_value_new_block(r, "test", j->dtype, &whole, 3, j->y_shape, &seed));
    OK(gm_value_require_grad(x, true));
    OK(gm_value_require_grad(w, true));
    if (b) OK(gm_value_require_grad(b, true));
    OK(call_linear(r, x, w, b, j->f, &y));
    j->forward[rank % RANKS] += bytes_sent(r->comm);
    OK(gm_tape_backward(y, seed, false));
    j->backward[rank % RANKS] += bytes_sent(r->comm);
    *flops += r->device->counters[GM_OP_matmul].flops + r->device->counters[GM_OP_linear].flops;
    gm_value_release(seed);
    gm_value_release(y);
    gm_value_release(b);
    gm_value_release(w);
    gm_value_release(x);
    gm_rank_free(r);
}

void run_cubes(bool rows)
{
    static const int64_t shapes[3][4] = {{8, 2, 8, 12}, {7, 3, 5, 7}, {5, 1, 9, 50}};
    for (int k = 0; k < 3; k++)
        for (int keep = 0; keep < 2; keep++)
            for (int second = 0; second < 2; second++) {
                const int64_t *s = shapes[k];
                job            j = cube(k == 1 ? 2 : 1, 2, second, rows, s[0], s[1], s[2], s[3]);
                j.dtype = rows && k == 0 ? GM_F32 : GM_F64;
                j.keep = keep;
                run_job(&j);
                expect_cube_traffic(&j, 2);
                release_job(&j);
            }
}
