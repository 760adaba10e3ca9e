/* optimizer.cuh - what the kernels of optimizer.cu and optimizer_states.cu share: the table of tensors, the numbers of
 * a step, and rounding by chance. */
#ifndef GM_CUDA_OPTIMIZER_CUH
#define GM_CUDA_OPTIMIZER_CUH

#include "../../common/rows.cuh"
#include "../../../philox.h"
#include "optimizer_args.h"
#include "directions.cuh"

/* The entry that this block's chunk is in: the last that begins at it or before. */
GM_DEVICE const gm_entry *gm_entry_here(const gm_update_args *a)
{
    int64_t low = 0, high = a->count;
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (a->entries[middle].chunk <= gm_block_x) low = middle;
        else high = middle;
    }
    return &a->entries[low];
}

/* What the loop over this block's chunk needs of its entry, in registers: the compiler cannot know that no store to a
 * tensor changes the table. */
typedef struct gm_entry_held {
    void           *data[GM_ROLES];
    int64_t         n, first; /* first: element of the chunk */
    int             vectors;
    const gm_entry *entry;
} gm_entry_held;

GM_DEVICE gm_entry_held gm_entry_hold(const gm_entry *t)
{
    gm_entry_held h = {{0}, t->n, (gm_block_x - t->chunk) * GM_UPDATE_CHUNK, t->vectors, t};
    GM_UNROLL for (int role = 0; role < GM_ROLES; role++) h.data[role] = gm_global(t->data[role]);
    return h;
}

/* Elements from the first of a role to number i. */
GM_DEVICE int64_t gm_entry_place(const gm_entry *t, int role, int64_t i)
{
    int64_t at = 0;
    if (t->dense) return i;
    for (int d = t->ndim - 1; d >= 0; d--) {
        at += i % t->shape[d] * t->stride[role][d];
        i /= t->shape[d];
    }
    return at;
}

/* The index of element i in the global tensor, by which its random word is drawn. */
GM_DEVICE uint64_t gm_entry_index(const gm_update_args *a, const gm_entry *t, int64_t i)
{
    uint64_t at = a->first;
    if (!a->boxed) return (uint64_t)i;
    for (int d = t->ndim - 1; d >= 0; d--) {
        at += (uint64_t)(i % t->shape[d] * a->whole[d]);
        i /= t->shape[d];
    }
    return at;
}

/* As gm_round_by_chance (dtype.h): between two neighbours, the upper one with the probability of f's place. */
GM_DEVICE gm_bf16 gm_chance_bf16(float f, uint32_t word)
{
    uint32_t u = gm_as_bits(f);
    gm_bf16  h = gm_put<gm_bf16>(f);
    if ((u & 0x7f800000u) != 0x7f800000u) h.bits = (uint16_t)((u + (word >> 16)) >> 16);
    return h;
}

GM_DEVICE gm_f16 gm_chance_f16(float f, uint32_t word)
{
    uint32_t u = gm_as_bits(f), chance = word >> 16, size = u & 0x7fffffffu;
    gm_f16   h = gm_put<gm_f16>(f);
    if (size >= 0x7f800000u) return h;
    if (size < 0x38800000u) size = ((uint32_t)(gm_as_float(size) * 0x1p40f) + chance) >> 16; /* multiples of 2^-24 */
    else size = (size + (chance >> 3) - 0x38000000u) >> 13;
    h.bits = (uint16_t)((u >> 16 & 0x8000u) | (size < 0x7c00u ? size : 0x7c00u));
    return h;
}

template <class T> GM_DEVICE T gm_chance(gm_real<T> x, uint32_t word)
{
    if constexpr (std::is_same_v<T, gm_bf16>) return gm_chance_bf16(x, word);
    else if constexpr (std::is_same_v<T, gm_f16>) return gm_chance_f16(x, word);
    else return (void)word, x;
}

/* t: the entry that this block works on. */
GM_DEVICE void gm_update_prepare(const gm_update_args *a, const gm_entry *t, gm_update_step *s)
{
    const gm_step_block *b = a->step;
    if (gm_thread == 0) {
        gm_control_step step = gm_control_of_step(a->control, a->control_stride, a->missed, (double)b->step, b->clip,
                                                  b->loss_scale);
        double          n = step.t, lr = b->lr * a->lr_scale / (1 + (n - 1) * a->lr_decay);
        double          momentum = b->has_momentum ? b->momentum : a->momentum;
        int             first = n == 1, outside = a->decoupled && a->trust.kind == GM_TRUST_LAMB;
        double          ratio = 1;
        if (t->trust && !a->part) ratio = gm_trust_ratio(&a->trust, t->trust[0], t->trust[t->trust_stride]);
        s->go = step.go;
        s->scale = a->maximize ? -step.factor : step.factor;
        s->step = (uint64_t)n;
        s->l2 = a->decoupled ? 0 : a->weight_decay;
        s->decay = a->decoupled && !outside ? 1 - lr * a->weight_decay : 1;
        s->outside = outside ? a->weight_decay : 0;
        s->before = a->trust.kind == GM_TRUST_LARS ? ratio : 1;
        s->after = a->trust.kind == GM_TRUST_LAMB ? lr * ratio : lr;
        s->momentum = momentum;
        s->keep = first ? 0 : momentum; /* at step 1 the buffer becomes the gradient */
        s->fresh = first ? 1 : 1 - a->dampening;
        s->root = a->corrects ? 1 / sqrt(1 - pow(a->beta2, n)) : 1;
        s->eps = a->early_eps ? a->eps * s->root : a->eps;
        s->first = a->corrects ? 1 / (1 - pow(momentum, n)) : 1;
    }
    GM_SYNC();
}

/* Writes the two sums of this block's chunk into part. scratch: GM_SUM_WORDS. */
GM_DEVICE void gm_update_sums(const gm_update_args *a, const double *sums, double *scratch)
{
    for (int k = 0; k < 2; k++) {
        const double sum = gm_block_sum(sums[k], scratch);
        if (gm_thread == 0) a->part[2 * gm_block_x + k] = sum;
        GM_SYNC();
    }
}

template <class R> GM_DEVICE gm_update_numbers<R> gm_numbers_of(const gm_update_args *a, const gm_update_step *s)
{
    gm_update_numbers<R> c = {
        (R)s->scale,          (R)s->l2,    (R)s->before,      (R)s->outside, (R)s->after, (R)s->decay, (R)s->momentum,
        (R)(1 - s->momentum), (R)a->beta2, (R)(1 - a->beta2), (R)s->root,    (R)s->first, (R)s->eps,   (R)s->keep,
        (R)s->fresh,          a->nesterov, a->amsgrad,        a->there};
    return c;
}

#define GM_FOR_DTYPE(dtype, work)               \
    if ((dtype) == GM_F32) work(float);         \
    else if ((dtype) == GM_F64) work(double);   \
    else if ((dtype) == GM_BF16) work(gm_bf16); \
    else work(gm_f16)

#endif
