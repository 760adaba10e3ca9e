/* attention_mma.cuh - the parts of the kernels of attention_mma.cu and attention_mma_grad.cu: they bring tiles into
 * shared memory, multiply them, tell which scores count and which weights are dropped, and sum over the lanes of a row.
 *
 * A tile has rows of HEAD numbers (64 or 128) and 8 more, so that what a warp reads at once lies in different banks. A
 * warp has 16 rows of the left factor; a lane has, of each 16 by 8 results, two rows (`half` 0 and 1) of two
 * neighbouring columns. */
#ifndef GM_CUDA_ATTENTION_MMA_CUH
#define GM_CUDA_ATTENTION_MMA_CUH

#include "../../common/async.cuh"
#include "../../common/mma.cuh"
#include "attention_drop.cuh"

constexpr float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;

template <int HEAD> constexpr int PITCH = HEAD + 8;
template <int HEAD> constexpr int NUMBERS = HEAD / 8; /* pieces of a head, of 8 numbers */
constexpr int                     STEP = 32;          /* the keys of a tile that are multiplied at once */
template <int HEAD> constexpr int KEYS = HEAD == 64 ? GM_ATTENTION_MMA_KEYS_64 : GM_ATTENTION_MMA_KEYS_128;

/* The lane's row of results and pair of columns (mma.cuh), and its row in the block's. */
#define GM_LANE        (gm_thread % GM_WARP)
#define GM_LANE_ROW    (gm_thread % GM_WARP / 4)
#define GM_LANE_COLUMN (gm_thread % 4 * 2)
#define GM_WARP_FIRST  (gm_thread / GM_WARP * 16)
#define GM_WARP_ROW    (GM_WARP_FIRST + GM_LANE_ROW)

/* Where a block works, as gm_attention_place, but in 32 bits, which take fewer registers. Places fit (attention.c). */
typedef struct gm_mma_place {
    int batch, head, first; /* first: query or key */
} gm_mma_place;

/* Tile number gm_block_x of those of `side` rows of each head. backwards: the last tile of a head comes first. Of
 * queries it sees the most keys where these are causal, and blocks that work for long shall not begin last. */
GM_DEVICE gm_mma_place gm_mma_place_of(int64_t rows, int64_t heads, int side, bool backwards)
{
    const int    tiles = (int)((rows + side - 1) / side), tile = (int)(gm_block_x % tiles);
    const int    of = (int)(gm_block_x / tiles);
    gm_mma_place p = {of / (int)heads, of % (int)heads, (backwards ? tiles - 1 - tile : tile) * side};
    return p;
}

typedef struct GM_ALIGNED(4) gm_mma_word {
    uint32_t word;
} gm_mma_word;

/* ---- tiles ---- */

/* Up to 8 numbers where 16 bytes cannot be read at once. */
GM_DEVICE gm_vector gm_mma_load_some(const uint16_t *from, int n)
{
    uint16_t  x[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    gm_vector v;
    GM_ROLLED
    for (int i = 0; i < 8; i++) gm_push<8>(x, i < n ? from[i] : 0);
    GM_UNROLL
    for (int i = 0; i < 4; i++) v.word[i] = x[2 * i] | (uint32_t)x[2 * i + 1] << 16;
    return v;
}

/* Sends ROWS rows of a head from `first` on; zeros behind its last row and number, and for keys that are masked, which
 * may be NaN. The THREADS of a block do it together. */
template <int THREADS, int HEAD, int ROWS>
GM_DEVICE void gm_mma_send(uint16_t *tile, const gm_attention_args *a, const gm_attention_view *x, int batch, int head,
                           int first, int64_t rows, bool keys)
{
    constexpr int   PACKS = HEAD / 8, DOWN = THREADS / PACKS;
    const int       r = gm_thread / PACKS, column = gm_thread % PACKS * 8;
    const uint16_t *from = (const uint16_t *)x->data + batch * x->stride[0] + head * x->stride[2] +
                           (first + r) * x->stride[1] + column;
    uint16_t *to = tile + r * PITCH<HEAD> + column;
    if (a->vectors && !(keys && a->mask) && first + ROWS <= (int)rows) { /* all rows are there */
        const bool there = column < a->size;
        GM_UNROLL
        for (int k = 0; k < ROWS / DOWN; k++)
            gm_send_16(to + k * DOWN * PITCH<HEAD>, from + k * DOWN * x->stride[1], there);
        return;
    }
    GM_ROLLED
    for (int k = 0; k < ROWS; k += DOWN) {
        const int       row = first + r + k;
        const bool      there = column < a->size && row < rows && (!keys || gm_attention_unmasked(a, batch, row));
        const uint16_t *p = there ? from + k * x->stride[1] : (const uint16_t *)x->data;
        if (a->vectors) gm_send_16(to + k * PITCH<HEAD>, p, there);
        else gm_store_vector(to + k * PITCH<HEAD>, gm_mma_load_some(p, there ? a->size - column : 0));
    }
}

/* A tile of keys and their values, and which of the keys are there and not masked, where there is a mask. */
template <int THREADS, int HEAD>
GM_DEVICE void gm_mma_send_keys(uint16_t *ks, uint16_t *vs, uint8_t *seen, const gm_attention_args *a, int batch,
                                int head, int first)
{
    gm_mma_send<THREADS, HEAD, KEYS<HEAD>>(ks, a, &a->k, batch, head, first, a->keys, true);
    gm_mma_send<THREADS, HEAD, KEYS<HEAD>>(vs, a, &a->v, batch, head, first, a->keys, true);
    if (!a->mask || gm_thread >= KEYS<HEAD>) return;
    seen[gm_thread] = first + gm_thread < a->keys && gm_attention_unmasked(a, batch, first + gm_thread);
}

/* s += the warp's rows of x times N rows of y. */
template <class T, int HEAD, int N> GM_DEVICE void gm_mma_scores(float (*s)[4], const uint16_t *x, const uint16_t *y)
{
    const uint16_t *left_row = x + (GM_WARP_FIRST + GM_LANE % 16) * PITCH<HEAD> + GM_LANE / 16 * 8;
    const uint16_t *right_row = y + (GM_LANE / 16 * 8 + GM_LANE % 8) * PITCH<HEAD> + GM_LANE / 8 % 2 * 8;
    GM_UNROLL
    for (int step = 0; step < HEAD; step += 16) {
        uint32_t left[4], right[4]; /* right: of 16 rows of y */
        gm_matrices(left, left_row + step);
        GM_UNROLL
        for (int j = 0; j < N / 8; j += 2) {
            gm_matrices(right, right_row + j * 8 * PITCH<HEAD> + step);
            gm_mma<T>(s[j], left, right);
            gm_mma<T>(s[j + 1], left, right + 2);
        }
    }
}

/* sum += the weights w, of N rows of x for each of the warp's rows, times these. */
template <class T, int HEAD, int N> GM_DEVICE void gm_mma_weigh(float (*sum)[4], const float (*w)[4], const uint16_t *x)
{
    const uint16_t *row = x + GM_LANE % 16 * PITCH<HEAD> + GM_LANE / 16 * 8;
    GM_UNROLL
    for (int step = 0; step < N / 16; step++) {
        const float *even = w[2 * step], *odd = w[2 * step + 1];
        uint32_t     left[4] = {gm_pair<T>(even[0], even[1]), gm_pair<T>(even[2], even[3]), gm_pair<T>(odd[0], odd[1]),
                                gm_pair<T>(odd[2], odd[3])};
        uint32_t     right[4]; /* of 16 columns */
        GM_UNROLL
        for (int c = 0; c < NUMBERS<HEAD>; c += 2) {
            gm_matrices_turned(right, row + step * 16 * PITCH<HEAD> + c * 8);
            gm_mma<T>(sum[c], left, right);
            gm_mma<T>(sum[c + 1], left, right + 2);
        }
    }
}

/* y = old times what is there (where old is not 0) + by times the row `half` of sum, for row `row` of a head. */
template <class T, int HEAD>
GM_DEVICE void gm_mma_store(const gm_attention_args *a, const gm_attention_view *y, int batch, int head, int64_t row,
                            const float (*sum)[4], int half, float old, float by)
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

/* ---- scores ---- */

/* What a product of q and k is multiplied with to be a score in units of log2 e. */
GM_DEVICE float gm_mma_unit(const gm_attention_args *a) { return a->unit; }

/* A product q k as a score in units of log2 e: capped, where it is. tanh(x) = 1 - 2 / (1 + exp(2 x)), within 4e-7. */
GM_DEVICE float gm_mma_score(const gm_attention_args *a, float product)
{
    const float cap = (float)a->softcap, x = gm_mma_unit(a) * product;
    return cap > 0 ? cap * LOG2_E * (1 - 2 * gm_reciprocal_near(1 + gm_exp2_near(2 * gm_reciprocal_near(cap) * x))) : x;
}

/* The slope of that by the product, over the unit, from what came of it. */
GM_DEVICE float gm_mma_score_slope(const gm_attention_args *a, float score)
{
    const float t = a->softcap > 0 ? score * LN_2 * gm_reciprocal_near((float)a->softcap) : 0;
    return 1 - t * t;
}

/* A range of keys, or of queries, of which all scores of a warp count: [lo, hi). Places fit into
 * 32 bits (attention.c). */
typedef struct gm_mma_span {
    int lo, hi;
} gm_mma_span;

GM_DEVICE bool gm_mma_is_within(gm_mma_span s, int first, int n) { return first >= s.lo && first + n <= s.hi; }

/* gm_attention_limit, as a place among the keys. */
GM_DEVICE int gm_mma_limit(const gm_attention_args *a, int batch, int i, int which)
{
    const int64_t limit = gm_attention_limit(a, batch, i, which);
    return limit < 0 ? 0 : limit > a->keys ? (int)a->keys : (int)limit;
}

/* The keys that a warp's 16 queries from i on all see, a mask aside. */
GM_DEVICE gm_mma_span gm_mma_keys_of(const gm_attention_args *a, int batch, int i)
{
    const int   shift = (int)a->shift, keys = (int)a->keys;
    gm_mma_span s = {a->window ? i + 15 + shift - (int)a->window + 1 : 0, a->causal ? i + shift + 1 : keys};
    s.hi = s.hi < keys ? s.hi : keys;
    if (!a->limits) return s;
    const int row = i + GM_LANE % 16;
    if (row < a->queries) {
        const int from = gm_mma_limit(a, batch, row, 0), end = gm_mma_limit(a, batch, row, 1);
        s.lo = from > s.lo ? from : s.lo;
        s.hi = end < s.hi ? end : s.hi;
    }
    for (int lanes = 8; lanes; lanes /= 2) {
        const int lo = gm_shuffle_xor(s.lo, lanes), hi = gm_shuffle_xor(s.hi, lanes);
        s.lo = lo > s.lo ? lo : s.lo;
        s.hi = hi < s.hi ? hi : s.hi;
    }
    return s;
}

/* The queries that all see a warp's 16 keys from j on; seen: does a mask leave these? */
GM_DEVICE gm_mma_span gm_mma_queries_of(const gm_attention_args *a, int j, bool seen)
{
    const int   shift = (int)a->shift;
    gm_mma_span s = {a->causal ? j + 15 - shift : 0,
                     a->window ? j - shift + (int)a->window : (int)a->queries + GM_WARP};
    if (a->limits || !seen) s.hi = s.lo;
    return s;
}

/* Is there no score that counts, of `queries` queries from i on and `keys` keys from j on? */
GM_DEVICE bool gm_mma_is_hidden(const gm_attention_args *a, int i, int queries, int j, int keys)
{
    const int first = i + (int)a->shift; /* the last key that query i sees, where causal */
    return (a->causal && j > first + queries - 1) || (a->window && j + keys - 1 <= first - (int)a->window);
}

/* Does a mask leave all N keys of which `seen` tells? */
template <int N> GM_DEVICE bool gm_mma_all_seen(const uint8_t *seen)
{
    uint32_t all = 0x01010101u;
    GM_UNROLL
    for (int k = 0; k < N; k += 16) {
        const gm_vector v = gm_load_vector(seen + k);
        all &= v.word[0] & v.word[1] & v.word[2] & v.word[3];
    }
    return all == 0x01010101u;
}

/* Of the keys from `key` on, the first and the last that query i sees, masks and limits aside. */
GM_DEVICE int gm_mma_from(const gm_attention_args *a, int i, int key)
{
    return a->window ? i + (int)a->shift - (int)a->window + 1 - key : 0;
}
GM_DEVICE int gm_mma_last(const gm_attention_args *a, int i, int key)
{
    const int last = (int)a->keys - 1, seen = i + (int)a->shift;
    return (a->causal && seen < last ? seen : last) - key;
}

/* Which of a lane's keys from `key` on query i sees, that of a half; bits: from bit 16 on which of them are hidden. */
typedef struct gm_mma_sight {
    int      from, last; /* less the lane's column */
    uint32_t bits;
} gm_mma_sight;

GM_DEVICE gm_mma_sight gm_mma_sight_of(const gm_attention_args *a, int i, int key, uint32_t bits)
{
    return {gm_mma_from(a, i, key) - GM_LANE_COLUMN, gm_mma_last(a, i, key) - GM_LANE_COLUMN, bits};
}

/* Is key 8 j + e, from the lane's column on, out of sight? */
template <int N> GM_DEVICE bool gm_mma_is_out(gm_mma_sight s, int half, int j, int e)
{
    return j * 8 + e < s.from || j * 8 + e > s.last || s.bits >> (16 + gm_mma_bit<N>(half, j, e)) & 1;
}

/* Of a lane's keys, key + 8 j + its column + e, N in all, those that limits or a mask hide from query i, as the bits of
 * row 0 of attention_drop.cuh. As what is dropped, they are worked out before there are scores, which take registers.
 */
template <int N>
GM_DEVICE uint32_t gm_mma_hidden_keys(const gm_attention_args *a, int batch, int i, int key, const uint8_t *seen)
{
    uint32_t bits = 0;
    if (a->limits && i < a->queries) {
        const int from = gm_mma_limit(a, batch, i, 0) - key, end = gm_mma_limit(a, batch, i, 1) - key;
        GM_ROLLED
        for (int k = 0; k < N / 4; k++) {
            int column = k % (N / 8) * 8 + GM_LANE_COLUMN + k / (N / 8);
            bits |= (uint32_t)(column < from || column >= end) << k;
        }
    }
    if (a->mask) {
        GM_ROLLED
        for (int k = 0; k < N / 4; k++) bits |= (uint32_t)!seen[k % (N / 8) * 8 + GM_LANE_COLUMN + k / (N / 8)] << k;
    }
    return bits;
}

/* Of a lane's queries, query + 8 j + its column + e, N in all, those from which limits hide the key: such bits too. */
template <int N> GM_DEVICE uint32_t gm_mma_hidden_queries(const gm_attention_args *a, int batch, int query, int key)
{
    uint32_t bits = 0;
    if (!a->limits) return 0;
    GM_ROLLED
    for (int k = 0; k < N / 4; k++) {
        int i = query + k % (N / 8) * 8 + GM_LANE_COLUMN + k / (N / 8);
        if (i >= a->queries) continue;
        bool out = key < gm_mma_limit(a, batch, i, 0) || key >= gm_mma_limit(a, batch, i, 1);
        bits |= (uint32_t)out << k;
    }
    return bits;
}

/* Of a lane's two queries of a warp's from i on, which of N keys are dropped, and from bit 16 on which are hidden. all:
 * none is. */
template <int N>
GM_DEVICE uint32_t gm_mma_bits_of_keys(const gm_attention_args *a, const gm_attention_drops *drops, int batch, int i,
                                       int key, bool all, const uint8_t *seen)
{
    static_assert(N == 32, "attention_drop.cuh");
    uint32_t bits = a->drop.threshold ? gm_attention_drop_keys(a, drops, i + GM_LANE_ROW, key) : 0;
    if (all) return bits;
    GM_UNROLL
    for (int half = 0; half < 2; half++)
        bits |= gm_mma_hidden_keys<N>(a, batch, i + GM_LANE_ROW + 8 * half, key, seen)
                << (16 + gm_mma_bit<N>(half, 0, 0));
    return bits;
}

/* What is dropped becomes 0: of N columns of both rows. The factor of what is kept is in what follows. */
template <int N> GM_DEVICE void gm_mma_drop(uint32_t bits, float (*x)[4])
{
    GM_UNROLL
    for (int k = 0; k < N / 2; k++)
        if (bits >> gm_mma_bit<N>(k / 2 % 2, k / 4, k % 2) & 1) x[k / 4][k % 4] = 0;
}

/* ---- the four lanes of a row, and the rows of a warp ---- */

/* Is it so for all rows of the warp, of which each lane knows two? */
GM_DEVICE bool gm_mma_all_rows(bool is)
{
    int all = is;
    for (int lanes = 4; lanes < GM_WARP; lanes *= 2) all &= gm_shuffle_xor(all, lanes);
    return all;
}

GM_DEVICE float gm_mma_row_sum(float v)
{
    v += gm_shuffle_xor(v, 1);
    return v + gm_shuffle_xor(v, 2);
}

GM_DEVICE float gm_mma_row_max(float v)
{
    v = fmaxf(v, gm_shuffle_xor(v, 1));
    return fmaxf(v, gm_shuffle_xor(v, 2));
}

#endif
