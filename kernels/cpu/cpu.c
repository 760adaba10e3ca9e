/* cpu.c - one table of kernels, for the instruction set GM_CPU_ISA, which the build must define.
 *
 * This file includes the parts below; they are not linked. Every function in them is static, so that the tables
 * do not clash, and the compiler sees all code at once. T is float or double inside the *_t.h parts. */
#define _GNU_SOURCE
#include "cpu.h"

#include "../graph_host.h"
#include "parts.h"

#define GM_CAT_(a, b) a##b
#define GM_CAT(a, b)  GM_CAT_(a, b)
#define GM_STR_(a)    #a
#define GM_STR(a)     GM_STR_(a)

extern const gm_backend GM_CAT(gm_cpu_, GM_CPU_ISA);

const gm_backend GM_CAT(gm_cpu_, GM_CPU_ISA) = {
    .name = "cpu-" GM_STR(GM_CPU_ISA),
    .has_data = true,
    .on_host = true,
    .memory = {cpu_raw_alloc, cpu_raw_free},
    GM_HOST_GRAPHS,
    .kernel =
        {
#define GM_OP(name, rule, in, out, attrs) [GM_OP_##name] = any_##name,
#include "../ops.def"
#undef GM_OP
        },
};
