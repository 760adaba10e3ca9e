/* tape_nodes.h - what a tape is made of; private to tape.c, which records, and backward.c, which runs. */
#ifndef GM_TAPE_NODES_H
#define GM_TAPE_NODES_H

#include "tape.h"

/* Where the gradient of an input goes. */
typedef struct edge {
    gm_value *leaf; /* counted; or */
    int       node; /* index on this tape, -1: nowhere */
    int       output;
    gm_spec   spec; /* of the block */
    bool      told; /* the rule said what its gradient is partial over: */
    uint32_t  partial;
} edge;

typedef struct output {
    gm_spec    spec;
    gm_tensor *grad;    /* what has been given so far */
    uint32_t   partial; /* axes over which grad is still to be summed */
} output;

/* What a block is a block of. */
typedef struct place {
    gm_layout layout;
    int64_t   shape[GM_MAX_DIMS];
} place;

typedef struct node {
    const char  *name;
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
} node;

struct gm_tape {
    uint64_t               number;
    const struct gm_scope *scope;
    int                    n, room;
    node                  *nodes;
};

/* Drops what a node holds. */
void    gm_tape_release_node(node *n);
gm_spec gm_tape_spec(const gm_tensor *t); /* of a block */

#endif
