/* journal.h - the record of a step: what a rank does, in the order in which it does it.
 *
 *     gm_journal *r;
 *     GM_TRY(gm_journal_new(GM_JOURNAL_WALL, &r));
 *     dev->journal = r;               // its ops; gm_pool_set_journal: its memory; gm_comm_set_journal: messages
 *
 * A rank has one thread of work. Its ops run one after the other, in the order of the list. A BEGIN starts an operation
 * between ranks, and a WAIT with the same id ends it for this rank. What lies between both may overlap it. These are
 * all dependencies that the runtime has: an op depends on what stands before it, and on the operations that were waited
 * for before it. On a GPU the list is the order of the stream. The trap: ops that a kernel runs itself, and the memory
 * that it takes for itself, belong to the kernel and are not in the list, and the pieces in which a ring works on a
 * block of keys are one op of it (host/parallel/sharded/ring.c). host/plan/step_file.h writes a record into a
 * file; host/plan/simulate.h replays it. */
#ifndef GM_JOURNAL_H
#define GM_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "status.h"

struct gm_call;
struct gm_device;

typedef enum gm_event_kind {
    GM_EVENT_OP,
    GM_EVENT_BEGIN,
    GM_EVENT_WAIT,
    GM_EVENT_ALLOC,
    GM_EVENT_FREE,
    GM_EVENT_KINDS
} gm_event_kind;

/* Texts are numbers of gm_journal_text; -1: none. What does not apply is 0. */
typedef struct gm_event {
    gm_event_kind kind;
    int32_t       id;       /* of BEGIN and WAIT, from 1 */
    int32_t       name;     /* "linear", a function of elements such as "gelu"; "all_reduce" */
    int32_t       about;    /* dtype and shapes: "f32 (32, 64) (256, 64)" */
    int32_t       dtype;    /* "f32": of the first tensor */
    int32_t       path;     /* of the module */
    int32_t       phase;    /* of BEGIN: "backward" */
    int32_t       group;    /* of BEGIN: axes, "data" or "row.col"; some of their places, "pipeline@0+3"; "": alone */
    int32_t       peer;     /* of BEGIN: the root or the other member, as a place in the group; -1: none */
    int64_t       size;     /* of an OP with products: the least of their three dimensions */
    double        flops;    /* of an OP, all */
    double        products; /* of an OP: those of products and attention */
    double        bytes;    /* of an OP: the least it moves; of BEGIN: n of comm.h; of ALLOC and FREE */
    double        sent;     /* of BEGIN: what this rank sends */
    double        seconds;  /* since the record began; 0 in a rehearsal */
    double        took;     /* of an OP: seconds of the host, on a GPU those of queueing it; of a WAIT. Not in files */
    bool          again;    /* of an OP: recomputation, which forward has done before */
} gm_event;

/* What times are: none (a rehearsal), those of a clock on the wall, or of this thread's work. */
typedef enum gm_journal_clock { GM_JOURNAL_NONE, GM_JOURNAL_WALL, GM_JOURNAL_THREAD } gm_journal_clock;

typedef struct gm_journal {
    gm_event        *events;
    char           **texts;
    int64_t          n, room;
    int32_t          n_texts, texts_room;
    int32_t          ids;    /* operations so far */
    int              inside; /* a kernel is running: what it does itself is not recorded */
    int              again;  /* regions that run again (host/autograd/region.h) */
    double           live;   /* bytes in use when the record began */
    double           start;  /* of the clock */
    gm_journal_clock clock;
    int32_t         *slots;  /* hash table of the texts */
    bool             failed; /* no memory for an event: the record is not complete */
} gm_journal;

gm_status gm_journal_new(gm_journal_clock clock, gm_journal **out);
void      gm_journal_free(gm_journal *r); /* NULL is allowed */
/* Gives the number of a text, which is copied. -1: text is NULL. */
int32_t gm_journal_text(gm_journal *r, const char *text);
/* The text of a number; "" for -1. */
const char *gm_journal_text_of(const gm_journal *r, int32_t number);
/* Adds an event and its time. Returns it, valid until the next one; NULL: the record has failed. */
gm_event *gm_journal_add(gm_journal *r, gm_event_kind kind);
/* Adds an OP: a call of gm_run with its cost (cost.c). The module path is that of the device's pool. */
void gm_journal_call(gm_journal *r, const struct gm_device *dev, const struct gm_call *call, double flops,
                     double bytes);
/* Says that the OP or WAIT that was added at place `at` of the events is done. */
void gm_journal_took(gm_journal *r, int64_t at);
/* Adds an ALLOC or a FREE and returns true, unless a kernel is running. r NULL: does nothing. */
bool gm_journal_memory(gm_journal *r, gm_event_kind kind, double bytes);

#endif
