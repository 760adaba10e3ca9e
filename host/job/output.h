/* output.h - this process's standard files. They are always open, and writing to them cannot keep it from ending.
 *
 * A write to a pipe that is full waits until somebody reads, perhaps for ever. A process that has been told to stop
 * must not: from gm_output_limit() on, what nobody takes within a second goes to /dev/null, also the rest of a write
 * that waits at that moment (it is begun again behind the handler of a signal, and finds another file).
 * An outlet is a file that is written to without waiting at all: what does not fit is held. */
#ifndef GM_OUTPUT_H
#define GM_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* First of all in main: /dev/null on those of the descriptors 0 to 2 that are closed, or the next file that is opened
 * gets their numbers, and with them what is printed. A reader that left is an error of the write, not our end. False:
 * there is no /dev/null. */
bool gm_output_prepare(void);

/* The limit is to hold for the thread that calls; where it is open already, nothing happens. */
void gm_output_open(void);
void gm_output_limit(void); /* in a handler, too; nothing before gm_output_open */
void gm_output_close(void);

typedef struct gm_outlet {
    int    fd;
    char  *held; /* zeroed, but for fd: nothing is held */
    size_t n, room;
    int    error; /* errno of the first write that failed, a reader that left apart */
} gm_outlet;

void gm_outlet_put(gm_outlet *o, const char *text, size_t n); /* without memory for it, it is lost */
void gm_outlet_flush(gm_outlet *o);                           /* what fits now; all, if nobody reads any more */
bool gm_outlet_is_full(const gm_outlet *o);                   /* whoever fills it had better wait */
void gm_outlet_free(gm_outlet *o);                            /* flushes before */

#endif
