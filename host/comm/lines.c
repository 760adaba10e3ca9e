/* lines.c - see lines.h. */
#include "lines.h"

#include <string.h>
#include "../../kernels/cpu/cpu.h"
#include "../../kernels/past_caches.h"

static bool           chosen;
static gm_line_stores choice;

static gm_line_stores best(void)
{
    if (gm_cpu_is_zen5()) return GM_STORES_STRING;
    return gm_cpu_is_intel() ? GM_STORES_PLAIN : GM_STORES_PAST;
}

gm_line_stores gm_lines_stores(void) { return chosen ? choice : best(); }

void gm_lines_choose(gm_line_stores how)
{
    chosen = true;
    choice = how;
}

bool gm_lines_slow(void) { return gm_lines_stores() != GM_STORES_PLAIN; }

static void copy_string(void *to, const void *from, size_t n)
{
#if defined(__x86_64__)
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
#else
    memcpy(to, from, n);
#endif
}

void gm_copy_for_others(void *to, const void *from, size_t n, gm_line_stores how)
{
    switch (how) {
    case GM_STORES_PLAIN: memcpy(to, from, n); break;
    case GM_STORES_STRING: copy_string(to, from, n); break;
    case GM_STORES_PAST:
        gm_stream_out(to, from, (int64_t)n);
        gm_stream_end();
        break;
    }
}
