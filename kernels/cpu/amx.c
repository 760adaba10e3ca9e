/* amx.c - see amx.h. Numbers are those of Intel's Software Developer's Manual, volume 1, chapter 18 ("Programming with
 * Intel AMX"), and of Linux' Documentation/arch/x86/xstate.rst. */
#define _GNU_SOURCE
#include "amx.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LEAF_1_OSXSAVE  (1u << 27) /* of ecx: xgetbv is an instruction */
#define LEAF_7_AMX_BF16 (1u << 22) /* of edx */
#define LEAF_7_AMX_TILE (1u << 24)
#define XCR0_TILES      (3u << 17) /* the configuration (17) and the data (18) of tiles */
#define REQUEST_STATE   0x1023     /* of arch_prctl: ARCH_REQ_XCOMP_PERM */
#define STATE_TILE_DATA 18

bool gm_amx_exists(void)
{
    const unsigned both = LEAF_7_AMX_BF16 | LEAF_7_AMX_TILE;
    unsigned       a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & both) == both;
}

static bool state_is_kept(void)
{
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & LEAF_1_OSXSAVE)) return false;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & XCR0_TILES) == XCR0_TILES;
}

static int request_state(void) { return syscall(SYS_arch_prctl, REQUEST_STATE, STATE_TILE_DATA) ? errno : 0; }
#else
bool gm_amx_exists(void) { return false; }

static bool state_is_kept(void) { return false; }

static int request_state(void) { return ENOSYS; }
#endif

void gm_amx_judge(bool exists, bool kept, int error, char *text, size_t room)
{
    text[0] = 0;
    if (!exists) snprintf(text, room, "this CPU has no AMX for bf16");
    else if (!kept)
        snprintf(text, room, "the system does not keep the state of AMX tiles (XCR0): an old kernel, or a hypervisor");
    else if (error == ENOSPC)
        snprintf(text, room, "the kernel refuses AMX tiles, because a signal stack of this process is too small");
    else if (error)
        snprintf(text, room, "the kernel refuses AMX tiles (%s); Linux permits them from 5.16 on", strerror(error));
}

static char           refusal[160];
static pthread_once_t judged = PTHREAD_ONCE_INIT;

static void judge(void)
{
    const bool exists = gm_amx_exists(), kept = exists && state_is_kept();
    gm_amx_judge(exists, kept, kept ? request_state() : 0, refusal, sizeof refusal);
}

const char *gm_amx_refusal(void)
{
    pthread_once(&judged, judge);
    return refusal[0] ? refusal : NULL;
}
