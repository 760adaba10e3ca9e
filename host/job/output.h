/* output.h - this process's standard files. They are always open, and writing to them cannot keep it from ending.
 *
 * A write to a full pipe waits until somebody reads, perhaps for ever. A process that has been told to stop must not
 * wait so long. After gm_output_limit(), output that nobody reads within a second goes to /dev/null. This includes the
 * rest of a write that is waiting at that moment: the system starts it again after a signal handler, and it then finds
 * another file behind its descriptor.
 * An outlet is a file that is written without waiting; it holds what does not fit. */
#ifndef GM_OUTPUT_H
#define GM_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Called first in main. Opens /dev/null on those of the descriptors 0 to 2 that are closed; otherwise the next file
 * that is opened would get such a number, and printed text would go into it. Also gives SIGPIPE a handler that does
 * nothing: if a reader leaves, the write fails, and the process goes on. False: there is no /dev/null. */
bool gm_output_prepare(void);

/* Prepares the limit for the calling thread; a second call does nothing. */
void gm_output_open(void);
void gm_output_limit(void); /* may be called in a signal handler; does nothing before gm_output_open */
/* Ends the limit: whoever reads is waited for again, also where output has gone to /dev/null. */
void gm_output_unlimit(void);
void gm_output_close(void);

typedef struct gm_outlet {
    int    fd;
    char  *held; /* the text that did not fit; an outlet that is zeroed, except for fd, holds nothing */
    size_t n, room;
    int    error; /* errno of the first write that failed, unless it failed because the reader left */
} gm_outlet;

void gm_outlet_put(gm_outlet *o, const char *text, size_t n); /* the text is lost if there is no memory for it */
void gm_outlet_flush(gm_outlet *o);                           /* writes what fits; drops all if the reader has left */
bool gm_outlet_is_full(const gm_outlet *o);                   /* true: the caller should wait before it puts more */
void gm_outlet_free(gm_outlet *o);                            /* flushes first */

#endif
