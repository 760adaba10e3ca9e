/* find.c - finds the CPU tables that this machine can run. GM_WITHOUT_*: this build lacks the table (GANYMEDE_CPU_ISA).
 * GM_EMULATED_AVX512: those of AVX-512 are compiled for AVX2, for tests (emulated_avx512.h). */
#include "cpu.h"

#include "amx.h"

#include <string.h>

extern const gm_backend gm_cpu_generic;
#if !defined(GM_WITHOUT_avx2)
extern const gm_backend gm_cpu_avx2;
#endif
#if !defined(GM_WITHOUT_avx2) || defined(GM_EMULATED_AVX512)
static bool runs_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}
#endif
#if !defined(GM_WITHOUT_avx512)
extern const gm_backend gm_cpu_avx512;
#endif
#if !defined(GM_WITHOUT_avx512bf16)
extern const gm_backend gm_cpu_avx512bf16, gm_cpu_amx, gm_cpu_amx_emulated;
#endif
#if !defined(GM_WITHOUT_avx512) || !defined(GM_WITHOUT_avx512bf16)
#if defined(GM_EMULATED_AVX512)
static bool runs_avx512(void) { return runs_avx2(); }
static bool runs_bf16(void) { return true; }
#else
static bool runs_avx512(void)
{
    return __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}
static bool runs_bf16(void) { return __builtin_cpu_supports("avx512bf16"); }
#endif
#endif

bool gm_cpu_emulates_avx512(void)
{
#if defined(GM_EMULATED_AVX512)
    return true;
#else
    return false;
#endif
}

/* "cpu": the best this machine can run. NULL: unknown, not compiled in, or this machine cannot run it. */
const gm_backend *gm_cpu_find(const char *name)
{
    bool best = !strcmp(name, "cpu");
#if !defined(GM_WITHOUT_avx512bf16)
    if (runs_avx512() && runs_bf16()) {
        if ((best || !strcmp(name, "cpu-amx")) && !gm_amx_refusal()) return &gm_cpu_amx;
        if (!strcmp(name, "cpu-amx-emulated")) return &gm_cpu_amx_emulated;
        if (best || !strcmp(name, "cpu-avx512bf16")) return &gm_cpu_avx512bf16;
    }
#endif
#if !defined(GM_WITHOUT_avx512)
    if ((best || !strcmp(name, "cpu-avx512")) && runs_avx512()) return &gm_cpu_avx512;
#endif
#if !defined(GM_WITHOUT_avx2)
    if ((best || !strcmp(name, "cpu-avx2")) && runs_avx2()) return &gm_cpu_avx2;
#endif
    return best || !strcmp(name, "cpu-generic") ? &gm_cpu_generic : NULL;
}
