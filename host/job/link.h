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

/* Connects this process as this rank to the supervisor at `path`. keeper.c calls it in the rank's process, which shares
 * the note with the keeper. */
gm_status   gm_link_open(const char *path, int rank, gm_note *note);
gm_note    *gm_link_note(void);   /* NULL: no supervisor started this process */
const char *gm_link_folder(void); /* the private folder of the job; NULL: no supervisor started this process */
/* Tells the supervisor that this rank has joined the others. */
void gm_link_joined(void);
/* The rank of this process; -1: no supervisor started it. */
int gm_link_rank(void);

/* These three tell the supervisor that this rank ends with the exit status `code`: because of an error with this text,
 * because another rank has failed, or in good order. Only the first such call counts. False: nobody listens. agreed:
 * all ranks raise this error together, and one of them reports it. */
bool gm_link_fail(int code, const char *text, size_t n, bool agreed);
bool gm_link_fail_of_peer(int code);
bool gm_link_done(int code);

/* Removes the launcher's variables from the environment (those of torchrun too if they made this process a rank), so
 * that programs which this process starts from now on do not take themselves for ranks of this job. Call it after the
 * job was joined. It does nothing without a job. */
void gm_link_forget_launcher(void);

/* What the supervisor said about the end of another rank; NULL: nothing yet. */
const gm_link_peer *gm_link_failure(void);
/* Passes waiting stops on to signals.h; for a program that begins to listen to them. */
void gm_link_poll(void);

/* Waits for a line to run. Returns 1: *p is the line, or with more = 1 a part of it, and the rest comes with the next
 * call; 0: a stop is pending; -1: the supervisor is gone. */
int gm_link_read(gm_packet *p);
/* Has a line come that was not read? Waits for nothing. */
bool gm_link_has_line(void);
/* Says that this rank waits for a line. code: the exit status with which the last line wants to end the session; -1: it
 * does not. */
bool gm_link_ready(int code);
/* Gives the supervisor the answer to a line. */
bool gm_link_answer(int kind, const char *text, size_t n);

#endif
