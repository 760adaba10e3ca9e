/* fake_sums.c - see fake_sums.h. */
#include "fake_sums.h"

#include <nccl.h>
#include <stdbool.h>
#include <stdint.h>

#include "../../kernels/dtype.h"

size_t gm_fake_size(int type)
{
    switch (type) {
    case ncclFloat32:
    case ncclInt32: return 4;
    case ncclFloat64:
    case ncclInt64: return 8;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    default: return 1;
    }
}

static gm_dtype float_of(int type)
{
    return type == ncclFloat32 ? GM_F32 : type == ncclFloat64 ? GM_F64 : type == ncclFloat16 ? GM_F16 : GM_BF16;
}

static bool is_float(int type) { return type >= ncclFloat16 && type <= ncclBfloat16; }

static int64_t load_whole(int type, const void *p, size_t i)
{
    return type == ncclInt64   ? ((const int64_t *)p)[i]
           : type == ncclInt32 ? ((const int32_t *)p)[i]
                               : ((const uint8_t *)p)[i];
}

static void store_whole(int type, void *p, size_t i, int64_t v)
{
    if (type == ncclInt64) ((int64_t *)p)[i] = v;
    else if (type == ncclInt32) ((int32_t *)p)[i] = (int32_t)v;
    else ((uint8_t *)p)[i] = (uint8_t)v;
}

static void combine_whole(int type, int op, void *sum, const void *term, size_t i)
{
    int64_t a = load_whole(type, sum, i), b = load_whole(type, term, i), v = (int64_t)((uint64_t)a + (uint64_t)b);
    if (op == ncclMax) v = a > b ? a : b;
    if (op == ncclMin) v = a < b ? a : b;
    store_whole(type, sum, i, v);
}

static void combine_float(int type, int op, void *sum, const void *term, size_t i)
{
    gm_dtype t = float_of(type);
    double   a = gm_load(t, sum, (int64_t)i), b = gm_load(t, term, (int64_t)i), v = a + b;
    if (op == ncclMax) v = a > b ? a : b;
    if (op == ncclMin) v = a < b ? a : b;
    gm_store(t, sum, (int64_t)i, t == GM_F64 ? v : (double)(float)v);
}

void gm_fake_combine(int type, int op, int places, char *sum, const char *term, bool last, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!is_float(type)) {
            combine_whole(type, op, sum, term, i);
            continue;
        }
        gm_dtype t = float_of(type);
        combine_float(type, op, sum, term, i);
        if (last && op == ncclAvg) gm_store(t, sum, (int64_t)i, gm_load(t, sum, (int64_t)i) / places);
    }
}
