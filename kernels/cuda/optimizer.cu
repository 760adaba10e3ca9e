/* optimizer.cu - sum_squares, SGD and Adam over many tensors of any dtypes in one launch. Learning rate, clip, loss
 * scale and step number are read from the step block on the device. Arithmetic is in f32 (f64 for f64), constants of
 * the step are worked out in f64; squares are summed in f64, a sum for each chunk, then all of them in order. */
#include "rows.cuh"
#include "../philox.h"
#include "optimizer_args.h"

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
    GM_UNROLL for (int role = 0; role < GM_ROLES; role++) h.data[role] = GM_GLOBAL(t->data[role]);
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

/* As gm_round_by_chance (dtype.h): between two neighbours, the upper one with the probability of f's place. */
GM_DEVICE gm_bf16 gm_chance_bf16(float f, uint32_t word)
{
    uint32_t u = gm_as_bits(f);
    gm_bf16  h = gm_to_bf16(f);
    if ((u & 0x7f800000u) != 0x7f800000u) h.bits = (uint16_t)((u + (word >> 16)) >> 16);
    return h;
}

GM_DEVICE gm_f16 gm_chance_f16(float f, uint32_t word)
{
    uint32_t u = gm_as_bits(f), chance = word >> 16, size = u & 0x7fffffffu;
    gm_f16   h = gm_put_f16(f);
    if (size >= 0x7f800000u) return h;
    if (size < 0x38800000u) size = ((uint32_t)(gm_as_float(size) * 0x1p40f) + chance) >> 16; /* multiples of 2^-24 */
    else size = (size + (chance >> 3) - 0x38000000u) >> 13;
    h.bits = (uint16_t)((u >> 16 & 0x8000u) | (size < 0x7c00u ? size : 0x7c00u));
    return h;
}

GM_DEVICE float  gm_chance_f32(float f, uint32_t word) { return (void)word, f; }
GM_DEVICE double gm_chance_f64(double f, uint32_t word) { return (void)word, f; }

GM_DEVICE void gm_update_prepare(const gm_update_args *a, gm_update_step *s)
{
    const gm_step_block *b = a->step;
    if (gm_thread == 0) {
        gm_control_step step =
            gm_control_of_step(a->control, a->control_stride, a->missed, (double)b->step, b->clip, b->loss_scale);
        double          t = step.t, lr = b->lr * a->lr_scale, momentum = b->has_momentum ? b->momentum : a->momentum;
        int             first = t == 1;
        s->go = step.go;
        s->scale = step.factor;
        s->lr = lr;
        s->step = (uint64_t)t;
        s->weight_decay = a->decoupled ? 0 : a->weight_decay;
        s->decay = a->decoupled ? 1 - lr * a->weight_decay : 1;
        s->momentum = first ? 0 : momentum; /* at step 1 the buffer becomes the gradient */
        s->ahead = momentum;
        s->fresh = first ? 1 : 1 - a->dampening;
        s->beta1 = b->has_momentum ? b->momentum : a->beta1;
        s->root = a->corrects ? 1 / sqrt(1 - pow(a->beta2, t)) : 0;
        s->rate = a->corrects ? lr / (1 - pow(s->beta1, t)) : 0;
    }
    GM_SYNC();
}

#define GM_BODY "optimizer_t.cuh"
#include "each_dtype.cuh"

#define GM_BY_DTYPE(dtype, base, ...)                        \
    if ((dtype) == GM_F32) base##_f32(__VA_ARGS__);          \
    else if ((dtype) == GM_F64) base##_f64(__VA_ARGS__);     \
    else if ((dtype) == GM_BF16) base##_bf16(__VA_ARGS__);   \
    else base##_f16(__VA_ARGS__)

GM_KERNEL(gm_update, gm_update_args)
{
    GM_SHARED(gm_update_step, step);
    gm_update_prepare(&a, step);
    if (!step->go) return;
    const gm_entry     *t = gm_entry_here(&a);
    const gm_entry_held held = gm_entry_hold(t);
    GM_BY_DTYPE(t->dtype, gm_update_chunk, &a, &held, step);
}

GM_KERNEL(gm_sum_squares, gm_update_args)
{
    GM_SHARED(double, scratch);
    double              sum = 0;
    const gm_entry     *t = gm_entry_here(&a);
    const gm_entry_held held = gm_entry_hold(t);
    GM_BY_DTYPE(t->dtype, gm_square_chunk, &held, &sum);
    sum = gm_block_sum_f64(sum, scratch);
    if (gm_thread == 0) a.part[gm_block_x] = sum;
}

/* y = the sum of part: one block */
GM_KERNEL(gm_sum_squares_join, gm_join_args)
{
    GM_SHARED(double, scratch);
    double sum = 0;
    for (int64_t i = gm_thread; i < a.n; i += gm_block_size) sum += a.part[i];
    sum = gm_block_sum_f64(sum, scratch);
    if (gm_thread == 0) *a.y = sum;
}

/* One thread: a few numbers, added up in order. */
GM_KERNEL(gm_step_control, gm_control_args)
{
    double c[GM_CONTROL_SIZE], total = 0;
    if (gm_thread != 0) return;
    for (int64_t k = 0; k < a.count; k++) {
        double sum = 0;
        for (int64_t i = 0; i < a.squares[k].n; i++) sum += a.squares[k].data[i * a.squares[k].stride];
        total += sum;
    }
    GM_UNROLL for (int i = 0; i < GM_CONTROL_SIZE; i++) c[i] = a.control[i * a.stride];
    gm_control_apply(c, &a.rule, a.loss[0], a.loss[a.loss_stride], a.norm ? *a.norm : sqrt(total),
                      a.refusal && a.refusal->count != 0);
    for (int i = 0; i < GM_CONTROL_SIZE; i++) a.control[i * a.stride] = c[i];
}
