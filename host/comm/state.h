/* state.h - the structs and functions that the files of comm/ share. Private to them.
 *
 *     comm.c        life of a comm, groups, settings            operation.c   operations under way, waiting
 *     pending.c     memory of operations                         round.c      the messages of a round
 *     collective.c  the collectives, each as rounds of messages  combine.c    sums and packing
 *     rows.c        all_to_all of uneven rows                    message.c    barrier, messages of two, byte strings
 *     flight.c      the record of what was called               notice.c      notices, failures, stalls
 *     section.c     ends of sections, recovery                  join.c        transports; comm_mpi.c is a module
 *     page.c        what a rank does, for other processes
 *     trace.c       accounts by module path                      host_copy.c      bytes that are not in host memory
 *     lane.c        operations between devices, without host memory   way.c   the choice between both
 *     recorded.c    graphs with such operations in them (lane.h has what both share)
 *     terms.c       terms of a reduction summed where they lie
 *     blocks.h      how tensors are cut into blocks and slices
 *     machines.c    which members of a group are on one machine   over_machines.c   collectives of several machines
 *     comm_windows.c, windows_stream.c   shared memory between ranks of one machine   share.c   who shares it with whom
 *     frames.c, frame_requests.c, fold.c   messages over streams of bytes: what it and comm_tcp.c are made of
 *     comm_nccl.c   the links between devices: NCCL (links.h)      journal.c    what the record of a step keeps
 *
 * An operation is a list of rounds. A round is a set of messages that may all be under way at once. Step k is local: it
 * runs when every message of round k - 1 is done and starts the messages of round k. Step 0 runs at the start. */
#ifndef GM_COMM_STATE_H
#define GM_COMM_STATE_H

#include "../../kernels/device.h"
#include "../../kernels/journal.h"
#include "comm.h"
#include "page.h"
#include "transport.h"

/* The calls, by their names in reports. */
/* clang-format off */
#define GM_COLLECTIVES(X)                                                                                \
    X(all_reduce) X(all_gather) X(reduce_scatter) X(broadcast) X(reduce) X(gather) X(scatter) X(all_to_all) \
    X(all_to_all_rows) X(barrier) X(exchange) X(send) X(receive) X(replay)
/* clang-format on */
typedef enum gm_collective {
#define GM_COLLECTIVE(name) GM_CALL_##name,
    GM_COLLECTIVES(GM_COLLECTIVE)
#undef GM_COLLECTIVE
        GM_CALL_COUNT
} gm_collective;

/* ---- flight.c: the record of calls ---- */

#define GM_FLIGHT_RING 4096

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
/* A hash that is equal for two records exactly when the calls match. Places do not count; a send matches a receive. */
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

/* ---- journal.c: the record of a step ---- */

void gm_comm_journal_begin(struct gm_pending *p);
void gm_comm_journal_sent(struct gm_pending *p, size_t bytes);
void gm_comm_journal_end(struct gm_pending *p);

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
    gm_comm            *comm;
    gm_group           *next;
    char               *name;
    int                 size, rank;
    int                *member;  /* ranks, by place */
    uint32_t            axes;    /* of the mesh; ~0: made by gm_comm_group_of */
    bool                retired; /* of a mesh that is no more: kept for its accounts */
    uint64_t            id;      /* of name and members: the same on all of them */
    uint64_t            number, history;
    gm_channel         *to, *from; /* by place */
    gm_lane            *lane;      /* of its collectives */
    struct gm_machines *machines;  /* on which its members are; NULL: operations go straight */
    bool                looked;    /* for them */
    gm_account          account[GM_CALL_COUNT][GM_PHASE_COUNT];
};

/* ---- operations ---- */

typedef struct gm_message {
    char  *bytes;
    size_t n;
    void  *request;
    bool  *filled;           /* of a send that is lent (transport.h, lend); NULL: it is not */
    int    place;            /* of the other member */
    bool   send, done, fold; /* fold: one message of each other member, which the operation's terms take */
    bool   given;            /* a send that is only counted: its bytes are there already */
    bool   uncounted;        /* a send that another member counts */
} gm_message;

/* The answer of another member to the question of a wait. */
typedef struct gm_answer {
    bool answered, came, checked;
    char text[512]; /* what it is doing instead */
} gm_answer;

/* How blocks lie in a tensor along a dimension: `outer` times the blocks one after the other, `inner` bytes each. */
typedef struct gm_strip {
    int64_t outer;
    size_t  inner;
} gm_strip;

/* Host memory that an operation uses in place of a device's memory. */
typedef struct gm_host_copy {
    struct gm_host_copy *next;
    gm_device           *device;
    gm_block            *block; /* of its host pool */
    void                *mark;  /* behind the last copy */
    bool                 busy;  /* the mark may not have been passed */
} gm_host_copy;

/* The terms of a reduction that are summed where the transport has them, without scratch memory. */
typedef struct gm_terms {
    bool         folded;
    const char  *own; /* this member's */
    char        *out;
    const char **part; /* by place */
    bool        *gave; /* of a sum that all members want: by place, but for the own one: they have this member's part */
    bool        *came; /* by place: this member has theirs */
} gm_terms;

#define GM_SCRATCH_OWN 512 /* bytes of scratch that need no block of the pool */

/* The progress of an operation between devices: lane.c. */
typedef enum gm_lane_stage { GM_LANE_WAITS, GM_LANE_ISSUED, GM_LANE_QUEUED } gm_lane_stage;

struct gm_pending {
    gm_comm      *comm;
    gm_group     *group;
    gm_pending   *next, *before;
    gm_collective call;
    gm_status (*step)(gm_pending *p, int round);
    int            round, rounds; /* steps 0 .. rounds are run */
    bool           done, dropped; /* dropped: nobody will wait for it */
    bool           awaited;       /* the call that makes it waits for it */
    bool           noted;         /* it is in the records of calls */
    bool           comparing;     /* checked mode: no messages yet */
    bool           given_up;      /* its wait failed, or recovery abandoned it */
    gm_status      status;        /* why it failed: error, below */
    gm_call_record record;
    uint64_t       flight;
    int            tag;
    gm_message    *messages;
    int            n_messages, room, first, left; /* of this round: from `first` on, `left` not done */
    gm_account    *account;
    int            traced;      /* entry of the trace, -1: none */
    int32_t        recorded;    /* its id in the record; 0: none */
    int64_t        recorded_at; /* its place there */
    double         started, progressed, ended;
    double         cut;       /* when a rank that it needs was found to be gone; 0: none was */
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
    bool              in_graph;          /* recorded: it does not run itself, and is in no record of calls */
    struct gm_graph  *graph;             /* of a replay that is not launched yet; borrowed */
    gm_tensor        *packed, *unpacked; /* blocks of in and out one after the other; NULL: they lie so */

    gm_reduction op;
    gm_terms     terms;
    int          root;
    gm_strip     split, join;
    gm_pool     *pool;
    gm_block    *block;              /* of scratch; staged operations have it in theirs */
    char        *scratch, *scratch2; /* in one block */
    gm_row_run  *rows;               /* all_to_all_rows: the runs that are sent, then those that are received */
    gm_row_runs  sends, receives;    /* both in it */
    char        *text;               /* exchange: what this rank gives, then what all gave */
    size_t      *sizes;
    char       **text_to; /* where both go in the end */
    size_t      *sizes_to;
    char         error[1100];              /* a new operation clears what is before it, and its first byte */
    _Alignas(16) char own[GM_SCRATCH_OWN]; /* scratch, where that is as small */
};

/* Makes an operation that is not under way yet. Retains in and out (NULL is allowed); takes `scratch` bytes from the
 * pool of their device. */
gm_status gm_pending_new(gm_comm *c, gm_group *g, gm_collective call, gm_tensor *in, gm_tensor *out, size_t scratch,
                         int max_messages, gm_pending **p);
void      gm_pending_free(gm_pending *p);
void      gm_pending_free_ended(gm_comm *c); /* with the comm */
/* Enters p into the records and runs it as far as it goes. out NULL: waits for it. Takes ownership of p. */
gm_status gm_pending_start(gm_pending *p, gm_pending **out);
/* Enters p into the records of calls, if it is not there yet. */
void gm_pending_note(gm_pending *p);
/* Adds a message to the round being built. Empty messages are left out unless `always`. */
void gm_pending_send(gm_pending *p, int place, const void *bytes, size_t n, bool always);
void gm_pending_receive(gm_pending *p, int place, void *bytes, size_t n, bool always);
/* Adds a receive of n bytes from every other member that is summed, with own, into out as it comes. False: the
 * transport or their size does not allow that. */
bool gm_pending_fold(gm_pending *p, const char *own, char *out, size_t n);
/* Sends the term of a sum to the member that makes it. Where memory allows, that puts the sum in its place, and then
 * gm_pending_share neither sends nor receives it. False from gm_pending_shares: no memory. */
bool gm_pending_shares(gm_pending *p);
void gm_pending_lend(gm_pending *p, int place, char *bytes, size_t n);
/* Exchanges the sums: this member's, own[n], goes to place `to`, and that of `from` comes into other[m]. */
void gm_pending_share(gm_pending *p, int to, const char *own, size_t n, int from, char *other, size_t m);
/* terms.c: starts such a receive; counts the messages that one, or another receive, has taken. */
int  gm_terms_start(gm_pending *p, gm_message *m);
void gm_terms_took(const gm_pending *p, const gm_message *m);
/* Starts the messages of the round that was built. */
void gm_round_post(gm_pending *p);
/* Tests those under way; true when one ended. fresh: the clock was read a moment ago, when it started. */
bool gm_round_test(gm_pending *p, bool fresh);
/* An empty message of the round being built; NULL: no memory, and p has failed. */
gm_message *gm_pending_message(gm_pending *p);
void        gm_pending_give_up(gm_pending *p);
/* The waiting loop of all operations. It ends when met(p) holds, p fails, another rank fails, an interrupt is asked
 * for, or the time-out passes without progress. */
gm_status gm_pending_wait_until(gm_pending *p, bool (*met)(gm_pending *p));
/* Advances every operation under way; true if one made progress. */
bool gm_operations_advance(gm_comm *c);
/* gm_comm_pause for waits for other ranks: it ends when one of them has sent something. True: it has slept. */
bool gm_comm_rest(gm_comm *c, double since, unsigned *turns);
/* How long this rank has waited since `since`; a wait calls it again and again. If this rank was stopped meanwhile, the
 * seconds since it went on: mostly the whole job was stopped, as batch systems do, and nobody could have answered. */
double gm_comm_quiet(gm_comm *c, double since);

/* Have all uses of p's memory ended, so that p may be freed? */
bool gm_pending_is_over(const gm_pending *p);
void gm_pending_finish(gm_pending *p);
void gm_pending_fail(gm_pending *p, gm_status st); /* with gm_last_error; the first failure stays */
/* p has made no progress since `since`: asks the other members now and then (*asked: when it last did) and fails with
 * GM_EHANG after the time-out. */
gm_status gm_pending_watch(gm_pending *p, double since, double *asked);

/* ---- rows.c ---- */

size_t gm_rows_elsewhere(const gm_pending *p); /* the bytes of an all_to_all_rows that go to other members */
/* Copies within a group of one, whose runs are as many on both sides: by the device that has them. */
gm_status gm_rows_alone(gm_pending *p, gm_device *dev);

/* ---- lane.c: operations between devices ---- */

bool gm_lane_serves(const gm_pending *p); /* does p go between devices? */
/* Takes memory, a ticket and a turn on a lane for p. Called before p is entered into any record. */
gm_status gm_lane_take(gm_pending *p);
/* Advances p after its last round; true if it made progress. Fails p if its lane has failed. */
bool gm_lane_advance(gm_pending *p);
/* Orders the device's later work after p and gives p's memory back to it. p is QUEUED or done. */
gm_status gm_lane_hand_over(gm_pending *p);
/* Abandons p without waiting. All lanes stop, because later operations would no longer match those of other ranks. */
void gm_lane_give_up(gm_pending *p);
bool gm_lane_holds(const gm_pending *p); /* may the device still use its memory? */
void gm_lane_free(gm_pending *p);
/* From now on tensors of dev travel between devices. */
void gm_lanes_use(gm_comm *c, gm_device *dev);
/* Sets the error that all calls and waits of this rank report until the lanes are closed; the first one stays. */
void gm_lanes_failed(gm_comm *c, gm_status st, const char *error);
/* Ends what is queued between devices on this rank. Operations that begin before the lanes are closed fail. */
void gm_lanes_stop(gm_comm *c);
/* Closes all lanes; later operations make new ones. orderly: promises that all ranks close and nothing is queued. */
void gm_lanes_close(gm_comm *c, bool orderly);
/* Waits until the device has passed all operations that were handed over. */
gm_status gm_lanes_drain(gm_comm *c);

/* ---- recorded.c: graphs with operations between devices ---- */

typedef struct gm_recording gm_recording; /* of the graph that is recorded now */
typedef struct gm_recorded  gm_recorded;  /* of each graph that was */

void gm_recorded_end_all(gm_comm *c);     /* before links stop or close; graphs that have ended are not replayed */
void gm_recorded_forget_comm(gm_comm *c); /* with the comm */
/* What the messages from one member to another are called in records, as a group. */
uint64_t gm_channel_id(const gm_group *g, int from, int to);

/* ---- host_copy.c: bytes that are not in host memory ---- */

/* Takes host memory for p and sets from, to and scratch. Called before the root is known. */
gm_status gm_host_copy_take(gm_pending *p, size_t scratch);
/* Starts to copy the data to be sent out of the device. p is `coming` until gm_host_copy_came finds the copy done. */
gm_status gm_host_copy_begin(gm_pending *p);
gm_status gm_host_copy_came(gm_pending *p);
/* Called after the last step: queues the copy of received data to the device, in order with its kernels; no wait. */
gm_status gm_host_copy_return(gm_pending *p);
void      gm_host_copy_give(gm_pending *p); /* its memory, when no copy uses it any more */
void      gm_host_copy_free(gm_comm *c);    /* after the last operation */

/* ---- the comm ---- */

#define GM_SAY_SECONDS 0.5 /* so long others may say why a rank is gone before it is blamed itself */

/* What another rank said at the end of a section. A rank may end the next section while this rank still waits for a
 * third one to end the present section, but cannot get further ahead: two are kept, by section % 2. */
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
    bool      knows; /* that a rank has failed: it has said so */
} gm_member;

typedef struct gm_check { /* a call of another rank in checked mode that this rank has not come to */
    struct gm_check *next;
    int              rank;
    gm_call_record   record;
} gm_check;

struct gm_comm {
    gm_transport      *transport;
    bool               shares;    /* memory: the transport is one of comm_windows.h */
    bool               may_share; /* all ranks have looked for such; the same on all, where shares is not */
    int               *machine;   /* by rank: a number of its machine; NULL: not known */
    bool              *reads;     /* by rank: is it one of those here that all read each other's memory? NULL: no */
    gm_mesh            mesh;
    int                rank, world;
    gm_group          *groups;
    gm_pending        *under_way;   /* not done, or not waited for */
    int                n_under_way; /* not waited for */
    bool               charged;     /* the time is in some operation's account already */
    double             timeout;
    double             looked, woke; /* gm_comm_quiet: the last time that it was called, and went on after a stop */
    bool               checked, alone;
    gm_phase           phase;
    const char *const *place;
    bool (*asked)(void *context);
    void             *asked_context;
    uint64_t          epoch;
    uint64_t         *sent, *taken; /* data messages by rank */
    bool              broken;       /* the transport lost a notice */
    bool              failed;       /* another rank ends, or this section has failed on it */
    bool              failed_section;
    gm_peer_failure   failure;
    bool              told;    /* this rank has said that it fails */
    uint64_t          section; /* ended so far */
    bool              in_section_end;
    gm_status         end_status; /* of a section whose end failed: ranks may stand in different sections */
    char              end_error[1100];
    bool              leaving;
    gm_member        *member; /* by rank */
    gm_check         *checks;
    const gm_pending *waiting;           /* what is being waited for; NULL: nothing */
    gm_host_copy     *returning, *spare; /* host_copy.c: memory that copies still use; what is free */
    gm_pending       *ended;             /* operations that have ended, whose memory serves new ones */
    int               n_ended;
    gm_device        *linked; /* whose tensors go between devices; NULL: none */
    gm_lane          *lanes;
    gm_status         lane_status; /* the first failure of an operation between devices */
    char              lane_error[1100];
    double            lane_asked;
    gm_recording     *recording; /* NULL: nothing is recorded, or nothing between devices could be in it */
    gm_recorded      *recorded;  /* the graphs that hold operations of these lanes */
    bool              advancing; /* operations are being moved */
    unsigned          unheard;   /* awaited operations since notices were last read between them */
    gm_account        silent;    /* of what is in no account */
    gm_flight        *flight;
    gm_note          *note;    /* NULL: nobody reads it */
    gm_page          *page;    /* the same */
    gm_trace         *trace;   /* NULL: nobody asked */
    gm_journal       *journal; /* the same */
};

const char *gm_comm_place(const gm_comm *c);
gm_status   gm_comm_everybody(gm_comm *c, gm_group **out); /* the group of all ranks, "world" */
gm_status   gm_comm_transport_failed(gm_comm *c);
gm_group   *gm_comm_find_group(gm_comm *c, uint64_t id);
/* GM_EPEER if another rank has failed; GM_EINTERRUPT if an interrupt was asked for (gm_comm_set_interrupt). */
gm_status gm_comm_check_failed(gm_comm *c);
gm_status gm_comm_check_interrupt(gm_comm *c);

/* Every call checks this first. GM_EINVAL: `alone` is set and the group has several ranks. GM_EPEER: another rank has
 * failed. */
gm_status gm_call_check_group(gm_comm *c, const gm_group *g, const char *op);
/* GM_EINVAL unless t is given, contiguous and has bytes. name: "the block ", or "" if the call has only one tensor. */
gm_status gm_call_check_tensor(const gm_comm *c, const gm_group *g, const char *op, const char *name,
                               const gm_tensor *t);

/* ---- notice.c ---- */

/* Reads the notices of other ranks; true if there were any. */
bool gm_notice_read(gm_comm *c);
/* Asks the members that p waits for (everybody: all ranks) what they did. gm_notice_read brings the answers. */
void gm_notice_ask(gm_pending *p, bool everybody);
bool gm_notice_is_silent(const gm_comm *c, int rank); /* it was asked and has not been heard since */
/* hang.c: GM_EHANG with a message that names every absent rank. */
gm_status gm_pending_hang(gm_pending *p);
/* Checked mode: fails p if it waits for the call of a member that is gone. */
void gm_pending_see_gone(gm_pending *p);
/* Checked mode: GM_EMISMATCH unless every member makes the same call. Waits. */
gm_status gm_notice_compare(gm_pending *p);
/* Takes note of ranks that have ended the current section and were not ok. */
void gm_notice_see_endings(gm_comm *c);
/* Before this rank ends because of another one's failure: says so to all, who would else see it end without a word. */
void gm_notice_pass_on(gm_comm *c);
/* Tells all others where this rank is at the end of the current section. */
typedef enum gm_milestone {
    GM_MILESTONE_ENDED,
    GM_MILESTONE_RECOVERING,
    GM_MILESTONE_RECOVERED,
    GM_MILESTONE_LEAVING,
} gm_milestone;
void gm_notice_milestone(gm_comm *c, gm_milestone stage, bool ok, bool under_way, const char *text);

#endif
