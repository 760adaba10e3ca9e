/* map.cuh - what elementwise kernels are made of: loops over a map (map.h) in items of 16 bytes or
 * in elements, for each dtype.
 *
 * A file of kernels includes this, then names its kernels for one dtype in a *_t.cuh: in it GM_D is the dtype (f32,
 * f64, bf16, f16), GM_T its C type, GM_R the type that it is worked on in and GM_S that type's dtype (f32, f64):
 *
 *     #define GM_BODY "../ops/elementwise/elementwise_unary_t.cuh"
 *     #include "each_dtype.cuh"
 *
 * A thread has two items an operand under way: with the 1,024 threads a multiprocessor that 64 registers allow, that is
 * 32 KiB of loads an operand; bandwidth times latency asks for about 29 on an H200. */
#ifndef GM_CUDA_ELEMENTWISE_CUH
#define GM_CUDA_ELEMENTWISE_CUH

#include "functions.cuh"
#include "map.h"

#define GM_E(base)  GM_PASTE(base, GM_D) /* by dtype */
#define GM_N(base)  GM_PASTE(base, GM_S) /* by type of arithmetic */
#define GM_V        GM_E(GM_LANES)
#define GM_AT(p, i) GM_E(gm_get)(((const GM_T *)(p))[i])
#define GM_TO(p, i) ((GM_T *)(p))[i]
#define GM_EACH_KERNEL(base, type) GM_KERNEL_NAMED(GM_E(base), type)

#define GM_BODY "map_t.cuh"
#include "each_dtype.cuh"

/* out = expression of u and v, the elements of `inputs` (1 or 2) inputs, in items; then the tail. Both items of a turn
 * are loaded before the first is worked on; the loop over them stays a loop, for the code's size. */
#define GM_MAP_ITEMS(inputs, expression)                                                                        \
    const int64_t step_ = gm_grid_x * gm_block_size, first_ = gm_block_x * gm_block_size + gm_thread;           \
    for (int64_t i_ = first_; i_ < a.map.n; i_ += 2 * step_) {                                                  \
        gm_vector now_[inputs], then_[inputs];                                                                  \
        int64_t   at_[(inputs) + 1], then_at_[(inputs) + 1];                                                    \
        const int both_ = i_ + step_ < a.map.n;                                                                 \
        gm_map_place(&a.map, (inputs) + 1, i_, at_);                                                            \
        gm_map_place(&a.map, (inputs) + 1, both_ ? i_ + step_ : i_, then_at_);                                  \
        GM_UNROLL for (int o_ = 0; o_ < (inputs); o_++)                                                         \
        {                                                                                                       \
            now_[o_] = GM_E(gm_fetch)(a.in[o_], at_[o_ + 1], a.map.step[o_ + 1]);                               \
            then_[o_] = GM_E(gm_fetch)(a.in[o_], then_at_[o_ + 1], a.map.step[o_ + 1]);                         \
        }                                                                                                       \
        GM_ROLLED for (int b_ = 0; b_ <= both_; b_++)                                                           \
        {                                                                                                       \
            GM_R x_[inputs][GM_V], y_[GM_V];                                                                    \
            GM_UNROLL for (int o_ = 0; o_ < (inputs); o_++) GM_E(gm_unpack)(b_ ? then_[o_] : now_[o_], x_[o_]); \
            GM_UNROLL for (int k_ = 0; k_ < GM_V; k_++)                                                         \
            {                                                                                                   \
                GM_R u = x_[0][k_], v = x_[(inputs) - 1][k_];                                                   \
                GM_N(gm_ignore)(v);                                                                             \
                y_[k_] = (expression);                                                                          \
            }                                                                                                   \
            GM_E(gm_give)(a.out, b_ ? then_at_[0] : at_[0], y_);                                                \
        }                                                                                                       \
    }                                                                                                           \
    if (first_ < a.map.tail) {                                                                                  \
        int64_t i_ = a.map.n * GM_V + first_;                                                                   \
        GM_R    u = GM_AT(a.in[0], i_ * a.map.step[1]);                                                         \
        GM_R    v = GM_AT(a.in[(inputs) - 1], i_ * a.map.step[inputs]);                                         \
        GM_N(gm_ignore)(v);                                                                                     \
        GM_TO(a.out, i_) = GM_E(gm_put)(expression);                                                            \
    }

/* The same one element at a time, of any strides. */
#define GM_MAP_ELEMENTS(inputs, expression)              \
    GM_GRID_LOOP(i_, a.map.n)                            \
    {                                                    \
        int64_t at_[(inputs) + 1];                       \
        gm_map_place(&a.map, (inputs) + 1, i_, at_);     \
        GM_R u = GM_AT(a.in[0], at_[1]);                 \
        GM_R v = GM_AT(a.in[(inputs) - 1], at_[inputs]); \
        GM_N(gm_ignore)(v);                              \
        GM_TO(a.out, at_[0]) = GM_E(gm_put)(expression); \
    }

#endif
