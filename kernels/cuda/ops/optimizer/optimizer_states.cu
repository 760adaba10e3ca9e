/* optimizer_states.cu - updates of parameters whose moments are kept in bf16 or in blocks of 8 bits (states.h). The
 * threads of a block take as many elements at a time, an element each: in 8 bits these are a block of the moment, for
 * whose scale they meet. A direction is computed in registers, so that a moment is read and written once. */
#ifndef GM_EMULATED
#define GM_CODE_TABLE static __device__ const
#endif
#include "optimizer.cuh"
#include "../../../states.h"

/* The element of this thread. */
typedef struct gm_state_element {
    int64_t i;
    int     there; /* 0: the block has none for this thread */
} gm_state_element;

template <class R>
GM_DEVICE R gm_state_load(const gm_update_args *a, const gm_entry *t, gm_state_element e, int k, float scale)
{
    const void *moment = t->data[GM_ROLE_MOMENT + k];
    if (a->states == GM_STATES_BF16)
        return (R)gm_get(((const gm_bf16 *)moment)[gm_entry_place(t, GM_ROLE_MOMENT + k, e.i)]);
    const int code = ((const uint8_t *)moment)[e.i];
    return (R)((a->squares >> k & 1 ? gm_codes_unsigned : gm_codes_signed)[code] * scale);
}

/* All threads of the block must come here. */
GM_DEVICE void gm_state_encode(const gm_update_args *a, const gm_entry *t, gm_state_element e, int k, float v,
                               float *scale, float *scratch)
{
    const float largest = gm_block_max(e.there ? v : 0.0f, scratch),
                least = -gm_block_max(e.there ? -v : 0.0f, scratch);
    const float size = largest != largest || largest >= -least ? largest : -least;
    const float s = gm_state_scale(largest, least, gm_as_bits(size) & 0x7fffffffu);
    const float ratio = s < 0 || s > 0 ? v / s : 0;
    const int   square = a->squares >> k & 1;
    if (gm_thread == 0) *scale = s;
    if (!e.there) return;
    ((uint8_t *)t->data[GM_ROLE_MOMENT + k])[e.i] =
        square ? gm_code_unsigned(ratio, gm_code_nearest(gm_codes_unsigned, 255, ratio))
               : gm_code_signed(ratio, gm_code_nearest(gm_codes_signed, ratio < 0 ? 127 : 128, fabsf(ratio)));
}

template <class T, class R = gm_real<T>>
GM_DEVICE void gm_state_store_weight(const gm_update_args *a, const gm_entry *t, int64_t i, R v, uint64_t step)
{
    T             *p = (T *)t->data[GM_ROLE_P] + gm_entry_place(t, GM_ROLE_P, i);
    const uint32_t word = a->stochastic ? gm_philox_word(a->key, gm_entry_index(a, t, i), step) : 0;
    if (t->data[GM_ROLE_MASTER]) ((R *)t->data[GM_ROLE_MASTER])[gm_entry_place(t, GM_ROLE_MASTER, i)] = v;
    *p = a->stochastic ? gm_chance<T>(v, word) : gm_put<T>(v);
}

/* The scale of moment k in block b. */
GM_DEVICE float *gm_state_scale_at(const gm_entry *t, int k, int64_t b)
{
    return (float *)((char *)t->data[GM_ROLE_MOMENT + k] + gm_state_scales_at(t->n)) + b;
}

/* Unit b of a tensor: a block, or as many elements. sums: those of squares where they are asked for. */
template <class T, int OP, class R = gm_real<T>>
GM_DEVICE void gm_states_unit(const gm_update_args *a, const gm_entry *t, const gm_update_step *s, int64_t b,
                              double *sums, float *scratch)
{
    constexpr int              MOMENTS = gm_moments<OP>();
    const gm_update_numbers<R> c = gm_numbers_of<R>(a, s);
    const int                  coded = a->states == GM_STATES_BLOCKS;
    const int64_t              first = coded ? gm_state_first(t->rows, b) : b * GM_STATE_BLOCK;
    const int64_t              n = coded ? gm_state_length(t->rows, b) : t->n - first;
    const gm_state_element     e = {first + gm_thread, gm_thread < n};
    R                          m[GM_UPDATE_MOMENTS] = {0}, w = 0, g = 0, u = 0;
    if (e.there) {
        const int64_t at = gm_entry_place(t, GM_ROLE_P, e.i);
        GM_UNROLL for (int k = 0; k < MOMENTS; k++) if (t->data[GM_ROLE_MOMENT + k])
            m[k] = gm_state_load<R>(a, t, e, k, coded ? *gm_state_scale_at(t, k, b) : 0);
        if (t->data[GM_ROLE_MASTER]) w = ((const R *)t->data[GM_ROLE_MASTER])[gm_entry_place(t, GM_ROLE_MASTER, e.i)];
        else w = gm_get(((const T *)t->data[GM_ROLE_P])[at]);
        g = gm_get(((const T *)t->data[GM_ROLE_G])[gm_entry_place(t, GM_ROLE_G, e.i)]) * c.scale;
        if (a->part && a->trust.kind != GM_TRUST_LAMB) u = g;
        else u = gm_direction<OP>(&c, (g + c.l2 * w) * c.before, m) + c.outside * w;
    }
    if (a->part) {
        sums[0] += (double)w * (double)w;
        sums[1] += (double)u * (double)u;
        return;
    }
    if (coded) GM_SYNC(); /* thread 0 writes scales that all have read */
    if (e.there) gm_state_store_weight<T>(a, t, e.i, w * c.decay - c.after * u, s->step);
    GM_UNROLL for (int k = 0; k < MOMENTS; k++)
    {
        if (!t->data[GM_ROLE_MOMENT + k]) continue;
        if (coded) {
            gm_state_encode(a, t, e, k, (float)m[k], gm_state_scale_at(t, k, b), scratch);
        } else if (e.there) {
            const uint32_t word = gm_philox_word(gm_state_key(a->key), gm_entry_index(a, t, e.i), s->step);
            gm_bf16       *to = (gm_bf16 *)t->data[GM_ROLE_MOMENT + k];
            to[gm_entry_place(t, GM_ROLE_MOMENT + k, e.i)] = gm_chance_bf16((float)m[k], gm_state_word(word, k));
        }
    }
}

template <class T, int OP>
GM_DEVICE void gm_states_chunk(const gm_update_args *a, const gm_entry *t, const gm_update_step *s, double *sums,
                               float *scratch)
{
    const int64_t units = a->states == GM_STATES_BLOCKS ? t->rows.blocks : (t->n + GM_STATE_BLOCK - 1) / GM_STATE_BLOCK;
    const int64_t each = GM_UPDATE_CHUNK / GM_STATE_BLOCK, first = (gm_block_x - t->chunk) * each;
    for (int64_t b = first; b < first + each && b < units; b++) gm_states_unit<T, OP>(a, t, s, b, sums, scratch);
}

template <int OP> GM_DEVICE void gm_states_block(const gm_update_args *a)
{
    GM_SHARED(double, shared);
    double          sums[2] = {0, 0};
    gm_update_step *step = (gm_update_step *)(shared + GM_SUM_WORDS);
    const gm_entry *t = gm_entry_here(a);
    gm_update_prepare(a, t, step);
    if (!a->part && !step->go) return;
#define GM_STATES(T) gm_states_chunk<T, OP>(a, t, step, sums, (float *)shared)
    GM_FOR_DTYPE(t->dtype, GM_STATES);
#undef GM_STATES
    if (a->part) gm_update_sums(a, sums, shared);
}

#define GM_OPTIMIZER(name, ...) \
    GM_KERNEL(gm_states_##name, gm_update_args) { gm_states_block<(int)GM_OP_##name>(&a); }
#include "../../../optimizers.def"
#undef GM_OPTIMIZER
