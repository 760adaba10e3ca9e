/* table.c - the forms that communicate, by op: what ops.def marks with GM_SHARDED. A missing one does not link. */
#include "sharded.h"

const gm_sharded_ops gm_sharded = {.form = {
#define GM_OP(name, rule, in, out, attrs)
#define GM_SHARDED(name) [GM_OP_##name] = gm_sharded_##name,
#include "../../../kernels/ops.def"
#undef GM_OP
                                   }};
