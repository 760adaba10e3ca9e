/* windows_state.h - the transport over windows of shared memory: what comm_windows.c, which moves messages and waits,
 * and windows_stream.c share. Private to them. */
#ifndef GM_WINDOWS_STATE_H
#define GM_WINDOWS_STATE_H

#include "crowd.h"
#include "frames.h"
#include "stage.h"

typedef struct gm_windows {
    gm_frames     frames;
    gm_transport *base;
    int           here, place, reachable; /* ranks here; this one; those here that share memory */
    int          *rank;                   /* by place */
    int          *place_of;               /* by rank; -1: it is reached by the transport below */
    gm_window   **window;                 /* by place */
    gm_ring      *out, *in;               /* by peer: ends of rings to it and from it */
    int          *pid;                    /* by place; 0: its memory cannot be read */
    gm_reach     *reach;                  /* by place */
    gm_crowd      crowd;
    gm_stage     *stage; /* NULL: there is no arena */
    uint32_t      seen;  /* rings of the bell before the last look around */
    bool          left;  /* that look was over before all that had come was read */
    unsigned      turns;
    char         *lost; /* by place: what the transport below said of it */
} gm_windows;

static inline int gm_place_of_peer(const gm_windows *w, int peer) { return peer % w->here; }

extern const gm_stream gm_windows_stream;

/* As transport.h says, to and from a place of this machine. */
bool gm_windows_send_now(gm_windows *w, int place, int tag, const void *bytes, size_t n);
int  gm_windows_receive_now(gm_windows *w, int place, int tag, void *bytes, size_t n);

#endif
