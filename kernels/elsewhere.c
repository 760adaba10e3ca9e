/* elsewhere.c - access to bytes that lie in another memory (device.h): the host reads elements of a device, and
 * gm_run_elsewhere runs a call on another device than that of its tensors. The latter copies whole storages. So views
 * keep their strides, gaps and alignment, and bytes that a kernel writes outside of its outputs come back, too, where a
 * spec sees them. */
#include <stdlib.h>
#include "device.h"
#include "graph_host.h"

size_t gm_host_reach(const gm_tensor *t)
{
    int64_t last = 0;
    if (!gm_tensor_numel(t)) return 0;
    for (int d = 0; d < t->ndim; d++) last += (t->shape[d] - 1) * t->stride[d];
    return (size_t)(last + 1) * gm_dtype_size(t->dtype);
}

static bool is_on_host(const gm_tensor *t) { return t->storage->device->backend->on_host; }

gm_status gm_host_open(const gm_tensor *t, gm_host_elements *out)
{
    size_t    bytes = gm_host_reach(t);
    gm_status st;
    *out = (gm_host_elements){0};
    GM_TRY(gm_host_is_free(t->storage->device, "to read or write numbers"));
    GM_TRY(gm_storage_open(t->storage));
    *out = (gm_host_elements){.data = gm_tensor_data(t), .tensor = t};
    if (!out->data) out->data = gm_tensor_known(t);
    if (is_on_host(t) || !gm_tensor_data(t)) return GM_OK;
    out->data = out->copy = malloc(bytes + 1);
    if (out->data) st = gm_device_read(t->storage->device, out->data, gm_tensor_data(t), bytes);
    else st = GM_FAIL(GM_ENOMEM, "no memory for a copy of %zu bytes", bytes);
    if (st != GM_OK) gm_host_close(out);
    return st;
}

gm_status gm_host_changed(gm_host_elements *e)
{
    e->changed = true;
    if (!e->copy) return GM_OK;
    return gm_device_write(e->tensor->storage->device, gm_tensor_data(e->tensor), e->copy, gm_host_reach(e->tensor));
}

void gm_host_close(gm_host_elements *e)
{
    free(e->copy);
    if (e->tensor) gm_storage_close(e->tensor->storage, e->changed);
    *e = (gm_host_elements){0};
}

static gm_status load_one(const gm_tensor *t, int64_t at, double *out)
{
    char        one[8] __attribute__((aligned(8)));
    size_t      size = gm_dtype_size(t->dtype);
    const char *data = gm_tensor_data(t), *known = gm_tensor_known(t);
    if (is_on_host(t) || known) {
        *out = gm_load(t->dtype, known ? known : data, at);
        return GM_OK;
    }
    GM_TRY(gm_device_read(t->storage->device, one, data + (size_t)at * size, size));
    *out = gm_load(t->dtype, one, 0);
    return GM_OK;
}

static gm_status store_one(const gm_tensor *t, int64_t at, double v)
{
    char   one[8] __attribute__((aligned(8)));
    size_t size = gm_dtype_size(t->dtype);
    char  *data = gm_tensor_data(t), *known = gm_tensor_known(t);
    if (is_on_host(t) || known) {
        gm_store(t->dtype, known ? known : data, at, v);
        return GM_OK;
    }
    gm_store(t->dtype, one, 0, v);
    return gm_device_write(t->storage->device, data + (size_t)at * size, one, size);
}

gm_status gm_host_load(const gm_tensor *t, int64_t at, double *out)
{
    GM_TRY(gm_host_is_free(t->storage->device, "to read or write a number"));
    GM_TRY(gm_storage_open(t->storage));
    gm_status st = load_one(t, at, out);
    gm_storage_close(t->storage, false);
    return st;
}

gm_status gm_host_store(const gm_tensor *t, int64_t at, double v)
{
    GM_TRY(gm_host_is_free(t->storage->device, "to read or write a number"));
    GM_TRY(gm_storage_open(t->storage));
    gm_status st = store_one(t, at, v);
    gm_storage_close(t->storage, true);
    return st;
}

/* ---- a call on another device ---- */

typedef struct twin {
    gm_storage *from;
    gm_storage  to;
} twin;

typedef struct trip {
    gm_device  *there;
    twin       *twins;   /* the storages of the call, each once */
    gm_tensor  *tensors; /* the views, in the order of inputs and outputs */
    gm_tensor **list;
    int         n_twins, n;
} trip;

static gm_status copy_storage(trip *t, gm_storage *from, gm_storage **out)
{
    gm_status st;
    void     *bytes;
    for (int i = 0; i < t->n_twins; i++)
        if (t->twins[i].from == from) {
            *out = &t->twins[i].to;
            return GM_OK;
        }
    twin *w = &t->twins[t->n_twins];
    *w = (twin){from, {.refs = 1, .bytes = from->bytes, .device = t->there}};
    GM_TRY(gm_pool_alloc(t->there->pool, from->bytes, &w->to.data, &w->to.block));
    t->n_twins++;
    *out = &w->to;
    bytes = malloc(from->bytes + 1);
    if (!bytes) return GM_FAIL(GM_ENOMEM, "no memory for a copy of %zu bytes", from->bytes);
    GM_TRY_OR(gm_device_read(from->device, bytes, from->data, from->bytes), st, done);
    st = gm_device_write(t->there, w->to.data, bytes, from->bytes);
done:
    free(bytes);
    return st;
}

static gm_status come_back(const twin *w)
{
    gm_status st;
    void     *bytes = malloc(w->to.bytes + 1);
    if (!bytes) return GM_FAIL(GM_ENOMEM, "no memory for a copy of %zu bytes", w->to.bytes);
    GM_TRY_OR(gm_device_read(w->to.device, bytes, w->to.data, w->to.bytes), st, done);
    st = gm_device_write(w->from->device, w->from->data, bytes, w->to.bytes);
done:
    free(bytes);
    return st;
}

static gm_status add(trip *t, gm_tensor *from)
{
    int i = t->n++;
    t->list[i] = NULL;
    if (!from) return GM_OK;
    t->tensors[i] = *from;
    t->list[i] = &t->tensors[i];
    return copy_storage(t, from->storage, &t->tensors[i].storage);
}

static gm_status travel(trip *t, const gm_call *call)
{
    for (int i = 0; i < call->n_in; i++) GM_TRY(add(t, call->in[i]));
    for (int i = 0; i < call->n_out; i++) GM_TRY(add(t, call->out[i]));
    gm_call moved = *call;
    moved.in = t->list;
    moved.out = t->list + call->n_in;
    GM_TRY(gm_run(t->there, &moved));
    for (int i = 0; i < call->n_out; i++)
        for (int k = 0; moved.out[i] && k < t->n_twins; k++)
            if (&t->twins[k].to == moved.out[i]->storage) GM_TRY(come_back(&t->twins[k]));
    return GM_OK;
}

gm_status gm_run_elsewhere(gm_device *dev, gm_device *there, const gm_call *call)
{
    size_t    n = (size_t)(call->n_in + call->n_out) + 1;
    trip      t = {.there = there,
                   .twins = calloc(n, sizeof(twin)),
                   .tensors = calloc(n, sizeof(gm_tensor)),
                   .list = calloc(n, sizeof(gm_tensor *))};
    bool      fits = t.twins && t.tensors && t.list;
    gm_status st = fits ? GM_OK : GM_FAIL(GM_ENOMEM, "no memory for a call on another device");
    there->step = dev->step;
    if (fits) st = travel(&t, call);
    for (int i = 0; i < t.n_twins; i++) gm_pool_release(there->pool, t.twins[i].to.block);
    free(t.twins);
    free(t.tensors);
    free(t.list);
    return st;
}
