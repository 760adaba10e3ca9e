/* rank.h - the state of one rank. There are no C globals, so that one process can hold several ranks. A gm_rank belongs
 * to one thread; embed.c makes it before Lua opens and frees it after Lua closed. */
#ifndef GM_RANK_H
#define GM_RANK_H

#include "../../kernels/device.h"
#include "../mesh/mesh.h"

struct gm_tape;
struct gm_plans;
struct gm_scope;
struct gm_join;
struct gm_transport;
struct gm_reducer;
struct gm_stored;
struct gm_value;
struct gm_tier;

/* Random calls since the rank was made: how many, and the sum of their streams' keys, in any order. */
typedef struct gm_drawn {
    uint64_t calls, keys;
} gm_drawn;

typedef struct gm_rank {
    int              rank, world;
    gm_mesh          mesh;
    int              coordinate[GM_MAX_AXES]; /* of this rank, an entry an axis */
    struct gm_comm  *comm;   /* NULL until gm_rank_connect; a rank that is alone gets one over `self` on first use */
    gm_device       *device; /* NULL until gm_rank_open_device */
    struct gm_arena *arena;  /* memory for tensors that ranks of this machine share; NULL: none yet */
    bool             shares; /* the device's tensors may lie there now */
    gm_device *beside;  /* the host's CPU beside a device with memory of its own (gm_rank_beside); NULL: none yet */
    int        threads; /* that were asked for; 0: one a usable core */
    bool       apart;   /* the device stands for one with memory of its own, though it is meta */
    gm_device *other;   /* of specs, whose ops run on a device beside it; NULL: none yet */
    gm_dtype   default_dtype;
    uint64_t   seed;

    struct gm_plans *plans; /* of redistributions on this mesh, remembered (host/parallel); NULL: none yet */
    void (*free_plans)(struct gm_plans *p);

    struct gm_stored *stored; /* parameters that rest in parts (host/gradients/stored.h); NULL: none */
    void (*free_stored)(struct gm_stored *s);
    gm_status (*stored_settle)(gm_storage *s);       /* what was written into a gathered block is in its parts now; */
    gm_status (*stored_discard)(gm_storage *s);      /* the parts are about to change: the block goes */
    gm_status (*stored_arrive)(struct gm_stored *s); /* waits for what is gathered ahead */
    gm_status (*stored_mesh_ends)(struct gm_stored *s); /* the same, and forgets what the next mesh must not know */

    const struct gm_sharded_ops *sharded; /* what ops do where inputs are cut (autograd/apply.h); NULL: nothing more */

    bool keep_gathered;  /* products keep what they gathered for backward, and do not gather it again */
    bool poison_padding; /* of specs: see host/autograd/padding.h */
    bool detect_anomaly; /* see host/autograd/anomaly.h */

    gm_tensor *loss_scale; /* f64 (): what backward passes of losses begin with (gm_rank_scale_losses); NULL: 1 */

    struct gm_reducer *reducer; /* sums gradients over ranks (host/gradients); NULL: none */
    gm_status (*gradient_is_final)(struct gm_reducer *d, struct gm_value *leaf); /* what the tape tells it */

    struct {                  /* what rests in a tier while it is not needed (gm_rank_rest) */
        struct gm_tier *tier; /* NULL: nothing */
        bool            gradients, activations;
        size_t          least; /* bytes: smaller storages stay in memory */
    } rests;

    struct gm_tape  *tape;     /* being recorded; NULL: none yet */
    int              no_grad;  /* > 0: nothing is recorded */
    int              regions;  /* that are being recorded, one in another (autograd/region.h) */
    uint64_t         recorded; /* nodes so far */
    uint64_t         tapes;    /* lists of leaves so far */
    struct gm_scope *scope;    /* innermost; never NULL */

    char  *path; /* module path being run: "blocks.3.mlp"; "" outside modules */
    size_t path_room;

    /* Which samples of the optimizer step's whole batch the current micro-batch holds. */
    int64_t batch_offset, batch_count;

    void *main, *caller; /* for bindings: the interpreter, and the coroutine that callbacks run on */

    struct gm_site *sites; /* calls so far in this step, by module path */
    uint32_t        n_sites, site_room;
    gm_drawn        drawn;
} gm_rank;

/* What this file knows of a rank; host/life.h makes the whole of it. */
gm_status gm_rank_make(gm_rank **out);
void      gm_rank_end(gm_rank *r);
/* Joins the job that started this process (host/comm/launched.h), or becomes a world of one; sets rank and world. A
 * stop that comes while it waits for other ranks ends the wait. Until gm_rank_set_mesh the mesh has one axis, "data".
 * Call it before the device is opened. GM_EINVAL: connected already, or the environment makes no sense; others as
 * gm_transport_join. */
gm_status gm_rank_connect(gm_rank *r, const struct gm_join *how);
/* The same over a given transport, for ranks that are threads of one process. Takes ownership of t, also on failure. */
gm_status gm_rank_connect_over(gm_rank *r, struct gm_transport *t);
/* Becomes rank `rank` of a world of `world` over the meta transport, which counts traffic and moves nothing. */
gm_status gm_rank_pretend(gm_rank *r, int rank, int world);
/* From now on, gradients that are made, and what forward keeps for backward, rest in this tier, if they have at least
 * so many bytes. tier NULL: no longer. The rank holds the tier as an owner does. */
void gm_rank_rest(gm_rank *r, struct gm_tier *tier, bool gradients, bool activations, size_t least);
/* The mesh; where none was set yet, all ranks in a row that is called data. */
gm_mesh gm_rank_mesh(const gm_rank *r);
/* Sets the mesh; called before the first value is made. GM_EINVAL: its size is not the world. */
gm_status gm_rank_set_mesh(gm_rank *r, const gm_mesh *mesh);
/* The comm, made over `self` where the rank has none. */
gm_status gm_rank_comm(gm_rank *r, struct gm_comm **out);

/* gm_comm_share_memory (comm.h), and with it memory for the device's tensors where all ranks of the machine
 * reach them (gm_tensor_new_shared). Collective. */
gm_status gm_rank_share_memory(gm_rank *r, bool on, char *said, size_t size);
/* backend: "cpu", "meta", ...; threads 0: one a usable core. GM_EINVAL when a device is open already. */
gm_status gm_rank_open_device(gm_rank *r, const char *backend, int threads);
/* The device, opened as "cpu" on first use. */
gm_status gm_rank_device(gm_rank *r, gm_device **out);
/* Has the device memory of its own, so that the host's is a tier below it? On meta: gm_rank.apart. */
bool gm_rank_is_apart(const gm_rank *r);
/* The host's CPU beside such a device, with page-locked memory (gm_device_new_beside); made on first use. */
gm_status gm_rank_beside(gm_rank *r, gm_device **out);

/* Backward passes of losses begin with *scale, f64 (), as it is then, in place of 1 (Micikevicius et al. 2018), so that
 * gradients of 16 bits do not vanish; NULL: with 1. Retained. */
void gm_rank_scale_losses(gm_rank *r, gm_tensor *scale);

/* Sets the path of the module that runs from now on, for errors, memory accounts and random sites. Copied. */
gm_status gm_rank_set_path(gm_rank *r, const char *path);
/* The same until gm_rank_leave_path, which must be given *before and takes it. */
gm_status gm_rank_enter_path(gm_rank *r, const char *path, char **before);
void      gm_rank_leave_path(gm_rank *r, char *before);
/* Charges what is allocated next to (current path, op). */
void gm_rank_place(gm_rank *r, const char *op);

/* The stream of the next random call at the current path: site = (path, calls so far there in this
 * step). The step coordinate is read from the step block when the kernel runs. */
gm_status gm_rank_next_stream(gm_rank *r, uint32_t purpose, gm_stream *out);
/* What was drawn since then (r->drawn). Two runs of one function that draw the same have equal ones. */
gm_drawn gm_rank_drawn_since(const gm_rank *r, gm_drawn then);
/* Advances messages under way, if there are any (gm_comm_poll). Long computations call it now and then. */
gm_status gm_rank_poll(gm_rank *r);
/* A new step or evaluation pass begins: call counters restart. */
void gm_rank_begin_step(gm_rank *r);
/* What random numbers and rows of a batch depend on, at one moment of a step: for what is run twice. */
typedef struct gm_rank_moment {
    struct gm_site *sites; /* owned */
    uint32_t        n_sites, site_room;
    int64_t         batch_offset, batch_count;
} gm_rank_moment;
gm_status gm_rank_remember(const gm_rank *r, gm_rank_moment *out);
gm_status gm_rank_copy_moment(const gm_rank_moment *from, gm_rank_moment *out);
void      gm_rank_exchange(gm_rank *r, gm_rank_moment *m); /* the rank goes on from m, which becomes what it was */
void      gm_rank_forget(gm_rank_moment *m);
/* The global box of a value of this shape whose first dimension is cut along the batch (see design). */
gm_box gm_rank_batch_box(const gm_rank *r, int ndim, const int64_t *shape);

#endif
