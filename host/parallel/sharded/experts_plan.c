/* experts_plan.c - see experts_plan.h. */
#include "experts_plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

bool gm_experts_inside(int n, const int64_t *local, const int64_t *logical, int64_t t)
{
    for (int d = n - 1; d >= 0; d--) {
        if (t % local[d] >= logical[d]) return false;
        t /= local[d];
    }
    return true;
}

static void block_of(gm_rank *r, const gm_side *s, const int *coordinate, int64_t *first, int64_t *local,
                     int64_t *logical)
{
    gm_box box;
    gm_layout_block(&r->mesh, s->layout, coordinate, s->ndim, s->shape, &box, local, logical);
    *first = box.offset[0];
}

/* ---- places ---- */

void gm_experts_plan_shape(gm_rank *r, const gm_side *up, int64_t *shape)
{
    int64_t first, local[GM_MAX_DIMS], logical[GM_MAX_DIMS];
    block_of(r, up, r->coordinate, &first, local, logical);
    shape[0] = gm_layout_parts(&r->mesh, up->layout, 0);
    shape[1] = local[0];
}

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
    return GM_OK;
}

void gm_experts_plan_free(gm_experts_plan *p)
{
    free(p->place);
    free(p->out);
    *p = (gm_experts_plan){0};
}

/* ---- counts ---- */

static gm_status count_choices(gm_rank *r, const gm_side *x, gm_tensor *index, gm_experts_plan *p)
{
    const int64_t *choice = gm_tensor_data(index);
    int64_t        first, local[GM_MAX_DIMS], logical[GM_MAX_DIMS], inside = 1;
    block_of(r, x, r->coordinate, &first, local, logical);
    for (int d = 0; d < x->ndim - 1; d++) inside *= logical[d];
    if (!choice) {
        for (int64_t e = 0; e < p->experts; e++)
            p->out[e] = inside * p->k / p->experts + (e < inside * p->k % p->experts);
        return GM_OK;
    }
    for (int64_t c = 0; c < p->tokens * p->k; c++) {
        if (!gm_experts_inside(x->ndim - 1, local, logical, c / p->k)) continue;
        if (choice[c] < -1 || choice[c] >= p->experts)
            return GM_FAIL(GM_EINVAL,
                           "experts: index %" PRId64 " of choice %" PRId64 " of token %" PRId64
                           " of the block (from 0) is none of %" PRId64 " experts, nor -1",
                           choice[c], c % p->k, c / p->k, p->experts);
        if (choice[c] >= 0) p->out[choice[c]]++;
    }
    return GM_OK;
}

/* Says to each place how many rows it gets for each of its experts. */
static gm_status exchange_counts(gm_rank *r, gm_experts_plan *p, gm_tensor *counts)
{
    gm_tensor *given = NULL;
    GM_TRY(gm_tensor_new(r->device, GM_I64, 2, (int64_t[]){p->p, p->room}, &given));
    int64_t *to = gm_tensor_data(given);
    for (int64_t i = 0; to && i < p->p * p->room; i++) {
        const gm_experts_place *place = &p->place[i / p->room];
        to[i] = i % p->room < place->count ? p->out[place->first + i % p->room] : 0;
    }
    gm_status st = GM_OK;
    if (p->p > 1) st = gm_comm_all_to_all(p->comm, p->group, given, 0, counts, 0, NULL);
    else if (to) memcpy(gm_tensor_data(counts), to, (size_t)p->room * sizeof *to);
    gm_tensor_release(given);
    return st;
}

/* Where rows begin: own experts and those of others count from 0 each. */
static void lay_rows(gm_experts_plan *p, gm_tensor *counts)
{
    const gm_experts_place *own = &p->place[p->here];
    const int64_t          *from = gm_tensor_data(counts);
    for (int64_t e = 0; e < p->experts; e++) {
        int64_t *n = e >= own->first && e < own->first + own->count ? &p->n_here : &p->n_sent;
        p->out_at[e] = *n;
        *n += p->out[e];
    }
    for (int64_t e = 0; e < own->count; e++)
        for (int i = 0; i < p->p; i++) {
            int64_t at = e * p->p + i;
            p->in[at] = from ? from[i * p->room + e] : p->out[own->first + e];
            p->in_at[at] = p->n_away;
            if (i != p->here) p->n_away += p->in[at];
        }
}

gm_status gm_experts_plan_new(gm_rank *r, const gm_experts_sides *s, gm_tensor *index, gm_tensor *counts, bool known,
                              gm_experts_plan *p)
{
    *p = (gm_experts_plan){.tokens = index->shape[0], .k = index->shape[1]};
    gm_status st = find_places(r, &s->up, p);
    if (st == GM_OK) st = take_lists(p);
    if (st == GM_OK) st = count_choices(r, &s->x, index, p);
    if (st == GM_OK && !known) st = exchange_counts(r, p, counts);
    if (st == GM_OK) lay_rows(p, counts);
    else gm_experts_plan_free(p);
    return st;
}

void gm_experts_rows(const gm_experts_plan *p, bool away, int64_t e, int64_t *first, int64_t *n)
{
    int64_t expert = p->place[p->here].first + e;
    *first = away ? p->in_at[e * p->p] : p->out_at[expert];
    *n = away ? 0 : p->out[expert];
    for (int i = 0; away && i < p->p; i++) *n += i == p->here ? 0 : p->in[e * p->p + i];
}

/* ---- order ---- */

void gm_experts_order(const gm_experts_plan *p, const gm_experts_sides *s, gm_rank *r, gm_tensor *index,
                      gm_tensor *choice, gm_tensor *token, gm_tensor *row)
{
    const gm_experts_place *own = &p->place[p->here];
    const int64_t          *expert = gm_tensor_data(index);
    int64_t *chosen = gm_tensor_data(choice), *tokens = gm_tensor_data(token), *rows = gm_tensor_data(row);
    int64_t  first, local[GM_MAX_DIMS], logical[GM_MAX_DIMS];
    if (!expert) return;
    block_of(r, &s->x, r->coordinate, &first, local, logical);
    for (int64_t c = 0; c < p->tokens * p->k; c++) {
        int64_t e = expert[c], t = c / p->k, at = p->n_here + p->n_sent;
        if (e >= 0 && gm_experts_inside(s->x.ndim - 1, local, logical, t)) {
            bool is_own = e >= own->first && e < own->first + own->count;
            at = (is_own ? 0 : p->n_here) + p->out_at[e]++;
            chosen[at] = c;
            tokens[at] = t;
        }
        rows[c % p->k * p->tokens + t] = at;
    }
    for (int64_t e = 0; e < p->experts; e++) p->out_at[e] -= p->out[e]; /* where they began */
}
