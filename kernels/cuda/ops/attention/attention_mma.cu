/* attention_mma.cu - attention on the tensor cores, for 16-bit heads of up to 128 numbers that cuDNN does not take
 * (dnn.h): with masks of keys, limits, windows, capped scores, dropout, or parts of the keys. It follows
 * FlashAttention-2 (Dao 2023) as attention.cu does. A block has 128 queries (64 of heads above 64 numbers), 16 a warp,
 * and goes through the keys tile by tile; the next tile is on its way while one is multiplied. Scores and weights stay
 * in registers, where the result of one product is a factor of the next one (mma.cuh). Weights are rounded to the dtype
 * before they are multiplied with v, as cuDNN rounds them. Sums are in f32, in one order. Its gradient:
 * attention_mma_grad.cu.
 *     gm_attention_mma_<64 or 128>_<dtype> */
#include "attention_mma.cuh"

template <int HEAD> constexpr int QUERIES = HEAD == 64 ? GM_ATTENTION_MMA_QUERIES_64 : GM_ATTENTION_MMA_QUERIES_128;
template <int HEAD> constexpr int THREADS = QUERIES<HEAD> * 2;

/* Products of a row of queries become scores in units of log2 e, -inf where they do not count. bits: from bit 16 on
 * which of the row's keys are hidden. */
template <int N>
GM_DEVICE void gm_mma_ask(const gm_attention_args *a, uint32_t bits, int i, int key, int half, float (*s)[4])
{
    const gm_mma_sight sight = gm_mma_sight_of(a, i, key, bits);
    GM_UNROLL
    for (int j = 0; j < N / 8; j++) {
        GM_UNROLL
        for (int e = 0; e < 2; e++) {
            float *v = &s[j][2 * half + e];
            *v = gm_mma_is_out<N>(sight, half, j, e) ? -INFINITY : gm_mma_score(a, *v);
        }
    }
}

/* Products become capped scores in units of log2 e. */
template <int N> GM_DEVICE void gm_mma_cap(const gm_attention_args *a, float (*s)[4])
{
    GM_UNROLL
    for (int k = 0; k < N / 2; k++) s[k / 4][k % 4] = gm_mma_score(a, s[k / 4][k % 4]);
}

/* Scores, times unit, become weights; what was summed up is scaled to the new largest score. */
template <int HEAD, int N>
GM_DEVICE void gm_mma_soften(float unit, int half, float (*s)[4], float *largest, float *total, float (*sum)[4])
{
    float most = fmaxf(s[0][2 * half], s[0][2 * half + 1]), part = 0;
    GM_UNROLL
    for (int j = 1; j < N / 8; j++) most = fmaxf(most, fmaxf(s[j][2 * half], s[j][2 * half + 1]));
    most = fmaxf(*largest, unit * gm_mma_row_max(most));
    const float offset = most == -INFINITY ? 0 : most, before = gm_exp2_near(*largest - offset);
    GM_UNROLL
    for (int j = 0; j < N / 8; j++) {
        GM_UNROLL
        for (int e = 0; e < 2; e++) {
            float *v = &s[j][2 * half + e];
            *v = gm_exp2_near(unit * *v - offset);
            part += *v;
        }
    }
    *largest = most;
    *total = before * *total + part; /* of this lane */
    if (before == 1) return;
    GM_UNROLL
    for (int c = 0; c < NUMBERS<HEAD>; c++) {
        sum[c][2 * half] *= before;
        sum[c][2 * half + 1] *= before;
    }
}

/* o and lse of query i. before: what lse held, where that counts. */
template <class T, int HEAD>
GM_DEVICE void gm_mma_end_row(const gm_attention_args *a, const gm_mma_place *p, int i, int half, float largest,
                              float total, const float (*sum)[4], float before)
{
    float lse = total == 0 ? -INFINITY : largest * LN_2 + logf(total), both = lse, old = 0;
    float by = total == 0 ? 0 : a->keep_f32 / total;
    if (a->accumulate) {
        const float most = lse > before ? lse : before;
        old = 1;
        if (most != -INFINITY) {
            both = most + logf(expf(before - most) + expf(lse - most));
            old = expf(before - both);
            by *= expf(lse - both);
        }
    }
    gm_mma_store<T, HEAD>(a, &a->o, p->batch, p->head, i, sum, half, old, by);
    if (GM_LANE_COLUMN == 0) ((float *)a->lse)[gm_attention_lse_at(a, p->batch, p->head, i)] = both;
}

/* What a warp has summed up for its rows. */
template <int HEAD> struct gm_mma_state {
    float sum[NUMBERS<HEAD>][4], largest[2], total[2];
};

/* STEP keys from `key` on, for a warp's queries from i on. */
template <class T, int HEAD>
GM_DEVICE void gm_mma_add_keys(const gm_attention_args *a, const gm_attention_drops *drops, int batch, gm_mma_span span,
                               int i, int key, const uint16_t *qs, const uint16_t *ks, const uint16_t *vs,
                               const uint8_t *seen, gm_mma_state<HEAD> &state)
{
    constexpr int N = STEP;
    const bool    all = gm_mma_is_within(span, key, N) && (!a->mask || gm_mma_all_seen<N>(seen)); /* do all count? */
    float         s[N / 8][4] = {{0}};
    if (!all && gm_mma_is_hidden(a, i, 16, key, N)) return;
    const uint32_t bits = gm_mma_bits_of_keys<N>(a, drops, batch, i, key, all, seen);
    gm_mma_scores<T, HEAD, N>(s, qs, ks);
    if (!all) {
        GM_UNROLL
        for (int half = 0; half < 2; half++) gm_mma_ask<N>(a, bits, i + GM_LANE_ROW + 8 * half, key, half, s);
    } else if (a->softcap > 0) {
        gm_mma_cap<N>(a, s);
    }
    GM_UNROLL
    for (int half = 0; half < 2; half++)
        gm_mma_soften<HEAD, N>(all && a->softcap <= 0 ? gm_mma_unit(a) : 1, half, s, &state.largest[half],
                               &state.total[half], state.sum);
    if (a->drop.threshold) gm_mma_drop<N>(bits, s);
    gm_mma_weigh<T, HEAD, N>(state.sum, s, vs);
}

template <class T, int HEAD> GM_DEVICE void gm_attention_mma(const gm_attention_args a)
{
    constexpr int N = KEYS<HEAD>, SIDE = N * PITCH<HEAD>;
    GM_SHARED(uint16_t, qs);
    uint16_t                *tiles = qs + QUERIES<HEAD> * PITCH<HEAD>; /* keys, values; those of the next tile */
    uint8_t                 *seen = (uint8_t *)(tiles + 4 * SIDE);
    const gm_mma_place       p = gm_mma_place_of(a.queries, a.heads, QUERIES<HEAD>, true);
    const int                key_head = p.head / (int)(a.heads / a.key_heads), mine = p.first + GM_WARP_FIRST;
    const gm_attention_range keys = gm_attention_range_of(&a, p.batch, p.first, QUERIES<HEAD>);
    const int                start = (int)keys.start, end = (int)keys.end; /* 64 bits would not fit in registers */
    const gm_mma_span        span = gm_mma_keys_of(&a, p.batch, mine);
    gm_attention_drops      *drops = (gm_attention_drops *)(seen + 2 * N); /* registers are short */
    gm_mma_state<HEAD>       state = {{{0}}, {-INFINITY, -INFINITY}, {0, 0}};
    int                      turn = 0;
    gm_mma_send<THREADS<HEAD>, HEAD, QUERIES<HEAD>>(qs, &a, &a.q, p.batch, p.head, p.first, a.queries, false);
    if (start < end) gm_mma_send_keys<THREADS<HEAD>, HEAD>(tiles, tiles + SIDE, seen, &a, p.batch, key_head, start);
    gm_close_sends();
    if (gm_thread == 0) *drops = gm_attention_drops_of(&a, gm_attention_step(&a), p.batch, p.head);
    for (int key = start; key < end; key += N, turn ^= 1) {
        gm_wait_sends<0>();
        GM_SYNC(); /* all have their tile, and are done with the one before */
        if (key + N < end) {
            uint16_t *next = tiles + (turn ^ 1) * 2 * SIDE;
            gm_mma_send_keys<THREADS<HEAD>, HEAD>(next, next + SIDE, seen + (turn ^ 1) * N, &a, p.batch, key_head,
                                                  key + N);
            gm_close_sends();
        }
        const uint16_t *ks = tiles + turn * 2 * SIDE;
        GM_ROLLED
        for (int k = 0; k < N; k += STEP)
            gm_mma_add_keys<T, HEAD>(&a, drops, p.batch, span, mine, key + k, qs, ks + k * PITCH<HEAD>,
                                     ks + SIDE + k * PITCH<HEAD>, seen + turn * N + k, state);
    }
    gm_wait_sends<0>();
    float before[2] = {0, 0};
    GM_UNROLL
    for (int half = 0; half < 2; half++) {
        const int at = mine + GM_LANE_ROW + 8 * half;
        if (a.accumulate && at < a.queries)
            before[half] = ((const float *)a.lse)[gm_attention_lse_at(&a, p.batch, p.head, at)];
        state.total[half] = gm_mma_row_sum(state.total[half]); /* all lanes of the row have read lse then */
    }
    GM_UNROLL
    for (int half = 0; half < 2; half++) {
        const int at = mine + GM_LANE_ROW + 8 * half;
        if (at < a.queries)
            gm_mma_end_row<T, HEAD>(&a, &p, at, half, state.largest[half], state.total[half], state.sum, before[half]);
    }
}

#define GM_ATTENTIONS(head, dtype, T, blocks)                                                    \
    GM_KERNEL_BOUND(gm_attention_mma_##head##_##dtype, gm_attention_args, THREADS<head>, blocks) \
    {                                                                                            \
        gm_attention_mma<T, head>(a);                                                            \
    }

GM_ATTENTIONS(64, bf16, gm_bf16, 2)
GM_ATTENTIONS(64, f16, gm_f16, 2)
GM_ATTENTIONS(128, bf16, gm_bf16, 3)
GM_ATTENTIONS(128, f16, gm_f16, 3)
