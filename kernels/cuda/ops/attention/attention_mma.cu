/* attention_mma.cu - attention and its gradient on the tensor cores, for 16-bit heads of up to 128 numbers that cuDNN
 * does not take (dnn.h): with masks of keys, limits, windows, capped scores, dropout, or parts of the keys. It follows
 * FlashAttention-2 (Dao 2023) as attention.cu does, with tiles of 64 by 64; each of four warps has 16 rows. Scores and
 * weights stay in registers, where the result of one product is a factor of the next one (mma.cuh). Weights and their
 * gradients are rounded to the dtype before they are multiplied with v, k, q and g, as cuDNN rounds them. Sums are in
 * f32, in one order.
 *     gm_attention_mma_<64 or 128>_<dtype>, gm_attention_mma_dq_.., gm_attention_mma_dkv_... */
#include "attention_mma.cuh"

constexpr float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;

/* Templates: T the type of elements, HEAD the most numbers of a head, 64 or 128. A warp has 16 rows of a tile; a lane
 * has, of each 16 by 8 of them, two rows (`half` 0 and 1) of two neighbouring columns. */
template <int HEAD> constexpr int PITCH = HEAD + 8;   /* of tiles: what a warp reads at once lies in different banks */
template <int HEAD> constexpr int NUMBERS = HEAD / 8; /* pieces of a head, of 8 numbers */
template <int HEAD> constexpr int QUERIES = HEAD == 64 ? GM_ATTENTION_MMA_QUERIES_64 : GM_ATTENTION_MMA_QUERIES_128;

/* s += the warp's rows of x times the rows of y, a tile of 8 n of them. */
template <class T, int HEAD> GM_DEVICE void gm_mma_scores(float (*s)[4], int n, const uint16_t *x, const uint16_t *y)
{
    GM_UNROLL
    for (int step = 0; step < HEAD / 16; step++) {
        uint32_t left[4], right[2];
        gm_mma_left(left, x, PITCH<HEAD>, GM_WARP_ROW, step * 16 + GM_LANE_COLUMN);
        GM_UNROLL
        for (int j = 0; j < n; j++) {
            gm_mma_turned(right, y, PITCH<HEAD>, j * 8 + GM_LANE_ROW, step * 16 + GM_LANE_COLUMN);
            gm_mma<T>(s[j], left, right);
        }
    }
}

/* sum += the weights w, of 8 n rows of x for each of the warp's rows, times these. */
template <class T, int HEAD> GM_DEVICE void gm_mma_weigh(float (*sum)[4], const float (*w)[4], int n, const uint16_t *x)
{
    GM_UNROLL
    for (int step = 0; step < n / 2; step++) {
        const float *even = w[2 * step], *odd = w[2 * step + 1];
        uint32_t     left[4] = {gm_pair<T>(even[0], even[1]), gm_pair<T>(even[2], even[3]), gm_pair<T>(odd[0], odd[1]),
                                gm_pair<T>(odd[2], odd[3])};
        uint32_t     right[2];
        GM_UNROLL
        for (int c = 0; c < NUMBERS<HEAD>; c++) {
            gm_mma_right(right, x, PITCH<HEAD>, step * 16 + GM_LANE_COLUMN, c * 8 + GM_LANE_ROW);
            gm_mma<T>(sum[c], left, right);
        }
    }
}

/* y = old times what is there (where old is not 0) + by times the row `half` of sum, for row `row` of a head. */
template <class T, int HEAD>
GM_DEVICE void gm_mma_store(const gm_attention_args *a, const gm_attention_view *y, int64_t batch, int64_t head,
                            int64_t row, const float (*sum)[4], int half, float old, float by)
{
    T *to = (T *)y->data + batch * y->stride[0] + row * y->stride[1] + head * y->stride[2];
    GM_UNROLL
    for (int c = 0; c < NUMBERS<HEAD>; c++) {
        int   column = c * 8 + GM_LANE_COLUMN;
        float v[2] = {by * sum[c][2 * half], by * sum[c][2 * half + 1]};
        GM_UNROLL
        for (int e = 0; e < 2; e++)
            if (old != 0 && column + e < a->size) v[e] += old * gm_get(to[(column + e) * y->stride[3]]);
        if (a->vectors && column < a->size) {
            ((gm_mma_word *)(to + column))->word = gm_pair<T>(v[0], v[1]);
            continue;
        }
        GM_UNROLL
        for (int e = 0; e < 2; e++)
            if (column + e < a->size) to[(column + e) * y->stride[3]] = gm_put<T>(v[e]);
    }
}

/* A product q k as a score in units of log2 e: capped, where it is. tanh(x) = 1 - 2 / (1 + exp(2 x)), within 1e-7. */
GM_DEVICE float gm_mma_score(const gm_attention_args *a, float product)
{
    const float cap = (float)a->softcap, x = (float)a->scale * LOG2_E * product;
    return cap > 0 ? cap * LOG2_E * (1 - 2 / (1 + exp2f(2 / cap * x))) : x;
}

/* The slope of that by the product, over log2 e, from what came of it. */
GM_DEVICE float gm_mma_score_slope(const gm_attention_args *a, float score)
{
    const float t = a->softcap > 0 ? score * LN_2 / (float)a->softcap : 0;
    return (float)a->scale * (1 - t * t);
}

/* The first and the last key that query i sees, masks and limits aside. */
GM_DEVICE int64_t gm_mma_from(const gm_attention_args *a, int64_t i)
{
    return a->window ? i + a->shift - a->window + 1 : 0;
}
GM_DEVICE int64_t gm_mma_last(const gm_attention_args *a, int64_t i) { return a->causal ? i + a->shift : a->keys; }

/* Of a lane's keys, key + 8 j + its column + e, those that limits hide from query i: bit 16 + 2 j + e. As what is
 * dropped, they are worked out before there are scores: with them it would take more registers. */
GM_DEVICE uint32_t gm_mma_out_keys(const gm_attention_args *a, int64_t batch, int64_t i, int64_t key)
{
    uint32_t bits = 0;
    if (!a->limits || i >= a->queries) return 0;
    const int64_t from = gm_attention_limit(a, batch, i, 0) - key, end = gm_attention_limit(a, batch, i, 1) - key;
    GM_ROLLED
    for (int k = 0; k < TILE / 4; k++) {
        int column = k / 2 * 8 + GM_LANE_COLUMN + k % 2;
        bits |= (uint32_t)(column < from || column >= end) << k;
    }
    return bits << 16;
}

/* Of a lane's queries, query + 8 j + its column + e, n in all, those from which limits hide the key: bit 16 + 2 j + e.
 */
GM_DEVICE uint32_t gm_mma_out_queries(const gm_attention_args *a, int64_t batch, int64_t query, int64_t key, int n)
{
    uint32_t bits = 0;
    if (!a->limits) return 0;
    GM_ROLLED
    for (int k = 0; k < n; k++) {
        int64_t i = query + k / 2 * 8 + GM_LANE_COLUMN + k % 2;
        if (i >= a->queries) break;
        bool out = key < gm_attention_limit(a, batch, i, 0) || key >= gm_attention_limit(a, batch, i, 1);
        bits |= (uint32_t)out << k;
    }
    return bits << 16;
}

/* ---- forward ---- */

/* The scores of a row of queries become weights; what was summed up is scaled to the new largest score. dropped: which
 * of the row's keys are dropped, and in the bits from 16 on which of them limits hide. */
template <int HEAD>
GM_DEVICE void gm_mma_soften(const gm_attention_args *a, uint32_t dropped, int64_t i, int64_t key, const uint8_t *seen,
                             int half, float (*s)[4], float *largest, float *total, float (*sum)[4])
{
    const int64_t from = gm_mma_from(a, i) - key, last = gm_mma_last(a, i) - key;
    float         most = *largest, part = 0;
    GM_UNROLL
    for (int j = 0; j < TILE / 8; j++) {
        GM_UNROLL
        for (int e = 0; e < 2; e++) {
            int    column = j * 8 + GM_LANE_COLUMN + e;
            float *v = &s[j][2 * half + e];
            bool   visible = i < a->queries && column >= from && column <= last && seen[column];
            visible = visible && !(dropped >> (16 + 2 * j + e) & 1);
            *v = visible ? gm_mma_score(a, *v) : -INFINITY;
            most = *v > most ? *v : most;
        }
    }
    most = gm_mma_row_max(most);
    float before = most == -INFINITY ? 1 : exp2f(*largest - most);
    GM_UNROLL
    for (int j = 0; j < TILE / 8; j++) {
        GM_UNROLL
        for (int e = 0; e < 2; e++) {
            float *v = &s[j][2 * half + e], weight = *v == -INFINITY ? 0 : exp2f(*v - most);
            part += weight;
            *v = dropped >> (2 * j + e) & 1 ? 0 : weight;
        }
    }
    *largest = most;
    *total = before * *total + part; /* of this lane */
    GM_UNROLL
    for (int c = 0; c < NUMBERS<HEAD>; c++) {
        sum[c][2 * half] *= before;
        sum[c][2 * half + 1] *= before;
    }
}

/* o and lse of query i; lse_before: what lse held, where that counts. */
template <class T, int HEAD>
GM_DEVICE void gm_mma_end_row(const gm_attention_args *a, const gm_attention_place *p, int64_t i, int half,
                              float largest, float total, const float (*sum)[4], float lse_before)
{
    float lse = total == 0 ? -INFINITY : largest * LN_2 + logf(total), both = lse, old = 0;
    float by = total == 0 ? 0 : (float)a->keep / total;
    if (a->accumulate) {
        float most = lse > lse_before ? lse : lse_before;
        old = 1;
        if (most != -INFINITY) {
            both = most + logf(expf(lse_before - most) + expf(lse - most));
            old = expf(lse_before - both);
            by *= expf(lse - both);
        }
    }
    gm_mma_store<T, HEAD>(a, &a->o, p->batch, p->head, i, sum, half, old, by);
    if (GM_LANE_COLUMN == 0) ((float *)a->lse)[gm_attention_lse_at(a, p->batch, p->head, i)] = both;
}

template <class T, int HEAD> GM_DEVICE void gm_attention_mma(const gm_attention_args a)
{
    GM_SHARED(uint16_t, qs);
    uint16_t                *ks = qs + TILE * PITCH<HEAD>, *vs = ks + TILE * PITCH<HEAD>;
    uint8_t                 *seen = (uint8_t *)(vs + TILE * PITCH<HEAD>);
    const gm_attention_place p = gm_attention_place_of(a.queries, a.heads, TILE);
    const int64_t            key_head = p.head / (a.heads / a.key_heads);
    const gm_attention_range keys = gm_attention_range_of(&a, p.batch, p.first, TILE);
    const int                start = (int)keys.start, end = (int)keys.end; /* 64 bits would not fit in registers */
    const gm_attention_drops drops = gm_attention_drops_of(&a, p.batch, p.head);
    float                    sum[NUMBERS<HEAD>][4] = {{0}}, largest[2], total[2] = {0, 0}, before[2] = {0, 0};
    GM_UNROLL
    for (int half = 0; half < 2; half++) {
        int64_t at = p.first + GM_WARP_ROW + 8 * half;
        largest[half] = -INFINITY;
        if (a.accumulate && at < a.queries)
            before[half] = ((const float *)a.lse)[gm_attention_lse_at(&a, p.batch, p.head, at)];
    }
    gm_mma_load(qs, &a, &a.q, p.batch, p.head, p.first, a.queries, false, TILE, HEAD);
    for (int key = start; key < end; key += TILE) {
        float    s[TILE / 8][4] = {{0}};
        uint32_t dropped[2];
        gm_mma_load_keys(ks, vs, seen, &a, p.batch, key_head, key, HEAD);
        GM_UNROLL /* before there are scores: with them it would take more registers */
            for (int half = 0; half < 2; half++)
                dropped[half] = gm_attention_drop_keys(&drops, p.first + GM_WARP_ROW + 8 * half, key) |
                                gm_mma_out_keys(&a, p.batch, p.first + GM_WARP_ROW + 8 * half, key);
        GM_SYNC();
        gm_mma_scores<T, HEAD>(s, TILE / 8, qs, ks);
        GM_UNROLL
        for (int half = 0; half < 2; half++)
            gm_mma_soften<HEAD>(&a, dropped[half], p.first + GM_WARP_ROW + 8 * half, key, seen, half, s, &largest[half],
                                &total[half], sum);
        gm_mma_weigh<T, HEAD>(sum, s, TILE / 8, vs);
        GM_SYNC();
    }
    GM_SYNC(); /* all have read lse */
    GM_UNROLL
    for (int half = 0; half < 2; half++) {
        int64_t at = p.first + GM_WARP_ROW + 8 * half;
        float   whole = gm_mma_row_sum(total[half]);
        if (at < a.queries) gm_mma_end_row<T, HEAD>(&a, &p, at, half, largest[half], whole, sum, before[half]);
    }
}

/* ---- backward ---- */

/* The sum of g o of a query: its four lanes get it. */
template <class T> GM_DEVICE float gm_mma_delta(const gm_attention_args *a, const gm_attention_place *p, int64_t i)
{
    float sum = 0;
    if (i < a->queries) {
        const gm_attention_view *o = &a->o, *g = &a->g;
        const T *os = (const T *)o->data + p->batch * o->stride[0] + i * o->stride[1] + p->head * o->stride[2];
        const T *gs = (const T *)g->data + p->batch * g->stride[0] + i * g->stride[1] + p->head * g->stride[2];
        for (int l = gm_thread % 4; l < a->size; l += 4) sum += gm_get(os[l]) * gm_get(gs[l]);
    }
    return gm_mma_row_sum(sum);
}

/* The scores of query i become their gradients, from those of the weights in dp. */
GM_DEVICE void gm_mma_slopes(const gm_attention_args *a, uint32_t dropped, int64_t i, int64_t key, const uint8_t *seen,
                             int half, float (*s)[4], const float (*dp)[4], float lse, float delta)
{
    const float   keep = (float)a->keep;
    const int64_t from = gm_mma_from(a, i) - key, last = gm_mma_last(a, i) - key;
    GM_UNROLL
    for (int j = 0; j < TILE / 8; j++) {
        GM_UNROLL
        for (int e = 0; e < 2; e++) {
            int  column = j * 8 + GM_LANE_COLUMN + e;
            bool visible = i < a->queries && column >= from && column <= last && seen[column];
            visible = visible && !(dropped >> (16 + 2 * j + e) & 1);
            float *v = &s[j][2 * half + e], score = gm_mma_score(a, *v);
            float  kept = dropped >> (2 * j + e) & 1 ? 0 : keep, by = kept * dp[j][2 * half + e] - delta;
            *v = visible ? exp2f(score - lse) * by * gm_mma_score_slope(a, score) : 0;
        }
    }
}

template <class T, int HEAD> GM_DEVICE void gm_attention_mma_dq(const gm_attention_args a)
{
    GM_SHARED(uint16_t, qs);
    const int                tile = TILE * PITCH<HEAD>;
    uint16_t                *gs = qs + tile, *ks = gs + tile, *vs = ks + tile;
    uint8_t                 *seen = (uint8_t *)(vs + tile);
    const gm_attention_place p = gm_attention_place_of(a.queries, a.heads, TILE);
    const int64_t            key_head = p.head / (a.heads / a.key_heads);
    const gm_attention_range keys = gm_attention_range_of(&a, p.batch, p.first, TILE);
    const int                start = (int)keys.start, end = (int)keys.end; /* 64 bits would not fit in registers */
    const gm_attention_drops drops = gm_attention_drops_of(&a, p.batch, p.head);
    float                    sum[NUMBERS<HEAD>][4] = {{0}}, lse[2] = {0, 0}, delta[2];
    GM_UNROLL
    for (int half = 0; half < 2; half++) {
        int64_t at = p.first + GM_WARP_ROW + 8 * half;
        delta[half] = gm_mma_delta<T>(&a, &p, at);
        if (at >= a.queries) continue;
        lse[half] = LOG2_E * ((const float *)a.lse)[gm_attention_lse_at(&a, p.batch, p.head, at)];
        if (GM_LANE_COLUMN == 0) ((float *)a.delta)[(p.batch * a.heads + p.head) * a.queries + at] = delta[half];
    }
    gm_mma_load(qs, &a, &a.q, p.batch, p.head, p.first, a.queries, false, TILE, HEAD);
    gm_mma_load(gs, &a, &a.g, p.batch, p.head, p.first, a.queries, false, TILE, HEAD);
    gm_attention_tell(&a, p.batch, p.head, p.first, TILE);
    for (int key = start; key < end; key += TILE) {
        float    s[TILE / 8][4] = {{0}}, dp[TILE / 8][4] = {{0}};
        uint32_t dropped[2];
        gm_mma_load_keys(ks, vs, seen, &a, p.batch, key_head, key, HEAD);
        GM_UNROLL /* before there are scores: with them it would take more registers */
            for (int half = 0; half < 2; half++)
                dropped[half] = gm_attention_drop_keys(&drops, p.first + GM_WARP_ROW + 8 * half, key) |
                                gm_mma_out_keys(&a, p.batch, p.first + GM_WARP_ROW + 8 * half, key);
        GM_SYNC();
        gm_mma_scores<T, HEAD>(s, TILE / 8, qs, ks);
        gm_mma_scores<T, HEAD>(dp, TILE / 8, gs, vs);
        GM_UNROLL
        for (int half = 0; half < 2; half++)
            gm_mma_slopes(&a, dropped[half], p.first + GM_WARP_ROW + 8 * half, key, seen, half, s, dp, lse[half],
                          delta[half]);
        gm_mma_weigh<T, HEAD>(sum, s, TILE / 8, ks);
        GM_SYNC();
    }
    GM_UNROLL
    for (int half = 0; half < 2; half++) {
        int64_t at = p.first + GM_WARP_ROW + 8 * half;
        if (at < a.queries) gm_mma_store<T, HEAD>(&a, &a.dq, p.batch, p.head, at, sum, half, a.accumulate ? 1 : 0, 1);
    }
}

/* Of a tile of keys by queries: scores become weights for dv (without the factor of what is kept), dp slopes for dk.
 * drop: which queries drop the key, and in the bits from 16 on from which of them limits hide it. */
template <int HEAD>
GM_DEVICE void gm_mma_weights(const gm_attention_args *a, uint32_t drop, int64_t key, bool seen, int64_t query,
                              int half, float (*s)[4], float (*dp)[4], const float *lse, const float *delta)
{
    const float   keep = (float)a->keep;
    const int64_t from = a->causal ? key - a->shift - query : 0; /* the first query that sees the key */
    const int64_t end = gm_attention_end_query(a, key) - query;  /* and the first that does not any more */
    GM_UNROLL
    for (int j = 0; j < QUERIES<HEAD> / 8; j++) {
        GM_UNROLL
        for (int e = 0; e < 2; e++) {
            int    column = j * 8 + GM_LANE_COLUMN + e;
            float *v = &s[j][2 * half + e], *slope = &dp[j][2 * half + e];
            if (!seen || column >= end || column < from || drop >> (16 + 2 * j + e) & 1) {
                *v = *slope = 0;
                continue;
            }
            bool  dropped = drop >> (2 * j + e) & 1;
            float score = gm_mma_score(a, *v), probability = exp2f(score - lse[column]);
            *slope = probability * ((dropped ? 0 : keep) * *slope - delta[column]) * gm_mma_score_slope(a, score);
            *v = dropped ? 0 : probability;
        }
    }
}

template <class T, int HEAD> GM_DEVICE void gm_attention_mma_dkv(const gm_attention_args a)
{
    GM_SHARED(uint16_t, ks);
    uint16_t *vs = ks + TILE * PITCH<HEAD>, *qs = vs + TILE * PITCH<HEAD>, *gs = qs + QUERIES<HEAD> * PITCH<HEAD>;
    float    *lse = (float *)(gs + QUERIES<HEAD> * PITCH<HEAD>), *delta = lse + QUERIES<HEAD>;
    const gm_attention_place p = gm_attention_place_of(a.keys, a.key_heads, TILE);
    const int64_t            group = a.heads / a.key_heads;
    const gm_attention_range queries = gm_attention_queries_of(&a, p.batch, p.first, TILE, QUERIES<HEAD>, TILE);
    const int start = (int)queries.start, end = (int)queries.end; /* 64 bits would not fit in registers */
    float     dk[NUMBERS<HEAD>][4] = {{0}}, dv[NUMBERS<HEAD>][4] = {{0}};
    bool      seen[2];
    GM_UNROLL
    for (int half = 0; half < 2; half++) {
        int64_t at = p.first + GM_WARP_ROW + 8 * half;
        seen[half] = at < a.keys && gm_attention_unmasked(&a, p.batch, at);
    }
    gm_mma_load(ks, &a, &a.k, p.batch, p.head, p.first, a.keys, true, TILE, HEAD);
    gm_mma_load(vs, &a, &a.v, p.batch, p.head, p.first, a.keys, true, TILE, HEAD);
    for (int64_t head = p.head * group; head < (p.head + 1) * group; head++) {
        const gm_attention_drops drops = gm_attention_drops_of(&a, p.batch, head);
        for (int query = start; query < end; query += QUERIES<HEAD>) {
            float    s[QUERIES<HEAD> / 8][4] = {{0}}, dp[QUERIES<HEAD> / 8][4] = {{0}};
            uint32_t dropped[2];
            gm_mma_load(qs, &a, &a.q, p.batch, head, query, a.queries, false, QUERIES<HEAD>, HEAD);
            gm_mma_load(gs, &a, &a.g, p.batch, head, query, a.queries, false, QUERIES<HEAD>, HEAD);
            if (gm_thread < QUERIES<HEAD> && query + gm_thread < a.queries) {
                int64_t at = query + gm_thread;
                lse[gm_thread] = LOG2_E * ((const float *)a.lse)[gm_attention_lse_at(&a, p.batch, head, at)];
                delta[gm_thread] = ((const float *)a.delta)[(p.batch * a.heads + head) * a.queries + at];
            }
            GM_UNROLL
            for (int half = 0; half < 2; half++)
                dropped[half] = gm_attention_drop_queries(&drops, query, p.first + GM_WARP_ROW + 8 * half,
                                                          QUERIES<HEAD> / 4) |
                                gm_mma_out_queries(&a, p.batch, query, p.first + GM_WARP_ROW + 8 * half,
                                                   QUERIES<HEAD> / 4);
            GM_SYNC();
            gm_mma_scores<T, HEAD>(s, QUERIES<HEAD> / 8, ks, qs);
            gm_mma_scores<T, HEAD>(dp, QUERIES<HEAD> / 8, vs, gs);
            GM_UNROLL
            for (int half = 0; half < 2; half++)
                gm_mma_weights<HEAD>(&a, dropped[half], p.first + GM_WARP_ROW + 8 * half, seen[half], query, half, s,
                                     dp, lse, delta);
            gm_mma_weigh<T, HEAD>(dv, s, QUERIES<HEAD> / 8, gs);
            gm_mma_weigh<T, HEAD>(dk, dp, QUERIES<HEAD> / 8, qs);
            GM_SYNC();
        }
    }
    GM_UNROLL
    for (int half = 0; half < 2; half++) {
        int64_t at = p.first + GM_WARP_ROW + 8 * half;
        if (at >= a.keys) continue;
        gm_mma_store<T, HEAD>(&a, &a.dk, p.batch, p.head, at, dk, half, a.accumulate ? 1 : 0, 1);
        gm_mma_store<T, HEAD>(&a, &a.dv, p.batch, p.head, at, dv, half, a.accumulate ? 1 : 0, (float)a.keep);
    }
}

/* ---- the kernels ---- */

#define GM_ATTENTIONS(head, dtype, T, blocks)                                                               \
    GM_KERNEL_BOUND(gm_attention_mma_##head##_##dtype, gm_attention_args, GM_ATTENTION_MMA_THREADS, blocks) \
    {                                                                                                       \
        gm_attention_mma<T, head>(a);                                                                       \
    }                                                                                                       \
    GM_KERNEL_BOUND(gm_attention_mma_dq_##head##_##dtype, gm_attention_args, GM_ATTENTION_MMA_THREADS, 2)   \
    {                                                                                                       \
        gm_attention_mma_dq<T, head>(a);                                                                    \
    }                                                                                                       \
    GM_KERNEL_BOUND(gm_attention_mma_dkv_##head##_##dtype, gm_attention_args, GM_ATTENTION_MMA_THREADS, 2)  \
    {                                                                                                       \
        gm_attention_mma_dkv<T, head>(a);                                                                   \
    }

GM_ATTENTIONS(64, bf16, gm_bf16, 3)
GM_ATTENTIONS(64, f16, gm_f16, 3)
GM_ATTENTIONS(128, bf16, gm_bf16, 2)
GM_ATTENTIONS(128, f16, gm_f16, 2)
