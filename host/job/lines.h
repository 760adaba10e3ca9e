/* lines.h - passes on the output of a process in whole lines, so that the lines of several processes do not mix. */
#ifndef GM_LINES_H
#define GM_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include "output.h"

typedef struct gm_lines {
    int        from;      /* read end of a pipe, owned; -1: closed */
    gm_outlet *to;        /* where lines go; NULL: nowhere, the last of them are kept (gm_lines_tail) */
    char       label[16]; /* written before each line */
    char      *held;      /* the beginning of a line */
    size_t     n, room;
} gm_lines;

/* Makes the pipe -> its write end, or -1. */
int gm_lines_open(gm_lines *l, gm_outlet *to, const char *label);
/* Passes on what is there, without waiting, but no more than a pipe holds; at the end of file closes `from`. */
void gm_lines_pump(gm_lines *l);
void gm_lines_break(gm_lines *l); /* passes on the beginning of a line, too, and ends it */
/* Pumps, breaks, and closes: the writer is gone, though somebody may hold its pipe open. */
void        gm_lines_close(gm_lines *l);
const char *gm_lines_tail(gm_lines *l); /* what is held, "" for nothing */

#endif
