/* ring_plan.c - see ring_plan.h. */
#include "ring_plan.h"

#include <stdlib.h>

static gm_ring_run run_of(gm_rank *r, const gm_layout *layout, const int *coordinate, int64_t n)
{
    gm_box  box;
    int64_t local[1], logical[1];
    gm_layout_block(&r->mesh, layout, coordinate, 1, &n, &box, local, logical);
    return (gm_ring_run){box.offset[0], logical[0]};
}

/* Which block of a dimension is at these coordinates. */
static int block_at(const gm_mesh *mesh, const gm_layout *layout, const int *coordinate)
{
    int at = 0;
    for (int c = 0; c < layout->n_cuts[0]; c++)
        at = at * mesh->axis[layout->cut[0][c]].size + coordinate[layout->cut[0][c]];
    return at;
}

gm_ring_run gm_ring_chunk(const gm_ring_plan *plan, int k)
{
    gm_ring_run run = plan->place[gm_ring_home(k)].queries;
    int64_t     half = (run.count + 1) / 2;
    return k % 2 ? (gm_ring_run){run.first + half, run.count - half} : (gm_ring_run){run.first, half};
}

int gm_ring_worker(const gm_ring_plan *plan, int k)
{
    int pair = k < plan->p ? k : 2 * plan->p - 1 - k;
    return pair % 2 ? plan->p - 1 - pair / 2 : pair / 2;
}

static void share_out(gm_ring_plan *plan)
{
    for (int i = 0; i < plan->p; i++) {
        gm_ring_place *at = &plan->place[plan->zigzag ? gm_ring_worker(plan, i) : i];
        at->work[0] = plan->zigzag ? gm_ring_chunk(plan, i) : at->queries;
        at->work[1] = plan->zigzag ? gm_ring_chunk(plan, 2 * plan->p - 1 - i) : (gm_ring_run){0, 0};
    }
}

gm_status gm_ring_plan_new(gm_rank *r, const gm_layout *layout, int64_t s, int64_t t, const gm_attrs *attrs,
                           bool zigzag, gm_ring_plan *plan)
{
    gm_comm  *comm;
    gm_layout along = gm_layout_replicated();
    int       coordinate[GM_MAX_AXES];
    gm_layout_copy_dim(&along, 0, layout, 1);
    *plan = (gm_ring_plan){.causal = attrs->causal, .zigzag = zigzag, .window = attrs->window};
    GM_TRY(gm_rank_comm(r, &comm));
    GM_TRY(gm_comm_group(comm, gm_layout_dim_axes(&along, 0), &plan->group));
    plan->p = gm_group_size(plan->group);
    plan->place = calloc((size_t)plan->p, sizeof *plan->place);
    if (!plan->place) return GM_FAIL(GM_ENOMEM, "no memory for a list of %d blocks", plan->p);
    for (int i = 0; i < plan->p; i++) {
        gm_mesh_coordinates(&r->mesh, gm_group_member(plan->group, i), coordinate);
        int at = block_at(&r->mesh, &along, coordinate);
        plan->place[at] = (gm_ring_place){
            .member = i, .queries = run_of(r, &along, coordinate, s), .keys = run_of(r, &along, coordinate, t)};
        if (i == gm_group_rank(plan->group)) plan->here = at;
    }
    share_out(plan);
    return GM_OK;
}

void gm_ring_plan_free(gm_ring_plan *plan)
{
    free(plan->place);
    plan->place = NULL;
}

gm_ring_run gm_ring_seen(const gm_ring_plan *plan, gm_ring_run queries, int j)
{
    const gm_ring_run *block = &plan->place[j].keys;
    int64_t            from = block->first, end = block->first + block->count;
    if (plan->causal && queries.first + queries.count < end) end = queries.first + queries.count;
    if (plan->window && queries.first + 1 - plan->window > from) from = queries.first + 1 - plan->window;
    return (gm_ring_run){from, queries.count && end > from ? end - from : 0};
}

int64_t gm_ring_need(const gm_ring_plan *plan, int r, int j)
{
    int64_t most = 0;
    for (int k = 0; k < 2; k++) {
        gm_ring_run seen = gm_ring_seen(plan, plan->place[r].work[k], j);
        int64_t     end = seen.count ? seen.first + seen.count - plan->place[j].keys.first : 0;
        if (end > most) most = end;
    }
    return most;
}

int64_t gm_ring_handed(const gm_ring_plan *plan, int r, int j)
{
    int     before = gm_ring_step(plan, r, 1);
    int64_t need = gm_ring_need(plan, r, j), had = gm_ring_need(plan, before, j);
    if (r == j) return 0;
    return before == j || need < had ? need : had;
}
