/* table.c - the table of sharded forms by op, from the GM_SHARDED lines of ops.def. A missing form fails to link. */
#include "sharded.h"

const gm_sharded_ops gm_sharded = {.form = {
#define GM_OP(name, rule, in, out, attrs)
#define GM_SHARDED(name) [GM_OP_##name] = gm_sharded_##name,
#include "../../../kernels/ops.def"
#undef GM_OP
                                   }};
