/* owned.c - sums of gradients that are shared out over their owners, and parameters that come back after the update
 * (ZeRO stages 1 and 2: Rajbhandari et al. 2020, arXiv:1910.02054).
 *
 * An owner has a block of each member of a bucket: the member's layout, cut further by the axes of the owners
 * (parts.h). Gradients are packed by owner: the part of an owner is its blocks of all members, one behind the
 * other. One reduce-scatter then gives every owner its part, and sends (p-1)/p of the bytes. After the update the parts
 * of the parameters travel back in one all-gather, which sends (p-1)/p again. A large parameter, which has a bucket of
 * its own, needs no packing if it is divided by rows: its gradient is the parts as it is.
 *
 * When all sums are there, one small sum tells which parameters no rank had a gradient of: a number for each. */
#include <stdlib.h>
#include "../tier/tier.h"
#include "buckets.h"

gm_status gm_owned_make(gm_reducer *d, bucket *b)
{
    gm_attrs zero = gm_attrs_default();
    int64_t  stride[GM_MAX_DIMS];
    b->numel = 0;
    for (int i = b->first; i >= 0; i = d->slots[i].next) {
        d->slots[i].at = b->numel;
        b->numel += gm_parts_numel(&d->slots[i].parts);
    }
    gm_rank_place(d->rank, "gradient");
    GM_TRY(gm_gradient_new(d->rank, b->dtype, 1, &b->numel, false, &b->flat));
    GM_TRY(gm_run_one(d->rank->device, GM_OP_fill, &zero, NULL, b->flat));
    for (int i = b->first; i >= 0; i = d->slots[i].next) {
        slot         *s = &d->slots[i];
        gm_parameter *p = s->leaf->param;
        gm_shape_strides(s->parts.ndim, s->parts.part, stride);
        GM_TRY(gm_tensor_view(b->flat, s->parts.ndim, s->parts.part, stride, s->at, &s->view));
        p->own = s->view;
        p->owned = s->parts.owned;
        p->own_set = false;
        gm_tensor_retain(s->view);
    }
    return GM_OK;
}

/* ---- sums ---- */

/* Is t, which belongs to the only member and is like its block, the parts of all owners as it is? */
static bool is_packed(const bucket *b, const slot *s, const gm_group *g, const gm_tensor *t)
{
    return b->members == 1 && gm_parts_are_block(&s->parts, g) && (t == s->leaf->local || t->dtype == b->dtype) &&
           gm_tensor_is_contiguous(t);
}

/* The parts of all owners, of zeros where this rank has nothing to add. */
static gm_status pack(gm_reducer *d, bucket *b, gm_group *g, uint32_t axes)
{
    gm_attrs    zero = gm_attrs_default();
    int64_t     n = b->numel * gm_group_size(g);
    const slot *first = &d->slots[b->first];
    if (gm_slot_counts(d, first, axes) && is_packed(b, first, g, first->leaf->param->grad))
        return gm_parts_flatten(first->leaf->param->grad, &b->packed);
    gm_rank_place(d->rank, "gradient");
    GM_TRY(gm_tensor_new_shared(d->rank->device, b->dtype, 1, &n, &b->packed));
    GM_TRY(gm_run_one(d->rank->device, GM_OP_fill, &zero, NULL, b->packed));
    for (int i = b->first; i >= 0; i = d->slots[i].next) {
        const slot *s = &d->slots[i];
        if (gm_slot_counts(d, s, axes))
            GM_TRY(gm_parts_copy(&s->parts, g, s->leaf->param->grad, b->packed, b->numel, s->at, true));
    }
    return GM_OK;
}

static void free_gradients(gm_reducer *d, const bucket *b)
{
    for (int i = b->first; i >= 0; i = d->slots[i].next) {
        gm_parameter *p = d->slots[i].leaf->param;
        gm_tensor_release(p->grad);
        p->grad = NULL;
        p->grad_set = false;
        p->grad_partial = 0;
    }
}

/* Has a member a sum of an earlier pass? */
static bool adds(const gm_reducer *d, const bucket *b)
{
    for (int i = b->first; i >= 0; i = d->slots[i].next)
        if (d->slots[i].leaf->param->own_set) return true;
    return false;
}

gm_status gm_owned_launch(gm_reducer *d, bucket *b, uint32_t axes)
{
    gm_comm  *comm;
    gm_group *g;
    GM_TRY(gm_parts_group(&d->slots[b->first].parts, &comm, &g));
    b->rest = axes & ~b->owners;
    d->summed_over |= axes;
    GM_TRY(pack(d, b, g, axes));
    free_gradients(d, b);
    b->sum = b->flat;
    if (adds(d, b)) {
        gm_rank_place(d->rank, "gradient");
        GM_TRY(gm_tensor_new(d->rank->device, b->dtype, 1, &b->numel, &b->sum));
    } else {
        gm_tensor_retain(b->sum);
        gm_tier_discard(b->flat->storage); /* all of it is written now */
    }
    return gm_comm_reduce_scatter(comm, g, b->packed, 0, GM_SUM, b->sum, &b->pending);
}

/* A sum beside the one of an earlier pass joins it. What of that is no gradient is not zero, and is replaced. */
static gm_status add_sum(gm_reducer *d, const bucket *b)
{
    gm_attrs zero = gm_attrs_default();
    for (int i = b->first; i >= 0; i = d->slots[i].next)
        if (!d->slots[i].leaf->param->own_set)
            GM_TRY(gm_run_one(d->rank->device, GM_OP_fill, &zero, NULL, d->slots[i].view));
    return gm_run_one(d->rank->device, GM_OP_axpy, NULL, b->sum, b->flat);
}

gm_status gm_owned_finish(gm_reducer *d, bucket *b)
{
    gm_comm  *comm;
    gm_group *g;
    GM_TRY(gm_rank_comm(d->rank, &comm));
    GM_TRY(gm_comm_finish(comm, &b->pending));
    gm_tensor_release(b->packed);
    b->packed = NULL;
    GM_TRY(gm_comm_group(comm, b->rest, &g));
    if (gm_group_size(g) > 1) GM_TRY(gm_comm_all_reduce(comm, g, b->sum, GM_SUM, NULL));
    gm_status st = b->sum == b->flat ? GM_OK : add_sum(d, b);
    gm_tensor_release(b->sum);
    b->sum = NULL;
    return gm_comm_once(st);
}

void gm_owned_drop(bucket *b)
{
    gm_tensor_release(b->packed);
    gm_tensor_release(b->sum);
    b->packed = b->sum = NULL;
}

/* flags[i]: how many ranks had a gradient of leaf i. */
static gm_status count_users(gm_reducer *d, gm_tensor *flags)
{
    gm_comm  *comm;
    gm_group *g;
    double   *used = malloc((size_t)d->n * sizeof *used);
    if (!used) return GM_FAIL(GM_ENOMEM, "no memory for a list of %d parameters", d->n);
    for (int i = 0; i < d->n; i++) used[i] = d->slots[i].used;
    gm_status st = GM_OK;
    if (gm_tensor_data(flags))
        st = gm_device_write(d->rank->device, gm_tensor_data(flags), used, (size_t)d->n * sizeof *used);
    if (st == GM_OK) st = gm_rank_comm(d->rank, &comm);
    if (st == GM_OK) st = gm_comm_group(comm, d->summed_over, &g);
    if (st == GM_OK) st = gm_comm_all_reduce(comm, g, flags, GM_SUM, NULL);
    free(used);
    return st;
}

gm_status gm_owned_settle(gm_reducer *d)
{
    gm_tensor *flags;
    int64_t    n = d->n;
    gm_rank_place(d->rank, "gradient");
    GM_TRY(gm_tensor_new(d->rank->device, GM_F64, 1, &n, &flags));
    gm_status st = count_users(d, flags);
    for (int i = 0; i < d->n && st == GM_OK; i++) {
        slot  *s = &d->slots[i];
        double users = 1; /* without data: as if all were used */
        if (!d->buckets[s->bucket].owners) continue;
        if (!s->used && gm_tensor_data(flags)) st = gm_host_load(flags, i, &users);
        s->unused = users == 0;
        if (!s->unused) s->leaf->param->own_set = true;
    }
    gm_tensor_release(flags);
    d->summed_over = 0;
    return gm_comm_once(st);
}

/* ---- parameters ---- */

/* The rows of its members that this rank has updated, as a part; zeros where they end before the part does. */
static gm_status pack_own(gm_reducer *d, const bucket *b, gm_tensor *mine)
{
    gm_attrs zero = gm_attrs_default();
    GM_TRY(gm_run_one(d->rank->device, GM_OP_fill, &zero, NULL, mine));
    for (int i = b->first; i >= 0; i = d->slots[i].next)
        GM_TRY(gm_parts_copy_own(&d->slots[i].parts, d->slots[i].leaf->local, mine, d->slots[i].at, true));
    return GM_OK;
}

/* Where the parts of all owners arrive: in the parameter itself where that is what they are. */
static gm_status place_of_all(gm_reducer *d, const bucket *b, gm_group *g, gm_tensor **out)
{
    const slot *first = &d->slots[b->first];
    int64_t     n = b->numel * gm_group_size(g);
    if (is_packed(b, first, g, first->leaf->local)) return gm_parts_flatten(first->leaf->local, out);
    gm_rank_place(d->rank, "parameter");
    return gm_tensor_new(d->rank->device, b->held, 1, &n, out);
}

static gm_status unpack_all(gm_reducer *d, const bucket *b, gm_group *g, gm_tensor *all)
{
    for (int i = b->first; i >= 0; i = d->slots[i].next) {
        const slot *s = &d->slots[i];
        gm_tensor  *block = s->leaf->local;
        gm_value_touched(s->leaf);
        if (all->storage != block->storage) GM_TRY(gm_parts_copy(&s->parts, g, block, all, b->numel, s->at, false));
    }
    return GM_OK;
}

static gm_status gather_bucket(gm_reducer *d, bucket *b)
{
    gm_comm   *comm;
    gm_group  *g;
    gm_tensor *mine = NULL, *all = NULL;
    gm_status  st;
    GM_TRY(gm_parts_group(&d->slots[b->first].parts, &comm, &g));
    gm_rank_place(d->rank, "parameter");
    GM_TRY_OR(gm_tensor_new_shared(d->rank->device, b->held, 1, &b->numel, &mine), st, done);
    GM_TRY_OR(pack_own(d, b, mine), st, done);
    GM_TRY_OR(place_of_all(d, b, g, &all), st, done);
    GM_TRY_OR(gm_comm_all_gather(comm, g, mine, 0, all, NULL), st, done);
    st = unpack_all(d, b, g, all);
done:
    gm_tensor_release(mine);
    gm_tensor_release(all);
    return st;
}

gm_status gm_reducer_gather(gm_reducer *d)
{
    for (int k = 0; k < d->n_buckets; k++)
        if (d->buckets[k].owners && !d->buckets[k].stored) GM_TRY(gather_bucket(d, &d->buckets[k]));
    return GM_OK;
}
