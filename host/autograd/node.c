/* node.c - the reference counts of nodes. The values that a node computed, the nodes that read them and the tape that
 * owns it hold references. See tape_nodes.h. Chains of nodes can be very long, so release does not recurse. */
#include <stdlib.h>
#include <string.h>
#include "tape_nodes.h"

void gm_tape_link(gm_tape *t, gm_node *n, gm_node *after)
{
    n->tape = t;
    n->prev = after;
    n->next = after ? after->next : t->first;
    if (n->next) n->next->prev = n;
    else t->last = n;
    if (after) after->next = n;
    else t->first = n;
    t->n++;
}

void gm_tape_unlink(gm_node *n)
{
    gm_tape *t = n->tape;
    if (!t) return;
    if (n->prev) n->prev->next = n->next;
    else t->first = n->next;
    if (n->next) n->next->prev = n->prev;
    else t->last = n->prev;
    n->tape = NULL;
    n->prev = n->next = NULL;
    t->n--;
}

/* What it holds but for the nodes that it leads to. */
static void empty(gm_node *n)
{
    for (int i = 0; i < n->n_saved; i++) gm_saved_clear(&n->saved[i]);
    for (int i = 0; i < n->n_in; i++) gm_value_release(n->in[i].leaf);
    for (int i = 0; i < n->n_out; i++) gm_tensor_release(n->out[i].grad);
    gm_tensor_release(n->placed);
    n->placed = NULL;
    free(n->in); /* and the other lists (new_lists) */
    n->in = NULL;
    n->out = NULL;
    n->saved = NULL;
    n->places = NULL;
    n->path = NULL;
    n->n_in = n->n_out = n->n_saved = 0;
    gm_callback_release(&n->callback);
}

/* Drops the counts of what n leads to; nodes that nobody counts any more join the list, linked by `next`. */
static void drop_edges(gm_node *n, gm_node **dead)
{
    for (int i = 0; i < n->n_in; i++) {
        gm_node *from = n->in[i].from;
        if (!from || --from->refs) continue;
        gm_tape_unlink(from);
        from->next = *dead;
        *dead = from;
    }
}

static void free_all(gm_node *dead)
{
    while (dead) {
        gm_node *n = dead;
        dead = n->next;
        drop_edges(n, &dead);
        empty(n);
        free(n);
    }
}

void gm_node_release(gm_node *n)
{
    if (!n || --n->refs) return;
    gm_tape_unlink(n);
    free_all(n); /* out of its list, next is NULL */
}

void gm_node_let_go(gm_node *n, bool run)
{
    gm_node *dead = NULL;
    bool     owned = n->tape && n->tape->owns;
    gm_tape_unlink(n);
    n->run = run;
    drop_edges(n, &dead);
    empty(n);
    free_all(dead);
    if (owned) gm_node_release(n);
}

const char *gm_node_name(const gm_node *n) { return n->name; }

gm_status gm_node_remember(gm_value *v)
{
    if (!v->node->tape)
        return GM_FAIL(GM_EINVAL, "retain_grad: the backward of this tensor has run or was dropped; call it before");
    v->node->out[v->output].keeper = v;
    v->keeps_grad = true;
    return GM_OK;
}

void gm_node_forget(gm_value *v)
{
    if (v->node->n_out) v->node->out[v->output].keeper = NULL;
}
