/* reach.c - finds the recorded nodes that a loss depends on, and puts them back if the graph is retained. See
 * tape_nodes.h. All ranks record the same nodes in the same order, so they find the same nodes in the same order. */
#include <stdlib.h>
#include "tape_nodes.h"

gm_status gm_node_blocked(const gm_node *n)
{
    if (!n->run)
        return GM_FAIL(GM_EINVAL,
                       "backward: '%s', which the loss depends on, was dropped, or computed in a forward pass that has "
                       "ended; compute the loss again, or detach() what comes from there",
                       n->name);
    return GM_FAIL(
        GM_EINVAL,
        "backward: the graph of '%s', which the loss depends on, was released when a backward had run through "
        "it; give that one { retain_graph = true }, add the losses and go backward once, or compute it again",
        n->name);
}

/* Marks what n reads. */
static gm_status mark_inputs(const gm_tape *t, gm_node *n)
{
    for (int i = 0; i < n->n_in; i++) {
        gm_node *from = n->in[i].from;
        if (!from) continue;
        if (from->tape != t) return gm_node_blocked(from);
        from->reached = true;
    }
    return GM_OK;
}

static gm_status mark(const gm_tape *t, gm_node *root)
{
    gm_status st = GM_OK;
    if (!t || root->tape != t) return gm_node_blocked(root);
    root->reached = true;
    for (gm_node *n = t->last; n && st == GM_OK; n = n->prev)
        if (n->reached) st = mark_inputs(t, n);
    for (gm_node *n = t->last; n && st != GM_OK; n = n->prev) n->reached = false;
    return st;
}

gm_status gm_tape_find(gm_value *loss, gm_tape **out)
{
    gm_tape *all = loss->rank->tape, *t = calloc(1, sizeof *t);
    if (!t) return GM_FAIL(GM_ENOMEM, "no memory for a tape");
    gm_status st = loss->node ? mark(all, loss->node) : GM_OK; /* of a leaf: no nodes */
    if (st != GM_OK) {
        free(t);
        return st;
    }
    for (gm_node *n = loss->node ? all->last : NULL, *before; n; n = before) {
        before = n->prev;
        if (!n->reached) continue;
        n->reached = false;
        gm_tape_unlink(n);
        gm_tape_link(t, n, NULL);
    }
    gm_tape_own(t);
    *out = t;
    return GM_OK;
}

static void forget_gradients(gm_node *n)
{
    for (int i = 0; i < n->n_out; i++) {
        gm_tensor_release(n->out[i].grad);
        n->out[i].grad = NULL;
    }
    for (int i = 0; i < n->n_in; i++) n->in[i].told = false;
}

void gm_tape_return(gm_rank *r, gm_tape *t)
{
    gm_node *after = r->tape ? r->tape->last : NULL;
    while (r->tape && t->last) {
        gm_node *n = t->last;
        forget_gradients(n);
        gm_tape_unlink(n);
        while (after && after->number > n->number) after = after->prev;
        gm_tape_link(r->tape, n, after);
        gm_node_release(n); /* nobody else may count it any more */
    }
    gm_tape_free(t);
}
