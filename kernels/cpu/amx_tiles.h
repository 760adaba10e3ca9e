/* amx_tiles.h - the instructions of AMX that products of bf16 take, and the same in plain C.
 *
 *     amx_real_NAME    the instructions, for processors that have them (amx.h). Where a tile is named, write a digit.
 *     amx_plain_NAME   what Intel's manual says that they do (Software Developer's Manual, volume 2: LDTILECFG,
 *                      TILELOADD, TILESTORED, TILEZERO, TILERELEASE, TDPBF16PS), for tests on other processors
 *
 *     configure(config)        shapes of the eight tiles, which become zero; before all else, on each thread
 *     release()                ends the use of tiles: the system then has no state of them to keep for this thread
 *     zero(t)
 *     load(t, base, stride)    rows of a tile from memory, `stride` bytes apart; any alignment
 *     store(t, base, stride)   and to memory
 *     dot(c, a, b)             c += a b: rows of a hold pairs of bf16, row k of b pair k of each column; c is f32
 *
 * dot takes numbers below 2^-126 as zeros, and makes zeros of such sums. It adds the first numbers of all pairs, apart
 * from these the second ones, then both sums, then c, each step rounded to the nearest even.
 *
 * Tiles belong to the thread, and a call may change them: nothing may be called between the first use and the store. */
#ifndef GM_CPU_AMX_TILES_H
#define GM_CPU_AMX_TILES_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define AMX_TILES 8

/* What LDTILECFG reads: 64 bytes. Those without a name are zero, or it is a fault (#GP). */
typedef struct amx_config {
    uint8_t  palette, start_row, none[14]; /* palette 1: eight tiles of up to 16 rows and 64 bytes a row */
    uint16_t row_bytes[AMX_TILES], no_bytes[AMX_TILES];
    uint8_t  rows[AMX_TILES], no_rows[AMX_TILES];
} __attribute__((aligned(64))) amx_config;

/* All tiles whole. */
__attribute__((unused)) static const amx_config amx_whole = {
    .palette = 1,
    .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
    .rows = {16, 16, 16, 16, 16, 16, 16, 16},
};

/* ---- the instructions ---- */

/* In assembly, because the macros of GCC 12 do not say that a load reads memory. Their functions are AMX_TARGET. */
#define AMX_TARGET                 __attribute__((target("amx-tile,amx-bf16")))
#define amx_real_configure(config) __asm__ volatile("ldtilecfg %0" : : "m"(*(config)))
#define amx_real_release()         __asm__ volatile("tilerelease")
#define amx_real_zero(t)           __asm__ volatile("tilezero %%tmm" #t:)
#define amx_real_load(t, base, stride) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t : : "r"(base), "r"((int64_t)(stride)) : "memory")
#define amx_real_store(t, base, stride) \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" : : "r"(base), "r"((int64_t)(stride)) : "memory")
#define amx_real_dot(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c:)

/* ---- plain C ---- */

typedef union amx_row {
    uint32_t pair[16]; /* the first number in the lower half */
    float    number[16];
} __attribute__((aligned(64))) amx_row;

/* fault: what the processor would not have done since tiles were configured, in words. What is stored is NaN then. */
static _Thread_local struct amx_plain {
    bool        configured;
    const char *fault;
    amx_config  config;
    amx_row     tile[AMX_TILES][16];
} amx_plain;

static inline void amx_plain_fault(const char *what)
{
    if (!amx_plain.fault) amx_plain.fault = what;
}

/* NULL, or why LDTILECFG would not take it. */
static inline const char *amx_config_fault(const amx_config *c)
{
    unsigned reserved = 0;
    if (c->palette != 1) return "the palette is not 1";
    if (c->start_row) return "a row to start with is for the system alone";
    for (int i = 0; i < 14; i++) reserved |= c->none[i];
    for (int t = 0; t < AMX_TILES; t++) reserved |= c->no_bytes[t] | c->no_rows[t];
    if (reserved) return "reserved bytes of a configuration are not zero";
    for (int t = 0; t < AMX_TILES; t++) {
        if (c->rows[t] > 16 || c->row_bytes[t] > 64) return "a tile has at most 16 rows of 64 bytes";
        if (!c->rows[t] != !c->row_bytes[t]) return "a tile has rows without bytes, or bytes without rows";
    }
    return NULL;
}

static inline void amx_plain_configure(const amx_config *config)
{
    memset(&amx_plain, 0, sizeof amx_plain);
    amx_plain.fault = amx_config_fault(config);
    if (amx_plain.fault) return;
    amx_plain.config = *config;
    amx_plain.configured = true;
}

static inline void amx_plain_release(void) { memset(&amx_plain, 0, sizeof amx_plain); }

static inline amx_row *amx_plain_tile(int t)
{
    if (!amx_plain.configured) amx_plain_fault("tiles are used, and were not configured on this thread");
    else if (!amx_plain.config.rows[t]) amx_plain_fault("a tile is used that the configuration does not have");
    return amx_plain.tile[t];
}

static inline void amx_plain_zero(int t) { memset(amx_plain_tile(t), 0, sizeof amx_plain.tile[t]); }

static inline void amx_plain_load(int t, const void *base, int64_t stride)
{
    amx_row *row = amx_plain_tile(t);
    amx_plain_zero(t);
    for (int i = 0; i < amx_plain.config.rows[t]; i++)
        memcpy(row + i, (const char *)base + i * stride, amx_plain.config.row_bytes[t]);
}

static inline void amx_plain_store(int t, void *base, int64_t stride)
{
    const amx_row *row = amx_plain_tile(t);
    for (int i = 0; i < 16 && amx_plain.fault; i++) memset((char *)base + i * stride, 0xff, sizeof *row);
    for (int i = 0; i < amx_plain.config.rows[t] && !amx_plain.fault; i++)
        memcpy((char *)base + i * stride, row + i, amx_plain.config.row_bytes[t]);
}

/* Numbers below the normal range become zeros of their sign. */
static inline float amx_flushed(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x; }

/* One half of a pair, whose bits are the upper ones of `word`. */
static inline float amx_number(uint32_t word)
{
    float x;
    word &= 0xffff0000u;
    memcpy(&x, &word, sizeof x);
    return amx_flushed(x);
}

/* Row c += row a times b, `pairs` pairs and `columns` columns. */
static inline void amx_plain_row(amx_row *c, const amx_row *a, const amx_row *b, int pairs, int columns)
{
    float first[16] = {0}, second[16] = {0};
    for (int k = 0; k < pairs; k++)
        for (int n = 0; n < columns; n++) {
            const uint32_t x = a->pair[k], y = b[k].pair[n];
            first[n] = amx_flushed(fmaf(amx_number(x << 16), amx_number(y << 16), first[n]));
            second[n] = amx_flushed(fmaf(amx_number(x), amx_number(y), second[n]));
        }
    for (int n = 0; n < columns; n++)
        c->number[n] = amx_flushed(amx_flushed(c->number[n]) + amx_flushed(first[n] + second[n]));
}

static inline void amx_plain_dot(int c, int a, int b)
{
    amx_row          *to = amx_plain_tile(c);
    const amx_row    *x = amx_plain_tile(a), *y = amx_plain_tile(b);
    const amx_config *f = &amx_plain.config;
    if (c == a || c == b || a == b) amx_plain_fault("two operands of a product are the same tile");
    if (f->row_bytes[c] % 4 || f->row_bytes[a] % 4 || f->row_bytes[b] % 4)
        amx_plain_fault("a tile does not hold whole pairs");
    if (f->rows[c] != f->rows[a] || f->row_bytes[c] != f->row_bytes[b] || f->row_bytes[a] / 4 != f->rows[b])
        amx_plain_fault("tiles of a product do not fit");
    for (int m = 0; m < f->rows[c]; m++) amx_plain_row(to + m, x + m, y, f->row_bytes[a] / 4, f->row_bytes[c] / 4);
}

#endif
