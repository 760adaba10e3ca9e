/* saved.c - see saved.h; and what a tape holds for its backward, node by node, for accounts of memory by module
 * (gm_tape_saved). Storages are counted once: they are remembered in a hash set, which parameters and what the caller
 * keeps enter first. */
#include <stdlib.h>
#include "tape_nodes.h"

void gm_saved_keep(gm_saved *s, gm_value *v)
{
    if (!v) return;
    if (!v->requires_grad || v->node) {
        gm_saved_keep_tensor(s, v->local);
        return;
    }
    *s = (gm_saved){.kind = GM_SAVED_LEAF, .leaf = v, .version = v->local->storage->version};
    gm_value_retain(v);
}

void gm_saved_keep_tensor(gm_saved *s, gm_tensor *t)
{
    if (!t) return;
    *s = (gm_saved){.kind = GM_SAVED_TENSOR, .tensor = t, .version = t->storage->version};
    gm_tensor_retain(t);
}

gm_status gm_saved_read(const gm_saved *s, const char *op, gm_tensor **out)
{
    *out = s->kind == GM_SAVED_LEAF ? s->leaf->local : s->tensor;
    if (*out && (*out)->storage->version != s->version)
        return GM_FAIL(GM_EINVAL,
                       "%s: a tensor that the gradient of this op needs was changed in place after it was "
                       "used; clone() it before changing it",
                       op);
    return GM_OK;
}

void gm_saved_clear(gm_saved *s)
{
    gm_tensor_release(s->tensor);
    gm_value_release(s->leaf);
    *s = (gm_saved){.kind = GM_SAVED_NOTHING};
}

/* ---- accounts ---- */

typedef struct set {
    const gm_storage **at;
    size_t             room; /* a power of two, more than the tape could fill */
} set;

/* True when s was not there yet. */
static bool enter(set *seen, const gm_storage *s)
{
    size_t i = (size_t)((uint64_t)(uintptr_t)s * 0x9e3779b97f4a7c15u >> 20) & (seen->room - 1);
    while (seen->at[i] && seen->at[i] != s) i = (i + 1) & (seen->room - 1);
    if (seen->at[i]) return false;
    seen->at[i] = s;
    return true;
}

static void enter_leaves(set *seen, const gm_node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i].leaf) (void)enter(seen, n->in[i].leaf->local->storage);
    for (int i = 0; i < n->n_saved; i++)
        if (n->saved[i].leaf) (void)enter(seen, n->saved[i].leaf->local->storage);
}

static size_t held_by(set *seen, const gm_node *n)
{
    size_t bytes = 0;
    for (int i = 0; i < n->n_saved; i++) {
        const gm_tensor *t = n->saved[i].tensor;
        if (t && enter(seen, t->storage)) bytes += t->storage->bytes;
    }
    return bytes;
}

gm_status gm_tape_saved(const gm_rank *r, int n_kept, gm_value *const *kept, gm_tape_held **out, int *n_out)
{
    const gm_tape *t = r->tape;
    set            seen = {.room = 64};
    size_t         most = (size_t)n_kept;
    *out = NULL;
    *n_out = 0;
    if (!t) return GM_OK;
    for (const gm_node *k = t->first; k; k = k->next) most += (size_t)(k->n_in + k->n_saved);
    while (seen.room < 2 * most) seen.room *= 2;
    gm_tape_held *held = calloc((size_t)t->n + 1, sizeof *held);
    seen.at = calloc(seen.room, sizeof *seen.at);
    if (!held || !seen.at) {
        free(held);
        free(seen.at);
        return GM_FAIL(GM_ENOMEM, "no memory for a list of %d nodes", t->n);
    }
    for (int i = 0; i < n_kept; i++) (void)enter(&seen, kept[i]->local->storage);
    for (const gm_node *k = t->first; k; k = k->next) enter_leaves(&seen, k);
    for (const gm_node *k = t->first; k; k = k->next) {
        size_t bytes = held_by(&seen, k);
        if (bytes) held[(*n_out)++] = (gm_tape_held){k->path, k->name, bytes};
    }
    free(seen.at);
    *out = held;
    return GM_OK;
}
