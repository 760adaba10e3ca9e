/* comm.h - communication between ranks: collectives and messages over groups, asynchronous, counted, checked.
 *
 *     gm_group   *g;
 *     gm_pending *p;
 *     GM_TRY(gm_comm_group(r->comm, gm_mesh_mask(&r->mesh, "data"), &g));
 *     GM_TRY(gm_comm_all_reduce(r->comm, g, t, GM_SUM, &p));      // under way; t is not to be touched
 *     ...                                                         // compute; gm_comm_poll now and then
 *     GM_TRY(gm_comm_wait(r->comm, p));                           // done, p is gone
 *
 * Every member of a group makes the same calls on it in the same order with the same op, dtype, counts, root
 * and reduction. A call that differs is reported as an error that shows both calls (see "Stalls" below); it does not
 * hang. The collectives are algorithms of this folder over the point-to-point messages of a transport (transport.h:
 * Open MPI, TCP, shared memory, self, meta). Sums therefore have one order (by rank in the group), which gives the same
 * bits on every member and in every run; 16-bit types are summed in f32 and rounded once; and the bytes sent are known
 * exactly:
 *
 *     all_reduce       each member owns a slice: direct exchange of slices, sum, direct exchange of sums;
 *                      2 (p-1)/p n bytes a rank        (n: bytes of the tensor, p: members). A small tensor
 *                      (at_once.h) goes to all members as a whole, and each sums all terms: (p-1) n
 *     reduce_scatter   the exchange of slices and their sum: (p-1)/p n
 *     all_gather       the exchange of results alone: (p-1)/p n, where n counts the result
 *     reduce           reduce_scatter, then gather     broadcast    binomial tree: (p-1) n over all members
 *     gather, scatter, all_to_all                      direct: each piece is sent once
 *     all_to_all_rows  direct: a message to each other member; n counts the rows for others, and may differ by rank
 *
 * In a group on several machines the first three and broadcast hand over what several members of a machine send or want
 * to one of them (over_machines.c): all members together send as many bytes, of which fewer cross the network. Their
 * sums have the order of machines, and of members within each, but for types of 16 bits. Small sums go that way, too.
 *
 * Tensors must be contiguous (else GM_EINVAL). The caller must keep them alive and untouched until the wait. Tensors
 * of a device with memory of its own travel through host memory (host_copy.c) or from device to device (lane.c);
 * kernels launched after the wait see the received data. Where `out` (gm_pending **) is NULL, the call waits itself.
 * Only the thread that made the comm may call these functions.
 *
 * Failures. A rank that fails tells the others (gm_comm_fail). Each of their calls then returns GM_EPEER, and
 * gm_comm_failure gives the failed rank, its exit status and its message. A rank that ends because of that passes it
 * on. The waits for a rank that is gone without a word fail with GM_ECOMM, after half a second in which others may say
 * why it is gone. Work that may fail without ending the program (a line of the repl, an example of a spec) is a
 * section: see gm_comm_section_end.
 *
 * Stalls. A wait without progress asks the other members what they did in this group; they answer from their flight
 * recorders. If one made a different call, now or earlier, or has reached the end of its program, the wait fails with
 * GM_EMISMATCH at once and shows both calls. If one does not answer, or never makes the call, the wait fails with
 * GM_EHANG after `timeout` seconds and names the absent ranks and where they were. The rank that finds either error
 * tells the others (gm_comm_fail). */
#ifndef GM_COMM_H
#define GM_COMM_H

#include "../../kernels/arena.h"
#include "../../kernels/tensor.h"
#include "../mesh/mesh.h"
#include "note.h"

typedef struct gm_comm    gm_comm;    /* one a rank */
typedef struct gm_group   gm_group;   /* members in order; owned by the comm, lives as long */
typedef struct gm_pending gm_pending; /* an operation under way */
struct gm_journal;
struct gm_transport;

typedef enum gm_reduction { GM_SUM, GM_MEAN, GM_MAX, GM_MIN } gm_reduction; /* mean: sum / members; floats only */

/* What a training step is doing; traffic is counted by it. */
typedef enum gm_phase {
    GM_PHASE_OTHER,
    GM_PHASE_INITIALIZE,
    GM_PHASE_FORWARD,
    GM_PHASE_BACKWARD,
    GM_PHASE_UPDATE,
    GM_PHASE_EVALUATE,
    GM_PHASE_CHECKPOINT,
    GM_PHASE_COUNT
} gm_phase;
const char *gm_phase_name(gm_phase phase);

/* ---- the comm ---- */

/* Makes a comm, freed by gm_comm_free. Takes ownership of the transport, also on failure. The mesh is copied; its size
 * must equal the transport's world (GM_EINVAL). */
gm_status gm_comm_new(struct gm_transport *transport, const gm_mesh *mesh, gm_comm **out);
/* orderly: promises that nothing is under way on any rank. Without it operations under way are abandoned and the
 * transport closes without waiting for other ranks. NULL is allowed. */
void gm_comm_free(gm_comm *c, bool orderly);
/* Replaces the mesh by another one over the same ranks. Groups of the old mesh's axes keep their accounts, but
 * gm_comm_group no longer finds them. GM_EINVAL: the size of the mesh is not the number of ranks, or operations are
 * under way. */
gm_status gm_comm_set_mesh(gm_comm *c, const gm_mesh *mesh);

int         gm_comm_rank(const gm_comm *c);
int         gm_comm_world(const gm_comm *c);
bool        gm_comm_has_data(const gm_comm *c); /* false: the meta transport, which counts and moves nothing */
const char *gm_comm_transport(const gm_comm *c);
/* The seconds of its CPU that this rank has spent so far on yields which gave its core to nobody (crowd.h). */
double gm_comm_yielded(const gm_comm *c);

/* After so many seconds without progress a wait fails with GM_EHANG; 0: never. Default 600. */
void   gm_comm_set_timeout(gm_comm *c, double seconds);
double gm_comm_timeout(const gm_comm *c);
/* Checked mode: every collective first compares (op, dtype, shape, root, reduction, module path) with all members, and
 * so waits for them. Messages between two members are not compared, because each end would wait for the other. */
void gm_comm_set_checked(gm_comm *c, bool on);
/* While `alone` is set, calls on groups of several ranks fail at once with GM_EINVAL. For work that a single rank does,
 * such as a line that one rank of a repl runs. */
void     gm_comm_set_alone(gm_comm *c, bool on);
void     gm_comm_set_phase(gm_comm *c, gm_phase phase);
gm_phase gm_comm_get_phase(const gm_comm *c);
/* Sets the place of the program (a module path) that messages and the flight recorder show. The comm keeps the pointer
 * and reads the text through it at each call; the caller keeps both alive. */
void gm_comm_set_place(gm_comm *c, const char *const *path);
/* Sets where the comm writes its last call; NULL: nowhere. The caller keeps the note alive. */
void gm_comm_set_note(gm_comm *c, gm_note *note);
/* The same for what this rank does (page.h). */
struct gm_page;
void gm_comm_set_page(gm_comm *c, struct gm_page *page);
/* Sets a function that every wait calls now and then; when it returns true the wait returns GM_EINTERRUPT (Ctrl-C, a
 * time limit, a request of the supervisor). */
void gm_comm_set_interrupt(gm_comm *c, bool (*asked)(void *context), void *context);

/* How tensors of devices with memory of their own travel. AUTO: directly between the devices (NCCL) where every rank of
 * the job has a device of its own and the library is there, else through host memory. */
typedef enum gm_way { GM_WAY_AUTO, GM_WAY_NCCL, GM_WAY_HOST } gm_way;
/* Chooses how tensors of dev travel. Collective over all ranks, with nothing under way. Before this call tensors travel
 * through host memory. said[size] receives the choice and its reason ("NCCL 2.28.9, 8 devices", "host memory: 4 ranks
 * share NVIDIA H200"), or "" where there is nothing to choose. dev must live until gm_comm_free or gm_comm_use_host.
 * GM_EINVAL: NCCL was asked for and is not available; the message gives the reason.
 * With NCCL a wait returns when the operation is queued, so that waits for the device report its failure, too. Sums
 * have NCCL's order: their bits differ from the host's, but agree on every member and repeat on the same machines. */
gm_status gm_comm_use_device(gm_comm *c, gm_device *dev, gm_way wish, char *said, size_t size);
void      gm_comm_use_host(gm_comm *c);
bool      gm_comm_is_linked(const gm_comm *c);

/* Lets ranks of one machine talk through memory that they share (comm_windows.h), or ends that. Collective over all
 * ranks, with nothing under way. Sums of ranks of one machine have the same bits either way. said[size] receives a line
 * about the first rank that should share memory and cannot, with the reason, the same on every rank, or "": such ranks
 * talk as before. Ranks with GANYMEDE_SHARED_MEMORY=none in their environment share none. *arena: what tensors of this
 * rank may lie in, which the others then reach without the system (arena.h); made if it is NULL, and owned by the
 * caller, who keeps it until gm_comm_free. */
gm_status gm_comm_share_memory(gm_comm *c, bool on, gm_arena **arena, char *said, size_t size);
bool      gm_comm_shares_memory(const gm_comm *c); /* with some other rank, now */

/* Says on which machine each rank is: machine[world], any numbers, copied; NULL forgets it. The same on all ranks,
 * with nothing under way. Collectives of a group on several machines then send what is for, or from, several of its
 * members on a machine once through the network (over_machines.c). gm_comm_share_memory says it where ranks find it
 * out. GM_ENOMEM. */
gm_status gm_comm_know_machines(gm_comm *c, const int *machine);

/* ---- groups ---- */

/* This rank's group along a set of mesh axes (bit a: axis a); 0: the group of this rank alone. Members are in order of
 * rank. The group is made on first use, without communication; the comm keeps and owns it. */
gm_status gm_comm_group(gm_comm *c, uint32_t axes, gm_group **out);
/* A group of any ranks in the given order; this rank must be among them. Every member must make it with the same list.
 * Reports show the name. The comm owns the group. */
gm_status   gm_comm_group_of(gm_comm *c, const char *name, int n, const int *ranks, gm_group **out);
int         gm_group_size(const gm_group *g);
int         gm_group_rank(const gm_group *g); /* this rank's place in it, from 0 */
int         gm_group_member(const gm_group *g, int i);
const char *gm_group_name(const gm_group *g); /* "data", "row.col", or the name given */

/* ---- collectives; dims count from 0, roots are places in the group ----
 *
 * The caller waits for *out with gm_comm_wait or gm_comm_finish, or hands it to gm_comm_drop. Each call retains its
 * tensors until it is done. Errors: GM_EINVAL (tensor missing or not contiguous, no such root), GM_ESHAPE (no such
 * dimension, shapes that do not fit, a mean of integers), and those of waits. */

/* Reduces t over the members, in place. */
gm_status gm_comm_all_reduce(gm_comm *c, gm_group *g, gm_tensor *t, gm_reduction op, gm_pending **out);
/* Joins blocks of equal shape along dim, in order of the group: to->shape[dim] = p in->shape[dim]. */
gm_status gm_comm_all_gather(gm_comm *c, gm_group *g, gm_tensor *in, int dim, gm_tensor *to, gm_pending **out);
/* Reduces `in` over the members; each member receives its block along dim: in->shape[dim] = p to->shape[dim]. */
gm_status gm_comm_reduce_scatter(gm_comm *c, gm_group *g, gm_tensor *in, int dim, gm_reduction op, gm_tensor *to,
                                 gm_pending **out);
/* Copies the root's t into t of every member. */
gm_status gm_comm_broadcast(gm_comm *c, gm_group *g, gm_tensor *t, int root, gm_pending **out);
/* Reduces t into the root's t, in place; the tensors of the other members keep their contents. */
gm_status gm_comm_reduce(gm_comm *c, gm_group *g, gm_tensor *t, int root, gm_reduction op, gm_pending **out);
/* gather joins the members' blocks along dim on the root; scatter gives each member its block. Only the root reads `to`
 * of gather and `in` of scatter; elsewhere they may be NULL. */
gm_status gm_comm_gather(gm_comm *c, gm_group *g, gm_tensor *in, int dim, int root, gm_tensor *to, gm_pending **out);
gm_status gm_comm_scatter(gm_comm *c, gm_group *g, gm_tensor *in, int dim, int root, gm_tensor *to, gm_pending **out);
/* Member i's block j along dimension `split` becomes member j's block i along dimension `join`. to has the shape of
 * `in` with split divided by p and join multiplied by p. */
gm_status gm_comm_all_to_all(gm_comm *c, gm_group *g, gm_tensor *in, int split, gm_tensor *to, int join,
                             gm_pending **out);
/* A run of rows of a tensor, for one member or from it: rows first .. first + n - 1 (dimension 0); n may be 0. */
typedef struct gm_row_run {
    int     place;
    int64_t first, n;
} gm_row_run;

/* Runs in order of their places, any number of them of each place. Together they cover the rows of a tensor, each row
 * once. The caller keeps them until the call returns. */
typedef struct gm_row_runs {
    const gm_row_run *run;
    int               n;
} gm_row_runs;

/* One run for each member, of rows[member] rows, one after the other, into run[members]; returns them. */
gm_row_runs gm_row_runs_in_order(const int64_t *rows, int members, gm_row_run *run);
/* An uneven all_to_all of rows: the runs of `in` that `send` lists go to their places, and those of `to` that `receive`
 * lists come from theirs. The k-th run that a member sends to another becomes the k-th one that the other receives from
 * it, and both have the same number of rows. A pair of members exchanges one message each way, an empty one, too. Where
 * the runs of a message do not lie one after the other, it goes through scratch memory; between devices each run is a
 * transfer of its own. Runs for this rank itself are copied. GM_ESHAPE: lists that do not cover their tensors, places
 * out of order, two tensors whose rows differ, or a rank that sends itself other runs than it receives. If a pair of
 * members disagrees on the rows of a message, the wait finds it: GM_EMISMATCH with both numbers of bytes. */
gm_status gm_comm_all_to_all_rows(gm_comm *c, gm_group *g, gm_tensor *in, gm_row_runs send, gm_tensor *to,
                                  gm_row_runs receive, gm_pending **out);
/* Returns when every member has called it. */
gm_status gm_comm_barrier(gm_comm *c, gm_group *g);

/* Messages between two members (places in the group); sends match receives in order, for each direction apart. */
gm_status gm_comm_send(gm_comm *c, gm_group *g, gm_tensor *t, int to, gm_pending **out);
gm_status gm_comm_receive(gm_comm *c, gm_group *g, gm_tensor *t, int from, gm_pending **out);

/* Gives every member the byte strings of all members; waits. The caller frees *all, one block in which the strings
 * follow one another in order of the group; sizes[gm_group_size(g)] receives their sizes. Slow: not for tensors. */
gm_status gm_comm_exchange(gm_comm *c, gm_group *g, const void *bytes, size_t n, char **all, size_t *sizes);

/* The same for n bytes of every member, n the same on all of them, in as few messages as can be (log2 of the members'
 * number each); waits. all: room for n bytes of each member, in order of the group. For what is agreed on in each step.
 * */
#define GM_TELL_MOST 256
gm_status gm_comm_tell(gm_comm *c, gm_group *g, const void *bytes, size_t n, void *all);

/* ---- progress ---- */

gm_status gm_comm_wait(gm_comm *c, gm_pending *p);             /* p is gone afterwards, also on failure */
gm_status gm_comm_test(gm_comm *c, gm_pending *p, bool *done); /* done: p is still to be waited for */
/* Waits for *p and sets it to NULL; does nothing if *p is NULL. */
gm_status gm_comm_finish(gm_comm *c, gm_pending **p);
/* Gives p up to the comm: the operation goes on and is freed when it is done. NULL is allowed. */
void gm_comm_drop(gm_comm *c, gm_pending *p);
/* Translates the status of a step that follows communication: GM_ENOMEM becomes GM_EINVAL. Callers answer GM_ENOMEM by
 * a garbage collection and a second try, which would repeat on this rank alone what the other ranks have done. */
gm_status gm_comm_once(gm_status st);
/* Advances every operation under way and reads notices; cheap. GM_EPEER: another rank has failed. */
gm_status gm_comm_poll(gm_comm *c);
int       gm_comm_under_way(const gm_comm *c); /* operations started and not waited for */
/* For loops that wait, here and elsewhere. A loop that has made no progress since `since` (gm_now) calls gm_comm_pause
 * once a turn; it spins, yields or sleeps a little. */
void gm_comm_pause(double since, unsigned *turns);

/* ---- failures ---- */

typedef struct gm_peer_failure {
    int  rank, exit_code;
    char text[1000];
} gm_peer_failure;

/* Tells all other ranks that this rank is about to end; returns when they know it, or after a second. */
void gm_comm_fail(gm_comm *c, int exit_code, const char *text);
/* The first failure of another rank that this rank has heard of; owned by the comm; NULL: none. */
const gm_peer_failure *gm_comm_failure(const gm_comm *c);

/* Ends a section; collective over all ranks. Waits until every rank has called it. A call with ok = false tells the
 * ranks that still compute, and their communication then returns GM_EPEER. If any rank was not ok, or had operations
 * under way, all ranks abandon their operations, take in stray messages and restart their groups, so that the next
 * section starts clean. An interrupt does not end this wait: interrupt the ranks that it waits for. A rank that only
 * heard of another's failure (GM_EPEER) may pass ok = true. text: this rank's message if it is not ok. *failed: the
 * number of ranks that were not ok; *first: the lowest of them, or -1. GM_EHANG: nothing was heard of a rank within the
 * time limit, in which the time that this rank itself was stopped does not count. After any failure ranks may stand in
 * different sections: each later call of this comm fails with the same message. */
gm_status gm_comm_section_end(gm_comm *c, bool ok, const char *text, int *failed, int *first);
/* Waits until all that was begun before is done, so that a section which may fail abandons none of it; collective over
 * all ranks, which stand at the same place of the program. */
gm_status gm_comm_settle(gm_comm *c);

/* The number of sections whose operations were abandoned; the same on every rank. When it changes, callers must forget
 * what they remember of messages between ranks. */
uint64_t gm_comm_epoch(const gm_comm *c);

/* Ends the program in order: waits until every rank has called it. Call it before gm_comm_free(c, true). */
gm_status gm_comm_leave(gm_comm *c);

/* ---- accounts ---- */

typedef struct gm_traffic {
    const char *group, *op; /* "data", "all_reduce" */
    gm_phase    phase;
    uint64_t    calls;
    uint64_t    bytes;   /* sent by this rank: the formulas above */
    uint64_t    copied;  /* moved inside this rank in addition: packing, staging */
    double      seconds; /* from start to completion, summed over operations */
    double      exposed; /* the part of `seconds` in which the host only waited or moved data */
} gm_traffic;

/* Copies at most max entries; returns how many there are. Their texts belong to the comm. */
int  gm_comm_traffic(const gm_comm *c, gm_traffic *entries, int max);
void gm_comm_reset_traffic(gm_comm *c);

/* What one module sent: an entry for each module path (gm_comm_set_place at the start of the operation), group, op and
 * phase. */
typedef struct gm_traced {
    const char *path, *group, *op; /* valid as long as the trace */
    gm_phase    phase;
    uint64_t    calls, bytes; /* as in gm_traffic */
} gm_traced;

/* One operation of a trace. The calls of two members of a group match exactly when their fingerprints are equal. */
typedef struct gm_traced_call {
    const char *group; /* valid as long as the trace */
    uint64_t    group_id, fingerprint;
    char        text[480]; /* what it is and where: "all_reduce f32 (4, 8) sum (call 17 of data), at blocks.3" */
} gm_traced_call;

/* Starts a new trace (on; the old one is freed) or ends it (off). A trace costs a hash of the path and a record for
 * each operation. GM_EINVAL: operations are under way. */
gm_status gm_comm_trace(gm_comm *c, bool on);
/* Copies at most max entries, in order of their first call; returns how many there are. */
int gm_comm_traced(const gm_comm *c, gm_traced *entries, int max);
/* The operations of the trace in order; i counts from 0. */
int  gm_comm_traced_calls(const gm_comm *c);
void gm_comm_traced_call(const gm_comm *c, int i, gm_traced_call *call);

/* Sets the record (kernels/journal.h) to which every operation adds a BEGIN, and every wait for one a WAIT; NULL: none.
 * The comm does not own it. A send needs no wait. */
void gm_comm_set_journal(gm_comm *c, struct gm_journal *journal);
/* The id of an operation in the record, 0: none. The wait for it is then for the caller to note: by
 * gm_comm_journal_wait, at the moment at which its result is needed, and as often as the caller likes. */
int32_t gm_comm_take_id(gm_pending *p);
void    gm_comm_journal_wait(gm_comm *c, int32_t id); /* id 0: does nothing */
/* The last wait for this operation is over. */
void gm_comm_journal_waited(gm_comm *c, int32_t id);

/* The flight recorder as text: a line for each operation, the newest last, at most `lines`. The caller frees it. NULL:
 * no memory. */
char *gm_comm_flight(const gm_comm *c, int lines);

#endif
