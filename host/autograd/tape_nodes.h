/* tape_nodes.h - what a tape is made of; private to tape.c, which records, node.c, which counts, backward.c, which runs
 * a node, passes.c, which runs a tape, reach.c, which finds what a loss depends on, and saved.c. */
#ifndef GM_TAPE_NODES_H
#define GM_TAPE_NODES_H

#include "saved.h"
#include "tape.h"

/* Where the gradient of an input goes. */
typedef struct edge {
    gm_value *leaf; /* counted; or */
    gm_node  *from; /* counted; neither: nowhere */
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
    int        readers; /* edges of this tape that lead here: counted when it begins to run */
    gm_value  *keeper;  /* the value itself, where it keeps its gradient; not counted */
} output;

/* The layout and global shape of the value of which a tensor is a block. */
typedef struct place {
    gm_layout layout;
    int64_t   shape[GM_MAX_DIMS];
    bool      padded; /* as gm_value */
} place;

/* A leaf (a value that the tape did not compute) that the nodes of a tape read. */
typedef struct leaf_use {
    gm_value *leaf;  /* counted; NULL: let go */
    int       left;  /* edges to it of nodes that have not run */
    bool      input; /* of the pass GM_TAPE_INPUT */
} leaf_use;

struct gm_node {
    int         refs; /* values that it computed, edges of others, and a tape that owns it */
    gm_tape    *tape; /* whose list it is in; NULL: it has run, or was dropped: */
    bool        run;
    bool        reached;  /* while a graph is looked for */
    uint64_t    number;   /* in the order of recording */
    uint64_t    rng_step; /* the step whose random numbers its forward drew */
    gm_node    *prev, *next;
    const char *name;
    char       *path; /* module path, for messages and accounts */
    gm_rule     rule;
    gm_op       op;
    gm_attrs    attrs;
    int         n_in, n_out, n_saved;
    edge       *in;
    output     *out;
    place      *places; /* of the inputs, then of the outputs; NULL on a mesh without axes */
    gm_saved   *saved;
    int64_t     extra[2 * GM_MAX_DIMS];
    gm_callback callback;
    bool        unbinds; /* of gm_unbind: its outputs are slices of its input, of dimension extra[0]; */
    gm_tensor  *placed;  /* the gradient of that input, as far as others have written it; NULL: nobody has */
    bool        splits;  /* as gm_record */
    bool        active;  /* some edge leads to the inputs of the pass GM_TAPE_INPUT */
    bool        halved;  /* its rule was called for these edges, the others wait */
};

/* A list of nodes in order of recording. The rank's own, which is being recorded, does not keep them: a node that no
 * value and no other node leads to any more goes at once. One that was taken off the rank, or found, owns them. */
struct gm_tape {
    uint64_t  number; /* of its list of leaves; 0: not made */
    bool      owns;
    bool      retains; /* nodes keep what they hold when they have run: the graph may be run again */
    bool      sketch;  /* its nodes hold nothing for backward: it tells only which leaves the results depend on */
    int       n;
    gm_node  *first, *last;
    int       n_leaves;
    leaf_use *leaves;
    bool      awaits;                                        /* counted in `awaited` of its leaves */
    enum { GM_TAPE_NEW, GM_TAPE_HALVED, GM_TAPE_SPENT } ran; /* not yet; GM_TAPE_INPUT; all, or it failed */
};

/* Puts n into the list of t, behind `after` (NULL: as the first node); unlink takes it out of its list. */
void gm_tape_link(gm_tape *t, gm_node *n, gm_node *after);
void gm_tape_unlink(gm_node *n);
/* The node leaves its tape and lets go of what it holds; run: it did, and was not dropped. */
void gm_node_let_go(gm_node *n, bool run);
void gm_tape_own(gm_tape *t); /* from now on t keeps its nodes */

/* Moves the nodes on which the loss depends to a tape of their own. GM_EINVAL: some of them have been released; nothing
 * has changed then. */
gm_status gm_tape_find(gm_value *loss, gm_tape **out);
/* Says why no gradient comes through n, which is on no tape or on another one. */
gm_status gm_node_blocked(const gm_node *n);
/* Puts the nodes of t back where they were, as if they had not run; frees t. */
void gm_tape_return(gm_rank *r, gm_tape *t);

/* Lists the leaves that t reads, and counts the readers of results; a second call does nothing. GM_EINVAL: it reads
 * what another tape computed. */
gm_status gm_tape_count(gm_rank *r, gm_tape *t);

gm_spec gm_tape_spec(const gm_tensor *t); /* of a block */

/* Which gradients a rule is asked for. */
typedef enum gm_half { GM_HALF_BOTH, GM_HALF_INPUT, GM_HALF_WEIGHT } gm_half;

/* One call of a rule. */
struct gm_backward {
    gm_rank *rank;
    gm_tape *tape;
    gm_node *node;
    gm_half  half;    /* what the rule is asked for */
    uint32_t partial; /* of the gradients of the outputs */
    gm_work  work;    /* the rule's */
    struct {
        gm_tensor *term, *sum; /* term: a target of 16 bits; sum: borrowed, of f32 */
        bool       accumulate;
    } narrow[GM_MAX_SLOTS]; /* terms that join a wide gradient when the rule has run */
    int n_narrow;
};

/* ---- terms.c ---- */

/* A new tensor that outlives the rule. */
gm_status gm_term_new(gm_backward *b, const gm_spec *spec, gm_tensor **out);
/* Makes *held a tensor that may be written: as it is when nobody else sees it, else a copy. */
gm_status gm_term_own(gm_backward *b, gm_tensor **held);
gm_status gm_term_zero(gm_backward *b, gm_tensor *t);
/* The rule has run: what it wrote in 16 bits joins wide gradients, unless it has failed. */
gm_status gm_term_add_narrow(gm_backward *b);
/* Adds a term (taken), partial over `term`, to the gradient of a leaf, or of a value that keeps its own. */
gm_status gm_term_give_leaf(gm_backward *b, gm_value *leaf, gm_tensor *g, uint32_t term);

/* Runs the rule of node n of t. */
gm_status gm_tape_run_node(gm_rank *r, gm_tape *t, gm_node *n, gm_half half);
/* Adds a term, whose reference it takes, to the gradient of v, which is a leaf or was computed by t. partial: the axes
 * over which the term is partial. */
gm_status gm_tape_add_term(gm_rank *r, gm_tape *t, gm_value *v, gm_tensor *term, uint32_t partial);
/* Tells whether the gradient of this input is wanted: the edge leads to a leaf or a node. */
static inline bool gm_edge_wants(const edge *e) { return e->leaf || e->from; }

#endif
