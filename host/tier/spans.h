/* spans.h - when a disk moved bytes, and when the program did nothing but wait for it: what a trace shows of it.
 *
 * Times are seconds of gm_now. A transfer ends when the program notices its end, which may be later than the end was:
 * the system keeps no time of it. A wait is exact. */
#ifndef GM_TIER_SPANS_H
#define GM_TIER_SPANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum gm_disk_activity { GM_DISK_READING, GM_DISK_WRITING, GM_DISK_WAITING } gm_disk_activity;

typedef struct gm_disk_span {
    gm_disk_activity what;
    double           begin, end;
    uint64_t         bytes; /* 0 for a wait */
} gm_disk_span;

typedef struct gm_disk_spans {
    bool          on;
    size_t        n, room;
    uint64_t      lost; /* spans for which there was no memory */
    gm_disk_span *list;
} gm_disk_spans;

void gm_disk_spans_set(gm_disk_spans *s, bool on); /* on: forgets what there is, and begins anew */
/* Adds a span that ends now, if recording is on. begin: of gm_now. */
void gm_disk_spans_add(gm_disk_spans *s, gm_disk_activity what, double begin, uint64_t bytes);
void gm_disk_spans_free(gm_disk_spans *s);

#endif
