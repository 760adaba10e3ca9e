/* lines.h - passes on the output of a process in whole lines, so that the lines of several processes do not mix. */
#ifndef GM_LINES_H
#define GM_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include "output.h"

typedef struct gm_lines {
    int        from;      /* read end of a pipe, owned; -1: closed */
    gm_outlet *to;        /* where lines go; NULL: nowhere, and the last lines are kept (gm_lines_tail) */
    char       label[16]; /* written before each line */
    char      *held;      /* the beginning of a line that has not ended yet */
    size_t     n, room;
} gm_lines;

/* Makes the pipe and returns its write end, which the caller owns; -1: there is none, see errno. */
int gm_lines_open(gm_lines *l, gm_outlet *to, const char *label);
/* Passes on what the pipe holds, without waiting, but at most one pipe's capacity. At the end of file it closes `from`.
 */
void gm_lines_pump(gm_lines *l);
void gm_lines_break(gm_lines *l); /* ends a line that has only begun, and passes it on */
/* Pumps, breaks, and closes: for a writer that is gone while another process may still hold its pipe open. */
void        gm_lines_close(gm_lines *l);
const char *gm_lines_tail(gm_lines *l); /* what is held; "" for nothing */

#endif
