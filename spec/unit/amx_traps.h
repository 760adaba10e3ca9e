/* amx_traps.h - runs the instructions of AMX on a processor that lacks them. Each is an illegal instruction there; a
 * handler of SIGILL reads what it asks for, does that in plain C (kernels/cpu/amx_tiles.h), and goes on behind it. So
 * the code that a processor with AMX will run is run here: its operands, its strides, its order. */
#ifndef GM_UNIT_AMX_TRAPS_H
#define GM_UNIT_AMX_TRAPS_H

#include <stdbool.h>
#include <stdint.h>

/* What one instruction asks for. */
typedef struct amx_step {
    enum { AMX_NONE, AMX_CONFIGURE, AMX_RELEASE, AMX_ZERO, AMX_LOAD, AMX_STORE, AMX_DOT } what;
    int     length;  /* bytes */
    int     c, a, b; /* tiles; c alone where there is one */
    bool    memory;
    int     base, index, scale; /* registers, 0 to 15 in the order of their numbers; base -1: the next instruction */
    int64_t offset;
} amx_step;

/* Reads an instruction; NONE: it is none of these. */
amx_step amx_read(const uint8_t *code);

/* From here on they run, on all threads; and no more. How many of each kind have run is counted from begin on. */
void    amx_traps_begin(void);
void    amx_traps_end(void);
int64_t amx_traps_count(int what);

#endif
