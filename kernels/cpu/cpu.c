/* cpu.c - one table of kernels, for the instruction set GM_CPU_ISA, which the build must define.
 *
 * This file includes the parts below; they are not linked. Every function in them is static, so that the tables
 * do not clash, and the compiler sees all code at once. T is float or double inside the *_t.h parts. */
#define _GNU_SOURCE
#include "cpu.h"

#if defined(GM_EMULATED_AVX512)
#include "emulated_avx512.h"
#endif
#include "../graph_host.h"
#include "parts.h"

#define GM_CAT_(a, b) a##b
#define GM_CAT(a, b)  GM_CAT_(a, b)
#define GM_STR_(a)    #a
#define GM_STR(a)     GM_STR_(a)

#define TABLE      GM_CAT(gm_cpu_, GM_CPU_ISA)
#define TABLE_NAME "cpu-" GM_STR(GM_CPU_ISA)
#include "cpu_t.h"

#if GEMM_PAIRS
/* The same, but for products and attention of bf16. */
#define TABLE      gm_cpu_amx
#define TABLE_NAME "cpu-amx"
#define TABLE_AMX  real
#include "cpu_t.h"
#define TABLE      gm_cpu_amx_emulated
#define TABLE_NAME "cpu-amx-emulated"
#define TABLE_AMX  plain
#include "cpu_t.h"
#endif
