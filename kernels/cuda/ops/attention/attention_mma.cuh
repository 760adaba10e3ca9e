/* attention_mma.cuh - the parts of the kernels of attention_mma.cu: they load factors from tiles in shared memory and
 * tiles from memory, draw dropout, and sum over the lanes of a row. None of them depends on the dtype; they move 16-bit
 * words. */
#ifndef GM_CUDA_ATTENTION_MMA_CUH
#define GM_CUDA_ATTENTION_MMA_CUH

#include "../../common/mma.cuh"
#include "attention.cuh"

constexpr int TILE = GM_ATTENTION_MMA_TILE;

/* The lane's row of results and pair of columns: mma.cuh. */
#define GM_LANE_ROW    (gm_thread % GM_WARP / 4)
#define GM_LANE_COLUMN (gm_thread % 4 * 2)
#define GM_WARP_ROW    (gm_thread / GM_WARP * 16 + GM_LANE_ROW)

typedef struct GM_ALIGNED(4) gm_mma_word {
    uint32_t word;
} gm_mma_word;

GM_DEVICE uint32_t gm_mma_word_at(const uint16_t *p) { return ((const gm_mma_word *)p)->word; }

/* 16 rows of x as the left factor: row and column of this lane's first pair. */
GM_DEVICE void gm_mma_left(uint32_t *a, const uint16_t *x, int pitch, int row, int column)
{
    a[0] = gm_mma_word_at(x + row * pitch + column);
    a[1] = gm_mma_word_at(x + (row + 8) * pitch + column);
    a[2] = gm_mma_word_at(x + row * pitch + column + 8);
    a[3] = gm_mma_word_at(x + (row + 8) * pitch + column + 8);
}

/* 8 rows of x, turned, as the right factor: products of rows with rows. */
GM_DEVICE void gm_mma_turned(uint32_t *b, const uint16_t *x, int pitch, int row, int column)
{
    b[0] = gm_mma_word_at(x + row * pitch + column);
    b[1] = gm_mma_word_at(x + row * pitch + column + 8);
}

/* 16 rows of x as the right factor: sums of rows. */
GM_DEVICE void gm_mma_right(uint32_t *b, const uint16_t *x, int pitch, int row, int column)
{
    const uint16_t *at = x + row * pitch + column;
    b[0] = at[0] | (uint32_t)at[pitch] << 16;
    b[1] = at[8 * pitch] | (uint32_t)at[9 * pitch] << 16;
}

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

constexpr int HELD = TILE * GM_ATTENTION_MMA_WIDE / 8 / GM_ATTENTION_MMA_THREADS;

/* `side` rows from `first` on of a head, `width` numbers each; zeros behind its last row and number, and for keys that
 * are masked, which may be NaN. All of a thread's loads are under way before the first is stored. */
GM_DEVICE void gm_mma_load(uint16_t *tile, const gm_attention_args *a, const gm_attention_view *x, int64_t batch,
                           int64_t head, int64_t first, int64_t rows, bool keys, int side, int width)
{
    const uint16_t *from = (const uint16_t *)x->data + batch * x->stride[0] + head * x->stride[2];
    const int       pitch = width + 8, each = side * width / 8 / GM_ATTENTION_MMA_THREADS;
    const int       r = gm_thread / (width / 8), down = GM_ATTENTION_MMA_THREADS / (width / 8);
    const int       column = gm_thread % (width / 8) * 8;
    bool            there[HELD];
    gm_vector       held[HELD];
    GM_UNROLL
    for (int k = 0; k < each; k++) {
        int64_t row = first + r + k * down;
        there[k] = column < a->size && row < rows && (!keys || gm_attention_unmasked(a, batch, row));
    }
    GM_UNROLL
    for (int k = 0; k < each; k++) {
        const uint16_t *p = from + (first + r + k * down) * x->stride[1] + column;
        held[k].word[0] = held[k].word[1] = held[k].word[2] = held[k].word[3] = 0;
        if (there[k]) held[k] = a->vectors ? gm_load_vector(p) : gm_mma_load_some(p, a->size - column);
    }
    GM_UNROLL
    for (int k = 0; k < each; k++) gm_store_vector(tile + (r + k * down) * pitch + column, held[k]);
}

/* A tile of keys and their values, and which of the keys are there and not masked. */
GM_DEVICE void gm_mma_load_keys(uint16_t *ks, uint16_t *vs, uint8_t *seen, const gm_attention_args *a, int64_t batch,
                                int64_t head, int64_t first, int width)
{
    int64_t key = first + gm_thread;
    gm_mma_load(ks, a, &a->k, batch, head, first, a->keys, true, TILE, width);
    gm_mma_load(vs, a, &a->v, batch, head, first, a->keys, true, TILE, width);
    if (gm_thread < TILE) seen[gm_thread] = key < a->keys && gm_attention_unmasked(a, batch, key);
}

/* ---- dropout: ten rounds of Philox give the words of four neighbours, of which a lane has one or two. So lanes share
 * them out, and tell each other what they drop. All lanes of a warp come here together. ---- */

/* Which of query i's keys j to j + 3 are dropped, a bit each; j: the first of a block of words. */
GM_DEVICE uint32_t gm_attention_drop_block(const gm_attention_drops *d, int64_t i, int64_t j)
{
    gm_philox words = gm_philox_at(d->key, gm_attention_element(d, i, j) / 4, d->step);
    uint32_t  bits = 0;
    GM_UNROLL
    for (int k = 0; k < 4; k++) bits |= (uint32_t)(words.v[k] < d->threshold) << k;
    return bits;
}

/* Of a lane's keys of query i, key + 8 j + its column + e, those that are dropped: bit 2 j + e. Two lanes have the
 * columns of a block: one makes that of j, the other that of j + 1. */
GM_DEVICE uint32_t gm_attention_drop_keys(const gm_attention_drops *d, int64_t i, int64_t key)
{
    const int odd = gm_thread % 2;
    uint32_t  bits = 0;
    if (!d->threshold) return 0;
    if (!d->aligned) {
        GM_ROLLED
        for (int k = 0; k < TILE / 4; k++)
            bits |= (uint32_t)gm_attention_dropped(d, i, key + k / 2 * 8 + GM_LANE_COLUMN + k % 2) << k;
        return bits;
    }
    GM_UNROLLED(2)
    for (int j = 0; j < TILE / 8; j += 2) {
        uint32_t mine = gm_attention_drop_block(d, i, key + (j + odd) * 8 + gm_thread % 4 / 2 * 4);
        uint32_t other = gm_shuffle_xor(mine, 1);
        uint32_t here = odd ? other >> 2 : mine, next = odd ? mine >> 2 : other;
        bits |= ((here & 3) | (next & 3) << 2) << (2 * j);
    }
    return bits;
}

/* Of a lane's queries of one key, query + 8 j + its column + e, n in all: bit 2 j + e. Four lanes have the keys of a
 * block, and make those of a query each. */
GM_DEVICE uint32_t gm_attention_drop_queries(const gm_attention_drops *d, int64_t query, int64_t key, int n)
{
    const int me = GM_LANE_ROW % 4;
    uint32_t  bits = 0;
    if (!d->threshold) return 0;
    if (!d->aligned) {
        GM_ROLLED
        for (int k = 0; k < n; k++)
            bits |= (uint32_t)gm_attention_dropped(d, query + k / 2 * 8 + GM_LANE_COLUMN + k % 2, key) << k;
        return bits;
    }
    GM_UNROLLED(2)
    for (int k = 0; k < n; k += 4) {
        int64_t  i = query + (k + me) / 2 * 8 + GM_LANE_COLUMN + me % 2;
        uint32_t mine = gm_attention_drop_block(d, i, key - me);
        GM_UNROLL
        for (int x = 0; x < 4; x++) {
            uint32_t other = x ? gm_shuffle_xor(mine, 4 * x) : mine; /* of the query k + (me ^ x) */
            bits |= (other >> me & 1) << (k + (me ^ x));
        }
    }
    return bits;
}

/* ---- the four lanes of a row ---- */

GM_DEVICE float gm_mma_row_sum(float v)
{
    v += gm_shuffle_xor(v, 1);
    return v + gm_shuffle_xor(v, 2);
}

GM_DEVICE float gm_mma_row_max(float v)
{
    float other = gm_shuffle_xor(v, 1);
    v = other > v ? other : v;
    other = gm_shuffle_xor(v, 2);
    return other > v ? other : v;
}

#endif
