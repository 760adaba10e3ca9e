/* tile_map.c - see tile_map.h. */
#include "tile_map.h"

#include "driver.h"

#define BYTES 2 /* of a number */

bool gm_tile_map_takes(const gm_tile_matrix *m)
{
    return (uintptr_t)m->data % 16 == 0 && m->step * BYTES % 16 == 0 && m->step >= m->columns && m->rows > 0 &&
           m->rows <= INT32_MAX && m->columns > 0 && m->columns <= INT32_MAX && m->step <= INT32_MAX;
}

gm_status gm_tile_map_make(gm_device *dev, const gm_tile_matrix *m, gm_tensor_map *out)
{
    gm_cuda            *cu = gm_cuda_of(dev);
    cuuint64_t          size[] = {(cuuint64_t)m->columns, (cuuint64_t)m->rows}, step[] = {(cuuint64_t)m->step * BYTES};
    cuuint32_t          box[] = {(cuuint32_t)m->tile_columns, (cuuint32_t)m->tile_rows}, each[] = {1, 1};
    CUtensorMapDataType type = m->dtype == GM_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    CUtensorMapSwizzle  swizzle = m->tile_columns == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B;
    _Static_assert(sizeof(CUtensorMap) == sizeof *out, "the kernels' view of the driver's map");
    GM_CU(cu->driver, cuTensorMapEncodeTiled((CUtensorMap *)(void *)out, type, 2, (void *)(uintptr_t)m->data, size,
                                             step, box, each, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                                             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    return GM_OK;
}
