/* cpu.h - the fast CPU backend, compiled once for each instruction set from the same source.
 *
 * cpu.c is one translation unit. It includes the parts (elementwise.c, norm.c, ...), whose functions are static and
 * named cpu_<op>, and exports one table. CMake compiles it four times, with -DGM_CPU_ISA=generic, avx2, avx512 and
 * avx512bf16 (which multiplies bf16, gemm_pairs.c) and the matching -m flags. gm_cpu_find chooses the table for this
 * machine. */
#ifndef GM_CPU_H
#define GM_CPU_H

#include "../device.h"
#include "../step_control.h"

/* "cpu": the best here; "cpu-generic", "cpu-avx2", "cpu-avx512", "cpu-avx512bf16": that one, NULL if it cannot run. */
const gm_backend *gm_cpu_find(const char *name);

#endif
