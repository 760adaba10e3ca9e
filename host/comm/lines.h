/* lines.h - how a rank writes what another core reads next.
 *
 * A core can write to a line of memory only when no other core's cache holds a copy of it. How long that takes depends
 * on the processor. On AMD's cores it takes long (Zen 4: 29 ns a line), and stores past the caches do not wait for it.
 * On Intel's cores it takes 5 ns a line, but stores past the caches bring 4 to 9 GB/s where plain ones do 15. So what
 * the processor is decides, never a timing. The bits are the same (docs/performance_ranks.md has the figures). */
#ifndef GM_COMM_LINES_H
#define GM_COMM_LINES_H

#include <stdbool.h>
#include <stddef.h>

/* Is it slow to write to lines that another core has read? */
bool gm_lines_slow(void);

/* Copies n bytes to memory that another core reads next. slow: gm_lines_slow(), but for tests. */
void gm_copy_for_others(void *to, const void *from, size_t n, bool slow);

#endif
