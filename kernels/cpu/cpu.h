/* cpu.h - the fast CPU backend, compiled once for each instruction set from the same source.
 *
 * cpu.c is one translation unit. It includes the parts (elementwise.c, norm.c, ...), whose functions are static and
 * named cpu_<op>, and exports one table. CMake compiles it four times, with -DGM_CPU_ISA=generic, avx2, avx512 and
 * avx512bf16 (which multiplies bf16, gemm_pairs.c) and the matching -m flags; tests compile the last two with
 * emulated_avx512.h in their place. With avx512bf16 it exports the tables amx and amx-emulated as well, whose products
 * and attention of bf16 are others (gemm_amx.c, attention_amx.c). gm_cpu_find chooses the table for this machine. */
#ifndef GM_CPU_H
#define GM_CPU_H

#include "../device.h"
#include "../step_control.h"

/* "cpu": the best here (gm_cpu_best); "cpu-generic", "cpu-avx2", "cpu-avx512", "cpu-avx512bf16", "cpu-amx": that one,
 * NULL if it cannot run. "cpu-amx-emulated", for tests: cpu-amx with plain C in place of the instructions of AMX; it
 * needs what cpu-avx512bf16 needs, and is never the best. */
const gm_backend *gm_cpu_find(const char *name);

/* Is AVX-512 emulated, by a build for tests (GANYMEDE_EMULATE_AVX512)? Its tables then count as what any CPU with AVX2
 * can run, and as the best. */
bool gm_cpu_emulates_avx512(void);

/* Is this processor Intel's? Is it AMD's, of Zen 5 or later (family 1Ah)? */
bool gm_cpu_is_intel(void);
bool gm_cpu_is_zen5(void);

/* Does this processor multiply pairs of bf16 (vdpbf16ps) more slowly than the same numbers in f32? The best table is
 * then cpu-avx512, which widens them, unless there is AMX. Memory limits products of few rows: there pairs are as fast
 * or faster. */
bool gm_cpu_pairs_slow(void);

/* Which tables can run: the processor has what they need, and this build has them. */
typedef struct gm_cpu_tables {
    bool avx2, avx512, avx512bf16, amx;
} gm_cpu_tables;

/* The name of the best of them; for gm_cpu_find, and for tests. */
const char *gm_cpu_best(gm_cpu_tables has, bool pairs_slow);

#endif
