/* ring_job.c - see ring_job.h. */
#include <stdlib.h>
#include "calls.h"
#include "ring_job.h"

#include "../../kernels/sample.h"
#include "redistribute_blocks.h"

static void shape_of(const ring_job *j, int which, int64_t *shape)
{
    bool keys = which == OF_K || which == OF_V;
    shape[0] = j->b;
    shape[1] = keys || which == OF_MASK ? j->t : j->s;
    shape[2] = keys ? j->hk : j->h;
    shape[3] = j->d;
}

/* The second sample's first keys are hidden, so that causal queries see nothing. */
static double number_of(const ring_job *j, int which, int64_t i)
{
    if (which != OF_MASK)
        return gm_normal_quantile(((double)(gm_mix64((uint64_t)(which * 1000003 + i)) >> 12) + 0.5) * 0x1p-52);
    return i / j->t % 2 ? i % j->t > 2 : i % 5 != 3;
}

gm_value *ring_operand(gm_rank *r, const ring_job *j, int which, bool cut)
{
    gm_layout  l = gm_layout_replicated();
    gm_tensor *block = NULL;
    gm_value  *v = NULL;
    int64_t    shape[4];
    int        ndim = which == OF_MASK ? 2 : 4;
    shape_of(j, which, shape);
    for (int d = 0; cut && d < ndim; d++)
        if (which != OF_MASK || d == 0 || j->mask == CUT_MASK) gm_layout_copy_dim(&l, d, &j->rows, d);
    block_walk w = walk_block(&r->mesh, &l, r->rank, ndim, shape);
    OK(gm_tensor_new(r->device, which == OF_MASK ? GM_U8 : j->dtype, ndim, w.local, &block));
    for (int64_t i = 0; gm_tensor_data(block) && i < w.n; i++) {
        int64_t at = global_index(&w, i);
        double  padding = which == OF_SEED ? 0 : 3; /* gradients of padding are zero */
        gm_store(block->dtype, gm_tensor_data(block), i, at < 0 ? padding : number_of(j, which, at));
    }
    OK(gm_value_take_block(r, block, &l, ndim, shape, &v));
    if (which <= OF_V) OK(gm_value_require_grad(v, true));
    return v;
}

gm_attrs ring_attrs(const ring_job *j)
{
    gm_attrs a = gm_attrs_default();
    a.causal = j->causal;
    a.window = j->window;
    a.softcap = j->softcap;
    a.p = j->p;
    a.stream = (gm_stream){77, 3};
    return a;
}

/* ---- running ---- */

uint64_t ring_bytes(gm_comm *c)
{
    gm_traffic entries[64];
    uint64_t   bytes = 0;
    for (int i = 0, n = gm_comm_traffic(c, entries, 64); i < n; i++) bytes += entries[i].bytes;
    gm_comm_reset_traffic(c);
    return bytes;
}

static double flops_of(gm_rank *r, gm_op op)
{
    double flops = r->device->counters[op].flops;
    r->device->counters[op].flops = 0;
    return flops;
}

void ring_run(gm_rank *r, ring_job *j, gm_value **in, gm_value **o)
{
    gm_attrs  a = ring_attrs(j);
    gm_value *seed = ring_operand(r, j, OF_SEED, true);
    gm_comm_reset_traffic(r->comm);
    flops_of(r, GM_OP_attention);
    flops_of(r, GM_OP_attention_grad);
    OK(call_attention(r, in[OF_Q], in[OF_K], in[OF_V], in[OF_MASK], &a, j->balance, o));
    j->sent[0][r->rank] = ring_bytes(r->comm);
    j->flops[r->rank] = flops_of(r, GM_OP_attention);
    OK(gm_tape_backward(*o, seed, false));
    j->sent[1][r->rank] = ring_bytes(r->comm);
    assert_true(flops_of(r, GM_OP_attention_grad) == 2.5 * j->flops[r->rank]);
    gm_value_release(seed);
}

static void run_whole(gm_rank *r, const ring_job *j, gm_value **in, gm_value **o)
{
    gm_attrs  a = ring_attrs(j);
    gm_value *out[2], *seed = ring_operand(r, j, OF_SEED, false);
    OK(gm_apply(r, GM_OP_attention, 6, (gm_value *[]){in[OF_Q], in[OF_K], in[OF_V], in[OF_MASK], NULL, NULL}, &a, 2,
                NULL, out));
    OK(gm_tape_backward(out[0], seed, false));
    *o = out[0];
    gm_value_release(out[1]);
    gm_value_release(seed);
}

/* This rank's block against the whole: as far apart as rounding goes, and zero in the padding, but for results of what
 * is padding of the batch. */
static void expect_block(gm_rank *r, const ring_job *j, const gm_value *like, gm_tensor *block, gm_tensor *whole,
                         const char *what)
{
    block_walk w = walk_block(&r->mesh, &like->layout, r->rank, like->ndim, like->shape);
    double     error = 0, largest = 0;
    assert_true(gm_tensor_is_contiguous(block) && gm_tensor_is_contiguous(whole));
    for (int64_t i = 0, n = gm_tensor_numel(whole); i < n; i++)
        largest = fmax(largest, fabs(gm_load(whole->dtype, gm_tensor_data(whole), i)));
    for (int64_t i = 0; i < w.n; i++) {
        int64_t at = global_index(&w, i);
        double  have = gm_load(block->dtype, gm_tensor_data(block), i);
        bool    sample = i / (w.n / w.local[0]) < w.logical[0];
        double  off = fabs(have - (at < 0 ? 0 : gm_load(whole->dtype, gm_tensor_data(whole), at)));
        if ((sample || block != like->local) && !(off <= error)) error = isnan(off) ? INFINITY : off;
    }
    if (!(error <= j->tolerance * largest) || !(largest >= 1e-3))
        fail_msg("%s on rank %d of %d: wrong by %g of %g at most", what, r->rank, r->world, error, largest);
}

static void body(gm_rank *r, void *context)
{
    static const char *const names[] = {"dq", "dk", "dv"};
    ring_job                *j = context;
    gm_value                *whole[5] = {NULL}, *cut[5] = {NULL}, *want, *have;
    for (int i = 0; i < 5; i++) {
        if (i == OF_SEED || (i == OF_MASK && !j->mask)) continue;
        whole[i] = ring_operand(r, j, i, false);
        cut[i] = ring_operand(r, j, i, true);
    }
    run_whole(r, j, whole, &want);
    ring_run(r, j, cut, &have);
    assert_true(gm_layout_equal(&have->layout, &j->rows));
    expect_block(r, j, have, have->local, want->local, "o");
    for (int i = OF_Q; i <= OF_V; i++) {
        assert_int_equal(cut[i]->param->grad_partial, 0);
        expect_block(r, j, cut[i], cut[i]->param->grad, whole[i]->param->grad, names[i]);
    }
    for (int i = 0; i < 5; i++) gm_value_release(whole[i]), gm_value_release(cut[i]);
    gm_value_release(want);
    gm_value_release(have);
}

/* ---- what is to be sent and computed ---- */

typedef struct sums {
    int64_t forward, backward; /* bytes, of all ranks */
    double  pairs[RING_RANKS]; /* of query and key, by rank */
} sums;

static gm_layout along(const ring_job *j)
{
    gm_layout l = gm_layout_replicated();
    gm_layout_copy_dim(&l, 0, &j->rows, 1);
    return l;
}

/* The rank that differs from this one in the sequence's axes only, and has this block of it. */
static int rank_of(const ring_job *j, int rank, int block)
{
    int       c[GM_MAX_AXES];
    gm_layout l = along(j);
    gm_mesh_coordinates(&j->mesh, rank, c);
    for (int i = l.n_cuts[0] - 1; i >= 0; i--) {
        c[l.cut[0][i]] = block % j->mesh.axis[l.cut[0][i]].size;
        block /= j->mesh.axis[l.cut[0][i]].size;
    }
    return gm_mesh_rank(&j->mesh, c);
}

static int sequence_block(const ring_job *j, int rank)
{
    int at = 0, parts = gm_layout_parts(&j->mesh, &j->rows, 1);
    while (at < parts && rank_of(j, rank, at) != rank) at++;
    return at;
}

/* Which block position x of n is in; *half: of this block. */
static int place_of(const ring_job *j, int rank, int64_t n, int64_t x, int *half)
{
    gm_layout l = along(j);
    for (int i = 0, parts = gm_layout_parts(&j->mesh, &l, 0); i < parts; i++) {
        block_walk w = walk_block(&j->mesh, &l, rank_of(j, rank, i), 1, &n);
        int64_t    at = x - w.box.offset[0];
        if (at < 0 || at >= w.logical[0]) continue;
        *half = at >= (w.logical[0] + 1) / 2;
        return i;
    }
    fail_msg("position %lld is nowhere", (long long)x);
    return -1;
}

bool ring_is_zigzag(const ring_job *j)
{
    int64_t local[4], shape[4];
    shape_of(j, OF_Q, shape);
    gm_layout_local(&j->mesh, &j->rows, 4, shape, local);
    if (j->causal && j->balance == GM_RING_AUTO)
        return local[1] >= GM_RING_BALANCED_ROWS && !(j->window && j->window <= local[1]);
    return j->causal && j->balance == GM_RING_ZIGZAG;
}

/* How many keys query x sees. */
static int64_t keys_seen(const ring_job *j, int64_t x)
{
    if (!j->causal) return j->t;
    return j->window && j->window <= x ? j->window : x + 1;
}

/* Rows of keys that come from other blocks: of each block those up to the last that is needed. */
static int64_t rows_from_others(const ring_job *j, int rank, int me, const bool *needed)
{
    bool    begun[RING_RANKS] = {false};
    int     half;
    int64_t rows = 0;
    for (int64_t y = j->t - 1; y >= 0; y--) {
        int block = place_of(j, rank, j->t, y, &half);
        begun[block] |= needed[y];
        rows += begun[block] && block != me;
    }
    return rows;
}

static void count_rank(const ring_job *j, int rank, sums *out)
{
    int     parts = gm_layout_parts(&j->mesh, &j->rows, 1), half, me = sequence_block(j, rank);
    int64_t shape[4], local[4], keys[4], queries = 0, unit = (int64_t)gm_dtype_size(j->dtype);
    bool   *needed = calloc((size_t)j->t + 1, sizeof *needed);
    assert_non_null(needed);
    shape_of(j, OF_Q, shape);
    gm_layout_local(&j->mesh, &j->rows, 4, shape, local);
    shape_of(j, OF_K, shape);
    gm_layout_local(&j->mesh, &j->rows, 4, shape, keys);
    for (int64_t x = 0; x < j->s; x++) {
        int home = place_of(j, rank, j->s, x, &half), chunk = 2 * home + half, worker = home;
        int pair = chunk < parts ? chunk : 2 * parts - 1 - chunk; /* pairs 0, 1, 2, ... at 0, p - 1, 1, p - 2, ... */
        if (ring_is_zigzag(j)) worker = pair % 2 ? parts - 1 - pair / 2 : pair / 2;
        queries += home != worker && worker == me;
        if (worker != me) continue;
        int64_t seen = keys_seen(j, x), end = j->causal ? x + 1 : j->t;
        out->pairs[rank] += (double)seen;
        memset(needed + end - seen, true, (size_t)seen);
    }
    int64_t rows = rows_from_others(j, rank, me, needed);
    free(needed);
    int64_t moved = 2 * queries * local[0] * local[2] * local[3] * unit;
    int64_t passed = 2 * rows * keys[0] * keys[2] * keys[3] * unit;
    out->forward += moved + passed + (j->mask == CUT_MASK ? (parts - 1) * keys[0] * keys[1] : 0);
    out->backward += moved + 2 * passed;
}

/* Bytes and work as counted; the sum of the work is that of one rank where the batch and the heads are cut evenly. */
void ring_counts(const ring_job *j, bool even)
{
    sums    want = {0};
    int64_t sent[2] = {0, 0}, shape[4], local[4];
    double  all = 0, serial = 4.0 * (double)(j->b * j->h * j->d);
    shape_of(j, OF_Q, shape);
    gm_layout_local(&j->mesh, &j->rows, 4, shape, local);
    for (int rank = 0; rank < gm_mesh_size(&j->mesh); rank++) {
        count_rank(j, rank, &want);
        sent[0] += (int64_t)j->sent[0][rank];
        sent[1] += (int64_t)j->sent[1][rank];
        all += j->flops[rank];
        assert_true(j->flops[rank] == 4.0 * (double)(local[0] * local[2] * local[3]) * want.pairs[rank]);
    }
    assert_int_equal(sent[0], want.forward);
    assert_int_equal(sent[1], want.backward);
    double pairs = 0;
    for (int64_t x = 0; x < j->s; x++) pairs += (double)keys_seen(j, x);
    assert_true(!even || all == serial * pairs);
}

void ring_check(ring_job *j, bool even)
{
    memset(j->sent, 0, sizeof j->sent);
    run_ranks(&j->mesh, body, j);
    ring_counts(j, even);
}
