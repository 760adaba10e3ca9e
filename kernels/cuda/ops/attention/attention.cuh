/* attention.cuh - what the kernels of attention.cu and attention_mma.cu share: the place where a block works, and the
 * keys that a query sees. */
#ifndef GM_CUDA_ATTENTION_CUH
#define GM_CUDA_ATTENTION_CUH

#include "../../common/dtype.cuh"
#include "../../../sample.h"
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

GM_DEVICE bool gm_attention_visible(const gm_attention_args *a, int64_t batch, int64_t i, int64_t j)
{
    if (i >= a->queries || j >= a->keys) return false;
    if (a->causal && j > i + a->shift) return false;
    if (a->window && j <= i + a->shift - a->window) return false;
    return gm_attention_unmasked(a, batch, j);
}

/* Keys from here on are seen by none of the queries up to `last`. */
GM_DEVICE int64_t gm_attention_end(const gm_attention_args *a, int64_t last)
{
    int64_t i = last < a->queries ? last : a->queries - 1, end = i + a->shift + 1;
    return a->causal && end < a->keys ? end : a->keys;
}

/* The first tile of `side` keys of which a query from `first` on sees one. */
GM_DEVICE int64_t gm_attention_start(const gm_attention_args *a, int64_t first, int side)
{
    int64_t key = first + a->shift + 1 - a->window;
    return a->window && key > 0 ? key / side * side : 0;
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

/* Dropout: a word of Philox a pair of query and key, by its place in the whole. */
typedef struct gm_attention_drops {
    uint64_t key, step, first, row; /* first: the element of query 0 and key 0; row: elements from query to query */
    uint32_t threshold;             /* 0: nothing is dropped */
    bool     aligned;               /* does each row begin a block of four words? */
} gm_attention_drops;

GM_DEVICE gm_attention_drops gm_attention_drops_of(const gm_attention_args *a, int64_t batch, int64_t head)
{
    gm_attention_drops d = {0, 0, 0, 0, a->threshold, false};
    if (!a->threshold) return d;
    int64_t shape[4] = {a->batch, a->heads, a->queries, a->keys}, at[4] = {batch, head, 0, 0};
    d.key = a->stream_key;
    d.step = a->step < 0 ? *a->rng_step : (uint64_t)a->step;
    d.first = gm_box_index(&a->box, 4, shape, at);
    d.row = (uint64_t)(a->box.ndim ? a->box.shape[3] : a->keys);
    d.aligned = d.first % 4 == 0 && d.row % 4 == 0;
    return d;
}

/* Of query i and key j. */
GM_DEVICE uint64_t gm_attention_element(const gm_attention_drops *d, int64_t i, int64_t j)
{
    return d->first + (uint64_t)i * d->row + (uint64_t)j;
}

GM_DEVICE bool gm_attention_dropped(const gm_attention_drops *d, int64_t i, int64_t j)
{
    return d->threshold && gm_philox_word(d->key, gm_attention_element(d, i, j), d->step) < d->threshold;
}

#endif
