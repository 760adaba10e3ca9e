/* journal.c - what a record of a step (kernels/journal.h) keeps of operations between ranks. See comm.h. */
#include <stdio.h>

#include "state.h"

void gm_comm_set_journal(gm_comm *c, gm_journal *journal)
{
    for (gm_pending *p = c->under_way; p; p = p->next) p->recorded = 0; /* of another record */
    c->journal = journal;
}

static double bytes_of(const gm_tensor *t) { return (double)gm_tensor_numel(t) * (double)gm_dtype_size(t->dtype); }

/* n of the formulas in comm.h: the whole tensor, of which a member has a part or all. */
static double whole(const gm_pending *p)
{
    double size = (double)p->group->size;
    if (!p->in && !p->out) return p->text && p->sizes ? (double)p->sizes[p->group->rank] * size : 0;
    switch (p->call) {
    case GM_CALL_all_gather:
    case GM_CALL_gather: return bytes_of(p->in) * size;
    case GM_CALL_scatter: return bytes_of(p->out) * size;
    default: return bytes_of(p->in ? p->in : p->out);
    }
}

void gm_comm_journal_begin(gm_pending *p)
{
    gm_journal *r = p->comm->journal;
    gm_event   *e = r && !p->silent ? gm_journal_add(r, GM_EVENT_BEGIN) : NULL;
    char        about[200] = "", shape[160];
    if (!e) return;
    p->recorded = e->id = ++r->ids;
    p->recorded_at = r->n - 1;
    if (p->record.dtype >= 0) {
        gm_shape_describe(p->record.ndim, p->record.shape, shape, sizeof shape);
        snprintf(about, sizeof about, "%s %s", gm_dtype_name((gm_dtype)p->record.dtype), shape);
        e->dtype = gm_journal_text(r, gm_dtype_name((gm_dtype)p->record.dtype));
    }
    e->name = gm_journal_text(r, gm_call_name((int)p->call));
    e->about = gm_journal_text(r, about);
    e->path = gm_journal_text(r, gm_comm_place(p->comm));
    e->phase = gm_journal_text(r, gm_phase_name(p->comm->phase));
    e->group = gm_journal_text(r, p->group->size == 1 ? "" : p->group->axes == ~0u ? "?" : p->group->name);
    e->peer = p->call == GM_CALL_send || p->call == GM_CALL_receive ? p->root : p->record.root;
    e->bytes = whole(p);
}

void gm_comm_journal_sent(gm_pending *p, size_t bytes)
{
    if (p->recorded && p->comm->journal) p->comm->journal->events[p->recorded_at].sent += (double)bytes;
}

/* A send is over when its bytes are copied: nothing on this rank depends on the other end. */
void gm_comm_journal_end(gm_pending *p)
{
    if (p->call != GM_CALL_send) gm_comm_journal_wait(p->comm, p->recorded);
}

int32_t gm_comm_take_id(gm_pending *p)
{
    int32_t id = p->recorded;
    if (p->call == GM_CALL_receive) p->recorded = 0;
    return id;
}

void gm_comm_journal_wait(gm_comm *c, int32_t id)
{
    gm_event *e = id && c->journal ? gm_journal_add(c->journal, GM_EVENT_WAIT) : NULL;
    if (e) e->id = id;
}
