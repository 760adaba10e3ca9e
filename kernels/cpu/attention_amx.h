/* attention_amx.h - what attention_amx.c and attention_amx_grad.c share: products of tiles, how numbers of heads become
 * tiles, which keys a query sees, exp, and rounding.
 *
 * A tile of rows has 16 rows of 32 numbers of bf16: 1 KB. A head of `size` numbers takes `deep` tiles along a row,
 * where its numbers are summed over, and `tall` tiles of 16 rows, where they are rows. Queries come in panels of 32.
 * Scores and weights lie as [key][query of a panel], so that the lanes of a vector are queries. What is missing, of
 * numbers, keys and queries, is zero.
 *
 * exp is computed as a power of two, whose exponent is scale log2(e) times the score: one factor serves both. */

#define TILED_QUERIES 32   /* of a panel */
#define TILED_TILE    1024 /* bytes */
#define TILED_WORDS   256  /* pairs of bf16 in a tile, in memory of floats */
#define TILED_LINES   80   /* cache lines of the next unit for each product or row of weights */

typedef struct tiled_product {
    const void *a, *b; /* tiles of rows; pairs [pair][column], of which the tiles of columns lie 64 bytes apart */
    float      *c;     /* (16 high, 16 wide) = a b, or += */
    int64_t a_row, a_side, a_step; /* bytes from row to row of a tile, to the next 16 rows, to the next 32 numbers */
    int64_t b_row, c_row;          /* bytes */
    int64_t high, wide, steps;     /* tiles of rows, of columns, of 32 numbers */
    bool    add;
} tiled_product;

/* The instructions, or plain C in their place. Nothing else that uses tiles may be called from begin to end. */
struct attention_tiles {
    void (*begin)(void), (*end)(void); /* on the thread that multiplies */
    void (*multiply)(const tiled_product *p);
};

#define AMX(name) amx_real_##name
#define AMX_IN    AMX_TARGET
#include "attention_amx_t.h"
#define AMX(name) amx_plain_##name
#define AMX_IN
#include "attention_amx_t.h"

static inline int64_t tiled_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
static inline int64_t tiled_deep(const attention_job *w) { return (w->size + 31) / 32; }
static inline int64_t tiled_tall(const attention_job *w) { return (w->size + 15) / 16; }

/* ---- packing ---- */

/* Rows j of t, of one head, as tiles of rows, `deep` of them beside each other. hide: those that count as zeros, or
 * NULL. */
static void tiled_rows(const attention_job *w, float *to, const char *from, int64_t step, int64_t count,
                       const uint8_t *hide)
{
    const int64_t deep = tiled_deep(w);
    for (int64_t j = 0; j < tiled_up(count, 32); j++) {
        const pairs_word *row = (const pairs_word *)(from + j * step * w->bytes);
        float            *at = to + (j / 16 * deep * TILED_WORDS + j % 16 * 16);
        const bool        none = j >= count || (hide && hide[j]);
        for (int64_t t = 0; t < deep; t++)
            store_f32(at + t * TILED_WORDS, none ? splat_f32(0) : pairs_load(row + 32 * t, w->size - 32 * t));
    }
}

/* The same turned: a row of a tile is one number of the head, for 32 keys. For each 32 keys `tall` tiles. */
static void tiled_columns(const attention_job *w, float *to, const char *from, int64_t step, int64_t count,
                          const uint8_t *hide)
{
    static const pairs_word none[16];
    for (int64_t j = 0; j < count; j += 32)
        for (int64_t d = 0; d < w->size; d += 16, to += TILED_WORDS) {
            const int64_t have = w->size - d < 16 ? w->size - d : 16;
            vf32          v[16];
            for (int64_t p = 0; p < 16; p++) {
                const pairs_word *x[2];
                for (int64_t i = 0, at = j + 2 * p; i < 2; i++, at++)
                    x[i] = at >= count || (hide && hide[at]) ? none
                                                             : (const pairs_word *)(from + at * step * w->bytes) + d;
                v[p] = pairs_join(x[0], x[1], have);
            }
            transpose_f32(v);
            for (int p = 0; p < 16; p++) store_f32(to + 16 * p, v[p]);
        }
}

/* A panel of `count` queries: pairs along the head's numbers, [pair][query]. */
static void tiled_panel(const attention_job *w, float *to, const char *from, int64_t step, int64_t count)
{
    const int64_t pairs = (w->size + 1) / 2, all = 16 * tiled_deep(w);
    pairs_pack(to, TILED_QUERIES, (const pairs_word *)from, step, 1, count, w->size);
    memset(to + pairs * TILED_QUERIES, 0, (size_t)((all - pairs) * TILED_QUERIES) * sizeof(float));
}

/* hide[j]: is key j of sample b hidden? NULL without a mask. */
static const uint8_t *tiled_hidden(const attention_job *w, uint8_t *hide, int64_t b)
{
    if (!w->mask) return NULL;
    for (int64_t j = 0; j < w->keys; j++) hide[j] = attention_hidden(w, b, j);
    return hide;
}

/* ---- which keys a query sees ---- */

/* Query c of the panel from i0 on sees the keys from from[c] to seen[c] - 1; one that is missing sees none. */
static void tiled_sight(const attention_job *w, int64_t b, int64_t i0, int64_t queries, int32_t *from, int32_t *seen)
{
    for (int64_t c = 0; c < TILED_QUERIES; c++) {
        from[c] = c < queries ? (int32_t)attention_from(w, b, i0 + c) : 0;
        seen[c] = c < queries ? (int32_t)attention_seen(w, b, i0 + c) : 0;
    }
}

typedef vi32 any_i32 __attribute__((aligned(4), may_alias));

/* Which of 16 queries see key j. */
CPU_INLINE vi32 tiled_sees(const int32_t *from, const int32_t *seen, int64_t j)
{
    const vi32 key = (vi32){0} + (int32_t)j;
    return (*(const any_i32 *)from <= key) & (*(const any_i32 *)seen > key);
}

/* Is any lane set? */
CPU_INLINE bool tiled_any(vi32 mask) { return _mm512_movepi32_mask((__m512i)mask) != 0; }

/* ---- exp ---- */

#define TILED_LOG2_E 1.44269504088896340736
#define TILED_LN_2   0.693147180559945309417

/* 2^t for t < 128, within 2.1 units in the last place; 0 from about -127 down. NaN passes, because it is a second
 * operand. The polynomial is a fit of our own to (2^r - 1) / r, |r| <= 1/2. */
CPU_INLINE vf32 tiled_power(vf32 t)
{
    const vf32 magic = splat_f32(12582912.0f); /* 1.5 * 2^23: the low bits then hold the whole part */
    t = max_v_f32(splat_f32(-127), t);
    vf32 k = t + magic, r = t - (k - magic), p = splat_f32(0.001326472731307149f);
    p = p * r + 0.009671512991189957f;
    p = p * r + 0.05550733581185341f;
    p = p * r + 0.24022242426872253f;
    p = p * r + 0.6931470036506653f;
    p = p * r + 1;
    return (vf32)((unsigned_f32)p + ((unsigned_f32)k << 23));
}

/* The same for any t; infinite from 128 on. */
CPU_INLINE vf32 tiled_power_any(vf32 t) { return tiled_power(min_v_f32(splat_f32(128), t)); }

/* ---- rounding ---- */

/* Numbers x, and y in the upper halves, as pairs of bf16: rounded to the nearest, those in the middle away from zero.
 * exp and this take 2.3 ns for each 16 numbers on a Sapphire Rapids, exp with vcvtne2ps2bf16 and a permutation 2.7. */
CPU_INLINE vf32 tiled_pair(vf32 x, vf32 y)
{
    const unsigned_f32 low = ((unsigned_f32)x + 0x8000u) >> 16, high = ((unsigned_f32)y + 0x8000u) & 0xffff0000u;
    return (vf32)(low | high);
}
