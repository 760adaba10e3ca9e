/* executor_job.h - a chain of small parts on a pipeline of ranks that are threads, against the same chain on one tape.
 *
 * Part 0 turns x (rows, width) of a micro-batch into (h, h, ids): one tensor twice, and whole numbers. A part between
 * gives (sigmoid(h w' + b), what it got second, as it came, ids); part 1 adds a loss of its own. The loss of the last
 * one is sum(h skip). Lists of actions are made here, by playing orders of computing. */
#ifndef GM_EXECUTOR_JOB_H
#define GM_EXECUTOR_JOB_H

#include "../../host/pipeline/executor.h"
#include "threads_transport.h"

#define STAGES  4
#define CHUNKS  2
#define PARTS   (STAGES * CHUNKS)
#define MICRO   8
#define ACTIONS 256
#define SEATS   8

typedef enum kind { GPIPE, ONE_F_ONE_B, SPLIT, LOOPED, V_SHAPED } kind;

typedef struct list {
    int       n;
    gm_action action[ACTIONS];
} list;

typedef struct schedule {
    int  stages, chunks, micro, parts[STAGES][CHUNKS];
    list of[STAGES];
} schedule;

/* How values lie where they cross, on a mesh with an axis tensor. */
typedef enum lie {
    WHOLE,
    CUT,     /* the first one's rows are cut */
    PARTIAL, /* the second one is a sum of terms */
    TERMS,   /* the gradient of the second one comes back as terms */
} lie;

typedef struct chain {
    schedule          s;
    gm_mesh           mesh; /* pipeline, and perhaps tensor */
    uint32_t          scatter;
    lie               lie;
    int               width, rows[MICRO], steps; /* rows of micro-batch m in step s: rows[(m + s) % MICRO] */
    bool              variable_shapes, forward_only, frozen; /* frozen: part 0 */
    bool              unsigned_;                             /* micro-batches have no signatures, */
    bool              fresh;                                 /* or new ones in every step */
    int               text;                                  /* what parts say is filled up to this length */
    int               delay;                         /* microseconds, at most, in front of each forward pass; random */
    int               bad_part, bad_step, bad_micro; /* whose forward fails, when, on which micro-batch; -1: none */
    bool              late;                          /* it fails when the second stage has sent something */
    int               twist;                         /* step in which part 0 gives another third value; -1: none */
    bool              meet;        /* the second stage waits until the first has run all forward passes */
    bool              ignores;     /* the last part does not read the second value: its loss is sum(h h) */
    _Atomic int       ran[STAGES]; /* forward passes of each stage */
    int               peak[SEATS]; /* of the last step, */
    uint64_t          bytes[SEATS], messages[SEATS]; /* which sent this along the pipeline, */
    uint64_t          gathers[SEATS], shared[SEATS]; /* and made this many calls along tensor, of so many bytes */
    gm_executor_event event[SEATS][ACTIONS];
} chain;

/* micro <= MICRO micro-batches on `stages` ranks; SPLIT: backward in two halves, weights `lag` micro-batches later. */
schedule make_schedule(kind k, int stages, int micro, int lag);
bool     find_part(const schedule *s, int part, int *stage, int *chunk);
/* One rank a stage, 3 rows in every micro-batch, one step. */
chain make_chain(kind k, int stages, int micro);
/* The same on stages of two ranks, along tensor. */
chain make_wide_chain(kind k, int stages, int micro);
/* Runs its steps on all ranks; after each, gradients of all parameters are those of one tape: within 1e-13 of the
 * largest, since sums over micro-batches are made in another order. */
void run_chain(chain *c);
/* Runs its steps as each rank in turn on meta, for the counts. */
void pretend_chain(chain *c);

#endif
