/* attention.cuh - what the kernels of attention.cu and attention_mma.cu share: the place where a block works, and the
 * keys that a query sees. */
#ifndef GM_CUDA_ATTENTION_CUH
#define GM_CUDA_ATTENTION_CUH

#include "../../common/dtype.cuh"
#include "attention_args.h"

/* Where a block works: tile number gm_block_x of `tiles` for each head of `heads`. */
typedef struct gm_attention_place {
    int64_t batch, head, first; /* first: query or key */
} gm_attention_place;

GM_DEVICE gm_attention_place gm_attention_place_of(int64_t rows, int64_t heads, int side)
{
    int64_t            tiles = (rows + side - 1) / side;
    gm_attention_place p = {gm_block_x / tiles / heads, gm_block_x / tiles % heads, gm_block_x % tiles * side};
    return p;
}

GM_DEVICE bool gm_attention_unmasked(const gm_attention_args *a, int64_t batch, int64_t j)
{
    return !a->mask || a->mask[batch * a->mask_stride[0] + j * a->mask_stride[1]];
}

/* Where there are limits: the first key that query i may see (which 0), the one behind the last (1). */
GM_DEVICE int64_t gm_attention_limit(const gm_attention_args *a, int64_t batch, int64_t i, int which)
{
    const int64_t *step = a->limits_stride;
    return a->limits[batch * step[0] + i * step[1] + which * step[2]] - a->first_key;
}

/* LIMITED, here and below: are there kernels with limits, or with a bias? What they need takes registers. */
template <bool LIMITED = true>
GM_DEVICE bool gm_attention_visible(const gm_attention_args *a, int64_t batch, int64_t i, int64_t j)
{
    if (i >= a->queries || j >= a->keys) return false;
    if (a->causal && j > i + a->shift) return false;
    if (a->window && j <= i + a->shift - a->window) return false;
    if (LIMITED && a->limits && (j < gm_attention_limit(a, batch, i, 0) || j >= gm_attention_limit(a, batch, i, 1)))
        return false;
    return gm_attention_unmasked(a, batch, j);
}

/* The place of (sample, head, query, key) among biases of these strides. */
GM_DEVICE int64_t gm_attention_bias_at(const gm_attention_args *a, const int64_t *step, int64_t batch, int64_t head,
                                       int64_t i, int64_t j)
{
    return (a->row + batch) % a->biases * step[0] + head * step[1] + i * step[2] + j * step[3];
}

/* What is added to a score; -inf hides the key. */
template <class T>
GM_DEVICE gm_real<T> gm_attention_bias(const gm_attention_args *a, int64_t batch, int64_t head, int64_t i, int64_t j)
{
    if (!a->bias) return 0;
    return gm_get(((const T *)a->bias)[gm_attention_bias_at(a, a->bias_stride, batch, head, i, j)]);
}

/* Some keys, [start, end). */
typedef struct gm_attention_range {
    int64_t start, end;
} gm_attention_range;

/* The range from the first start to the last end that the lanes of a warp have. */
GM_DEVICE gm_attention_range gm_attention_join(gm_attention_range r)
{
    for (int lanes = GM_WARP / 2; lanes; lanes /= 2) {
        int64_t start = gm_shuffle_xor(r.start, lanes), end = gm_shuffle_xor(r.end, lanes);
        r.start = start < r.start ? start : r.start;
        r.end = end > r.end ? end : r.end;
    }
    return r;
}

/* What limits leave of the keys for the queries [first, first + side) together. Each warp works it out, and all of its
 * lanes get it. */
GM_DEVICE gm_attention_range gm_attention_limits_of(const gm_attention_args *a, int64_t batch, int64_t first, int side)
{
    gm_attention_range r = {a->keys, 0};
    for (int64_t i = first + gm_thread % GM_WARP; i < first + side && i < a->queries; i += GM_WARP) {
        int64_t start = gm_attention_limit(a, batch, i, 0), end = gm_attention_limit(a, batch, i, 1);
        if (start >= end) continue; /* it sees nothing */
        r.start = start < r.start ? start : r.start;
        r.end = end > r.end ? end : r.end;
    }
    r = gm_attention_join(r);
    r.start = r.start < 0 ? 0 : r.start;
    return r;
}

/* The keys of which the queries [first, first + side) see some, masks aside, from the begin of a tile of `side` on. */
template <bool LIMITED = true>
GM_DEVICE gm_attention_range gm_attention_range_of(const gm_attention_args *a, int64_t batch, int64_t first, int side)
{
    int64_t            last = first + side - 1, i = last < a->queries ? last : a->queries - 1;
    int64_t            key = first + a->shift + 1 - a->window, end = i + a->shift + 1;
    gm_attention_range r = {a->window && key > 0 ? key : 0, a->causal && end < a->keys ? end : a->keys};
    if (LIMITED && a->limits) {
        const gm_attention_range l = gm_attention_limits_of(a, batch, first, side);
        r.start = l.start > r.start ? l.start : r.start;
        r.end = l.end < r.end ? l.end : r.end;
    }
    r.start = r.start / side * side;
    return r;
}

/* The kernel of dq tells that of dk and dv what limits leave to its tile of queries. */
GM_DEVICE void gm_attention_tell(const gm_attention_args *a, int64_t batch, int64_t head, int64_t first, int side)
{
    if (!a->limits || head) return;
    const gm_attention_range l = gm_attention_limits_of(a, batch, first, side);
    int64_t                 *to = a->ranges + 2 * (batch * ((a->queries + side - 1) / side) + first / side);
    if (gm_thread == 0) to[0] = l.start, to[1] = l.end;
}

/* The first tile of `side` queries that sees a key from `first` on, and the query that sees none up to `last`. */
GM_DEVICE int64_t gm_attention_first_query(const gm_attention_args *a, int64_t first, int side)
{
    int64_t from = first - a->shift;
    return a->causal && from > 0 ? from / side * side : 0;
}

GM_DEVICE int64_t gm_attention_end_query(const gm_attention_args *a, int64_t last)
{
    int64_t end = last - a->shift + a->window;
    return a->window && end < a->queries ? end : a->queries;
}

/* Of the queries in r, those from the first to the last tile of `side` of which limits let one see one of the keys
 * [key, end). Each warp works it out, and all of its lanes get it. */
GM_DEVICE gm_attention_range gm_attention_limited(const gm_attention_args *a, int64_t batch, gm_attention_range r,
                                                  int side, int64_t key, int64_t end)
{
    const int64_t      tiles = (a->queries + side - 1) / side;
    gm_attention_range met = {a->queries, 0};
    if (!a->limits) return r;
    for (int64_t tile = gm_thread % GM_WARP; tile < tiles; tile += GM_WARP) {
        const int64_t *of = a->ranges + 2 * (batch * tiles + tile);
        if (of[0] >= end || of[1] <= key) continue;
        met.start = tile * side < met.start ? tile * side : met.start;
        met.end = (tile + 1) * side;
    }
    met = gm_attention_join(met);
    met.start = met.start > r.start ? met.start : r.start;
    met.end = met.end < r.end ? met.end : r.end;
    return met;
}

/* The queries of which some see a key of [key, key + keys), masks aside: from the begin of a tile of `side` queries.
 * told: the queries of a tile of which gm_attention_tell told, a multiple of side. */
template <bool LIMITED = true>
GM_DEVICE gm_attention_range gm_attention_queries_of(const gm_attention_args *a, int64_t batch, int64_t key, int keys,
                                                     int side, int told)
{
    const gm_attention_range r = {gm_attention_first_query(a, key, side), gm_attention_end_query(a, key + keys - 1)};
    return LIMITED ? gm_attention_limited(a, batch, r, told, key, key + keys) : r;
}

/* A score becomes softcap tanh(score / softcap). Of what came of it, the slope. */
template <class R> GM_DEVICE R gm_attention_capped(const gm_attention_args *a, R score)
{
    return a->softcap > 0 ? (R)a->softcap * tanh(score / (R)a->softcap) : score;
}

template <class R> GM_DEVICE R gm_attention_cap_slope(const gm_attention_args *a, R capped)
{
    R t = a->softcap > 0 ? capped / (R)a->softcap : 0;
    return 1 - t * t;
}

GM_DEVICE int64_t gm_attention_lse_at(const gm_attention_args *a, int64_t batch, int64_t head, int64_t i)
{
    return batch * a->lse_stride[0] + head * a->lse_stride[1] + i * a->lse_stride[2];
}

/* ---- dropout (drop.h) ---- */

GM_DEVICE uint64_t gm_attention_step(const gm_attention_args *a)
{
    return a->drop.threshold && a->step < 0 ? *a->rng_step : (uint64_t)a->step;
}

GM_DEVICE gm_attention_drops gm_attention_drops_of(const gm_attention_args *a, uint64_t step, int64_t batch,
                                                   int64_t head)
{
    const uint64_t first = a->drop_first / GM_DROP_EACH;
    return {step, first + (uint64_t)batch * a->drop_blocks[0] + (uint64_t)head * a->drop_blocks[1]};
}

GM_DEVICE bool gm_attention_dropped(const gm_attention_args *a, const gm_attention_drops *d, int64_t i, int64_t j)
{
    const uint64_t  place = a->drop_first % GM_DROP_EACH + (uint64_t)j; /* from the first block of the row on */
    const uint64_t  block = d->first + (uint64_t)i * a->drop_blocks[2] + place / GM_DROP_EACH;
    const gm_philox words = gm_drop_block(a->drop.round_keys, block, d->step);
    return gm_drop_number(words, (int)(place % GM_DROP_EACH)) < a->drop.threshold;
}

#endif
