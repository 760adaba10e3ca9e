/* ring_test.c - ring attention of every size and layout against one rank; see ring_job.h for what is compared. */
#include "calls.h"
#include "ring_job.h"
#include "../../host/life.h"

/* ---- jobs ---- */

static gm_layout cut_of(uint32_t batch, uint32_t sequence, uint32_t heads)
{
    gm_layout l = gm_layout_cut(1, sequence), a = gm_layout_cut(0, batch), c = gm_layout_cut(2, heads);
    gm_layout_copy_dim(&l, 0, &a, 0);
    gm_layout_copy_dim(&l, 2, &c, 2);
    return l;
}

static ring_job ring_of(int ranks, int64_t s, bool causal, gm_ring_balance balance)
{
    return (ring_job){.mesh = mesh_of("sequence", ranks, "", 1, "", 1),
                      .rows = cut_of(0, 1, 0),
                      .b = 2,
                      .s = s,
                      .t = s,
                      .h = 4,
                      .hk = 4,
                      .d = 3,
                      .dtype = GM_F64,
                      .causal = causal,
                      .balance = balance,
                      .tolerance = 1e-12};
}

/* Lengths that divide by 2 p, that do not, and that leave ranks with one row or nothing. */
void gm_test_ring_lengths(void **state)
{
    static const int64_t lengths[] = {24, 10, 7, 5, 2};
    (void)state;
    for (int ranks = 2; ranks <= 4; ranks++)
        for (int i = 0; i < 5; i++)
            for (int kind = 0; kind < 3; kind++) {
                ring_job j = ring_of(ranks, lengths[i], kind > 0, kind == 2 ? GM_RING_ZIGZAG : GM_RING_CONTIGUOUS);
                ring_check(&j, true);
            }
    ring_job j = ring_of(7, 43, true, GM_RING_ZIGZAG);
    ring_check(&j, true);
}

void gm_test_ring_options(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++)
        for (int bits = 1; bits < 16; bits++) {
            ring_job j = ring_of(3, bits & 8 ? 18 : 10, kind > 0, kind == 2 ? GM_RING_ZIGZAG : GM_RING_CONTIGUOUS);
            if (bits & 1) j.hk = 2;
            if (bits & 2) j.p = 0.4;
            if (bits & 4) j.mask = bits & 8 ? WHOLE_MASK : CUT_MASK;
            ring_check(&j, true);
        }
}

/* Windows within a block, of a block, over several and over all; the scores capped as well. */
void gm_test_ring_windows(void **state)
{
    static const int64_t windows[] = {2, 3, 8, 11, 40};
    (void)state;
    for (int kind = 0; kind < 3; kind++)
        for (int i = 0; i < 5; i++)
            for (int64_t s = 10; s <= 24; s += 14) {
                ring_job j = ring_of(3, s, true, (gm_ring_balance)kind);
                j.window = windows[i];
                j.softcap = i % 2 ? 0.8 : 0;
                j.mask = i % 3 == 1 ? CUT_MASK : NO_MASK;
                j.p = i % 3 == 2 ? 0.4 : 0;
                ring_check(&j, true);
            }
    ring_job j = ring_of(2, 300, true, GM_RING_AUTO); /* balanced only if the window is longer than a block */
    for (j.window = 150; j.window <= 151; j.window++) ring_check(&j, true);
}

/* f32: a sum of s terms of roundings; as the design says. */
void gm_test_ring_f32(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        ring_job j = ring_of(4, 200, true, kind ? GM_RING_ZIGZAG : GM_RING_CONTIGUOUS);
        j.d = 16;
        j.dtype = GM_F32;
        j.tolerance = 1e-5;
        ring_check(&j, true);
    }
}

/* Keys of another sequence, cut by the same axis. */
void gm_test_ring_other_keys(void **state)
{
    (void)state;
    for (int64_t t = 5; t <= 30; t += 25) {
        ring_job j = ring_of(3, 14, false, GM_RING_AUTO);
        j.t = t;
        j.mask = CUT_MASK;
        ring_check(&j, true);
    }
}

/* Batch and heads cut by other axes, and the sequence by two, in the mesh's order or another. */
void gm_test_ring_axes(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        bool            causal = kind > 0;
        gm_ring_balance balance = kind == 2 ? GM_RING_ZIGZAG : GM_RING_CONTIGUOUS;
        ring_job        j = ring_of(2, 10, causal, balance);
        j.mesh = mesh_of("data", 2, "sequence", 2, "tensor", 2);
        j.rows = cut_of(1, 2, 4);
        j.hk = 2;
        j.mask = CUT_MASK;
        ring_check(&j, true);
        j.b = 3; /* uneven batch: one rank's second sample is padding */
        j.p = 0.3;
        ring_check(&j, false);
        j = ring_of(2, 10, causal, balance);
        j.mesh = mesh_of("row", 2, "sequence", 2, "col", 2);
        j.rows = cut_of(1, 2, 4);
        j.p = 0.3;
        ring_check(&j, true);
        j = ring_of(2, 13, causal, balance);
        j.mesh = mesh_of("sequence", 3, "tensor", 2, "", 1);
        j.rows = cut_of(0, 3, 0);
        ring_check(&j, true);
        uint8_t first = j.rows.cut[1][0]; /* tensor outside of sequence */
        j.rows.cut[1][0] = j.rows.cut[1][1];
        j.rows.cut[1][1] = first;
        ring_check(&j, true);
    }
}

/* Long enough that queries are shared out without being asked; more than one block of the kernels. */
void gm_test_ring_long(void **state)
{
    (void)state;
    ring_job j = ring_of(2, 2 * GM_RING_BALANCED_ROWS, true, GM_RING_AUTO);
    j.b = 1;
    j.h = j.hk = 2;
    assert_true(ring_is_zigzag(&j));
    ring_check(&j, true);
    j.s = j.t = 2 * GM_RING_BALANCED_ROWS - 2;
    assert_true(!ring_is_zigzag(&j));
    ring_check(&j, true);
}

/* ---- on meta ---- */

static size_t pretend(ring_job *j, int rank)
{
    gm_rank  *r = NULL;
    gm_value *in[5] = {NULL}, *o = NULL;
    size_t    before, peak;
    OK(gm_rank_new(&r));
    OK(gm_rank_pretend(r, rank, gm_mesh_size(&j->mesh)));
    OK(gm_rank_set_mesh(r, &j->mesh));
    OK(gm_rank_open_device(r, "meta", 1));
    for (int i = 0; i < 3; i++) in[i] = ring_operand(r, j, i, true);
    before = gm_pool_stats(r->device->pool).live;
    gm_pool_reset_peak(r->device->pool);
    ring_run(r, j, in, &o);
    peak = gm_pool_stats(r->device->pool).peak - before;
    for (int i = 0; i < 3; i++) gm_value_release(in[i]);
    gm_value_release(o);
    gm_rank_free(r);
    return peak;
}

/* Elements that all ranks send, by ring.h, with as many key heads as heads: blocks of S = s / p rows, n = b S h d. */
static void expect_formula(const ring_job *j, int64_t p, bool zigzag)
{
    int64_t n = j->b * j->s / p * j->h * j->d, sent[2] = {0, 0};
    int64_t keys = !j->causal ? 2 * p * (p - 1) * n : zigzag ? p * (3 * p - 2) * n / 2 : p * (p - 1) * n;
    for (int rank = 0; rank < p; rank++)
        for (int i = 0; i < 2; i++) sent[i] += (int64_t)j->sent[i][rank];
    assert_int_equal(sent[0], 8 * (keys + (zigzag ? p * n : 0)));
    assert_int_equal(sent[1], 8 * (2 * keys + (zigzag ? p * n : 0)));
}

/* Zigzag: all ranks compute as many pairs of query and key, but for one pair of chunks; contiguous: the last one has
 * 2 - 1/p times the mean. The sum is that of one rank. */
void gm_test_ring_balance(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 64; ranks *= 2)
        for (int kind = 0; kind < 3; kind++) {
            ring_job j = ring_of(ranks, 512, kind > 0, kind == 2 ? GM_RING_ZIGZAG : GM_RING_CONTIGUOUS);
            double   most = 0, least = INFINITY, all = 0, pair = 4.0 * (double)(j.b * j.h * j.d), chunk = 256.0 / ranks;
            for (int rank = 0; rank < ranks; rank++) {
                pretend(&j, rank);
                most = fmax(most, j.flops[rank] / pair);
                least = fmin(least, j.flops[rank] / pair);
                all += j.flops[rank] / pair;
            }
            ring_counts(&j, true);
            expect_formula(&j, ranks, kind == 2);
            assert_true(all == (kind ? 512.0 * 513 / 2 : 512.0 * 512));
            if (kind == 1) assert_true(most / all * ranks > 1.9 - 1.0 / ranks);
            else assert_true(most - least <= (kind ? chunk * chunk : 0));
        }
}

/* A rank's memory does not grow with the ranks: nothing has the whole length. In blocks of b S h d elements, beside the
 * operands: o, its gradient and lse (2 and a third, as d is 3); gradients of the operands (3); keys and values as they
 * are sent (2), of other ranks in two steps (4); their gradients: of the own block (2), in two steps (4), what comes
 * from the next place (2) and home (2). Zigzag: q, o, and the gradients of both where they are worked on, and on the
 * way (5). */
void gm_test_ring_memory(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++)
        for (int ranks = 4; ranks <= 64; ranks *= 4) {
            ring_job j = ring_of(ranks, 64 * ranks, kind > 0, kind == 2 ? GM_RING_ZIGZAG : GM_RING_CONTIGUOUS);
            size_t   block = (size_t)(j.b * 64 * j.h * j.d) * 8, most = (kind == 2 ? 26 : 21) * block + block / 3;
            for (int rank = 0; rank < ranks; rank += ranks / 4 + 1) {
                size_t peak = pretend(&j, rank);
                if (peak > most) fail_msg("rank %d of %d holds %g blocks", rank, ranks, (double)peak / (double)block);
            }
        }
}

/* ---- what is refused, what is plain ---- */

static void refusals(gm_rank *r, void *context)
{
    ring_job  j = *(ring_job *)context; /* the ranks share the other */
    gm_attrs  a = ring_attrs(&j);
    gm_value *q = ring_operand(r, &j, OF_Q, true), *k = ring_operand(r, &j, OF_K, true),
             *whole = ring_operand(r, &j, OF_V, false), *o = NULL;
    FAILS(GM_ESHAPE, "the sequences of queries, keys and values are cut in different ways",
          call_attention(r, q, k, whole, NULL, &a, GM_RING_AUTO, &o));
    gm_value_release(k);
    j.t = 11;
    k = ring_operand(r, &j, OF_K, true);
    a.causal = true;
    FAILS(GM_ESHAPE, "needs as many keys as queries", call_attention(r, q, k, k, NULL, &a, GM_RING_AUTO, &o));
    q->layout.partial = 2;
    a.causal = false;
    FAILS(GM_ESHAPE, "still a sum over ranks", call_attention(r, q, k, k, NULL, &a, GM_RING_AUTO, &o));
    gm_value_release(q);
    gm_value_release(k);
    gm_value_release(whole);
}

static void plain(gm_rank *r, void *context)
{
    ring_job *j = context;
    gm_attrs  a = ring_attrs(j);
    gm_value *q = ring_operand(r, j, OF_Q, false), *k = ring_operand(r, j, OF_K, false), *o = NULL, *want[2];
    gm_comm_reset_traffic(r->comm);
    OK(call_attention(r, q, k, k, NULL, &a, GM_RING_ZIGZAG, &o));
    assert_int_equal(ring_bytes(r->comm), 0);
    OK(gm_apply(r, GM_OP_attention, 6, (gm_value *[]){q, k, k, NULL, NULL, NULL}, &a, 2, NULL, want));
    assert_memory_equal(gm_tensor_data(o->local), gm_tensor_data(want[0]->local),
                        (size_t)gm_tensor_numel(o->local) * sizeof(double));
    gm_value_release(q);
    gm_value_release(k);
    gm_value_release(o);
    gm_value_release(want[0]);
    gm_value_release(want[1]);
}

void gm_test_ring_refuses(void **state)
{
    ring_job j = ring_of(2, 10, false, GM_RING_AUTO);
    (void)state;
    j.mesh = mesh_of("sequence", 2, "tensor", 2, "", 1);
    run_ranks(&j.mesh, plain, &j);
    run_ranks(&j.mesh, refusals,
              &(ring_job){
                  .mesh = j.mesh, .rows = j.rows, .b = 2, .s = 10, .t = 10, .h = 4, .hk = 4, .d = 3, .dtype = GM_F64});
}

/* ---- a rank that never comes ---- */

/* Everybody needs keys of rank 2, and ends with its failure, blocks under way and all. */
static void without_one(gm_rank *r, void *context)
{
    const ring_job *j = context;
    gm_attrs        a = ring_attrs(j);
    gm_value       *q = ring_operand(r, j, OF_Q, true), *o = NULL;
    if (r->rank == 2) {
        gm_comm_fail(r->comm, 5, "out of luck");
    } else {
        assert_int_equal(call_attention(r, q, q, q, NULL, &a, GM_RING_AUTO, &o), GM_EPEER);
        assert_int_equal(gm_comm_failure(r->comm)->rank, 2);
    }
    gm_value_release(q);
}

void gm_test_ring_peer_fails(void **state)
{
    ring_job j = ring_of(4, 400, false, GM_RING_AUTO);
    (void)state;
    run_ranks(&j.mesh, without_one, &j);
}
