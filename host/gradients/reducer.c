/* reducer.c - see reducer.h. */
#include "buckets.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_BYTES   ((size_t)4 << 20)  /* docs/performance_ranks.md */
#define IN_FLIGHT_BYTES ((size_t)64 << 20) /* enough to keep a network busy */

/* ---- which slot a leaf has ---- */

static int *look_up(const gm_reducer *d, const gm_value *leaf)
{
    uint64_t i = (uint64_t)(uintptr_t)leaf * 0x9e3779b97f4a7c15u >> 20;
    for (;; i++) {
        int *at = &d->table[i & (uint64_t)(d->table_room - 1)];
        if (!*at || d->slots[*at - 1].leaf == leaf) return at;
    }
}

/* The reducer of a chain that a leaf belongs to and its slot there; NULL: none. */
static slot *find(gm_reducer *d, const gm_value *leaf, gm_reducer **owner)
{
    for (; d; d = d->chain) {
        int i = *look_up(d, leaf);
        if (!i) continue;
        *owner = d;
        return &d->slots[i - 1];
    }
    return NULL;
}

/* ---- making ---- */

/* Of the gradients that are summed, and of the scratch of the sum. */
static size_t bucket_bytes(const bucket *b) { return (size_t)b->bytes; }

/* The bucket that slot i goes into: the newest of its kind while there is room, else a new one. */
static int choose_bucket(gm_reducer *d, int i, size_t limit)
{
    const gm_value *v = d->slots[i].leaf;
    bool            stored = v->param->stored != NULL;
    uint32_t        cut = gm_layout_cut_axes(&v->layout), owners;
    gm_dtype        dtype = gm_value_grad_dtype(v), held = v->local->dtype;
    size_t          bytes = (size_t)gm_tensor_numel(v->local) * gm_dtype_size(dtype);
    gm_parts_find(v, d->owners, &d->slots[i].parts);
    owners = d->slots[i].parts.owners;
    for (int k = d->n_buckets - 1; k >= 0; k--) {
        bucket *b = &d->buckets[k];
        bool    alike = b->dtype == dtype && b->held == held && b->cut == cut;
        if (!alike || b->owners != owners || b->stored != stored) continue;
        if (bucket_bytes(b) + bytes <= limit) return k;
        break;
    }
    d->buckets[d->n_buckets] = (bucket){
        .dtype = dtype, .held = held, .cut = cut, .owners = owners, .stored = stored, .first = -1};
    return d->n_buckets++;
}

static int by_last(const void *x, const void *y)
{
    const bucket *a = x, *b = y;
    return (a->last < b->last) - (a->last > b->last);
}

/* Buckets in the order in which they fill up, their members in reverse order of the leaves. */
static void deal_out(gm_reducer *d, size_t limit)
{
    for (int i = d->n - 1; i >= 0; i--) {
        int     k = choose_bucket(d, i, limit);
        bucket *b = &d->buckets[k];
        d->slots[i].next = -1;
        if (b->first < 0) b->first = i;
        else d->slots[b->last].next = i;
        b->last = i;
        b->members++;
        b->numel += gm_tensor_numel(d->slots[i].leaf->local);
        b->bytes = b->numel * (int64_t)gm_dtype_size(b->dtype);
    }
    qsort(d->buckets, (size_t)d->n_buckets, sizeof *d->buckets, by_last);
    for (int k = 0; k < d->n_buckets; k++)
        for (int i = d->buckets[k].first; i >= 0; i = d->slots[i].next) d->slots[i].bucket = k;
}

static gm_status make_views(gm_reducer *d)
{
    for (int k = 0; k < d->n_buckets; k++) {
        bucket *b = &d->buckets[k];
        int64_t at = 0, stride[GM_MAX_DIMS];
        if (b->owners) {
            GM_TRY(gm_owned_make(d, b));
            continue;
        }
        gm_rank_place(d->rank, "gradient");
        GM_TRY(gm_gradient_new(d->rank, b->dtype, 1, &b->numel, true, &b->flat));
        for (int i = b->first; i >= 0; i = d->slots[i].next) {
            const gm_tensor *t = d->slots[i].leaf->local;
            gm_shape_strides(t->ndim, t->shape, stride);
            GM_TRY(gm_tensor_view(b->flat, t->ndim, t->shape, stride, at, &d->slots[i].view));
            at += gm_tensor_numel(t);
        }
    }
    return GM_OK;
}

static bool is_owned(const gm_reducer *d, const slot *s) { return d->buckets[s->bucket].owners != 0; }

/* Gradients move into their buckets; those whose sums are shared out are packed when they are final. */
static gm_status take_over(gm_reducer *d)
{
    for (int i = 0; i < d->n; i++)
        if (!is_owned(d, &d->slots[i]) && gm_value_grad(d->slots[i].leaf))
            GM_TRY(gm_run_one(d->rank->device, GM_OP_copy, NULL, d->slots[i].leaf->param->grad, d->slots[i].view));
    for (int i = 0; i < d->n; i++) {
        gm_value *v = d->slots[i].leaf;
        if (is_owned(d, &d->slots[i])) continue;
        gm_tensor_release(v->param->grad);
        v->param->grad = d->slots[i].view;
        gm_tensor_retain(v->param->grad);
    }
    return GM_OK;
}

static gm_status check_leaves(const gm_rank *r, gm_value *const *leaves, int n)
{
    gm_reducer *owner;
    for (int i = 0; i < n; i++) {
        if (leaves[i]->node || !leaves[i]->requires_grad)
            return GM_FAIL(GM_EINVAL, "reducer: tensor %d is not a parameter (a leaf that requires a gradient)", i + 1);
        if (find(r->reducer, leaves[i], &owner))
            return GM_FAIL(GM_EINVAL, "reducer: parameter %d belongs to another reducer; free that one first", i + 1);
    }
    return GM_OK;
}

static gm_status enter_leaves(gm_reducer *d, gm_value *const *leaves)
{
    for (int i = 0; i < d->n; i++) {
        int *at = look_up(d, leaves[i]);
        if (*at) return GM_FAIL(GM_EINVAL, "reducer: parameters %d and %d are the same tensor", *at, i + 1);
        d->slots[i].leaf = leaves[i];
        gm_value_retain(leaves[i]);
        *at = i + 1;
    }
    return GM_OK;
}

gm_status gm_reducer_new(gm_rank *r, gm_value *const *leaves, int n, size_t limit, bool overlap, uint32_t owners,
                         gm_reducer **out)
{
    gm_device *dev;
    gm_status  st;
    GM_TRY(gm_rank_device(r, &dev));
    GM_TRY(check_leaves(r, leaves, n));
    gm_reducer *d = calloc(1, sizeof *d);
    if (!d) return GM_FAIL(GM_ENOMEM, "no memory for a reducer");
    d->rank = r;
    d->overlap = overlap;
    d->owners = owners;
    for (d->table_room = 8; d->table_room < 2 * n; d->table_room *= 2) {
    }
    d->slots = calloc((size_t)n + 1, sizeof *d->slots);
    d->buckets = calloc((size_t)n + 1, sizeof *d->buckets);
    d->table = calloc((size_t)d->table_room, sizeof *d->table);
    if (!d->slots || !d->buckets || !d->table) {
        st = GM_FAIL(GM_ENOMEM, "no memory for a reducer of %d parameters", n);
        goto fail;
    }
    d->n = n;
    GM_TRY_OR(enter_leaves(d, leaves), st, fail);
    deal_out(d, limit ? limit : DEFAULT_BYTES);
    GM_TRY_OR(make_views(d), st, fail);
    GM_TRY_OR(take_over(d), st, fail);
    d->chain = r->reducer;
    r->reducer = d;
    r->gradient_is_final = gm_reducer_ready;
    gm_reducer_arm(d, false);
    *out = d;
    return GM_OK;
fail:
    gm_reducer_free(d);
    return st;
}

void gm_reducer_free(gm_reducer *d)
{
    if (!d) return;
    for (gm_reducer **p = &d->rank->reducer; *p; p = &(*p)->chain)
        if (*p == d) {
            *p = d->chain;
            break;
        }
    for (int k = 0; k < d->n_buckets; k++) /* not waited for: a collector may call, also after the job was left */
        if (d->buckets[k].pending && d->rank->comm) gm_comm_drop(d->rank->comm, d->buckets[k].pending);
    for (int k = 0; k < d->n_buckets; k++) gm_owned_drop(&d->buckets[k]);
    for (int i = 0; i < d->n; i++) {
        if (d->slots[i].leaf) {
            gm_parameter *p = d->slots[i].leaf->param;
            p->in_sum = false;
            if (p->own && p->own == d->slots[i].view) {
                gm_tensor_release(p->own);
                p->own = NULL;
                p->own_set = false;
            }
        }
        gm_tensor_release(d->slots[i].view);
        gm_value_release(d->slots[i].leaf);
    }
    for (int k = 0; k < d->n_buckets; k++) gm_tensor_release(d->buckets[k].flat);
    free(d->slots);
    free(d->buckets);
    free(d->table);
    free(d);
}

/* ---- a step ---- */

void gm_reducer_arm(gm_reducer *d, bool on)
{
    for (int k = 0; k < d->n_buckets; k++) {
        bucket *b = &d->buckets[k];
        (void)gm_comm_finish(d->rank->comm, &b->pending); /* its step, if any, has failed and said why */
        gm_owned_drop(b);
        b->launched = false;
        b->waiting = b->members;
    }
    for (int i = 0; i < d->n; i++) {
        d->slots[i].ready = false;
        d->slots[i].leaf->param->in_sum = false;
    }
    d->next = d->oldest = 0;
    d->in_flight = 0;
    d->looked = false;
    d->summed_over = 0;
    d->armed = on;
}

/* Reading what lies on a device makes the host wait for it: there everything is done by kernels, and nothing is read
 * but what this rank cannot know. */
static bool is_elsewhere(const gm_reducer *d)
{
    const gm_backend *be = d->rank->device->backend;
    return be->has_data && !be->on_host;
}

/* -0.0 + x is x for every x, so it stands for "nothing to add". */
static bool means_nothing(double first) { return first == 0 && signbit(first); }

static bool is_nothing(const gm_tensor *view)
{
    double first;
    if (!gm_tensor_numel(view) || !gm_tensor_data(view)) return false;
    return gm_host_load(view, 0, &first) == GM_OK && means_nothing(first);
}

/* Gradients that begin with -0.0 shall not mean it: x + 0.0 is 0.0 then, and x for all else. */
static gm_status guard(gm_reducer *d, const bucket *b)
{
    gm_attrs a = gm_attrs_default();
    a.alpha = 1;
    if (is_elsewhere(d)) return gm_run_one(d->rank->device, GM_OP_affine, &a, b->flat, b->flat);
    for (int i = b->first; i >= 0; i = d->slots[i].next)
        if (d->slots[i].used && is_nothing(d->slots[i].view)) GM_TRY(gm_host_store(d->slots[i].view, 0, 0.0));
    return GM_OK;
}

bool gm_slot_counts(const gm_reducer *d, const slot *s, uint32_t axes)
{
    const gm_rank *r = d->rank;
    for (int a = 0; a < r->mesh.n_axes; a++)
        if (axes & ~s->leaf->param->grad_partial & 1u << a && r->coordinate[a]) return false;
    return s->used;
}

/* What this rank has no term of in a member's sum over `axes` is filled with nothing. */
static gm_status fill_in(gm_reducer *d, slot *s, uint32_t axes)
{
    gm_attrs nothing = gm_attrs_default();
    nothing.value = -0.0;
    return gm_slot_counts(d, s, axes) ? GM_OK : gm_run_one(d->rank->device, GM_OP_fill, &nothing, NULL, s->view);
}

static gm_status wait_for_oldest(gm_reducer *d)
{
    bucket *b = &d->buckets[d->oldest++];
    if (b->pending) d->in_flight -= bucket_bytes(b);
    return b->owners ? gm_owned_finish(d, b) : gm_comm_finish(d->rank->comm, &b->pending);
}

/* Waits for the oldest until another bucket may be under way. All ranks launch and wait in one order, so that whoever
 * is waited for has launched or will. */
static gm_status make_room(gm_reducer *d, const bucket *b)
{
    while (d->in_flight && d->in_flight + bucket_bytes(b) > IN_FLIGHT_BYTES) GM_TRY(wait_for_oldest(d));
    return GM_OK;
}

static gm_status launch_now(gm_reducer *d, bucket *b)
{
    gm_comm  *comm;
    gm_group *g;
    uint32_t  axes = gm_mesh_batch_axes(&d->rank->mesh) & ~b->cut;
    for (int i = b->first; i >= 0; i = d->slots[i].next) {
        slot *s = &d->slots[i];
        if (b->owners ? !s->leaf->requires_grad : s->leaf->param->grad != s->view)
            return GM_FAIL(GM_EINVAL,
                           "reducer: parameter %d was frozen (requires_grad(false)) after its gradient became part of "
                           "a bucket; freeze before the reducer is made, or make it anew",
                           i + 1);
        s->used = s->leaf->param->grad_set;
        if (s->used) axes |= s->leaf->param->grad_partial;
        s->leaf->param->in_sum = true;
    }
    b->launched = true;
    b->summed = false;
    if (b->owners) {
        GM_TRY(make_room(d, b));
        GM_TRY(gm_owned_launch(d, b, axes));
        d->in_flight += bucket_bytes(b);
        return GM_OK;
    }
    GM_TRY(gm_rank_comm(d->rank, &comm));
    GM_TRY(gm_comm_group(comm, axes, &g));
    if (gm_group_size(g) == 1) return GM_OK;
    GM_TRY(guard(d, b));
    for (int i = b->first; i >= 0; i = d->slots[i].next) GM_TRY(fill_in(d, &d->slots[i], axes));
    b->summed = true;
    GM_TRY(make_room(d, b));
    GM_TRY(gm_comm_all_reduce(comm, g, b->flat, GM_SUM, &b->pending));
    d->in_flight += bucket_bytes(b);
    return GM_OK;
}

/* Whatever module's backward comes last: what is sent belongs to none of them. */
static gm_status launch(gm_reducer *d, bucket *b)
{
    char *path;
    GM_TRY(gm_rank_enter_path(d->rank, GM_REDUCER_PATH, &path));
    gm_status st = launch_now(d, b);
    gm_rank_leave_path(d->rank, path);
    return st;
}

static void mark_ready(gm_reducer *d, slot *s)
{
    if (s->ready) return;
    s->ready = true;
    d->buckets[s->bucket].waiting--;
}

/* At the first final gradient: leaves that no tape awaits will get no more, and shall not hold up the buckets that they
 * are in. */
static void find_absent(gm_reducer *d)
{
    for (int i = 0; i < d->n && !d->looked; i++)
        if (!d->slots[i].leaf->param->awaited) mark_ready(d, &d->slots[i]);
    d->looked = true;
}

gm_status gm_reducer_ready(gm_reducer *d, gm_value *leaf)
{
    slot *s = find(d, leaf, &d);
    if (!s || !d->armed || !d->overlap) return GM_OK;
    find_absent(d);
    mark_ready(d, s);
    for (; d->next < d->n_buckets && !d->buckets[d->next].waiting; d->next++) GM_TRY(launch(d, &d->buckets[d->next]));
    return GM_OK;
}

/* Only the sum says whether another rank used what this one did not. */
static bool is_unknown(const gm_reducer *d, const slot *s)
{
    return !s->used && !is_owned(d, s) && d->buckets[s->bucket].summed && gm_tensor_numel(s->view) &&
           gm_tensor_data(s->view);
}

/* The first elements of the members that are unknown, in order, in one read. */
static gm_status read_unknown(gm_reducer *d, int64_t n, double *first)
{
    gm_status  st;
    gm_device *dev = d->rank->device;
    gm_tensor *all, *from = NULL, *to = NULL;
    int64_t    one = 1, at = 0;
    gm_rank_place(d->rank, "gradient");
    GM_TRY(gm_tensor_new(dev, GM_F64, 1, &n, &all));
    for (int i = 0; i < d->n; i++) {
        if (!is_unknown(d, &d->slots[i])) continue;
        GM_TRY_OR(gm_tensor_view(d->slots[i].view, 1, &one, &one, d->slots[i].view->offset, &from), st, done);
        GM_TRY_OR(gm_tensor_view(all, 1, &one, &one, at++, &to), st, done);
        GM_TRY_OR(gm_run_one(dev, GM_OP_copy, NULL, from, to), st, done);
        gm_tensor_release(from);
        gm_tensor_release(to);
        from = to = NULL;
    }
    st = gm_device_read(dev, first, gm_tensor_data(all), (size_t)n * sizeof *first);
done:
    gm_tensor_release(from);
    gm_tensor_release(to);
    gm_tensor_release(all);
    return st;
}

/* What the sums say: who has a gradient now. */
static gm_status settle(gm_reducer *d)
{
    gm_status st = GM_OK;
    int64_t   n = 0, at = 0;
    double   *first = NULL;
    for (int i = 0; i < d->n; i++) n += is_unknown(d, &d->slots[i]);
    if (n && !(first = calloc((size_t)n, sizeof *first)))
        return GM_FAIL(GM_ECOMM, "no memory for a sum of gradients that has begun");
    if (n && is_elsewhere(d)) st = read_unknown(d, n, first);
    for (int i = 0; i < d->n && st == GM_OK; i++) {
        slot *s = &d->slots[i];
        bool  unknown = is_unknown(d, s);
        if (is_owned(d, s)) continue; /* has been told by its bucket */
        if (unknown && !is_elsewhere(d)) st = gm_host_load(s->view, 0, &first[at]);
        s->unused = unknown ? means_nothing(first[at++]) : !s->used;
        s->leaf->param->grad_set = !s->unused;
        s->leaf->param->grad_partial = 0;
    }
    free(first);
    return gm_comm_once(st);
}

gm_status gm_reducer_finish(gm_reducer *d)
{
    gm_status st = GM_OK;
    for (; d->next < d->n_buckets && st == GM_OK; d->next++) st = launch(d, &d->buckets[d->next]);
    while (d->oldest < d->n_buckets && st == GM_OK) st = wait_for_oldest(d);
    if (st == GM_OK) st = settle(d);
    if (st == GM_OK && d->summed_over) st = gm_owned_settle(d);
    gm_reducer_arm(d, false);
    return st;
}

int gm_reducer_unused(const gm_reducer *d, int *unused)
{
    int n = 0;
    for (int i = 0; i < d->n; i++)
        if (d->slots[i].unused) unused[n++] = i;
    return n;
}

int gm_reducer_buckets(const gm_reducer *d) { return d->n_buckets; }

size_t gm_reducer_bytes(const gm_reducer *d)
{
    size_t bytes = 0;
    for (int k = 0; k < d->n_buckets; k++) bytes += bucket_bytes(&d->buckets[k]);
    return bytes;
}
