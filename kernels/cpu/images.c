/* images.c - tensors (n, c, ...) as images: the elements behind a channel one after the other. What kernels of batch
 * norm and of pooling share. */

/* Image i of channel c is at data + (i * n_step + c * c_step) elements. */
typedef struct cpu_images {
    char   *data; /* NULL: the tensor is not given */
    int64_t n, c, inner, n_step, c_step, size;
} cpu_images;

static bool images_are_dense(const gm_tensor *t)
{
    int64_t inner = 1;
    for (int d = t->ndim - 1; d >= (t->ndim == 1 ? 0 : 2); d--) {
        if (t->shape[d] != 1 && t->stride[d] != inner) return false;
        inner *= t->shape[d];
    }
    return true;
}

/* Runs kernel on the call with every tensor as cpu_images needs it, and those of one dimension without gaps. GM_ENOMEM
 * before anything is written. */
static gm_status cpu_with_images(gm_device *dev, const gm_call *call, gm_kernel kernel)
{
    gm_tensor *dense[CPU_TENSORS] = {0};
    gm_call    c = *call;
    gm_status  st = GM_OK;
    c.in = dense;
    c.out = dense + c.n_in;
    for (int i = 0; i < c.n_in + c.n_out && st == GM_OK; i++) {
        gm_tensor *t = i < c.n_in ? call->in[i] : call->out[i - c.n_in];
        if (!t) continue;
        if (images_are_dense(t)) gm_tensor_retain(dense[i] = t);
        else st = gm_tensor_new(dev, t->dtype, t->ndim, t->shape, &dense[i]);
        if (st == GM_OK && dense[i] != t && (i < c.n_in || call->attrs->accumulate)) st = copy_tensor(dev, dense[i], t);
    }
    if (st == GM_OK) st = kernel(dev, &c);
    for (int i = 0; i < c.n_out && st == GM_OK; i++)
        if (c.out[i] != call->out[i]) st = copy_tensor(dev, call->out[i], c.out[i]);
    for (int i = 0; i < c.n_in + c.n_out; i++) gm_tensor_release(dense[i]);
    return st;
}

static cpu_images cpu_images_of(const gm_tensor *t)
{
    if (!t) return (cpu_images){0};
    cpu_images m = {.data = gm_tensor_data(t), .n = t->shape[0], .c = t->shape[1], .inner = 1};
    m.n_step = t->stride[0];
    m.c_step = t->stride[1];
    m.size = (int64_t)gm_dtype_size(t->dtype);
    for (int d = 2; d < t->ndim; d++) m.inner *= t->shape[d];
    return m;
}

static inline void *cpu_image_at(const cpu_images *m, int64_t i, int64_t c)
{
    return m->data + (i * m->n_step + c * m->c_step) * m->size;
}
