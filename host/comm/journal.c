/* journal.c - what a record of a step (kernels/journal.h) keeps of operations between ranks. See comm.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state.h"

void gm_comm_set_journal(gm_comm *c, gm_journal *journal)
{
    for (gm_pending *p = c->under_way; p; p = p->next) p->recorded = 0; /* of another record */
    c->journal = journal;
}

static double bytes_of(const gm_tensor *t) { return (double)gm_tensor_numel(t) * (double)gm_dtype_size(t->dtype); }

/* n of the formulas in comm.h: the whole tensor, of which a member has a part or all; or what it sends to others. */
static double whole(const gm_pending *p)
{
    double size = (double)p->group->size;
    if (!p->in && !p->out) return p->text && p->sizes ? (double)p->sizes[p->group->rank] * size : 0;
    switch (p->call) {
    case GM_CALL_all_gather:
    case GM_CALL_gather: return bytes_of(p->in) * size;
    case GM_CALL_scatter: return bytes_of(p->out) * size;
    case GM_CALL_all_to_all_rows: return (double)gm_rows_elsewhere(p);
    default: return bytes_of(p->in ? p->in : p->out);
    }
}

/* The axes along which members of a group differ. */
static uint32_t axes_of(const gm_mesh *mesh, const gm_group *g)
{
    int      first[GM_MAX_AXES], other[GM_MAX_AXES];
    uint32_t axes = 0;
    gm_mesh_coordinates(mesh, g->member[0], first);
    for (int i = 1; i < g->size; i++) {
        gm_mesh_coordinates(mesh, g->member[i], other);
        for (int a = 0; a < mesh->n_axes; a++)
            if (first[a] != other[a]) axes |= 1u << a;
    }
    return axes;
}

/* "data" of axes; of a list of ranks "pipeline@0+3": places in the group of the axes along which they differ. Ranks
 * that differ along other axes have a group of this name, too. "?": no memory. */
static int32_t name_of(gm_journal *r, const gm_pending *p)
{
    const gm_group *g = p->group;
    const gm_mesh  *mesh = &p->comm->mesh;
    char            name[128];
    if (g->size == 1) return gm_journal_text(r, "");
    if (g->axes != ~0u) return gm_journal_text(r, g->name);
    uint32_t axes = axes_of(mesh, g);
    int     *all = malloc((size_t)p->comm->world * sizeof *all), size = 0;
    if (!all) return gm_journal_text(r, "?");
    size = gm_mesh_members(mesh, axes, g->member[0], all);
    gm_mesh_describe(mesh, axes, name, sizeof name);
    size_t n = strlen(name);
    for (int i = 0; i < g->size && n < sizeof name; i++) {
        int place = 0;
        while (place < size && all[place] != g->member[i]) place++;
        n += (size_t)snprintf(name + n, sizeof name - n, "%c%d", i ? '+' : '@', place);
    }
    free(all);
    return gm_journal_text(r, n < sizeof name ? name : "?");
}

static void describe(const gm_pending *p, gm_journal *r, gm_event *e)
{
    char about[200] = "", shape[160];
    if (p->record.dtype >= 0) {
        gm_shape_describe(p->record.ndim, p->record.shape, shape, sizeof shape);
        snprintf(about, sizeof about, "%s %s", gm_dtype_name((gm_dtype)p->record.dtype), shape);
        e->dtype = gm_journal_text(r, gm_dtype_name((gm_dtype)p->record.dtype));
    }
    e->name = gm_journal_text(r, gm_call_name((int)p->call));
    e->about = gm_journal_text(r, about);
}

void gm_comm_journal_begin(gm_pending *p)
{
    gm_journal *r = p->comm->journal;
    gm_event   *e = r && !p->silent ? gm_journal_add(r, GM_EVENT_BEGIN) : NULL;
    if (!e) return;
    p->recorded = e->id = ++r->ids;
    p->recorded_at = r->n - 1;
    describe(p, r, e);
    e->path = gm_journal_text(r, gm_comm_place(p->comm));
    e->phase = gm_journal_text(r, gm_phase_name(p->comm->phase));
    e->group = name_of(r, p);
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

void gm_comm_journal_waited(gm_comm *c, int32_t id)
{
    gm_journal *r = id ? c->journal : NULL;
    for (int64_t i = r ? r->n - 1 : -1; i >= 0; i--) {
        if (r->events[i].kind != GM_EVENT_WAIT || r->events[i].id != id) continue;
        gm_journal_took(r, i);
        return;
    }
}
