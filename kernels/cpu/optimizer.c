/* optimizer.c - sum of squares, SGD and Adam over many tensors in one parallel region.
 *
 * The tensors are one long list of elements, cut evenly over threads whatever their sizes. Gradients carry the
 * loss scale and are not yet clipped: g counts as g clip / loss_scale, or as the control tensor says. Contiguous
 * tensors are updated where they lie; others pass through small buffers, element by element. Constants of the step are
 * worked out once, in double. Tensors of 16 bits pass through buffers of f32, too; their moments and masters are f32.
 * References: torch.optim.SGD, Adam (Kingma and Ba 2015) and AdamW (Loshchilov and Hutter 2019). */

#define OPTIMIZER_CHUNK 512 /* elements of a tensor that is not contiguous or of 16 bits, at a time */
#define OPTIMIZER_ROLES 5   /* g, p, m, v, master */

typedef struct optimizer_job {
    int               count, roles; /* tensors; of each: g, then roles - 1 outputs */
    gm_tensor *const *in, *const *out;
    int64_t *start;   /* count + 1: the first element of each tensor in the list of all */
    double  *partial; /* sum_squares: a sum for each thread */
    /* the step's constants */
    double   scale, lr, weight_decay, decay; /* decay: factor of p in AdamW */
    double   momentum, fresh;                /* buffer = momentum buffer + fresh g */
    double   beta1, beta2, root, eps, rate;  /* p -= rate m / (root sqrt(v) + eps) */
    bool     nesterov, buffer;               /* buffer: it holds something already */
    bool     stochastic;                     /* parameters of 16 bits are rounded by chance */
    uint64_t key, step;                      /* of the random words */
    void (*row[2])(const struct optimizer_job *j, int64_t n, void *const *t, int thread); /* f32, f64 */
} optimizer_job;

#define AS 32
#include "as.h"
#include "optimizer_t.h"
#define AS 64
#include "as.h"
#include "optimizer_t.h"
#define AS 0
#include "as.h"

static gm_tensor *tensor_of(const optimizer_job *j, int k, int role)
{
    return role == 0 ? j->in[k] : j->out[k * (j->roles - 1) + role - 1];
}

/* n elements from the first on, in row-major order, between t and a buffer. */
static void move_elements(const gm_tensor *t, int64_t first, int64_t n, char *buffer, bool out)
{
    size_t size = gm_dtype_size(t->dtype);
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = first + i, offset = 0;
        for (int d = t->ndim - 1; d >= 0; d--) {
            offset += rest % t->shape[d] * t->stride[d];
            rest /= t->shape[d];
        }
        char *at = (char *)gm_tensor_data(t) + (size_t)offset * size, *b = buffer + (size_t)i * size;
        memcpy(out ? at : b, out ? b : at, size);
    }
}

/* n elements of 16 bits, from number `first` of their tensor on, rounded from f32 by chance. */
static void round_by_chance(const optimizer_job *j, gm_dtype dtype, int64_t first, int64_t n, const float *from,
                            uint16_t *to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = gm_round_by_chance(dtype, from[i], gm_philox_word(j->key, (uint64_t)(first + i), j->step));
}

/* m elements of t, of 16 bits in room, by the row of f32: the parameter is the master, where there is one. Roles from
 * 2 on are f32 already. */
static void update_narrow(const optimizer_job *j, gm_dtype dtype, int64_t first, int64_t m, void *const *t, int thread)
{
    float    g[OPTIMIZER_CHUNK], p[OPTIMIZER_CHUNK], *master = j->roles > 1 ? t[j->roles - 1] : NULL;
    void    *wide[OPTIMIZER_ROLES] = {g};
    cast_row widen = find_cast(dtype, GM_F32), round = find_cast(GM_F32, dtype);
    widen(m, t[0], g);
    if (j->roles > 1 && !master) widen(m, t[1], p);
    if (j->roles > 1) wide[1] = master ? master : p;
    for (int role = 2; role < j->roles - 1; role++) wide[role] = t[role];
    j->row[0](j, m, wide, thread);
    if (j->roles == 1) return;
    if (j->stochastic) round_by_chance(j, dtype, first, m, p, t[1]);
    else round(m, wide[1], t[1]);
}

/* Elements [first, first + n) of tensor k through buffers where a tensor is not contiguous or of 16 bits. */
static void update_strided(const optimizer_job *j, int k, int64_t first, int64_t n, int thread)
{
    char     room[OPTIMIZER_ROLES][OPTIMIZER_CHUNK * 8] __attribute__((aligned(64)));
    void    *t[OPTIMIZER_ROLES] = {0};
    gm_dtype dtype = j->in[k]->dtype;
    for (int64_t i = 0; i < n; i += OPTIMIZER_CHUNK) {
        int64_t m = n - i < OPTIMIZER_CHUNK ? n - i : OPTIMIZER_CHUNK;
        for (int role = 0; role < j->roles; role++)
            if (tensor_of(j, k, role)) move_elements(tensor_of(j, k, role), first + i, m, t[role] = room[role], false);
        if (gm_dtype_is_narrow(dtype)) update_narrow(j, dtype, first + i, m, t, thread);
        else j->row[dtype == GM_F64](j, m, t, thread);
        for (int role = 1; role < j->roles; role++)
            if (t[role]) move_elements(tensor_of(j, k, role), first + i, m, room[role], true);
    }
}

/* The same without moving anything but the numbers of 16 bits: every tensor is contiguous. */
static void update_dense_narrow(const optimizer_job *j, int k, int64_t first, int64_t n, void *const *t, int thread)
{
    for (int64_t i = 0; i < n; i += OPTIMIZER_CHUNK) {
        void *at[OPTIMIZER_ROLES] = {0};
        for (int role = 0; role < j->roles; role++)
            if (t[role]) at[role] = (char *)t[role] + i * (role < 2 ? 2 : 4);
        update_narrow(j, j->in[k]->dtype, first + i, n - i < OPTIMIZER_CHUNK ? n - i : OPTIMIZER_CHUNK, at, thread);
    }
}

static void update_span(const optimizer_job *j, int k, int64_t first, int64_t n, int thread)
{
    void *t[OPTIMIZER_ROLES] = {0};
    for (int role = 0; role < j->roles; role++) {
        gm_tensor *x = tensor_of(j, k, role);
        if (!x) continue;
        if (!gm_tensor_is_contiguous(x)) {
            update_strided(j, k, first, n, thread);
            return;
        }
        t[role] = (char *)gm_tensor_data(x) + (size_t)first * gm_dtype_size(x->dtype);
    }
    if (gm_dtype_is_narrow(j->in[k]->dtype)) update_dense_narrow(j, k, first, n, t, thread);
    else j->row[j->in[k]->dtype == GM_F64](j, n, t, thread);
}

/* Elements [begin, end) of the list. */
static void update_part(void *context, int64_t begin, int64_t end, int thread)
{
    const optimizer_job *j = context;
    int                  low = 0, high = j->count - 1;
    while (low < high) { /* the last tensor that starts at or before begin */
        int mid = (low + high + 1) / 2;
        if (j->start[mid] <= begin) low = mid;
        else high = mid - 1;
    }
    for (int k = low; k < j->count && begin < end; k++) {
        int64_t stop = j->start[k + 1] < end ? j->start[k + 1] : end;
        if (stop > begin) update_span(j, k, begin - j->start[k], stop - begin, thread);
        begin = stop;
    }
}

/* first: the first input that is a gradient. */
static gm_status update_all(gm_device *dev, const gm_call *call, int first, optimizer_job *j)
{
    gm_block *block;
    size_t    starts = (size_t)call->n_in + 1, threads = (size_t)gm_threads_count(dev->threads);
    GM_TRY(cpu_scratch(dev, (starts + threads) * 8, &j->start, &block));
    j->partial = (double *)(j->start + starts);
    memset(j->partial, 0, threads * sizeof(double));
    j->stochastic = call->attrs->stochastic;
    j->key = call->attrs->stream.key;
    j->count = call->n_in - first;
    j->in = call->in + first;
    j->out = call->out;
    j->start[0] = 0;
    for (int k = 0; k < j->count; k++) j->start[k + 1] = j->start[k] + gm_tensor_numel(j->in[k]);
    cpu_parallel(dev, j->start[j->count], 8 * (j->roles > 1 ? j->roles - 1 : 1), update_part, j);
    if (call->op == GM_OP_sum_squares) {
        double sum = 0;
        for (size_t k = 0; k < threads; k++) sum += j->partial[k];
        *(double *)gm_tensor_data(call->out[0]) = sum;
    }
    gm_pool_release(dev->pool, block);
    return GM_OK;
}

static gm_status cpu_sum_squares(gm_device *dev, const gm_call *call)
{
    optimizer_job j = {.roles = 1, .row = {sum_squares_span_f32, sum_squares_span_f64}};
    return update_all(dev, call, 0, &j);
}

/* A small f64 tensor of one dimension at most, element i. */
static double *control_at(const gm_tensor *t, int64_t i)
{
    return (double *)gm_tensor_data(t) + (t->ndim ? i * t->stride[0] : 0);
}

static gm_status cpu_step_control(gm_device *dev, const gm_call *call)
{
    const gm_attrs *at = call->attrs;
    gm_control_rule rule = {at->max_norm, at->growth, at->backoff, (double)at->growth_interval, (int)at->not_finite};
    double          c[GM_CONTROL_SIZE], total = 0;
    (void)dev;
    for (int k = 2; k < call->n_in; k++) {
        double sum = 0;
        for (int64_t i = 0, n = gm_tensor_numel(call->in[k]); i < n; i++) sum += *control_at(call->in[k], i);
        total += sum;
    }
    for (int i = 0; i < GM_CONTROL_SIZE; i++) c[i] = *control_at(call->out[0], i);
    gm_control_apply(c, &rule, *control_at(call->in[0], 0), *control_at(call->in[0], 1),
                     call->in[1] ? *control_at(call->in[1], 0) : sqrt(total), 0);
    for (int i = 0; i < GM_CONTROL_SIZE; i++) *control_at(call->out[0], i) = c[i];
    return GM_OK;
}

/* What the step is, by the control tensor where there is one, and the updates missed. */
static gm_control_step control_of(const gm_device *dev, const gm_call *call)
{
    const gm_step_block *b = &dev->step;
    const gm_tensor     *c = call->in[0], *missed = call->in[1];
    return gm_control_of_step(c ? gm_tensor_data(c) : NULL, c ? c->stride[0] : 0,
                              missed ? gm_tensor_data(missed) : NULL, (double)b->step, b->clip, b->loss_scale);
}

/* What the updates of optimizer_t.h read, worked out once, in double. As torch.optim.SGD: at step 1 the buffer becomes
 * the gradient, without dampening. */
static gm_status cpu_update(gm_device *dev, const gm_call *call, optimizer_job *j)
{
    const gm_attrs      *at = call->attrs;
    const gm_step_block *step = &dev->step;
    gm_control_step      control = control_of(dev, call);
    double               lr = step->lr * at->lr_scale;
    bool                 first = control.t == 1;
    if (!control.go) return GM_OK;
    j->roles = 1 + gm_op_gives(call->op)->n;
    j->scale = control.factor;
    j->step = (uint64_t)control.t;
    j->lr = lr;
    j->weight_decay = at->decoupled ? 0 : at->weight_decay;
    j->decay = at->decoupled ? 1 - lr * at->weight_decay : 1;
    j->momentum = step->has_momentum ? step->momentum : at->momentum;
    j->fresh = first ? 1 : 1 - at->dampening;
    j->nesterov = at->nesterov;
    j->buffer = !first;
    j->beta1 = step->has_momentum ? step->momentum : at->beta1;
    j->beta2 = at->beta2;
    j->rate = lr / (1 - pow(j->beta1, control.t));
    j->root = 1 / sqrt(1 - pow(at->beta2, control.t));
    j->eps = at->eps;
    return update_all(dev, call, 2, j);
}

#define GM_OPTIMIZER(name, ...)                                        \
    static gm_status cpu_##name(gm_device *dev, const gm_call *call)   \
    {                                                                  \
        optimizer_job j = {.row = {name##_span_f32, name##_span_f64}}; \
        return cpu_update(dev, call, &j);                              \
    }
#include "../optimizers.def"
#undef GM_OPTIMIZER
