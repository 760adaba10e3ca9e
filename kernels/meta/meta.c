/* meta.c - kernels over memory that holds nothing. All that a call on meta gives is what gm_run checks and counts
 * (shapes, FLOPs, bytes, the pool's figures), and the values of small constants (known.c). */
#include "meta.h"

static gm_status take_nothing(void *context, size_t bytes, void **out)
{
    (void)context, (void)bytes;
    *out = NULL;
    return GM_OK;
}

static void give_nothing(void *context, void *p, size_t bytes) { (void)context, (void)p, (void)bytes; }

const gm_backend gm_meta = {
    .name = "meta",
    .has_data = false,
    .memory = {take_nothing, give_nothing},
    .kernel =
        {
#define GM_OP(name, rule, in, out, attrs) [GM_OP_##name] = gm_meta_known,
#include "../ops.def"
#undef GM_OP
        },
};
