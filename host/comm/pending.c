/* pending.c - the memory of operations: that of the struct, and the tensors that it holds. See state.h.
 *
 * Ended operations keep their memory for new ones. A small message takes little more time than what surrounds it. */
#include "state.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* The tensors of an operation stay, and their bytes where they are. */
static gm_status hold(gm_tensor *t, gm_tensor **place)
{
    if (!t) return GM_OK;
    GM_TRY(gm_storage_open(t->storage));
    gm_tensor_retain(t);
    *place = t;
    return GM_OK;
}

static void let_go(gm_tensor *t, bool changed)
{
    if (t) gm_storage_close(t->storage, changed);
    gm_tensor_release(t);
}

#define ENDED_MOST 32 /* as many ended operations keep their memory, */
#define ROOM_MOST  64 /* if they have room for no more messages */

/* An operation without content, with room for messages. NULL: no memory. */
static gm_pending *take_memory(gm_comm *c, int max_messages)
{
    gm_pending *p = c->ended;
    if (p) {
        c->ended = p->next;
        c->n_ended--;
    } else {
        p = malloc(sizeof *p);
        if (!p) return NULL;
        p->messages = NULL;
    }
    gm_message *messages = p->messages;
    int         room = messages ? p->room : 0;
    if (room < max_messages || !messages) {
        free(messages);
        room = max_messages;
        messages = malloc(((size_t)room + 1) * sizeof *messages);
    }
    memset(p, 0, offsetof(gm_pending, error));
    p->error[0] = 0;
    p->messages = messages;
    p->room = room;
    if (messages) return p;
    free(p);
    return NULL;
}

static void give_memory(gm_comm *c, gm_pending *p)
{
    if (c->n_ended == ENDED_MOST || p->room > ROOM_MOST) {
        free(p->messages);
        free(p);
        return;
    }
    p->next = c->ended;
    c->ended = p;
    c->n_ended++;
}

void gm_pending_free_ended(gm_comm *c)
{
    for (gm_pending *p = c->ended, *next; p; p = next) {
        next = p->next;
        free(p->messages);
        free(p);
    }
    c->ended = NULL;
    c->n_ended = 0;
}

gm_status gm_pending_new(gm_comm *c, gm_group *g, gm_collective call, gm_tensor *in, gm_tensor *out, size_t scratch,
                         int max_messages, gm_pending **made)
{
    gm_status   st = GM_OK;
    gm_pending *p = take_memory(c, max_messages);
    if (!p) return GM_FAIL(GM_ENOMEM, "no memory for an operation");
    p->comm = c;
    p->group = g;
    p->call = call;
    p->traced = -1;
    p->record.call = (int)call; /* all else is zero already */
    p->record.dtype = p->record.reduction = p->record.root = p->record.dim = p->record.join = -1;
    st = hold(in, &p->in);
    if (st == GM_OK) st = hold(out, &p->out);
    if (out && !c->transport->has_data && (in || g->size > 1))
        gm_tensor_forget(out); /* what others have is not known */
    if (st == GM_OK && (in || out)) st = gm_host_copy_take(p, scratch);
    if (st != GM_OK) {
        gm_pending_free(p);
        return st;
    }
    *made = p;
    return GM_OK;
}

void gm_pending_free(gm_pending *p)
{
    if (!p) return;
    gm_host_copy_give(p);
    gm_lane_free(p);
    let_go(p->in, false);
    let_go(p->out, true);
    free(p->answers);
    free(p->rows);
    free(p->terms.part);
    free(p->terms.gave);
    free(p->text);
    free(p->sizes);
    give_memory(p->comm, p);
}
