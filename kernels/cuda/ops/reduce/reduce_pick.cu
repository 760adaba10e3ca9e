/* reduce_pick.cu - max, min, argmax and top_k: the first of equals, NaN before numbers. The limit is the bandwidth of
 * reads; of top_k, for each further element n / threads more reads by one thread, which come from the cache. */
#include "../../common/map.cuh"
#include "reduce_args.h"

#define GM_NOWHERE INT64_MAX

#define GM_BODY "../ops/reduce/reduce_pick_t.cuh"
#include "../../common/each_dtype.cuh"
