/* parcel.c - see parcel.h. */
#include "parcel.h"

#include <stdlib.h>
#include <string.h>

#include "../autograd/work.h"
#include "../parallel/redistribute.h"

/* ---- slices ---- */

/* The ranks that share the sending of a block: those along the scatter axes over which it is replicated. */
static gm_status sharers(const gm_route *route, const gm_layout *layout, gm_group **out)
{
    return gm_comm_group(route->comm, route->scatter & ~(gm_layout_cut_axes(layout) | layout->partial), out);
}

static int64_t slice_of(int64_t numel, int ranks) { return (numel + ranks - 1) / ranks; }

/* length elements of a contiguous tensor from `start`, as one dimension. */
static gm_tensor *row_of(gm_work *w, gm_tensor *t, int64_t start, int64_t length)
{
    return gm_work_narrow(w, gm_work_shaped(w, t, 1, (int64_t[]){gm_tensor_numel(t)}), 0, start, length);
}

/* The elements of `have` and zeros up to n. */
static gm_tensor *padded(gm_work *w, gm_tensor *have, int64_t n)
{
    if (w->st != GM_OK || have->shape[0] == n) return have;
    gm_tensor *whole = gm_work_full(w, have->dtype, 1, &n, 0);
    gm_work_copy(w, have, gm_work_narrow(w, whole, 0, 0, have->shape[0]));
    return whole;
}

/* This rank's slice of a block, which all of g hold. */
static gm_tensor *slice(gm_work *w, gm_group *g, gm_tensor *block)
{
    int64_t numel = gm_tensor_numel(block), per = slice_of(numel, gm_group_size(g)), start = per * gm_group_rank(g);
    int64_t left = numel - start, length = left <= 0 ? 0 : left < per ? left : per;
    return padded(w, row_of(w, block, length ? start : 0, length), per);
}

/* This rank's slice of the sum of blocks that are terms over all of g: half of an all_reduce, whose other half the
 * receivers make. */
static gm_tensor *summed_slice(gm_work *w, gm_comm *comm, gm_group *g, gm_tensor *block)
{
    int64_t    numel = gm_tensor_numel(block), per = slice_of(numel, gm_group_size(g));
    gm_tensor *whole = padded(w, row_of(w, block, 0, numel), per * gm_group_size(g));
    gm_tensor *mine = gm_work_new(w, block->dtype, 1, &per);
    GM_STEP(w, gm_comm_reduce_scatter(comm, g, whole, 0, GM_SUM, mine, NULL));
    return mine;
}

/* What this rank sends of v, whose terms are not to be summed or were. */
static gm_status outgoing(const gm_route *route, const gm_value *v, gm_tensor **out)
{
    gm_group *g;
    gm_work   w;
    GM_TRY(sharers(route, &v->layout, &g));
    gm_work_begin(&w, route->rank, "send");
    gm_tensor *block = gm_work_contiguous(&w, v->local);
    if (gm_group_size(g) > 1 && w.st == GM_OK) block = slice(&w, g, block);
    *out = gm_work_keep(&w, block);
    return gm_work_end(&w);
}

/* The same of a gradient: what it is still a sum over is summed. */
static gm_status outgoing_sum(const gm_route *route, gm_value *v, gm_tensor **out)
{
    gm_group *g;
    gm_value *whole = NULL;
    uint32_t  shared = route->scatter & ~gm_layout_cut_axes(&v->layout);
    GM_TRY(gm_comm_group(route->comm, shared, &g));
    if (v->layout.partial && v->layout.partial == shared && gm_tensor_numel(v->local)) {
        gm_work w;
        gm_work_begin(&w, route->rank, "send");
        gm_tensor *block = gm_work_contiguous(&w, v->local);
        *out = gm_work_keep(&w, block ? summed_slice(&w, route->comm, g, block) : NULL);
        return gm_work_end(&w);
    }
    route->rank->no_grad++;
    gm_status st = gm_settle(route->rank, v, &whole);
    route->rank->no_grad--;
    if (st == GM_OK) st = outgoing(route, whole, out);
    gm_value_release(whole);
    return st;
}

/* ---- sending ---- */

/* Sends t (taken, also on failure). */
static gm_status post_send(const gm_route *route, gm_parcel *p, gm_tensor *t)
{
    gm_status st = gm_comm_send(route->comm, route->group, t, p->peer, &p->pending[p->n_pending]);
    if (st == GM_OK) p->n_pending++;
    gm_tensor_release(t); /* the comm keeps it until it is sent */
    return st;
}

static gm_status bytes_tensor(const gm_route *route, const char *op, size_t n, gm_tensor **out)
{
    int64_t size = (int64_t)n;
    gm_rank_place(route->rank, op);
    return gm_tensor_new(route->rank->device, GM_U8, 1, &size, out);
}

static size_t in_head(size_t size)
{
    return size < GM_PARCEL_HEAD - sizeof(uint64_t) ? size : GM_PARCEL_HEAD - sizeof(uint64_t);
}

/* A message of these bytes. */
static gm_status send_message(const gm_route *route, gm_parcel *p, const char *bytes, size_t size)
{
    gm_tensor *t = NULL;
    GM_TRY(bytes_tensor(route, "send", size, &t));
    gm_status st = gm_device_write(route->rank->device, gm_tensor_data(t), bytes, size);
    if (st == GM_OK) return post_send(route, p, t);
    gm_tensor_release(t);
    return st;
}

static gm_status send_bytes(const gm_route *route, gm_parcel *p, const char *bytes, size_t size)
{
    char     head[GM_PARCEL_HEAD] = {0};
    uint64_t length = size;
    size_t   first = in_head(size);
    memcpy(head, &length, sizeof length);
    memcpy(head + sizeof length, bytes, first);
    GM_TRY(send_message(route, p, head, sizeof head));
    return first < size ? send_message(route, p, bytes + first, size - first) : GM_OK;
}

static gm_status send_header(const gm_route *route, gm_parcel *p, const gm_form *form)
{
    char  *bytes;
    size_t size;
    GM_TRY(gm_form_pack(form, &bytes, &size));
    gm_status st = send_bytes(route, p, bytes, size);
    free(bytes);
    return st;
}

gm_status gm_parcel_send(const gm_route *route, gm_parcel *p, const gm_form *header, int n, gm_value *const *v)
{
    gm_tensor *t = NULL;
    if (header) GM_TRY(send_header(route, p, header));
    for (int i = 0; i < n; i++) {
        GM_TRY(outgoing(route, v[i], &t));
        GM_TRY(post_send(route, p, t));
    }
    p->state = GM_PARCEL_UNDER_WAY;
    return GM_OK;
}

gm_status gm_parcel_send_sums(const gm_route *route, gm_parcel *p, int n, gm_value *const *v)
{
    gm_tensor *t = NULL;
    for (int i = 0; i < n; i++) {
        GM_TRY(outgoing_sum(route, v[i], &t));
        GM_TRY(post_send(route, p, t));
    }
    p->state = GM_PARCEL_UNDER_WAY;
    return GM_OK;
}

/* ---- receiving ---- */

static gm_status post_receive(const gm_route *route, gm_parcel *p, gm_tensor *t)
{
    GM_TRY(gm_comm_receive(route->comm, route->group, t, p->peer, &p->pending[p->n_pending]));
    p->ids[p->n_ids++] = gm_comm_take_id(p->pending[p->n_pending++]);
    return GM_OK;
}

static gm_status incoming(const gm_route *route, const gm_form_value *v, gm_tensor **out)
{
    gm_group *g;
    int64_t   local[GM_MAX_DIMS], numel = 1, slice;
    GM_TRY(sharers(route, &v->layout, &g));
    gm_layout_local(&route->rank->mesh, &v->layout, v->ndim, v->shape, local);
    gm_rank_place(route->rank, "receive");
    if (gm_group_size(g) == 1) return gm_tensor_new(route->rank->device, v->dtype, v->ndim, local, out);
    for (int d = 0; d < v->ndim; d++) numel *= local[d];
    slice = slice_of(numel, gm_group_size(g));
    return gm_tensor_new(route->rank->device, v->dtype, 1, &slice, out);
}

gm_status gm_parcel_receive(const gm_route *route, gm_parcel *p)
{
    for (p->n = 0; p->n < p->form->n; p->n++) {
        GM_TRY(incoming(route, &p->form->v[p->n], &p->part[p->n]));
        gm_status st = post_receive(route, p, p->part[p->n]);
        if (st == GM_OK) continue;
        p->n++; /* it is held */
        return st;
    }
    p->state = GM_PARCEL_UNDER_WAY;
    return GM_OK;
}

gm_status gm_parcel_receive_header(const gm_route *route, gm_parcel *p)
{
    GM_TRY(bytes_tensor(route, "receive", GM_PARCEL_HEAD, &p->head));
    GM_TRY(post_receive(route, p, p->head));
    p->state = GM_PARCEL_HEADED;
    return GM_OK;
}

/* Bytes of the header, from its first message; where nothing came, from what was told. */
static gm_status header_size(const gm_route *route, const gm_parcel *p, const gm_form *told, size_t *size)
{
    uint64_t length;
    char    *bytes;
    if (told) {
        GM_TRY(gm_form_pack(told, &bytes, size));
        free(bytes);
        return GM_OK;
    }
    GM_TRY(gm_device_read(route->rank->device, &length, gm_tensor_data(p->head), sizeof length));
    if (length > (uint64_t)1 << 30) return GM_FAIL(GM_ECOMM, "the header of a message between two stages is damaged");
    *size = (size_t)length;
    return GM_OK;
}

static gm_status read_header(const gm_route *route, gm_parcel *p, size_t size)
{
    gm_device  *dev = route->rank->device;
    size_t      first = in_head(size);
    const char *head = (const char *)gm_tensor_data(p->head) + sizeof(uint64_t);
    char       *bytes = malloc(size + 1);
    if (!bytes) return GM_FAIL(GM_ENOMEM, "no memory for a header of %zu bytes", size);
    gm_status st = gm_device_read(dev, bytes, head, first);
    if (st == GM_OK && p->rest) st = gm_device_read(dev, bytes + first, gm_tensor_data(p->rest), size - first);
    if (st == GM_OK) st = gm_form_unpack(&route->rank->mesh, bytes, size, &p->form);
    free(bytes);
    return st;
}

static gm_status all_done(const gm_route *route, gm_parcel *p, bool wait, bool *done)
{
    *done = true;
    if (wait) return gm_parcel_wait(route, p);
    return gm_parcel_test(route, p, done);
}

gm_status gm_parcel_header_came(const gm_route *route, gm_parcel *p, bool wait, gm_form *told, bool *came)
{
    size_t size;
    GM_TRY(all_done(route, p, wait, came));
    if (!*came) return GM_OK;
    GM_TRY(header_size(route, p, told, &size));
    if (p->state == GM_PARCEL_HEADED && in_head(size) < size) {
        GM_TRY(bytes_tensor(route, "receive", size - in_head(size), &p->rest));
        GM_TRY(post_receive(route, p, p->rest));
        p->state = GM_PARCEL_REST;
        GM_TRY(all_done(route, p, wait, came));
        if (!*came) return GM_OK;
    }
    if (told) gm_form_retain(p->form = told);
    else GM_TRY(read_header(route, p, size));
    gm_tensor_release(p->head);
    gm_tensor_release(p->rest);
    p->head = p->rest = NULL;
    return GM_OK;
}

/* ---- the end ---- */

gm_status gm_parcel_test(const gm_route *route, gm_parcel *p, bool *done)
{
    *done = true;
    for (int i = 0; i < p->n_pending && *done; i++)
        if (p->pending[i]) {
            GM_TRY(gm_comm_test(route->comm, p->pending[i], done));
            if (*done) GM_TRY(gm_comm_finish(route->comm, &p->pending[i]));
        }
    if (*done) p->n_pending = 0;
    return GM_OK;
}

gm_status gm_parcel_wait(const gm_route *route, gm_parcel *p)
{
    for (int i = 0; i < p->n_ids; i++) gm_comm_journal_wait(route->comm, p->ids[i]);
    for (int i = 0; i < p->n_pending; i++) GM_TRY(gm_comm_finish(route->comm, &p->pending[i]));
    for (int i = 0; i < p->n_ids; i++) gm_comm_journal_waited(route->comm, p->ids[i]);
    p->n_pending = p->n_ids = 0;
    return GM_OK;
}

/* The whole block from the slices of g; takes *part and gives another. */
static gm_status joined(const gm_route *route, gm_group *g, const gm_form_value *v, gm_tensor **part)
{
    int64_t    local[GM_MAX_DIMS], numel = 1, stride[GM_MAX_DIMS];
    int64_t    all = (*part)->shape[0] * gm_group_size(g);
    gm_tensor *whole = NULL, *block = NULL;
    gm_layout_local(&route->rank->mesh, &v->layout, v->ndim, v->shape, local);
    for (int d = 0; d < v->ndim; d++) numel *= local[d];
    gm_rank_place(route->rank, "receive");
    GM_TRY(gm_tensor_new(route->rank->device, v->dtype, 1, &all, &whole));
    gm_status st = numel ? gm_comm_all_gather(route->comm, g, *part, 0, whole, NULL) : GM_OK;
    gm_shape_strides(v->ndim, local, stride);
    if (st == GM_OK) st = gm_tensor_view(whole, v->ndim, local, stride, 0, &block);
    gm_tensor_release(whole);
    if (st != GM_OK) return st;
    gm_tensor_release(*part);
    *part = block;
    return GM_OK;
}

gm_status gm_parcel_open(const gm_route *route, gm_parcel *p, gm_value **v)
{
    gm_group *g;
    gm_status st = GM_OK;
    int       n = 0;
    for (int i = 0; i < p->n; i++) {
        const gm_form_value *of = &p->form->v[i];
        GM_TRY_OR(sharers(route, &of->layout, &g), st, fail);
        if (gm_group_size(g) > 1) GM_TRY_OR(joined(route, g, of, &p->part[i]), st, fail);
        gm_tensor *t = p->part[i];
        p->part[i] = NULL;
        GM_TRY_OR(gm_value_take_block(route->rank, t, &of->layout, of->ndim, of->shape, &v[n]), st, fail);
        GM_TRY_OR(gm_value_require_grad(v[n++], of->requires_grad), st, fail);
    }
    p->state = GM_PARCEL_DONE;
    return GM_OK;
fail:
    while (n) {
        gm_value_release(v[--n]);
        v[n] = NULL;
    }
    return st;
}

void gm_parcel_clear(const gm_route *route, gm_parcel *p)
{
    for (int i = 0; i < p->n_pending; i++) gm_comm_drop(route->comm, p->pending[i]);
    for (int i = 0; i < p->n; i++) gm_tensor_release(p->part[i]);
    gm_tensor_release(p->head);
    gm_tensor_release(p->rest);
    gm_form_release(p->form);
    *p = (gm_parcel){.next = p->next};
}
