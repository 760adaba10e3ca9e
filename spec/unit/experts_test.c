/* experts_test.c - experts over ranks: values and gradients of every operand against whole tensors, and every byte that
 * is sent, counted choice by choice. spec/experts/experts_spec.lua holds the whole op to plain ops.
 *
 * All operands are N(0, 1). What is expected to travel is counted from the indices: a row for each choice whose expert
 * is elsewhere, there and back, in forward and in backward. */
#include "../../host/life.h"
#include "../../host/parallel/sharded/experts.h"
#include "../../kernels/sample.h"
#include "redistribute_blocks.h"
#include "threads_transport.h"

enum { X, INDEX, WEIGHT, UP, UP_BIAS, DOWN, DOWN_BIAS, SEED, N };

#define RANKS 64

typedef struct job {
    gm_mesh   mesh;
    gm_layout tokens;  /* of x (b, s, h) */
    uint32_t  experts; /* axes that cut them */
    int64_t   b, s, h, f, e, k;
    gm_dtype  dtype;
    bool      one; /* all choose the same expert */
    double    tolerance;
    uint64_t  sent[2][RANKS]; /* forward, backward */
} job;

static int shape_of(const job *j, int which, int64_t *shape)
{
    int64_t all[N][3] = {
        [X] = {j->b, j->s, j->h},   [INDEX] = {j->b, j->s, j->k}, [WEIGHT] = {j->b, j->s, j->k},
        [UP] = {j->e, j->f, j->h},  [UP_BIAS] = {j->e, j->f},     [DOWN] = {j->e, j->h, j->f},
        [DOWN_BIAS] = {j->e, j->h}, [SEED] = {j->b, j->s, j->h},
    };
    memcpy(shape, all[which], sizeof all[which]);
    return which == UP_BIAS || which == DOWN_BIAS ? 2 : 3;
}

static gm_layout layout_of(const job *j, int which)
{
    gm_layout l = gm_layout_cut(0, j->experts);
    if (which >= UP && which <= DOWN_BIAS) return l;
    l = j->tokens;
    l.n_cuts[2] = 0;
    return l;
}

/* Choice i of the whole tensor: some are dropped, the last of more than two experts is never chosen. */
static int64_t choice_of(const job *j, int64_t i)
{
    int64_t token = i / j->k, used = j->e > 2 ? j->e - 1 : j->e;
    if (gm_mix64((uint64_t)i) % 7 == 0) return -1;
    return j->one ? 0 : (int64_t)(gm_mix64((uint64_t)token + 99) % (uint64_t)used + (uint64_t)(i % j->k)) % used;
}

static double number_of(const job *j, int which, int64_t i)
{
    if (which == INDEX) return (double)choice_of(j, i);
    return gm_normal_quantile(((double)(gm_mix64((uint64_t)(which * 1000003 + i)) >> 12) + 0.5) * 0x1p-52);
}

static gm_value *operand(gm_rank *r, const job *j, int which, bool cut)
{
    gm_layout  l = cut ? layout_of(j, which) : gm_layout_replicated();
    gm_tensor *block = NULL;
    gm_value  *v = NULL;
    int64_t    shape[GM_MAX_DIMS];
    int        ndim = shape_of(j, which, shape);
    block_walk w = walk_block(&r->mesh, &l, r->rank, ndim, shape);
    OK(gm_tensor_new(r->device, which == INDEX ? GM_I64 : j->dtype, ndim, w.local, &block));
    for (int64_t i = 0; gm_tensor_data(block) && i < w.n; i++) {
        int64_t at = global_index(&w, i);
        double  padding = which == SEED || (which >= UP && which <= DOWN_BIAS) ? 0 : 1;
        gm_store(block->dtype, gm_tensor_data(block), i, at < 0 ? padding : number_of(j, which, at));
    }
    OK(gm_value_take_block(r, block, &l, ndim, shape, &v));
    if (which != INDEX && which != SEED) OK(gm_value_require_grad(v, true));
    return v;
}

static uint64_t bytes_sent(gm_comm *c)
{
    gm_traffic entries[64];
    uint64_t   bytes = 0;
    for (int i = 0, n = gm_comm_traffic(c, entries, 64); i < n; i++) bytes += entries[i].bytes;
    gm_comm_reset_traffic(c);
    return bytes;
}

static void run(gm_rank *r, job *j, gm_value **in, bool cut, gm_value **y)
{
    gm_experts_layer layer = {in[UP], in[UP_BIAS], in[DOWN], in[DOWN_BIAS], NULL, NULL, GM_FN_gelu, 0};
    OK(gm_experts(r, in[X], in[INDEX], in[WEIGHT], &layer, y));
    if (cut) j->sent[0][r->rank] = bytes_sent(r->comm);
    OK(gm_tape_backward(*y, in[SEED], false));
    if (cut) j->sent[1][r->rank] = bytes_sent(r->comm);
}

/* This rank's block, which further ranks have terms of, against the whole: summed first. Zero in the padding. */
static void expect_block(gm_rank *r, const job *j, const gm_value *like, gm_tensor *block, uint32_t partial,
                         gm_tensor *whole, const char *what)
{
    block_walk w = walk_block(&r->mesh, &like->layout, r->rank, like->ndim, like->shape);
    gm_group  *g = NULL;
    double     error = 0, largest = 0;
    assert_true(gm_tensor_is_contiguous(block) && gm_tensor_is_contiguous(whole));
    if (partial) {
        OK(gm_comm_group(r->comm, partial, &g));
        OK(gm_comm_all_reduce(r->comm, g, block, GM_SUM, NULL));
    }
    for (int64_t i = 0, n = gm_tensor_numel(whole); i < n; i++)
        largest = fmax(largest, fabs(gm_load(whole->dtype, gm_tensor_data(whole), i)));
    for (int64_t i = 0; i < w.n; i++) {
        int64_t at = global_index(&w, i);
        double  have = gm_load(block->dtype, gm_tensor_data(block), i);
        double  off = fabs(have - (at < 0 ? 0 : gm_load(whole->dtype, gm_tensor_data(whole), at)));
        if (!(off <= error)) error = isnan(off) ? INFINITY : off;
    }
    if (!(error <= j->tolerance * largest) || !(largest >= 1e-3))
        fail_msg("%s on rank %d of %d: wrong by %g of %g at most", what, r->rank, r->world, error, largest);
}

static void body(gm_rank *r, void *context)
{
    static const char *const names[N] = {"dx", "", "dweight", "dup", "dup_bias", "ddown", "ddown_bias"};
    job                     *j = context;
    gm_value                *whole[N], *cut[N], *want, *have;
    uint32_t                 all = gm_layout_cut_axes(&j->tokens);
    for (int i = 0; i < N; i++) {
        whole[i] = operand(r, j, i, false);
        cut[i] = operand(r, j, i, true);
    }
    run(r, j, whole, false, &want);
    bytes_sent(r->comm);
    run(r, j, cut, true, &have);
    expect_block(r, j, have, have->local, 0, want->local, "y");
    for (int i = X; i <= DOWN_BIAS; i++) {
        if (i == INDEX) continue;
        uint32_t partial = i < UP ? 0 : all & ~j->experts; /* the axis of the experts is summed already */
        assert_int_equal(cut[i]->param->grad_partial, partial);
        expect_block(r, j, cut[i], cut[i]->param->grad, partial, whole[i]->param->grad, names[i]);
    }
    for (int i = 0; i < N; i++) gm_value_release(whole[i]), gm_value_release(cut[i]);
    gm_value_release(want);
    gm_value_release(have);
}

/* ---- what is to be sent ---- */

/* The rank that holds token t. */
static int home_of(const job *j, int64_t t)
{
    int64_t shape[3];
    shape_of(j, X, shape);
    gm_layout l = layout_of(j, X);
    for (int rank = 0; rank < gm_mesh_size(&j->mesh); rank++) {
        block_walk w = walk_block(&j->mesh, &l, rank, 3, shape);
        int64_t    b = t / j->s - w.box.offset[0], s = t % j->s - w.box.offset[1];
        if (b >= 0 && b < w.logical[0] && s >= 0 && s < w.logical[1]) return rank;
    }
    fail_msg("token %lld is nowhere", (long long)t);
    return -1;
}

/* The rank with expert e among those that share experts with `rank`: alike in all other axes. */
static int owner_of(const job *j, int rank, int64_t e)
{
    gm_layout l = gm_layout_cut(0, j->experts);
    int       mine[GM_MAX_AXES], c[GM_MAX_AXES];
    gm_mesh_coordinates(&j->mesh, rank, mine);
    for (int other = 0; other < gm_mesh_size(&j->mesh); other++) {
        bool alike = true;
        gm_mesh_coordinates(&j->mesh, other, c);
        for (int a = 0; a < j->mesh.n_axes; a++) alike = alike && (j->experts & 1u << a || c[a] == mine[a]);
        block_walk w = walk_block(&j->mesh, &l, other, 1, &j->e);
        if (alike && e >= w.box.offset[0] && e < w.box.offset[0] + w.logical[0]) return other;
    }
    fail_msg("expert %lld is nowhere", (long long)e);
    return -1;
}

static void expect_bytes(const job *j)
{
    int64_t   rows[RANKS] = {0}, changed = 0;
    gm_layout l = gm_layout_cut(0, j->experts);
    int       parts = gm_layout_parts(&j->mesh, &l, 0);
    int64_t   row = j->h * (int64_t)gm_dtype_size(j->dtype);
    int64_t   counts = (parts - 1) * walk_block(&j->mesh, &l, 0, 1, &j->e).n * 8;
    for (int64_t i = 0; i < j->b * j->s * j->k; i++) {
        int64_t e = choice_of(j, i);
        if (e < 0) continue;
        int home = home_of(j, i / j->k), owner = owner_of(j, home, e);
        if (home == owner) continue;
        rows[home]++;  /* there */
        rows[owner]++; /* and back */
        changed++;
    }
    assert_true(changed > 0 || j->b == 1);
    for (int rank = 0; rank < gm_mesh_size(&j->mesh); rank++) {
        assert_int_equal(j->sent[0][rank], rows[rank] * row + counts);
        assert_int_equal(j->sent[1][rank], rows[rank] * row);
    }
}

static void check(job *j)
{
    memset(j->sent, 0, sizeof j->sent);
    run_ranks(&j->mesh, body, j);
    expect_bytes(j);
}

static job job_of(gm_mesh mesh, uint32_t batch, uint32_t sequence, uint32_t experts, int64_t e, int64_t k)
{
    gm_layout l = gm_layout_cut(0, batch), s = gm_layout_cut(1, sequence);
    gm_layout_copy_dim(&l, 1, &s, 1);
    return (job){.mesh = mesh,
                 .tokens = l,
                 .experts = experts,
                 .b = 5,
                 .s = 7,
                 .h = 6,
                 .f = 9,
                 .e = e,
                 .k = k,
                 .dtype = GM_F64,
                 .tolerance = 1e-12};
}

/* 1 to 8 experts on 2, 3 and 4 ranks, of which some then have none; batches that leave ranks with padding alone. */
void gm_test_experts_sizes(void **state)
{
    static const int64_t batches[] = {4, 5, 1};
    (void)state;
    for (int ranks = 2; ranks <= 4; ranks++)
        for (int64_t e = 1; e <= 8; e = e < 4 ? e + 1 : e + 4)
            for (int i = 0; i < 3; i++) {
                job j = job_of(mesh_of("expert", ranks, "", 1, "", 1), 1, 0, 1, e, e < 3 ? e : 3);
                j.b = batches[i];
                j.one = i == 1 && e == 8;
                j.k = j.one ? 1 : j.k;
                check(&j);
            }
}

/* Data outside of the experts' axis, sequences cut by another, two axes that share the experts. */
void gm_test_experts_axes(void **state)
{
    (void)state;
    job j = job_of(mesh_of("data", 2, "expert", 2, "", 1), 3, 0, 2, 4, 2);
    check(&j);
    j = job_of(mesh_of("expert", 2, "sequence", 2, "", 1), 1, 2, 1, 5, 2);
    check(&j);
    j = job_of(mesh_of("data", 2, "expert", 2, "sequence", 2), 3, 4, 2, 4, 2);
    check(&j);
    j = job_of(mesh_of("data", 2, "expert", 2, "", 1), 3, 0, 3, 6, 2);
    check(&j);
}

/* f32: sums of h and f terms of roundings; rows of more than a rendezvous' size. */
void gm_test_experts_f32(void **state)
{
    (void)state;
    job j = job_of(mesh_of("expert", 4, "", 1, "", 1), 1, 0, 1, 8, 2);
    j.b = 8;
    j.s = 40;
    j.h = 96;
    j.f = 64;
    j.dtype = GM_F32;
    j.tolerance = 1e-5;
    check(&j);
}

/* ---- on meta: experts share the choices equally ---- */

void gm_test_experts_meta(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 64; ranks *= 4) {
        job       j = job_of(mesh_of("expert", ranks, "", 1, "", 1), 1, 0, 1, 2 * ranks, 2);
        gm_rank  *r = NULL;
        gm_value *in[N], *y = NULL;
        j.b = 4 * ranks;
        j.s = 16;
        OK(gm_rank_new(&r));
        OK(gm_rank_pretend(r, ranks - 1, ranks));
        OK(gm_rank_set_mesh(r, &j.mesh));
        OK(gm_rank_open_device(r, "meta", 1));
        for (int i = 0; i < N; i++) in[i] = operand(r, &j, i, true);
        bytes_sent(r->comm);
        run(r, &j, in, true, &y);
        /* 64 tokens a rank, 2 choices each, to all experts alike */
        int64_t choices = 4 * 16 * 2, own = choices / (2 * ranks) * 2, to = choices - own;
        int64_t from = own * (ranks - 1), row = j.h * 8;
        assert_int_equal(j.sent[1][r->rank], (to + from) * row);
        assert_int_equal(j.sent[0][r->rank], (to + from) * row + (ranks - 1) * 2 * 8);
        for (int i = 0; i < N; i++) gm_value_release(in[i]);
        gm_value_release(y);
        gm_rank_free(r);
    }
}

/* ---- what is refused ---- */

static void refusals(gm_rank *r, void *context)
{
    job              j = *(job *)context;
    gm_value        *in[N], *whole = operand(r, &j, X, false), *index = operand(r, &j, INDEX, false), *y = NULL;
    gm_value        *weight = operand(r, &j, WEIGHT, false), *up = operand(r, &j, UP, false);
    gm_experts_layer layer;
    for (int i = 0; i < N; i++) in[i] = operand(r, &j, i, true);
    layer = (gm_experts_layer){in[UP], in[UP_BIAS], in[DOWN], in[DOWN_BIAS], NULL, NULL, GM_FN_gelu, 0};
    FAILS(GM_ESHAPE, "axes that cut the experts should cut the tokens",
          gm_experts(r, whole, index, weight, &layer, &y));
    FAILS(GM_ESHAPE, "tokens are cut in different ways", gm_experts(r, in[X], index, in[WEIGHT], &layer, &y));
    layer.up = up;
    FAILS(GM_ESHAPE, "cut in different ways", gm_experts(r, in[X], in[INDEX], in[WEIGHT], &layer, &y));
    layer.up = in[UP];
    in[X]->layout.partial = 1;
    FAILS(GM_ESHAPE, "still a sum over ranks", gm_experts(r, in[X], in[INDEX], in[WEIGHT], &layer, &y));
    FAILS(GM_EINVAL, "a capacity of -1", gm_experts_capacity(r, in[INDEX], 4, -1, &y));
    FAILS(GM_ESHAPE, "index should be i64", gm_experts_capacity(r, in[WEIGHT], 4, 1, &y));
    for (int i = 0; i < N; i++) gm_value_release(in[i]);
    gm_value_release(whole);
    gm_value_release(index);
    gm_value_release(weight);
    gm_value_release(up);
}

void gm_test_experts_refuses(void **state)
{
    (void)state;
    job j = job_of(mesh_of("data", 2, "expert", 2, "", 1), 3, 0, 2, 4, 2);
    run_ranks(&j.mesh, refusals, &j);
}
