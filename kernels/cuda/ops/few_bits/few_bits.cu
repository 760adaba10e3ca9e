/* few_bits.cu - weights of 8 or 4 bits (kernels/few_bits.h): their codes, their numbers, and the product for a few rows
 * of x. In the product a warp has a row of the weights. Its lanes have the 32 numbers of a unit, so that a code is read
 * once for all rows of x; the limit is the memory that the codes come from. */
#include "../../common/functions.cuh"
#include "../../common/rows.cuh"
#include "../../../few_bits.h"
#include "few_bits_args.h"

constexpr int ROWS = GM_FEW_BITS_ROWS;

GM_DEVICE float gm_size_of(float x) { return x < 0 ? -x : x; }

/* Bits as a word of their own. Without it, the ptxas of CUDA 13.0 takes the low byte of an f16 that is stored for the
 * number as a whole one: it makes F2I.U8.F16 of cvt.rn.f16.f32 and st.u8 (seen on an H200). */
GM_DEVICE uint32_t gm_word(uint32_t bits)
{
#ifndef GM_EMULATED
    asm("" : "+r"(bits));
#endif
    return bits;
}

/* A thread makes a block. */
template <class T> GM_DEVICE void gm_few_encode(const gm_few_bits_args a)
{
    const int64_t blocks = gm_few_blocks(a.group, a.columns);
    GM_GRID_LOOP(i, a.rows * blocks) {
        const int64_t row = i / blocks, first = i % blocks * a.group;
        const int64_t n = a.columns - first < a.group ? a.columns - first : a.group;
        const T      *x = (const T *)a.x.data + gm_row_start(&a.x, row) + first * a.x.step;
        uint8_t      *block = (uint8_t *)a.codes + row * a.step + i % blocks * gm_few_block_bytes(a.bits, a.group);
        float         largest = 0, strange = 0;
        for (int64_t j = 0; j < n; j++) {
            const float v = (float)gm_get(x[j * a.x.step]);
            if (gm_size_of(v) > gm_size_of(largest)) largest = v;
            strange += v * 0;
        }
        const float scale = strange == 0 ? gm_few_scale_of(a.bits, largest) : strange,
                    inverse = scale != 0 ? 1.0f / scale : 0;
        const uint32_t half = gm_word(gm_to_f16(scale).bits);
        block[0] = (uint8_t)half;
        block[1] = (uint8_t)(half >> 8);
        for (int64_t j = 0; j < a.group; j++) {
            const int code = j < n ? gm_few_code_of(a.bits, (float)gm_get(x[j * a.x.step]), inverse) : 0;
            gm_few_put_code(a.bits, block, j, code);
        }
    }
}

/* Number i of a row of codes. */
GM_DEVICE float gm_few_number(const gm_few_bits_args *a, const uint8_t *row, int64_t i)
{
    const uint8_t *block = row + i / a->group * gm_few_block_bytes(a->bits, a->group);
    return gm_get(gm_f16{gm_few_scale(block)}) * (float)gm_few_code(a->bits, block, i % a->group);
}

template <class T> GM_DEVICE void gm_few_decode(const gm_few_bits_args a)
{
    GM_TEAM(team, lane, row);
    if (row >= a.count) return;
    const int64_t  from = a.index.data ? gm_row_index(&a.index, a.narrow, row) : row;
    const bool     inside = from >= 0 && from < a.rows;
    const uint8_t *codes = (const uint8_t *)a.codes + (inside ? from : 0) * a.step;
    T             *y = (T *)a.y.data + gm_row_start(&a.y, row);
    if (!inside && !a.part && lane == 0) gm_refuse(a.refusal, a.op, from, row, a.rows);
    for (int64_t i = lane; i < a.columns; i += team)
        y[i * a.y.step] = gm_put<T>((gm_real<T>)(inside ? gm_few_number(&a, codes, i) : 0));
}

/* The functions that products apply: others, which want local memory, are not among them. */
template <class R> GM_DEVICE R gm_activation_of(int function, R x)
{
    switch (function) {
    case GM_FN_relu: return gm_fn_relu(x, (R)0);
    case GM_FN_gelu: return gm_fn_gelu(x, (R)0);
    case GM_FN_gelu_tanh: return gm_fn_gelu_tanh(x, (R)0);
    case GM_FN_silu: return gm_fn_silu(x, (R)0);
    case GM_FN_sigmoid: return gm_fn_sigmoid(x, (R)0);
    case GM_FN_tanh: return gm_fn_tanh(x, (R)0);
    default: return x;
    }
}

template <class T, class R = gm_real<T>> GM_DEVICE void gm_few_product(const gm_few_bits_args a)
{
    GM_TEAM(team, lane, out);
    if (out >= a.rows) return; /* all lanes of a warp alike */
    const uint8_t *codes = (const uint8_t *)a.codes + out * a.step;
    R              sum[ROWS];
    GM_UNROLL for (int r = 0; r < ROWS; r++) sum[r] = 0;
    for (int64_t i = lane; i < a.columns; i += team) {
        const R w = (R)gm_few_number(&a, codes, i);
        GM_UNROLL for (int r = 0; r < ROWS; r++) if (r < a.count)
            sum[r] += w * (R)gm_get(((const T *)a.x.data)[gm_row_start(&a.x, r) + i * a.x.step]);
    }
    const R bias = a.bias.data ? (R)gm_get(((const T *)a.bias.data)[out * a.bias.step]) : 0;
    GM_ROLLED for (int r = 0; r < a.count; r++)
    {
        const R y = gm_warp_sum(sum[0]) + bias;
        gm_push<ROWS>(sum, 0);
        if (lane) continue;
        if (a.pre.data) ((T *)a.pre.data)[gm_row_start(&a.pre, r) + out * a.pre.step] = gm_put<T>(y);
        ((T *)a.y.data)[gm_row_start(&a.y, r) + out * a.y.step] = gm_put<T>(gm_activation_of(a.function, y));
    }
}

GM_KERNELS(gm_few_encode, gm_few_bits_args)
GM_KERNELS(gm_few_decode, gm_few_bits_args)
GM_KERNELS(gm_few_product, gm_few_bits_args)
