/* element.h - reading single elements inline, for loops over them: what gm_dtype_size, gm_load (dtype.h) and
 * gm_tensor_data (tensor.h) do. Those call it. Kernels for GPUs do not include this file. */
#ifndef GM_ELEMENT_H
#define GM_ELEMENT_H

#include <math.h>

#include "tensor.h"

static inline size_t gm_element_size(gm_dtype t)
{
    static const unsigned char size[GM_DTYPE_COUNT] = {
#define GM_DTYPE(NAME, name, bytes, kind) bytes,
#include "dtypes.def"
#undef GM_DTYPE
    };
    return size[t];
}

static inline double gm_element(gm_dtype t, const void *base, int64_t i)
{
    switch (t) {
    case GM_F32: return ((const float *)base)[i];
    case GM_F64: return ((const double *)base)[i];
    case GM_BF16: return gm_bf16_to_f32(((const uint16_t *)base)[i]);
    case GM_F16: return gm_f16_to_f32(((const uint16_t *)base)[i]);
    case GM_I32: return ((const int32_t *)base)[i];
    case GM_I64: return (double)((const int64_t *)base)[i];
    case GM_U8: return ((const uint8_t *)base)[i];
    case GM_DTYPE_NONE:
    case GM_DTYPE_COUNT: break;
    }
    return NAN;
}

static inline void *gm_elements(const gm_tensor *t)
{
    if (!t->storage->data) return NULL;
    return (char *)t->storage->data + (size_t)t->offset * gm_element_size(t->dtype);
}

#endif
