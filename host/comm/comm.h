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
 * and reduction. What differs is found (see "Stalls" below) and named; nothing hangs. All collectives are
 * our own algorithms over the point-to-point messages of a transport (transport.h: Open MPI, self, meta),
 * so that sums have one order (by rank in the group: the same bits on every member and in every run),
 * 16-bit types are summed in f32 and rounded once, and the bytes sent are known exactly:
 *
 *     all_reduce       each member owns a slice: direct exchange of slices, sum, direct exchange of sums;
 *                      2 (p-1)/p n bytes a rank        (n: bytes of the tensor, p: members)
 *     reduce_scatter   the first half: (p-1)/p n       all_gather   the second: (p-1)/p n, n of the result
 *     reduce           reduce_scatter, then gather     broadcast    binomial tree: (p-1) n over all members
 *     gather, scatter, all_to_all                      direct: what each piece weighs, once
 *
 * Tensors are contiguous (GM_EINVAL says so otherwise); they must live and stay untouched until the wait. Those of a
 * device whose memory is not the host's go through host memory (host_copy.c) or from device to device (lane.c); what
 * the wait has brought is in order with kernels launched after it. A pointer `out` that is NULL: wait here. Only the
 * thread that made the comm may call.
 *
 * Failures. A rank that fails says so (gm_comm_fail); every call of the others then returns GM_EPEER and
 * gm_comm_failure tells who, with which exit status and message. Work that may fail and go on (a line of the
 * repl, an example of a spec) is a section: see gm_comm_section_end.
 *
 * Stalls. A wait without progress asks the other members what they did in this group (their flight
 * recorders); a different call, now or before, is GM_EMISMATCH at once, with both calls; so is a member that has come
 * to its end. No answer, or the right call never made, is GM_EHANG after `timeout` seconds, naming the absent ranks
 * and where they were. Who finds either tells the others (gm_comm_fail). */
#ifndef GM_COMM_H
#define GM_COMM_H

#include "../../kernels/tensor.h"
#include "../mesh/mesh.h"
#include "note.h"

typedef struct gm_comm    gm_comm;    /* one a rank */
typedef struct gm_group   gm_group;   /* members in order; owned by the comm, lives as long */
typedef struct gm_pending gm_pending; /* an operation under way */
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

/* Takes the transport, also on failure. The mesh is copied; its size must be the transport's world. */
gm_status gm_comm_new(struct gm_transport *transport, const gm_mesh *mesh, gm_comm **out);
/* orderly: nothing is under way on any rank; else what is under way is abandoned and the transport
 * leaves without waiting for anybody. NULL is allowed. */
void gm_comm_free(gm_comm *c, bool orderly);
/* Another mesh over the same ranks; groups of axes are forgotten, nothing may be under way. GM_EINVAL: its size. */
gm_status gm_comm_set_mesh(gm_comm *c, const gm_mesh *mesh);

int         gm_comm_rank(const gm_comm *c);
int         gm_comm_world(const gm_comm *c);
bool        gm_comm_has_data(const gm_comm *c); /* false: the meta transport, which counts and moves nothing */
const char *gm_comm_transport(const gm_comm *c);

/* Seconds without the others' part before a wait gives up with GM_EHANG; 0: never. Default 600. */
void   gm_comm_set_timeout(gm_comm *c, double seconds);
double gm_comm_timeout(const gm_comm *c);
/* Checked mode: every collective first compares (op, dtype, shape, root, reduction, module path) with all members,
 * which makes it wait for them. Messages of two are not compared: each end would wait for the other. */
void gm_comm_set_checked(gm_comm *c, bool on);
/* Alone: calls on groups of several fail at once with GM_EINVAL (a line that one rank of a repl runs). */
void     gm_comm_set_alone(gm_comm *c, bool on);
void     gm_comm_set_phase(gm_comm *c, gm_phase phase);
gm_phase gm_comm_get_phase(const gm_comm *c);
/* Where the program is, for messages and the flight recorder; read through the pointer, which must live. */
void gm_comm_set_place(gm_comm *c, const char *const *path);
/* Where to leave what was called last; NULL: nowhere. It must live. */
void gm_comm_set_note(gm_comm *c, gm_note *note);
/* Asked in every wait; non-zero makes it return GM_EINTERRUPT: Ctrl-C, a time limit, a supervisor's word. */
void gm_comm_set_interrupt(gm_comm *c, bool (*asked)(void *context), void *context);

/* How tensors of devices with memory of their own travel. auto: between the devices by themselves (NCCL) where every
 * rank of the job has one of its own and the library is there, else through host memory. */
typedef enum gm_way { GM_WAY_AUTO, GM_WAY_NCCL, GM_WAY_HOST } gm_way;
/* Chooses for tensors of dev, on all ranks together, with nothing under way; until then they go through host memory.
 * said: what was chosen and why, "NCCL 2.28.9, 8 devices", "host memory: 4 ranks share NVIDIA H200"; "" where there is
 * nothing to choose. dev must outlive the comm, or gm_comm_use_host. GM_EINVAL: NCCL was asked for and cannot be had,
 * with the reason. With NCCL, waits for operations return when they are queued, and their failures come out at waits
 * for the device too; sums are in NCCL's order: not the bits of the host's, but the same on every member, and the same
 * again on the same machines. */
gm_status gm_comm_use_device(gm_comm *c, gm_device *dev, gm_way wish, char *said, size_t size);
void      gm_comm_use_host(gm_comm *c);
bool      gm_comm_is_linked(const gm_comm *c);

/* ---- groups ---- */

/* This rank's group along a set of mesh axes (bit a: axis a); 0: the group of this rank alone. Members in
 * order of rank. Made on first use without communication, cached. */
gm_status gm_comm_group(gm_comm *c, uint32_t axes, gm_group **out);
/* Any ranks, in the given order, this one among them; every member must make it with the same list. The name is
 * for reports. */
gm_status   gm_comm_group_of(gm_comm *c, const char *name, int n, const int *ranks, gm_group **out);
int         gm_group_size(const gm_group *g);
int         gm_group_rank(const gm_group *g); /* this rank's place in it, from 0 */
int         gm_group_member(const gm_group *g, int i);
const char *gm_group_name(const gm_group *g); /* "data", "row.col", or the name given */

/* ---- collectives; dims count from 0, roots are places in the group ---- */

gm_status gm_comm_all_reduce(gm_comm *c, gm_group *g, gm_tensor *t, gm_reduction op, gm_pending **out);
/* Blocks of equal shape joined along dim, in order of the group: out->shape[dim] = p in->shape[dim]. */
gm_status gm_comm_all_gather(gm_comm *c, gm_group *g, gm_tensor *in, int dim, gm_tensor *to, gm_pending **out);
/* The sum over members, of which each keeps its block along dim; in->shape[dim] = p to->shape[dim]. */
gm_status gm_comm_reduce_scatter(gm_comm *c, gm_group *g, gm_tensor *in, int dim, gm_reduction op, gm_tensor *to,
                                 gm_pending **out);
gm_status gm_comm_broadcast(gm_comm *c, gm_group *g, gm_tensor *t, int root, gm_pending **out);
/* In place at the root; the others' tensors keep their contents. */
gm_status gm_comm_reduce(gm_comm *c, gm_group *g, gm_tensor *t, int root, gm_reduction op, gm_pending **out);
/* to is looked at on the root only (NULL elsewhere), and `in` of scatter likewise. */
gm_status gm_comm_gather(gm_comm *c, gm_group *g, gm_tensor *in, int dim, int root, gm_tensor *to, gm_pending **out);
gm_status gm_comm_scatter(gm_comm *c, gm_group *g, gm_tensor *in, int dim, int root, gm_tensor *to, gm_pending **out);
/* Member i's block j along split becomes member j's block i along join. to->shape: in's with split / p, join * p. */
gm_status gm_comm_all_to_all(gm_comm *c, gm_group *g, gm_tensor *in, int split, gm_tensor *to, int join,
                             gm_pending **out);
/* Uneven: rows of dimension 0; send[j] rows go to member j, receive[i] rows come from member i, in order. Each
 * pair must agree on its number. */
gm_status gm_comm_all_to_all_rows(gm_comm *c, gm_group *g, gm_tensor *in, const int64_t *send, gm_tensor *to,
                                  const int64_t *receive, gm_pending **out);
gm_status gm_comm_barrier(gm_comm *c, gm_group *g);

/* Messages between two members; matched in order for each direction. */
gm_status gm_comm_send(gm_comm *c, gm_group *g, gm_tensor *t, int to, gm_pending **out);
gm_status gm_comm_receive(gm_comm *c, gm_group *g, gm_tensor *t, int from, gm_pending **out);

/* Byte strings of any sizes, from every member to every member; waits. *all is one block to be freed, in which the
 * strings follow one another; sizes[gm_group_size]. Not for the data path. */
gm_status gm_comm_exchange(gm_comm *c, gm_group *g, const void *bytes, size_t n, char **all, size_t *sizes);

/* ---- progress ---- */

gm_status gm_comm_wait(gm_comm *c, gm_pending *p);             /* p is gone afterwards, also on failure */
gm_status gm_comm_test(gm_comm *c, gm_pending *p, bool *done); /* done: p is still to be waited for */
/* Waits for *p, which becomes NULL; NULL is nothing to wait for. */
gm_status gm_comm_finish(gm_comm *c, gm_pending **p);
/* Nobody will wait for p: it goes on, and is freed when it is done. NULL is allowed. */
void gm_comm_drop(gm_comm *c, gm_pending *p);
/* The status of what comes after others have had their part: short of memory becomes GM_EINVAL, for a second try after
 * a collection, as callers make it, would repeat on this rank alone what others have done. */
gm_status gm_comm_once(gm_status st);
/* Moves everything under way and reads notices; cheap. GM_EPEER when another rank has failed. */
gm_status gm_comm_poll(gm_comm *c);
int       gm_comm_under_way(const gm_comm *c); /* operations started and not waited for */
/* For loops that wait, of other parts too: seconds of a clock, and one turn of a loop that made no progress since
 * `since`: spin, yield, or sleep a little. */
double gm_comm_now(void);
void   gm_comm_pause(double since, unsigned *turns);

/* ---- failures ---- */

typedef struct gm_peer_failure {
    int  rank, exit_code;
    char text[1000];
} gm_peer_failure;

/* Tells all others that this rank is about to end; returns when they know or after a second. */
void gm_comm_fail(gm_comm *c, int exit_code, const char *text);
/* The first failure of another rank that this one has heard of; NULL: none. */
const gm_peer_failure *gm_comm_failure(const gm_comm *c);

/* Ends a section on every rank: waits until all have called it (ok or not; a call that comes while others
 * still compute tells them, whose communication then returns GM_EPEER). If any was not ok, or had operations
 * under way, everything under way is abandoned, stray messages are taken in, and all groups begin anew, so
 * that the next section starts clean on every rank. Interrupts do not end it: the ranks it waits for are to be
 * interrupted. A rank that only heard of another's failure (GM_EPEER) may call itself ok. *failed: how many ranks were
 * not ok; *first: the lowest of them, -1 for none. text: this rank's message when not ok. */
gm_status gm_comm_section_end(gm_comm *c, bool ok, const char *text, int *failed, int *first);

/* How many sections have ended with everything under way abandoned; the same on every rank. What ranks remember of each
 * other's messages is to be forgotten when it changes. */
uint64_t gm_comm_epoch(const gm_comm *c);

/* The end of the program: waits until every rank has come to it, so that all may leave in order. Before
 * gm_comm_free(c, true). */
gm_status gm_comm_leave(gm_comm *c);

/* ---- accounts ---- */

typedef struct gm_traffic {
    const char *group, *op; /* "data", "all_reduce" */
    gm_phase    phase;
    uint64_t    calls;
    uint64_t    bytes;   /* sent by this rank, as the algorithm demands: the formulas above */
    uint64_t    copied;  /* moved inside this rank besides: packing, staging */
    double      seconds; /* from start to completion, summed over operations */
    double      exposed; /* of these: the host did nothing but wait or move data */
} gm_traffic;

/* Up to max entries; returns how many there are. */
int  gm_comm_traffic(const gm_comm *c, gm_traffic *entries, int max);
void gm_comm_reset_traffic(gm_comm *c);

/* What was sent by each module: by path (gm_comm_set_place when the operation began), group, op and phase. */
typedef struct gm_traced {
    const char *path, *group, *op; /* as long as the trace */
    gm_phase    phase;
    uint64_t    calls, bytes; /* as in gm_traffic */
} gm_traced;

/* One operation of a trace. Those of two members of a group fit together exactly when their fingerprints are equal. */
typedef struct gm_traced_call {
    const char *group; /* as long as the trace */
    uint64_t    group_id, fingerprint;
    char        text[480]; /* what it is and where: "all_reduce f32 (4, 8) sum (call 17 of data), at blocks.3" */
} gm_traced_call;

/* on: forgets what was traced and begins anew; off: ends it. Costs a hash of the path and a record an operation.
 * GM_EINVAL while operations are under way. */
gm_status gm_comm_trace(gm_comm *c, bool on);
/* Up to max entries, in order of their first call; returns how many there are. */
int gm_comm_traced(const gm_comm *c, gm_traced *entries, int max);
/* Operations traced, in order; i from 0. */
int  gm_comm_traced_calls(const gm_comm *c);
void gm_comm_traced_call(const gm_comm *c, int i, gm_traced_call *call);

/* One line an operation, the newest last, at most `lines`; to be freed. NULL: no memory. */
char *gm_comm_flight(const gm_comm *c, int lines);

#endif
