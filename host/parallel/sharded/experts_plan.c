/* experts_plan.c - see experts_plan.h. */
#include "experts_plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void block_of(gm_rank *r, const gm_side *s, const int *coordinate, int64_t *first, int64_t *local,
                     int64_t *logical)
{
    gm_box box;
    gm_layout_block(&r->mesh, s->layout, coordinate, s->ndim, s->shape, &box, local, logical);
    *first = box.offset[0];
}

bool gm_experts_shared(const gm_rank *r, const gm_value *v)
{
    for (int d = 0; d < v->ndim - 1; d++)
        if (gm_layout_parts(&r->mesh, &v->layout, d) > 1) return true;
    return false;
}

/* t without what pads its leading dimensions. */
static gm_tensor *inside_of(gm_work *w, gm_tensor *t, int leading, const int64_t *logical)
{
    for (int d = 0; d < leading; d++) t = gm_work_narrow(w, t, d, 0, logical[d]);
    return t;
}

gm_tensor *gm_experts_index(gm_work *w, gm_rank *r, const gm_side *side, gm_tensor *index)
{
    int64_t first, local[GM_MAX_DIMS], logical[GM_MAX_DIMS];
    int     leading = index->ndim - 1;
    bool    whole = true;
    block_of(r, side, r->coordinate, &first, local, logical);
    for (int d = 0; d < leading; d++) whole = whole && local[d] == logical[d];
    if (whole || w->st != GM_OK) return gm_work_compact(w, index);
    gm_tensor *masked = gm_work_full(w, GM_I64, index->ndim, index->shape, -1);
    gm_tensor *from = inside_of(w, index, leading, logical);
    if (w->st == GM_OK && gm_tensor_numel(from)) gm_work_copy(w, from, inside_of(w, masked, leading, logical));
    return gm_work_flat(w, masked);
}

int64_t gm_experts_choices(gm_rank *r, const gm_side *x, int64_t k)
{
    int64_t first, local[GM_MAX_DIMS], logical[GM_MAX_DIMS], n = k;
    block_of(r, x, r->coordinate, &first, local, logical);
    for (int d = 0; d < x->ndim - 1; d++) n *= logical[d];
    return n;
}

/* ---- places ---- */

static gm_status find_places(gm_rank *r, const gm_side *up, gm_experts_plan *p)
{
    int64_t  local[GM_MAX_DIMS], logical[GM_MAX_DIMS];
    uint32_t axes = gm_layout_dim_axes(up->layout, 0);
    if (axes) {
        GM_TRY(gm_rank_comm(r, &p->comm));
        GM_TRY(gm_comm_group(p->comm, axes, &p->group));
        p->p = gm_group_size(p->group);
        p->here = gm_group_rank(p->group);
    } else {
        p->p = 1;
    }
    p->experts = up->shape[0];
    p->place = calloc((size_t)p->p, sizeof *p->place);
    if (!p->place) return GM_FAIL(GM_ENOMEM, "experts: no memory for %d places", p->p);
    for (int i = 0; i < p->p; i++) {
        int coordinate[GM_MAX_AXES];
        gm_mesh_coordinates(&r->mesh, axes ? gm_group_member(p->group, i) : r->rank, coordinate);
        block_of(r, up, coordinate, &p->place[i].first, local, logical);
        p->place[i].count = logical[0];
    }
    p->room = local[0];
    return GM_OK;
}

static gm_status take_lists(gm_experts_plan *p)
{
    size_t of_out = (size_t)p->experts, of_in = (size_t)p->room * (size_t)p->p;
    p->out = calloc(2 * of_out + 2 * of_in + 1, sizeof *p->out);
    if (!p->out) return GM_FAIL(GM_ENOMEM, "experts: no memory for %" PRId64 " counts", p->experts);
    p->out_at = p->out + of_out;
    p->in = p->out_at + of_out;
    p->in_at = p->in + of_in;
    p->runs = malloc((of_out + of_in + 1) * sizeof *p->runs);
    return p->runs ? GM_OK : GM_FAIL(GM_ENOMEM, "experts: no memory for %zu runs of rows", of_out + of_in);
}

gm_status gm_experts_plan_new(gm_rank *r, const gm_experts_sides *s, int64_t capacity, gm_experts_plan *p)
{
    *p = (gm_experts_plan){.capacity = capacity};
    gm_status st = find_places(r, &s->up, p);
    if (st == GM_OK) st = take_lists(p);
    if (st != GM_OK) gm_experts_plan_free(p);
    return st;
}

void gm_experts_plan_free(gm_experts_plan *p)
{
    free(p->place);
    free(p->out);
    free(p->runs);
    *p = (gm_experts_plan){0};
}

/* ---- numbers ---- */

int64_t gm_experts_numbers(const gm_experts_plan *p) { return p->experts + (p->p > 1 ? p->p * p->room : 0); }

/* The choices of each expert (experts) as (p, room): a view where each place has a full block. */
static gm_tensor *by_place(gm_work *w, const gm_experts_plan *p, gm_tensor *count)
{
    int64_t shape[2] = {p->p, p->room};
    if (p->experts == p->p * p->room) return gm_work_shaped(w, count, 2, shape);
    gm_tensor *given = gm_work_full(w, GM_I64, 2, shape, 0);
    int        mark = w->n_held;
    for (int i = 0; i < p->p && w->st == GM_OK; i++) {
        const gm_experts_place *place = &p->place[i];
        if (!place->count) continue;
        gm_tensor *from = gm_work_narrow(w, count, 0, place->first, place->count);
        gm_work_copy(w, from, gm_rows_line(w, given, i, place->count));
        gm_work_drop(w, mark);
    }
    return given;
}

void gm_experts_tell(gm_work *w, const gm_experts_plan *p, gm_tensor *all)
{
    if (p->p == 1) return;
    gm_tensor *given = by_place(w, p, gm_work_narrow(w, all, 0, 0, p->experts));
    gm_tensor *told = gm_work_narrow(w, all, 0, p->experts, p->p * p->room);
    told = gm_work_shaped(w, told, 2, (int64_t[]){p->p, p->room});
    gm_rows_all_to_all(w, p->group, given, 0, told, 0);
}

void gm_experts_balance(const gm_experts_plan *p, int64_t choices, int64_t *numbers)
{
    for (int64_t e = 0; e < p->experts; e++) numbers[e] = choices / p->experts + (e < choices % p->experts);
    for (int64_t i = p->experts; i < gm_experts_numbers(p); i++) {
        int64_t e = (i - p->experts) % p->room;
        numbers[i] = e < p->place[p->here].count ? numbers[p->place[p->here].first + e] : 0;
    }
}

static bool is_own(const gm_experts_plan *p, int64_t e)
{
    const gm_experts_place *own = &p->place[p->here];
    return e >= own->first && e < own->first + own->count;
}

/* What travels, in order of places; of a place in order of its experts, or, from it, of this rank's. */
static void list_runs(gm_experts_plan *p)
{
    gm_row_run *at = p->runs;
    for (int i = 0; i < p->p; i++)
        for (int64_t k = 0; i != p->here && k < p->place[i].count; k++) {
            int64_t e = p->place[i].first + k;
            *at++ = (gm_row_run){i, p->out_at[e], p->out[e]};
        }
    p->sent = (gm_row_runs){p->runs, (int)(at - p->runs)};
    p->away.run = at;
    for (int i = 0; i < p->p; i++)
        for (int64_t e = 0; i != p->here && e < p->place[p->here].count; e++)
            *at++ = (gm_row_run){i, p->in_at[e * p->p + i], p->in[e * p->p + i]};
    p->away.n = (int)(at - p->away.run);
}

/* Own experts and those of others count from 0 each. */
static void lay_out(gm_experts_plan *p, const int64_t *numbers)
{
    const gm_experts_place *own = &p->place[p->here];
    for (int64_t e = 0; e < p->experts; e++) {
        int64_t *n = is_own(p, e) ? &p->n_here : &p->n_sent;
        p->out[e] = numbers[e];
        p->out_at[e] = *n;
        *n += p->out[e];
    }
    for (int64_t e = 0; e < own->count; e++)
        for (int i = 0; i < p->p; i++) {
            int64_t at = e * p->p + i;
            p->in[at] = numbers[p->experts + i * p->room + e];
            p->in_at[at] = p->n_away;
            if (i != p->here) p->n_away += p->in[at];
        }
}

void gm_experts_lay_rows(gm_experts_plan *p, int64_t choices, const int64_t *numbers)
{
    if (p->p == 1) {
        p->n_here = p->capacity ? p->experts * p->capacity : choices;
        return;
    }
    lay_out(p, numbers);
    list_runs(p);
}

void gm_experts_away_bounds(const gm_experts_plan *p, int64_t *bounds)
{
    int64_t count = p->place[p->here].count;
    for (int64_t e = 0; e < count; e++) bounds[e] = p->in_at[e * p->p];
    bounds[count] = p->n_away;
}
