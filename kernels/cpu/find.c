/* find.c - finds the CPU tables that this machine can run, and the best of them by what the processor is, never by a
 * timing. GM_WITHOUT_*: this build lacks the table (GANYMEDE_CPU_ISA). GM_EMULATED_AVX512: those of AVX-512 are
 * compiled for AVX2, for tests (emulated_avx512.h). */
#include "cpu.h"

#include "amx.h"

#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

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
#else
static bool runs_avx512(void)
{
    return __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}
#endif
#endif
#if !defined(GM_WITHOUT_avx512bf16)
static bool runs_bf16(void) { return gm_cpu_emulates_avx512() || __builtin_cpu_supports("avx512bf16"); }
#endif

bool gm_cpu_emulates_avx512(void)
{
#if defined(GM_EMULATED_AVX512)
    return true;
#else
    return false;
#endif
}

bool gm_cpu_is_intel(void) { return __builtin_cpu_is("intel"); }

/* Base and extended family; 0: not known. It is asked once, because CPUID leaves a virtual machine: 4 to 8 us. */
static int family(void)
{
    static _Atomic int known = -1;
    int                found = known;
    if (found >= 0) return found;
    found = 0;
#if defined(__x86_64__)
    unsigned a, b, c, d;
    if (__get_cpuid(1, &a, &b, &c, &d)) found = (int)((a >> 8 & 0xf) + (a >> 20 & 0xff));
#endif
    return known = found;
}

/* GCC 12 knows no name of it. */
bool gm_cpu_is_zen5(void) { return __builtin_cpu_is("amd") && family() >= 0x1a; }

/* Intel's cores with AVX512-FP16 (Sapphire Rapids and later) do a vdpbf16ps in two cycles, where two products of f32
 * begin in each (measured: 102 GFLOP/s, and 204 in f32). AMD's cores do one of either in a cycle (Zen 4: 234 and 117).
 * Intel's Cooper Lake has no AVX512-FP16 and was not measured: it counts as the others. */
bool gm_cpu_pairs_slow(void)
{
#if defined(GM_EMULATED_AVX512)
    return false;
#else
    return gm_cpu_is_intel() && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512fp16");
#endif
}

const char *gm_cpu_best(gm_cpu_tables has, bool pairs_slow)
{
    if (has.amx) return "cpu-amx";
    if (has.avx512bf16 && !(pairs_slow && has.avx512)) return "cpu-avx512bf16";
    return has.avx512 ? "cpu-avx512" : has.avx2 ? "cpu-avx2" : "cpu-generic";
}

static gm_cpu_tables tables_here(void)
{
    gm_cpu_tables has = {.avx2 = false};
#if !defined(GM_WITHOUT_avx2)
    has.avx2 = runs_avx2();
#endif
#if !defined(GM_WITHOUT_avx512)
    has.avx512 = runs_avx512();
#endif
#if !defined(GM_WITHOUT_avx512bf16)
    has.avx512bf16 = runs_avx512() && runs_bf16();
    has.amx = has.avx512bf16 && !gm_amx_refusal();
#endif
    return has;
}

/* "cpu": the best this machine can run. NULL: unknown, not compiled in, or this machine cannot run it. */
const gm_backend *gm_cpu_find(const char *name)
{
    const gm_cpu_tables has = tables_here();
    if (!strcmp(name, "cpu")) name = gm_cpu_best(has, gm_cpu_pairs_slow());
#if !defined(GM_WITHOUT_avx512bf16)
    if (has.amx && !strcmp(name, "cpu-amx")) return &gm_cpu_amx;
    if (has.avx512bf16 && !strcmp(name, "cpu-amx-emulated")) return &gm_cpu_amx_emulated;
    if (has.avx512bf16 && !strcmp(name, "cpu-avx512bf16")) return &gm_cpu_avx512bf16;
#endif
#if !defined(GM_WITHOUT_avx512)
    if (has.avx512 && !strcmp(name, "cpu-avx512")) return &gm_cpu_avx512;
#endif
#if !defined(GM_WITHOUT_avx2)
    if (has.avx2 && !strcmp(name, "cpu-avx2")) return &gm_cpu_avx2;
#endif
    return !strcmp(name, "cpu-generic") ? &gm_cpu_generic : NULL;
}
