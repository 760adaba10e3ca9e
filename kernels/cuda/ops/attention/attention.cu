/* attention.cu - attention and its gradient in tiles, for what cuDNN does not do (dnn.h): f32 and f64, and heads of 16
 * bits that are too wide for attention_mma.cu. FlashAttention-2 (Dao 2023): a block goes over the keys of a tile of
 * queries and keeps the largest score, the sum of exp and the weighted values so far, so that scores never reach
 * memory. The gradient of q comes from one kernel, those of k and v from another, each with its sums in one order, so
 * that nothing is added by two blocks.
 *     gm_attention_<narrow or wide>_<dtype>, gm_attention_dq_.., gm_attention_dkv_... */
#include "attention.cuh"

#define GM_ROW (gm_thread / GM_ATTENTION_THREADS)
#define GM_COL (gm_thread % GM_ATTENTION_THREADS)

/* What dropout multiplies a probability with. */
GM_DEVICE double gm_attention_kept(const gm_attention_args *a, int64_t batch, int64_t head, int64_t i, int64_t j)
{
    const gm_attention_drops drops = gm_attention_drops_of(a, batch, head);
    return gm_attention_dropped(&drops, i, j) ? 0 : a->keep;
}

/* Sums and maxima of the 16 threads of a row. */
#define GM_ROW_JOINS(type, name)                                                                     \
    GM_DEVICE type gm_row_sum_##name(type v)                                                         \
    {                                                                                                \
        for (int lanes = GM_ATTENTION_THREADS / 2; lanes; lanes /= 2) v += gm_shuffle_xor(v, lanes); \
        return v;                                                                                    \
    }                                                                                                \
    GM_DEVICE type gm_row_max_##name(type v)                                                         \
    {                                                                                                \
        for (int lanes = GM_ATTENTION_THREADS / 2; lanes; lanes /= 2) {                              \
            type other = gm_shuffle_xor(v, lanes);                                                   \
            v = other > v ? other : v;                                                               \
        }                                                                                            \
        return v;                                                                                    \
    }
GM_ROW_JOINS(float, f32)
GM_ROW_JOINS(double, f64)

#define GM_BODY "../ops/attention/attention_t.cuh"
#include "../../common/each_dtype.cuh"
