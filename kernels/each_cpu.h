/* each_cpu.h - compiles a function for several instruction sets. The loader of the system chooses the best one.
 *
 *     GM_FOR_EACH_CPU static void add(const float *a, const float *b, float *out, int64_t n) { ... }
 *
 * For loops outside of kernels/cpu, which has tables of its own. They must give the same bits in all sets: elements do
 * not depend on each other, and the build fuses no product with a sum. */
#ifndef GM_EACH_CPU_H
#define GM_EACH_CPU_H

/* The loader asks which one to take before the thread sanitizer is there. */
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__SANITIZE_THREAD__)
#define GM_FOR_EACH_CPU __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define GM_FOR_EACH_CPU
#endif

#endif
