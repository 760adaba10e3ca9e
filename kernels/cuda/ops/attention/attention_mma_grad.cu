/* attention_mma_grad.cu - the gradient of attention on the tensor cores, for what attention_mma.cu computes
 * (FlashAttention-2, Dao 2023). One kernel has a block for 64 queries and goes through the keys, for the gradient of q;
 * the other has a block for 64 keys and goes through the queries, for those of k and v. So no two blocks add to one
 * number, and sums have one order. Weights and the gradients of scores are rounded to the dtype before they are
 * multiplied with k, q and g.
 *     gm_attention_mma_dq_<64 or 128>_<dtype>, gm_attention_mma_dkv_... */
#include "attention_mma.cuh"

constexpr int ROWS = GM_ATTENTION_MMA_ROWS, THREADS = ROWS * 2, QUERIES = GM_ATTENTION_MMA_GRAD_QUERIES;
constexpr int SOME = 16; /* the queries of a tile that are multiplied at once */

/* What the kernel of dq tells that of dk and dv of each query: lse in units of log2 e, and the sum of g o. */
typedef struct GM_ALIGNED(8) gm_mma_told {
    float lse, delta;
} gm_mma_told;

GM_DEVICE gm_mma_told *gm_mma_told_at(const gm_attention_args *a, int batch, int head, int i)
{
    return (gm_mma_told *)a->delta + (batch * a->heads + head) * a->queries + i;
}

/* The sum of g o of a query: its four lanes get it. */
template <class T> GM_DEVICE float gm_mma_delta(const gm_attention_args *a, const gm_mma_place *p, int i)
{
    float sum = 0;
    if (i < a->queries) {
        const gm_attention_view *o = &a->o, *g = &a->g;
        const T *os = (const T *)o->data + p->batch * o->stride[0] + i * o->stride[1] + p->head * o->stride[2];
        const T *gs = (const T *)g->data + p->batch * g->stride[0] + i * g->stride[1] + p->head * g->stride[2];
        if (a->vectors) {
            GM_UNROLLED(2)
            for (int l = gm_thread % 4 * 8; l < a->size; l += 32) {
                float x[8], y[8];
                gm_unpack<T>(gm_load_vector(os + l), x);
                gm_unpack<T>(gm_load_vector(gs + l), y);
                GM_UNROLL
                for (int k = 0; k < 8; k++) sum += x[k] * y[k];
            }
        } else {
            for (int l = gm_thread % 4; l < a->size; l += 4) sum += gm_get(os[l]) * gm_get(gs[l]);
        }
    }
    return gm_mma_row_sum(sum);
}

/* ---- the gradient of q ---- */

/* Products q k of query i become the gradients of its scores, over the scale, from those of the weights in dp. bits:
 * from bit 16 on which keys are hidden. */
template <int N>
GM_DEVICE void gm_mma_slopes(const gm_attention_args *a, uint32_t bits, int i, int key, int half, float (*s)[4],
                             const float (*dp)[4], gm_mma_told told)
{
    const gm_mma_sight sight = gm_mma_sight_of(a, i, key, bits);
    GM_UNROLL
    for (int j = 0; j < N / 8; j++) {
        GM_UNROLL
        for (int e = 0; e < 2; e++) {
            float *v = &s[j][2 * half + e], score = gm_mma_score(a, *v);
            float  by = (a->keep_f32 * dp[j][2 * half + e] - told.delta) * gm_mma_score_slope(a, score);
            *v = gm_mma_is_out<N>(sight, half, j, e) ? 0 : gm_exp2_near(score - told.lse) * by;
        }
    }
}

/* The same where all keys count and nothing is capped. */
template <int N>
GM_DEVICE void gm_mma_slopes_plain(float unit, float keep, int half, float (*s)[4], const float (*dp)[4],
                                   gm_mma_told told)
{
    GM_UNROLL
    for (int j = 0; j < N / 8; j++) {
        GM_UNROLL
        for (int e = 0; e < 2; e++) {
            float *v = &s[j][2 * half + e];
            *v = gm_exp2_near(unit * *v - told.lse) * (keep * dp[j][2 * half + e] - told.delta);
        }
    }
}

/* STEP keys from `key` on, for a warp's queries from i on. */
template <class T, int HEAD>
GM_DEVICE void gm_mma_add_dq(const gm_attention_args *a, const gm_attention_drops *drops, int batch, gm_mma_span span,
                             int i, int key, const uint16_t *qs, const uint16_t *gs, const uint16_t *ks,
                             const uint16_t *vs, const uint8_t *seen, const gm_mma_told *told, float (*sum)[4])
{
    constexpr int N = STEP;
    const bool    all = gm_mma_is_within(span, key, N) && (!a->mask || gm_mma_all_seen<N>(seen)); /* do all count? */
    float         s[N / 8][4] = {{0}}, dp[N / 8][4] = {{0}};
    if (!all && gm_mma_is_hidden(a, i, 16, key, N)) return;
    const uint32_t bits = gm_mma_bits_of_keys<N>(a, drops, batch, i, key, all, seen);
    gm_mma_scores<T, HEAD, N>(s, qs, ks);
    gm_mma_scores<T, HEAD, N>(dp, gs, vs);
    if (a->drop.threshold) gm_mma_drop<N>(bits, dp);
    GM_UNROLL
    for (int half = 0; half < 2; half++) {
        if (all && a->softcap <= 0) gm_mma_slopes_plain<N>(gm_mma_unit(a), a->keep_f32, half, s, dp, told[8 * half]);
        else gm_mma_slopes<N>(a, bits, i + GM_LANE_ROW + 8 * half, key, half, s, dp, told[8 * half]);
    }
    gm_mma_weigh<T, HEAD, N>(sum, s, ks);
}

template <class T, int HEAD> GM_DEVICE void gm_attention_mma_dq(const gm_attention_args a)
{
    constexpr int N = KEYS<HEAD>, SIDE = N * PITCH<HEAD>;
    GM_SHARED(uint16_t, qs);
    uint16_t          *gs = qs + ROWS * PITCH<HEAD>, *tiles = gs + ROWS * PITCH<HEAD>; /* keys, values; the next */
    uint8_t           *seen = (uint8_t *)(tiles + 4 * SIDE);
    const gm_mma_place p = gm_mma_place_of(a.queries, a.heads, ROWS, true);
    const int          key_head = p.head / (int)(a.heads / a.key_heads), mine = p.first + GM_WARP_FIRST;
    const gm_attention_range keys = gm_attention_range_of(&a, p.batch, p.first, ROWS);
    const int                start = (int)keys.start, end = (int)keys.end; /* 64 bits would not fit in registers */
    const gm_mma_span        span = gm_mma_keys_of(&a, p.batch, mine);
    float                    sum[NUMBERS<HEAD>][4] = {{0}};
    gm_mma_told             *told = (gm_mma_told *)(seen + 2 * N) + GM_WARP_ROW; /* registers are short */
    gm_attention_drops      *drops = (gm_attention_drops *)((gm_mma_told *)(seen + 2 * N) + ROWS);
    int                      turn = 0;
    if (gm_thread == 0) *drops = gm_attention_drops_of(&a, gm_attention_step(&a), p.batch, p.head);
    gm_mma_send<THREADS, HEAD, ROWS>(qs, &a, &a.q, p.batch, p.head, p.first, a.queries, false);
    gm_mma_send<THREADS, HEAD, ROWS>(gs, &a, &a.g, p.batch, p.head, p.first, a.queries, false);
    if (start < end) gm_mma_send_keys<THREADS, HEAD>(tiles, tiles + SIDE, seen, &a, p.batch, key_head, start);
    gm_close_sends();
    GM_UNROLL
    for (int half = 0; half < 2; half++) {
        const int   at = mine + GM_LANE_ROW + 8 * half;
        gm_mma_told of = {0, gm_mma_delta<T>(&a, &p, at)};
        if (GM_LANE_COLUMN != 0) continue;
        if (at < a.queries) {
            of.lse = LOG2_E * ((const float *)a.lse)[gm_attention_lse_at(&a, p.batch, p.head, at)];
            *gm_mma_told_at(&a, p.batch, p.head, at) = of;
        }
        told[8 * half] = of;
    }
    gm_attention_tell(&a, p.batch, p.head, p.first, ROWS);
    for (int key = start; key < end; key += N, turn ^= 1) {
        gm_wait_sends<0>();
        GM_SYNC(); /* all have their tile, and are done with the one before */
        if (key + N < end) {
            uint16_t *next = tiles + (turn ^ 1) * 2 * SIDE;
            gm_mma_send_keys<THREADS, HEAD>(next, next + SIDE, seen + (turn ^ 1) * N, &a, p.batch, key_head, key + N);
            gm_close_sends();
        }
        const uint16_t *ks = tiles + turn * 2 * SIDE;
        GM_ROLLED
        for (int k = 0; k < N; k += STEP)
            gm_mma_add_dq<T, HEAD>(&a, drops, p.batch, span, mine, key + k, qs, gs, ks + k * PITCH<HEAD>,
                                   ks + SIDE + k * PITCH<HEAD>, seen + turn * N + k, told, sum);
    }
    gm_wait_sends<0>();
    GM_UNROLL
    for (int half = 0; half < 2; half++) {
        const int at = mine + GM_LANE_ROW + 8 * half;
        if (at < a.queries)
            gm_mma_store<T, HEAD>(&a, &a.dq, p.batch, p.head, at, sum, half, a.accumulate ? 1 : 0, (float)a.scale);
    }
}

/* ---- the gradients of k and v ---- */

/* Of a tile of keys by queries: products become weights for dv, dp slopes for dk, over the scale. bits: from bit 16 on
 * from which queries limits hide the key. */
GM_DEVICE void gm_mma_weights(const gm_attention_args *a, uint32_t bits, int key, bool seen, int query, int half,
                              float (*s)[4], float (*dp)[4], const gm_mma_told *told)
{
    const int from = a->causal ? key - (int)a->shift - query : 0; /* the first that sees the key */
    const int end = (int)gm_attention_end_query(a, key) - query;  /* and the first that does not */
    GM_UNROLL
    for (int j = 0; j < SOME / 8; j++) {
        GM_UNROLL
        for (int e = 0; e < 2; e++) {
            const int column = j * 8 + GM_LANE_COLUMN + e;
            bool      out = !seen || column < from || column >= end || bits >> (16 + gm_mma_bit<SOME>(half, j, e)) & 1;
            float    *v = &s[j][2 * half + e], *slope = &dp[j][2 * half + e], score = gm_mma_score(a, *v);
            *v = out ? 0 : gm_exp2_near(score - told[column].lse);
            *slope = out ? 0 : *v * (a->keep_f32 * *slope - told[column].delta) * gm_mma_score_slope(a, score);
        }
    }
}

/* The same where all count and nothing is capped, of both halves. */
GM_DEVICE void gm_mma_weights_plain(float unit, float keep, float (*s)[4], float (*dp)[4], const gm_mma_told *told)
{
    GM_UNROLL
    for (int j = 0; j < SOME / 8; j++) {
        GM_UNROLL
        for (int e = 0; e < 2; e++) {
            const gm_mma_told of = told[j * 8 + GM_LANE_COLUMN + e];
            GM_UNROLL
            for (int half = 0; half < 2; half++) {
                float *v = &s[j][2 * half + e], *slope = &dp[j][2 * half + e];
                *v = gm_exp2_near(unit * *v - of.lse);
                *slope = *v * (keep * *slope - of.delta);
            }
        }
    }
}

/* Of a lane's two keys of a warp's from `key` on, which of N queries drop it, and from bit 16 on which do not see it.
 * all: all do. */
template <int N>
GM_DEVICE uint32_t gm_mma_bits_of_queries(const gm_attention_args *a, uint64_t step, int batch, int head, int query,
                                          int key, bool all)
{
    static_assert(N == 16, "attention_drop.cuh");
    uint32_t bits = 0;
    if (a->drop.threshold) {
        const gm_attention_drops drops = gm_attention_drops_of(a, step, batch, head);
        bits = gm_attention_drop_queries(a, &drops, query, key);
    }
    if (all) return bits;
    GM_UNROLL
    for (int half = 0; half < 2; half++)
        bits |= gm_mma_hidden_queries<N>(a, batch, query, key + GM_LANE_ROW + 8 * half)
                << (16 + gm_mma_bit<N>(half, 0, 0));
    return bits;
}

/* A tile of queries from `query` on, for a warp's keys from `key` on. */
template <class T, int HEAD>
GM_DEVICE void gm_mma_add_dkv(const gm_attention_args *a, uint64_t step, int batch, int head, gm_mma_span span,
                              int query, int key, const bool *seen, const uint16_t *ks, const uint16_t *vs,
                              const uint16_t *qs, const uint16_t *gs, const gm_mma_told *told, float (*dk)[4],
                              float (*dv)[4])
{
    constexpr int N = SOME;
    const bool    all = gm_mma_is_within(span, query, N); /* do all count? */
    float         s[N / 8][4] = {{0}}, dp[N / 8][4] = {{0}};
    if (!all && gm_mma_is_hidden(a, query, N, key, 16)) return;
    const uint32_t bits = gm_mma_bits_of_queries<N>(a, step, batch, head, query, key, all);
    gm_mma_scores<T, HEAD, N>(s, ks, qs);
    gm_mma_scores<T, HEAD, N>(dp, vs, gs);
    if (a->drop.threshold) gm_mma_drop<N>(bits, dp);
    if (all && a->softcap <= 0) {
        gm_mma_weights_plain(gm_mma_unit(a), a->keep_f32, s, dp, told);
    } else {
        GM_UNROLL
        for (int half = 0; half < 2; half++)
            gm_mma_weights(a, bits, key + GM_LANE_ROW + 8 * half, seen[half], query, half, s, dp, told);
    }
    if (a->drop.threshold) gm_mma_drop<N>(bits, s);
    gm_mma_weigh<T, HEAD, N>(dv, s, gs);
    gm_mma_weigh<T, HEAD, N>(dk, dp, qs);
}

/* A tile of queries, their gradients and what is told of them. */
template <int HEAD>
GM_DEVICE void gm_mma_send_queries(uint16_t *qs, uint16_t *gs, gm_mma_told *told, const gm_attention_args *a, int batch,
                                   int head, int query)
{
    gm_mma_send<THREADS, HEAD, QUERIES>(qs, a, &a->q, batch, head, query, a->queries, false);
    gm_mma_send<THREADS, HEAD, QUERIES>(gs, a, &a->g, batch, head, query, a->queries, false);
    if (gm_thread >= QUERIES) return;
    const bool there = query + gm_thread < a->queries;
    gm_send_8(told + gm_thread, there ? gm_mma_told_at(a, batch, head, query + gm_thread) : a->delta, there);
}

template <class T, int HEAD> GM_DEVICE void gm_attention_mma_dkv(const gm_attention_args a)
{
    constexpr int SIDE = QUERIES * PITCH<HEAD>;
    GM_SHARED(uint16_t, ks);
    uint16_t    *vs = ks + ROWS * PITCH<HEAD>, *tiles = vs + ROWS * PITCH<HEAD>; /* queries, gradients; the next */
    gm_mma_told *told = (gm_mma_told *)(tiles + 4 * SIDE);
    const gm_mma_place       p = gm_mma_place_of(a.keys, a.key_heads, ROWS, false);
    const int                group = (int)(a.heads / a.key_heads), mine = p.first + GM_WARP_FIRST;
    const gm_attention_range queries = gm_attention_queries_of(&a, p.batch, p.first, ROWS, QUERIES, ROWS);
    const int                start = (int)queries.start,
              each = (int)((queries.end - start + QUERIES - 1) / QUERIES); /* tiles a head */
    const int      all = queries.end > queries.start ? each * group : 0;
    const uint64_t drop_step = gm_attention_step(&a);
    float          dk[NUMBERS<HEAD>][4] = {{0}}, dv[NUMBERS<HEAD>][4] = {{0}};
    bool           seen[2];
    GM_UNROLL
    for (int half = 0; half < 2; half++) {
        const int at = mine + GM_LANE_ROW + 8 * half;
        seen[half] = at < a.keys && gm_attention_unmasked(&a, p.batch, at);
    }
    const gm_mma_span span = gm_mma_queries_of(&a, mine, gm_mma_all_rows(seen[0] && seen[1]));
    gm_mma_send<THREADS, HEAD, ROWS>(ks, &a, &a.k, p.batch, p.head, p.first, a.keys, true);
    gm_mma_send<THREADS, HEAD, ROWS>(vs, &a, &a.v, p.batch, p.head, p.first, a.keys, true);
    if (all) gm_mma_send_queries<HEAD>(tiles, tiles + SIDE, told, &a, p.batch, p.head * group, start);
    gm_close_sends();
    for (int n = 0; n < all; n++) {
        gm_wait_sends<0>();
        GM_SYNC(); /* all have their tile, and are done with the one before */
        if (n + 1 < all) {
            const int next = (n + 1) % 2;
            gm_mma_send_queries<HEAD>(tiles + next * 2 * SIDE, tiles + (next * 2 + 1) * SIDE, told + next * QUERIES, &a,
                                      p.batch, p.head * group + (n + 1) / each, start + (n + 1) % each * QUERIES);
            gm_close_sends();
        }
        const uint16_t *qs = tiles + n % 2 * 2 * SIDE;
        GM_ROLLED
        for (int k = 0; k < QUERIES; k += SOME)
            gm_mma_add_dkv<T, HEAD>(&a, drop_step, p.batch, p.head * group + n / each, span,
                                    start + n % each * QUERIES + k, mine, seen, ks, vs, qs + k * PITCH<HEAD>,
                                    qs + SIDE + k * PITCH<HEAD>, told + n % 2 * QUERIES + k, dk, dv);
    }
    gm_wait_sends<0>();
    GM_UNROLL
    for (int half = 0; half < 2; half++) {
        const int   at = mine + GM_LANE_ROW + 8 * half;
        const float old = a.accumulate ? 1 : 0;
        if (at >= a.keys) continue;
        gm_mma_store<T, HEAD>(&a, &a.dk, p.batch, p.head, at, dk, half, old, (float)a.scale);
        gm_mma_store<T, HEAD>(&a, &a.dv, p.batch, p.head, at, dv, half, old, a.keep_f32);
    }
}

/* ---- the kernels ---- */

/* Blocks of the kernel of dq on a multiprocessor: on other GPUs a few registers are missing for a fourth. */
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ == 900
#define GM_DQ_BLOCKS_64 4
#else
#define GM_DQ_BLOCKS_64 3
#endif

#define GM_ATTENTION_GRADS(head, dtype, T, of_q, of_k)                                       \
    GM_KERNEL_BOUND(gm_attention_mma_dq_##head##_##dtype, gm_attention_args, THREADS, of_q)  \
    {                                                                                        \
        gm_attention_mma_dq<T, head>(a);                                                     \
    }                                                                                        \
    GM_KERNEL_BOUND(gm_attention_mma_dkv_##head##_##dtype, gm_attention_args, THREADS, of_k) \
    {                                                                                        \
        gm_attention_mma_dkv<T, head>(a);                                                    \
    }

GM_ATTENTION_GRADS(64, bf16, gm_bf16, GM_DQ_BLOCKS_64, 3)
GM_ATTENTION_GRADS(64, f16, gm_f16, GM_DQ_BLOCKS_64, 3)
GM_ATTENTION_GRADS(128, bf16, gm_bf16, 2, 2)
GM_ATTENTION_GRADS(128, f16, gm_f16, 2, 2)
