/* comm_windows.h - the transport that sends to each rank the shortest way: through windows of shared memory (window.h)
 * to the ranks of this machine, and by the transport below it, over MPI or TCP, to all others. */
#ifndef GM_COMM_WINDOWS_H
#define GM_COMM_WINDOWS_H

#include "../../kernels/arena.h"
#include "transport.h"
#include "window.h"

typedef struct gm_window_ranks { /* of this machine */
    gm_window_shape shape;
    int             place;  /* of this rank among shape.n */
    const int      *rank;   /* by place */
    int             cores;  /* that they may use: fewer than ranks, and they share them */
    const int      *pid;    /* by place, of the process whose memory may be read; 0: it may not */
    gm_window     **window; /* by place, that of this rank too; NULL: this rank is reached by the transport below */
    gm_arena       *arena;  /* of this rank, which must outlive the transport; NULL: none */
    bool            copies; /* messages that others only read go through it (stage.h) */
    const gm_reach *reach;  /* by place: arenas; zeros: there is none */
} gm_window_ranks;

/* Makes a transport above base. Takes base, windows and mapped arenas (not the arrays), unless it fails: GM_ENOMEM.
 * Every two ranks must agree whether they share memory. Notices that came by the transport below are still heard. */
gm_status gm_transport_windows(gm_transport *base, const gm_window_ranks *ranks, gm_transport **out);
/* Ends it, and gives the transport below back. Nothing may be under way. */
gm_transport *gm_transport_windows_end(gm_transport *t);

#endif
