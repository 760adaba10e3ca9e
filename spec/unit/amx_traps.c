/* amx_traps.c - see amx_traps.h. Encodings: Intel's Software Developer's Manual, volume 2. All have a VEX prefix of
 * three bytes, map 0F38, W0 and 128 bits. */
#define _GNU_SOURCE
#include "amx_traps.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "../../kernels/cpu/amx_tiles.h"

static struct sigaction before;
static _Atomic int64_t  counts[AMX_DOT + 1];

/* A memory operand, whose ModRM byte is at m -> bytes from m on; 0: a form that is not read here. */
static int read_address(const uint8_t *m, bool more_index, bool more_base, amx_step *s)
{
    const int mode = *m >> 6, low = *m & 7;
    int       used = 1;
    int32_t   far = 0;
    s->memory = true;
    s->index = -1;
    s->base = low + 8 * more_base;
    if (low == 4) {
        const uint8_t sib = m[used++];
        s->scale = 1 << (sib >> 6);
        s->index = (sib >> 3 & 7) + 8 * more_index;
        if (s->index == 4) s->index = -1;
        s->base = (sib & 7) + 8 * more_base;
    }
    if (mode == 1) {
        s->offset = (int8_t)m[used];
        return used + 1;
    }
    if (mode == 0 && (low == 5 || (low == 4 && s->base % 8 == 5))) {
        if (low == 4) return 0; /* without a base: not written by compilers here */
        s->base = -1;
    } else if (mode == 0) {
        return used;
    }
    memcpy(&far, m + used, sizeof far);
    s->offset = far;
    return used + 4;
}

/* Opcode 49: configuration and zeros, by the prefix. */
static void read_49(const uint8_t *code, int prefix, amx_step *s)
{
    const uint8_t m = code[4];
    if (m >> 6 != 3 && prefix == 0 && (m >> 3 & 7) == 0) s->what = AMX_CONFIGURE;
    if (m == 0xc0 && prefix == 0) s->what = AMX_RELEASE;
    if (m >> 6 == 3 && prefix == 3 && (m & 7) == 0) s->what = AMX_ZERO;
}

amx_step amx_read(const uint8_t *code)
{
    amx_step s = {.what = AMX_NONE, .length = 5, .scale = 1};
    if (code[0] != 0xc4 || (code[1] & 0x1f) != 2 || code[2] & 0x84) return s;
    const int  prefix = code[2] & 3; /* 1: 66, 2: F3, 3: F2 */
    const bool more_index = !(code[1] & 0x40), more_base = !(code[1] & 0x20);
    const bool in_memory = code[4] >> 6 != 3;
    s.c = code[4] >> 3 & 7;
    if (code[3] == 0x49) read_49(code, prefix, &s);
    if (code[3] == 0x4b && in_memory && (code[4] & 7) == 4)
        s.what = prefix == 3 ? AMX_LOAD : prefix == 2 ? AMX_STORE : AMX_NONE;
    if (code[3] == 0x5c && !in_memory && prefix == 2) {
        s.what = AMX_DOT;
        s.a = code[4] & 7;
        s.b = (code[2] >> 3 & 15) ^ 15;
    }
    if (s.what != AMX_NONE && in_memory) {
        const int used = read_address(code + 4, more_index, more_base, &s);
        s.length = 4 + used;
        if (!used) s.what = AMX_NONE;
    }
    return s;
}

#if defined(__x86_64__)
/* The register of this number. */
static int64_t value_of(const ucontext_t *at, int number)
{
    static const int order[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                  REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    return at->uc_mcontext.gregs[order[number]];
}

/* The instruction here: done, and past it. A configuration with an index would be elsewhere: none here has one. */
static bool run_one(ucontext_t *at)
{
    const int64_t  pc = at->uc_mcontext.gregs[REG_RIP];
    const amx_step s = amx_read((const uint8_t *)pc);
    const int64_t  from = s.base < 0 ? pc + s.length : value_of(at, s.base);
    const int64_t  stride = s.index < 0 ? 0 : value_of(at, s.index) * s.scale;
    void *const    place = (void *)(from + s.offset);
    switch (s.what) {
    case AMX_CONFIGURE: amx_plain_configure(place); break;
    case AMX_RELEASE: amx_plain_release(); break;
    case AMX_ZERO: amx_plain_zero(s.c); break;
    case AMX_LOAD: amx_plain_load(s.c, place, stride); break;
    case AMX_STORE: amx_plain_store(s.c, place, stride); break;
    case AMX_DOT: amx_plain_dot(s.c, s.a, s.b); break;
    default: return false;
    }
    counts[s.what]++;
    at->uc_mcontext.gregs[REG_RIP] += s.length;
    return true;
}
#else
static bool run_one(ucontext_t *at)
{
    (void)at;
    return false;
}
#endif

static void on_illegal(int number, siginfo_t *info, void *at)
{
    (void)info;
    if (run_one(at)) return;
    sigaction(number, &before, NULL); /* it comes again, and is what it was before */
}

void amx_traps_begin(void)
{
    struct sigaction now = {.sa_flags = SA_SIGINFO};
    now.sa_sigaction = on_illegal;
    sigemptyset(&now.sa_mask);
    for (int i = 0; i <= AMX_DOT; i++) counts[i] = 0;
    sigaction(SIGILL, &now, &before);
}

void amx_traps_end(void) { sigaction(SIGILL, &before, NULL); }

int64_t amx_traps_count(int what) { return counts[what]; }
