/* machine.h - what a machine can do, as numbers: the costs of a simulation come from here and never from code.
 *
 * lua/ganymede/plan/machine.lua reads and checks the file of a machine, and fills this struct.
 * docs/planning_machines.md describes the file. Units: seconds, bytes, bytes per second, floating-point operations per
 * second.
 *
 * An op takes  launch + max(start + bytes / bandwidth + products / rate of products, bytes / rate of moves).  `start`
 * and `bandwidth` belong to the rate of products, and take no time where it says nothing. The rate of products belongs
 * to the op (or "*"), the dtype and the least of the product's three dimensions; that of moves to the op (or "*"), the
 * dtype and the bytes. Between two points a rate is linear in the logarithm of the size; beyond the ends it stays.
 *
 * Where a thread of the host launches what a device does (gm_launches), `launch` is what an op takes on the device
 * beside its work, and an op begins no sooner than the host has launched it, one after the other. */
#ifndef GM_MACHINE_H
#define GM_MACHINE_H

#include <stdbool.h>
#include <stddef.h>

#include "../../kernels/journal.h"

#define GM_MACHINE_RATES  64
#define GM_MACHINE_POINTS 16
#define GM_MACHINE_LEVELS 4
#define GM_MACHINE_WAKES  16

typedef struct gm_rate {
    char   op[24], dtype[8]; /* "*": any */
    double start, bandwidth; /* of products, beside them; 0: nothing */
    int    n;
    struct {
        double size, rate;
    } point[GM_MACHINE_POINTS]; /* sizes ascend */
} gm_rate;

typedef enum gm_level_kind {
    GM_LEVEL_SWITCH, /* ports into a switch that is as wide as all of them (NVLink, a rail, a fat tree) */
    GM_LEVEL_SHARED, /* one medium that all ranks of a unit share (PCIe, a bus, memory) */
    GM_LEVEL_TORUS   /* links between neighbours along some dimensions */
} gm_level_kind;

/* Links, from the inside outwards. A message between two ranks takes the first level whose unit holds both. */
typedef struct gm_level {
    char          name[32];
    gm_level_kind kind;
    int           ranks;            /* of a unit; 0, of the outermost level: all */
    double        bandwidth;        /* one way: of a port, of the medium (both ways together), of a link */
    double        latency;          /* of a message; on a torus, of a hop */
    int           ranks_per_port;   /* of a switch */
    int           leaf;             /* ranks below one leaf of a fat tree; 0: no leaves */
    double        oversubscription; /* bandwidth into a leaf by bandwidth out of it; 1: full */
    int           dims[3], n_dims;  /* of a torus, in units of ranks; their product is `ranks` */
} gm_level;

/* What collectives are made of. RING and TREE are those of NCCL, DIRECT those of host/comm. AUTO: RING or TREE,
 * whichever takes less time alone. */
typedef enum gm_algorithm {
    GM_ALGORITHM_RING,
    GM_ALGORITHM_TREE,
    GM_ALGORITHM_DIRECT,
    GM_ALGORITHM_AUTO,
    GM_ALGORITHM_AT_ONCE, /* what DIRECT does for a small all_reduce: of no machine */
} gm_algorithm;

/* What a rank offloads to: the disk that ranks of a node share, and a link of its own to the memory of the host.
 * Bytes per second; 0: not known. Reads and writes do not slow each other. */
typedef struct gm_below {
    double disk_read, disk_write, disk_latency, host, host_latency; /* host: one way */
} gm_below;

/* Seconds of a thread of the host for an op, for an operation between ranks, and for a recorded step (one launch for
 * all); 0: the host does not bind, or `launch` has it. */
typedef struct gm_launches {
    double op, between, recorded;
} gm_launches;

/* What it costs a rank to be woken, where ranks share cores: seconds of a core, and the seconds until it runs, by the
 * number of other ranks of its node that compute then or are about to (from 0; the last one for all more). A rank that
 * has waited for less than `after` seconds does not sleep yet, and goes on at once. */
typedef struct gm_wakes {
    double work, after, late[GM_MACHINE_WAKES];
    int    n; /* 0: waking costs nothing */
} gm_wakes;

typedef struct gm_efficiency {
    char   op[24]; /* "all_reduce" */
    double factor; /* of the bandwidth */
} gm_efficiency;

typedef struct gm_machine {
    double        launch;     /* of an op */
    double        begin;      /* that starting an operation between ranks takes of a rank's time */
    double        peak;       /* of a rank: the FLOP/s that an MFU refers to */
    double        memory;     /* of a rank; 0: not known */
    bool          host_moves; /* the ranks themselves move the bytes: nothing overlaps */
    bool          in_order;   /* operations of a group of ranks go one after the other, as in a communicator of NCCL */
    gm_algorithm  algorithm;
    int           n_products, n_moves, n_levels, n_efficiencies;
    gm_rate       products[GM_MACHINE_RATES], moves[GM_MACHINE_RATES];
    gm_level      level[GM_MACHINE_LEVELS];
    gm_efficiency efficiency[16];
    gm_below      below;
    gm_launches   host;
    int           ranks_per_node, cores_per_rank;
    int           cores; /* of a node, which its ranks share; 0: each rank has cores of its own */
    gm_wakes      wake;
} gm_machine;

/* The seconds of an op of a record. GM_EINVAL: the machine has no rate for it; the message names op and dtype. */
gm_status gm_machine_op(const gm_machine *m, const gm_journal *r, const gm_event *e, double *seconds);
/* Have the ranks of a node fewer cores than they use? */
bool   gm_cores_are_shared(const gm_machine *m);
double gm_machine_efficiency(const gm_machine *m, const char *op); /* 1 where nothing is said */

#endif
