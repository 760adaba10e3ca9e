/* state.h - what the files of comm/ share. Private to them.
 *
 *     comm.c        life of a comm, groups, settings            operation.c   operations under way, waiting
 *     collective.c  the collectives, each as rounds of messages  combine.c    sums and packing
 *     flight.c      the record of what was called               notice.c      notices, failures, stalls
 *     section.c     ends of sections, recovery                  join.c        transports; comm_mpi.c is a module
 *     trace.c       accounts by module path                      host_copy.c      bytes that are not in host memory
 *     lane.c        operations between devices, without host memory   way.c   the choice between both
 *     comm_nccl.c   what carries those: NCCL (links.h)
 *
 * An operation is a list of rounds: messages that may all be under way at once, then a local step. The step of
 * round k runs when every message of round k - 1 is done, and adds those of round k; step 0 runs at the start. */
#ifndef GM_COMM_STATE_H
#define GM_COMM_STATE_H

#include "../../kernels/device.h"
#include "comm.h"
#include "transport.h"

/* What can be called, by its name in reports. */
/* clang-format off */
#define GM_COLLECTIVES(X)                                                                                \
    X(all_reduce) X(all_gather) X(reduce_scatter) X(broadcast) X(reduce) X(gather) X(scatter) X(all_to_all) \
    X(all_to_all_rows) X(barrier) X(exchange) X(send) X(receive)
/* clang-format on */
typedef enum gm_collective {
#define GM_COLLECTIVE(name) GM_CALL_##name,
    GM_COLLECTIVES(GM_COLLECTIVE)
#undef GM_COLLECTIVE
        GM_CALL_COUNT
} gm_collective;

/* ---- flight.c: what was called ---- */

#define GM_FLIGHT_RING 4096
#define GM_PLACE_ROOM  96

/* One call; sent to other ranks as it is (all run one build). -1: does not apply. */
typedef struct gm_call_record {
    uint64_t group, epoch, number; /* number: calls before it in this group and epoch, or channel of a group */
    uint64_t history;              /* hash of those calls */
    int32_t  call, dtype, reduction, root, dim, join;
    int32_t  ndim;
    int64_t  shape[GM_MAX_DIMS];
    char     place[GM_PLACE_ROOM];
} gm_call_record;

typedef struct gm_flight_entry {
    gm_call_record record;
    const char    *group;          /* its name */
    double         started, ended; /* ended 0: under way; negative: given up */
} gm_flight_entry;

typedef struct gm_flight {
    uint64_t        n; /* calls so far: the newest is entry[(n - 1) % ring] */
    gm_flight_entry entry[GM_FLIGHT_RING];
} gm_flight;

uint64_t              gm_flight_add(gm_flight *f, const gm_call_record *record, const char *group, double now);
void                  gm_flight_end(gm_flight *f, uint64_t at, double now); /* now: negative when given up */
const gm_call_record *gm_flight_find(const gm_flight *f, uint64_t group, uint64_t epoch, uint64_t number);
/* Equal for two records exactly when the calls fit together; places do not count, send fits receive. */
uint64_t    gm_record_fingerprint(const gm_call_record *r);
const char *gm_call_name(int call);
/* "all_reduce f32 (4, 8) sum, call 17 of data, at blocks.3"; group may be NULL. Returns buf. */
char *gm_record_describe(const gm_call_record *r, const char *group, char *buf, size_t size);

/* ---- trace.c: accounts by module path ---- */

typedef struct gm_trace gm_trace;

void gm_trace_free(gm_trace *t); /* NULL is allowed */
/* Counts a call; *at: its entry. */
gm_status gm_trace_call(gm_trace *t, const char *path, const struct gm_group *g, const gm_call_record *record,
                        gm_phase phase, int *at);
void      gm_trace_sent(gm_trace *t, int at, size_t bytes); /* at -1: nothing */

/* ---- groups ---- */

typedef struct gm_account {
    uint64_t calls, bytes, copied;
    double   seconds, exposed;
} gm_account;

typedef struct gm_lane gm_lane; /* lane.c: a link between devices; NULL: none yet */

typedef struct gm_channel { /* messages between this rank and one member, in one direction */
    uint64_t number, history;
    gm_lane *lane;
} gm_channel;

struct gm_group {
    gm_comm    *comm;
    gm_group   *next;
    char       *name;
    int         size, rank;
    int        *member;  /* ranks, by place */
    uint32_t    axes;    /* of the mesh; ~0: made by gm_comm_group_of */
    bool        retired; /* of a mesh that is no more: kept for its accounts */
    uint64_t    id;      /* of name and members: the same on all of them */
    uint64_t    number, history;
    gm_channel *to, *from; /* by place */
    gm_lane    *lane;      /* of its collectives */
    gm_account  account[GM_CALL_COUNT][GM_PHASE_COUNT];
};

/* ---- operations ---- */

typedef struct gm_message {
    char  *bytes;
    size_t n;
    void  *request;
    int    place; /* of the other member */
    bool   send, done;
} gm_message;

/* What another member said when a wait asked it. */
typedef struct gm_answer {
    bool answered, came, checked;
    char text[512]; /* what it is doing instead */
} gm_answer;

/* How a block lies in a tensor along dimension `dim`: outer x (parts x inner), bytes of inner. */
typedef struct gm_strip {
    int64_t outer;
    size_t  inner;
} gm_strip;

/* Memory of the host that an operation works on in place of a device's. */
typedef struct gm_host_copy {
    struct gm_host_copy *next;
    gm_device           *device;
    gm_block            *block; /* of its host pool */
    void                *mark;  /* behind the last copy */
    bool                 busy;  /* the mark may not have been passed */
} gm_host_copy;

/* How far an operation between devices is: lane.c. */
typedef enum gm_lane_stage { GM_LANE_WAITS, GM_LANE_ISSUED, GM_LANE_QUEUED } gm_lane_stage;

struct gm_pending {
    gm_comm      *comm;
    gm_group     *group;
    gm_pending   *next, *before;
    gm_collective call;
    gm_status (*step)(gm_pending *p, int round);
    int            round, rounds; /* steps 0 .. rounds are run */
    bool           done, dropped; /* dropped: nobody will wait for it */
    bool           comparing;     /* checked mode: no messages yet */
    bool           given_up;      /* its wait failed, or recovery abandoned it */
    gm_status      status;        /* why it failed */
    char           error[1100];
    gm_call_record record;
    uint64_t       flight;
    int            tag;
    gm_message    *messages;
    int            n_messages, room, first, left; /* of this round: from `first` on, `left` not done */
    gm_account    *account;
    int            traced; /* entry of the trace, -1: none */
    double         started, progressed;
    gm_answer     *answers;   /* a member; NULL until somebody was asked */
    double         asked_all; /* when all ranks were asked, not only members; 0: they were not */

    gm_tensor    *in, *out;  /* retained */
    char         *from, *to; /* their bytes in host memory; NULL: none. See host_copy.c */
    gm_host_copy *staged;    /* from, to and scratch stand in for memory of a device; NULL: they do not */
    bool          coming;    /* copies of what is sent are under way from the device: no messages yet */
    bool          silent;    /* in no account */

    gm_device    *linked; /* between devices of this kind, without host memory: its messages only count. NULL: not */
    gm_lane      *lane;   /* NULL: gone, or none */
    uint64_t      turn;   /* operations of the lane before it */
    gm_lane_stage stage;
    struct gm_ticket *ticket;
    bool              handed_over;       /* waited for: the device's later work comes behind it */
    gm_tensor        *packed, *unpacked; /* blocks of in and out one after the other; NULL: they lie so */

    gm_reduction op;
    int          root;
    gm_strip     split, join;
    gm_pool     *pool;
    gm_block    *block;              /* of scratch; staged operations have it in theirs */
    char        *scratch, *scratch2; /* in one block */
    int64_t     *rows;               /* all_to_all_rows: send counts, then receive counts */
    char        *text;               /* exchange: what this rank gives, then what all gave */
    size_t      *sizes;
    char       **text_to; /* where both go in the end */
    size_t      *sizes_to;
};

/* A new operation, not under way: retains in and out (NULL is allowed), takes scratch from their device's pool. */
gm_status gm_pending_new(gm_comm *c, gm_group *g, gm_collective call, gm_tensor *in, gm_tensor *out, size_t scratch,
                         int max_messages, gm_pending **p);
void      gm_pending_free(gm_pending *p);
/* Enters it into the records, runs it as far as it goes; out NULL: waits. Takes p. */
gm_status gm_pending_start(gm_pending *p, gm_pending **out);
/* A message of the round being built. Empty ones are left out but for `always`. */
void gm_pending_send(gm_pending *p, int place, const void *bytes, size_t n, bool always);
void gm_pending_receive(gm_pending *p, int place, void *bytes, size_t n, bool always);
void gm_pending_give_up(gm_pending *p);
/* The one waiting loop: until met(p), or a failure of p, of another rank, an interrupt, a hang. */
gm_status gm_pending_wait_until(gm_pending *p, bool (*met)(gm_pending *p));
/* Moves everything under way; true when something moved. */
bool gm_operations_advance(gm_comm *c);

/* Are all its uses of memory over, so that it may be freed? */
bool gm_pending_is_over(const gm_pending *p);
void gm_pending_finish(gm_pending *p);
void gm_pending_fail(gm_pending *p, gm_status st); /* with gm_last_error; the first failure stays */
/* Since `since` nothing has come for p: asks the others now and then (*asked: when), gives up after the time-out. */
gm_status gm_pending_watch(gm_pending *p, double since, double *asked);

/* ---- lane.c: operations between devices ---- */

bool gm_lane_serves(const gm_pending *p);
/* Before it is entered anywhere: memory, a ticket, its turn on its lane. */
gm_status gm_lane_take(gm_pending *p);
/* After its last round; true when something moved. Fails p where the lane has failed. */
bool gm_lane_advance(gm_pending *p);
/* The device's later work comes behind it, and its memory is given back to that. It is QUEUED or done. */
gm_status gm_lane_hand_over(gm_pending *p);
/* Nothing queued for it is waited for: all lanes stop, as what comes after it would not fit together any more. */
void gm_lane_give_up(gm_pending *p);
bool gm_lane_holds(const gm_pending *p); /* may the device still use its memory? */
void gm_lane_free(gm_pending *p);
/* Tensors of dev go between devices from here on. */
void gm_lanes_use(gm_comm *c, gm_device *dev);
/* What all calls and waits of this rank say from here on, until lanes are closed; the first failure stays. */
void gm_lanes_failed(gm_comm *c, gm_status st, const char *error);
/* What is queued between devices ends now, on this rank; until lanes are closed all that begins fails. */
void gm_lanes_stop(gm_comm *c);
/* They are made anew when they are asked for. orderly: all ranks do, and nothing is queued. */
void gm_lanes_close(gm_comm *c, bool orderly);
/* Waits until the device has passed all that was handed over. */
gm_status gm_lanes_drain(gm_comm *c);

/* ---- host_copy.c: bytes that are not in host memory ---- */

/* Sets from, to and scratch; before the root is known. */
gm_status gm_host_copy_take(gm_pending *p, size_t scratch);
/* Starts copying what is sent out of the device: `coming`, until gm_host_copy_came finds it there. */
gm_status gm_host_copy_begin(gm_pending *p);
gm_status gm_host_copy_came(gm_pending *p);
/* After the last step: what was received goes to the device, in order with its kernels. Waits for nothing. */
gm_status gm_host_copy_return(gm_pending *p);
void      gm_host_copy_give(gm_pending *p); /* its memory, when no copy uses it any more */
void      gm_host_copy_free(gm_comm *c);    /* after the last operation */

/* ---- the comm ---- */

/* What another rank said at the end of a section. It may end the next one while this rank still waits for a third to
 * end this one, but no more: two are kept, by section % 2. */
typedef struct gm_ending {
    uint64_t section; /* from 1 */
    bool     ok, under_way;
    char     text[1000];
} gm_ending;

typedef struct gm_member { /* another rank, at the ends of sections and of the program */
    gm_ending ending[2];
    uint64_t  recovering, recovered; /* sections it began and finished recovering from */
    uint64_t  sent;                  /* data messages it sent here so far, when it began to recover */
    double    asked;                 /* when it was first asked something since it was last heard; 0: not */
    bool      left;
} gm_member;

typedef struct gm_check { /* a call of another rank in checked mode that this rank has not come to */
    struct gm_check *next;
    int              rank;
    gm_call_record   record;
} gm_check;

struct gm_comm {
    gm_transport      *transport;
    gm_mesh            mesh;
    int                rank, world;
    gm_group          *groups;
    gm_pending        *under_way;   /* not done, or not waited for */
    int                n_under_way; /* not waited for */
    bool               charged;     /* the time is in some operation's account already */
    double             timeout;
    bool               checked, alone;
    gm_phase           phase;
    const char *const *place;
    bool (*asked)(void *context);
    void           *asked_context;
    uint64_t        epoch;
    uint64_t       *sent, *taken; /* data messages by rank */
    bool            broken;       /* the transport lost a notice */
    bool            failed;       /* another rank ends, or this section has failed on it */
    bool            failed_section;
    gm_peer_failure failure;
    bool            told;         /* this rank has said that it fails */
    int             acknowledged; /* ranks that know of this rank's failure */
    uint64_t        section;      /* ended so far */
    bool            in_section_end;
    bool            leaving;
    gm_member      *member; /* by rank */
    gm_check       *checks;
    gm_call_record  waiting; /* the call being waited for; call -1: none */
    const char     *waiting_group;
    gm_host_copy   *returning, *spare; /* host_copy.c: memory that copies still use; what is free */
    gm_device      *linked;            /* whose tensors go between devices; NULL: none */
    gm_lane        *lanes;
    gm_status       lane_status; /* the first failure of an operation between devices */
    char            lane_error[1100];
    double          lane_asked;
    bool            advancing; /* operations are being moved */
    gm_account      silent;    /* of what is in no account */
    gm_flight      *flight;
    gm_note        *note;  /* NULL: nobody reads it */
    gm_trace       *trace; /* NULL: nobody asked */
};

const char *gm_comm_place(const gm_comm *c);
gm_status   gm_comm_transport_failed(gm_comm *c);
gm_group   *gm_comm_find_group(gm_comm *c, uint64_t id);
/* GM_EPEER when another rank has failed, GM_EINTERRUPT when somebody asked. */
gm_status gm_comm_check_failed(gm_comm *c);
gm_status gm_comm_check_interrupt(gm_comm *c);

/* What every call asks first. Alone with a group of several is GM_EINVAL; another rank's failure is GM_EPEER. */
gm_status gm_call_check_group(gm_comm *c, const gm_group *g, const char *op);
/* GM_EINVAL unless t is there, contiguous and has bytes. name: "the block ", or "" where one tensor is meant. */
gm_status gm_call_check_tensor(const gm_comm *c, const gm_group *g, const char *op, const char *name,
                               const gm_tensor *t);

/* ---- notice.c ---- */

/* Reads what other ranks say; true when something was there. */
bool gm_notice_read(gm_comm *c);
/* Asks the members that p waits for what they did, or all ranks; the answers come through gm_notice_read. */
void gm_notice_ask(gm_pending *p, bool everybody);
bool gm_notice_is_silent(const gm_comm *c, int rank); /* it was asked and has not been heard since */
/* hang.c: GM_EHANG, which names every rank that is missed. */
gm_status gm_pending_hang(gm_pending *p);
/* Checked mode: GM_EMISMATCH unless every member makes the same call. Waits. */
gm_status gm_notice_compare(gm_pending *p);
/* Takes note of ranks that have ended the current section and were not ok. */
void gm_notice_see_endings(gm_comm *c);
/* Tells all others where this rank is at the end of the current section. */
typedef enum gm_milestone {
    GM_MILESTONE_ENDED,
    GM_MILESTONE_RECOVERING,
    GM_MILESTONE_RECOVERED,
    GM_MILESTONE_LEAVING,
} gm_milestone;
void gm_notice_milestone(gm_comm *c, gm_milestone stage, bool ok, bool under_way, const char *text);

#endif
