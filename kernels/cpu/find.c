/* find.c - which CPU tables this machine can run. */
#include "cpu.h"

#include <string.h>

extern const gm_backend gm_cpu_generic;
#if defined(__x86_64__)
extern const gm_backend gm_cpu_avx2, gm_cpu_avx512;
#endif

const gm_backend *gm_cpu_find(const char *name)
{
#if defined(__x86_64__)
    bool has2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool has512 = has2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (has512 && (!strcmp(name, "cpu") || !strcmp(name, "cpu-avx512"))) return &gm_cpu_avx512;
    if (has2 && (!strcmp(name, "cpu") || !strcmp(name, "cpu-avx2"))) return &gm_cpu_avx2;
#endif
    return !strcmp(name, "cpu") || !strcmp(name, "cpu-generic") ? &gm_cpu_generic : NULL;
}
