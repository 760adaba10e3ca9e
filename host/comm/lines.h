/* lines.h - how a rank writes what another core reads next.
 *
 * A core can write to a line of memory only when no other core's cache holds a copy of it. How long that takes depends
 * on the processor:
 *
 *     plain stores         past the caches       string stores      (64 KiB to 4 MiB)
 *     Intel  5 ns a line   4 to 9 GB/s           not measured
 *     Zen 4  29 ns a line  do not wait for it    not measured
 *     Zen 5  2 to 8 ns     40 to 50 GB/s         42 to 100 GB/s, and what they wrote is read faster
 *
 * So what the processor is decides, never a timing. The bits are the same (docs/performance_ranks.md has the figures).
 */
#ifndef GM_COMM_LINES_H
#define GM_COMM_LINES_H

#include <stdbool.h>
#include <stddef.h>

typedef enum gm_line_stores {
    GM_STORES_PLAIN,  /* Intel's */
    GM_STORES_PAST,   /* past the caches: AMD's before Zen 5 */
    GM_STORES_STRING, /* REP MOVSB, which asks for whole lines at once: AMD's from Zen 5 (family 1Ah) on */
} gm_line_stores;

/* The best ones of this processor, or those that were chosen. */
gm_line_stores gm_lines_stores(void);
/* For benchmarks: takes others, in this process, until it ends. */
void gm_lines_choose(gm_line_stores how);

/* Is it slow to write plainly to lines that another core has read? */
bool gm_lines_slow(void);

/* Copies n bytes to memory that another core reads next. They are there before what is stored afterwards is. */
void gm_copy_for_others(void *to, const void *from, size_t n, gm_line_stores how);

#endif
