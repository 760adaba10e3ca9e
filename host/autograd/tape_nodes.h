/* tape_nodes.h - what a tape is made of; private to tape.c, which records, backward.c, which runs a node, passes.c,
 * which runs the tape, and saved.c. */
#ifndef GM_TAPE_NODES_H
#define GM_TAPE_NODES_H

#include "tape.h"

/* Where the gradient of an input goes. */
typedef struct edge {
    gm_value *leaf; /* counted; or */
    int       node; /* index on this tape, -1: nowhere */
    int       output;
    int       at;    /* of a leaf: its place in the tape's list */
    bool      input; /* leads to the inputs of the pass GM_TAPE_INPUT */
    gm_spec   spec;  /* of the block */
    bool      told;  /* the rule said what its gradient is partial over: */
    uint32_t  partial;
} edge;

typedef struct output {
    gm_spec    spec;
    gm_tensor *grad;    /* what has been given so far */
    uint32_t   partial; /* axes over which grad is still to be summed */
    int        readers; /* edges that lead here */
} output;

/* What a block is a block of. */
typedef struct place {
    gm_layout layout;
    int64_t   shape[GM_MAX_DIMS];
    bool      padded; /* as gm_value */
} place;

/* What a tape reads. */
typedef struct leaf_use {
    gm_value *leaf;  /* counted; NULL: let go */
    int       left;  /* edges to it of nodes that have not run */
    bool      input; /* of the pass GM_TAPE_INPUT */
} leaf_use;

typedef struct node {
    const char  *name; /* NULL: it has run */
    char        *path; /* module path, for messages and accounts */
    gm_rule      rule;
    gm_op        op;
    gm_attrs     attrs;
    int          n_in, n_out, n_saved;
    edge        *in;
    output      *out;
    place       *places; /* of the inputs, then of the outputs; NULL on a mesh without axes */
    gm_tape_slot saved[GM_MAX_SAVED];
    int64_t      extra[2 * GM_MAX_DIMS];
    gm_callback  callback;
    bool         splits; /* as gm_record */
    bool         active; /* some edge leads to the inputs of the pass GM_TAPE_INPUT */
    bool         halved; /* its rule was called for these edges, the others wait */
} node;

struct gm_tape {
    uint64_t               number;
    const struct gm_scope *scope;
    int                    n, room;
    node                  *nodes;
    int                    n_leaves, leaf_room;
    leaf_use              *leaves;
    bool                   awaits;                           /* counted in `awaited` of its leaves */
    enum { GM_TAPE_NEW, GM_TAPE_HALVED, GM_TAPE_SPENT } ran; /* not yet; GM_TAPE_INPUT; all, or it failed */
};

/* Drops what a node holds. */
void    gm_tape_release_node(node *n);
gm_spec gm_tape_spec(const gm_tensor *t); /* of a block */

/* Which gradients a rule is asked for. */
typedef enum gm_half { GM_HALF_BOTH, GM_HALF_INPUT, GM_HALF_WEIGHT } gm_half;

/* Runs the rule of node n of t. */
gm_status gm_tape_run_node(gm_rank *r, gm_tape *t, node *n, gm_half half);
/* Adds a term (taken) to the gradient of v, a leaf or computed by t, that is partial over these axes. */
gm_status gm_tape_add_term(gm_rank *r, gm_tape *t, gm_value *v, gm_tensor *term, uint32_t partial);
/* Is the gradient of what the edge leads to wanted at all? */
static inline bool gm_edge_wants(const edge *e) { return e->leaf || e->node >= 0; }

#endif
