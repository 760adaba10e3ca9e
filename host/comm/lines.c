/* lines.c - see lines.h. */
#include "lines.h"

#include <string.h>
#include "../../kernels/cpu/cpu.h"
#include "../../kernels/past_caches.h"

bool gm_lines_slow(void) { return !gm_cpu_is_intel(); }

void gm_copy_for_others(void *to, const void *from, size_t n, bool slow)
{
    if (!slow) {
        memcpy(to, from, n);
        return;
    }
    gm_stream_out(to, from, (int64_t)n);
    gm_stream_end();
}
