/* link.h - the connection of a rank to the supervisor that started it (supervise.h). Other processes have none.
 *
 * The rank tells the supervisor how it ends. The supervisor tells the rank when another rank has failed or the user
 * wants a stop: SIGIO announces these words, whatever the rank is doing, and they become stops of signals.h. A process
 * has one such connection, hence the one static record. The trap: a signal handler on the main thread reads words. */
#ifndef GM_LINK_H
#define GM_LINK_H

#include "../comm/note.h"
#include "wire.h"

typedef struct gm_link_peer {
    int  rank, code; /* rank -1: the supervisor itself */
    char text[1000];
} gm_link_peer;

/* Connects as this rank; by keeper.c in the new process, which shares the note with it. */
gm_status gm_link_open(const char *path, int rank, gm_note *note);
gm_note  *gm_link_note(void); /* NULL: no supervisor started this process */
/* This rank has joined the others. */
void gm_link_joined(void);
/* Of this process, or -1: no supervisor started it. */
int gm_link_rank(void);

/* This rank ends with that exit status, and why; the first of these three is what counts. False: nobody listens.
 * agreed: all ranks raise this together, and one of them says it. */
bool gm_link_fail(int code, const char *text, size_t n, bool agreed);
bool gm_link_fail_of_peer(int code);
bool gm_link_done(int code);

/* What this process starts from now on is no rank of this job: the launcher's variables leave the environment. After
 * the job was joined; it makes no difference where there is none. */
void gm_link_forget_launcher(void);

/* What the supervisor said about another rank's end; NULL: nothing yet. */
const gm_link_peer *gm_link_failure(void);
/* Delivers what waits to signals.h; for a program that begins to listen. */
void gm_link_poll(void);

/* A line to run (more = 1: *p is a part of it, read on): 1; 0: a stop is pending; -1: the supervisor is gone. */
int gm_link_read(gm_packet *p);
/* Says that a line is awaited; code: the exit status that the last one ends the session with, -1: none. */
bool gm_link_ready(int code);
bool gm_link_answer(int kind, const char *text, size_t n);

#endif
