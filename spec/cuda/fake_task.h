/* fake_task.h - what can be queued on a stream of the fake driver, and the captures that take it instead
 * (fake_graph.c). Called under the driver's lock. */
#ifndef GM_FAKE_TASK_H
#define GM_FAKE_TASK_H

#include <cuda.h>
#include <stdbool.h>

#include "emulator.h"
#include "fake_driver.h"

typedef enum gm_fake_kind {
    GM_FAKE_LAUNCH,
    GM_FAKE_COPY,
    GM_FAKE_SET,
    GM_FAKE_CALL,
    GM_FAKE_RECORD, /* the event has been passed; these two are fake_stream.c's */
    GM_FAKE_AWAIT,  /* another stream shall have passed it */
    GM_FAKE_GRAPH
} gm_fake_kind;

typedef struct gm_fake_task {
    gm_fake_kind              kind;
    const gm_emulated_kernel *kernel; /* LAUNCH; args is owned */
    gm_emulated_grid          grid;
    void                     *args;
    void                     *to; /* COPY, SET */
    const void               *from;
    size_t                    bytes;
    unsigned char             byte;
    gm_fake_call              call;   /* CALL; its context is owned */
    struct gm_fake_launch    *launch; /* GRAPH; owned */
    CUevent                   event;  /* RECORD, AWAIT: the number-th time that it was recorded */
    uint64_t                  number;
} gm_fake_task;

void gm_fake_run(const gm_fake_task *t, char *error, size_t size); /* error "": nothing was wrong before; may set it */
void gm_fake_drop(const gm_fake_task *t);                          /* gives back what it owns */

#define GM_FAKE_BRANCHES 32 /* streams that can take part in a capture */

/* A point of a capture, which an event keeps: so many nodes of each of its streams come before. */
typedef struct gm_fake_point {
    uint64_t capture; /* 0: the event was not recorded in one */
    int      seen[GM_FAKE_BRANCHES];
} gm_fake_point;

/* Is work of this stream being captured? Then it is to be recorded. */
bool     gm_fake_captures(CUstream stream);
CUresult gm_fake_record(CUstream stream, const gm_fake_task *t);
uint64_t gm_fake_capture(void); /* the one under way; 0: none */
/* An event is recorded on a stream that is captured; a stream, which need not be captured yet, waits for one. */
void     gm_fake_capture_event(CUstream stream, gm_fake_point *at);
CUresult gm_fake_capture_await(CUstream stream, const gm_fake_point *at);
/* What the driver answers to a wait for this stream (NULL: for an event that was recorded in the capture), and to calls
 * that are unsafe while anything is captured in another mode than relaxed: CUDA_SUCCESS, or the capture is invalid from
 * here on. */
CUresult gm_fake_refuse_wait(CUstream stream);
CUresult gm_fake_refuse_unsafe(void);

/* A graph on a stream, each time that it is launched. */
typedef struct gm_fake_launch gm_fake_launch;
int                           gm_fake_launch_nodes(const gm_fake_launch *l);
bool gm_fake_run_launch(gm_fake_launch *l, char *error, size_t size); /* as far as it goes; false: not to its end */
void gm_fake_end_launch(gm_fake_launch *l);

/* Of fake_driver.c, for the other files of the driver. */
void     gm_fake_enter(void); /* its lock */
CUresult gm_fake_leave(CUresult r);
void     gm_fake_line(const char *text); /* into the record */
void     gm_fake_count_wait(void);
void     gm_fake_count_graph(int nodes);

/* Of fake_stream.c. */
CUresult    gm_fake_put(CUstream stream, gm_fake_task t); /* queues or records it */
void        gm_fake_run_all(void);                        /* waits for all streams */
const char *gm_fake_words(void);                          /* what the error that was reported last says */

#endif
