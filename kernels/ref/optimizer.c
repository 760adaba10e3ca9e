/* optimizer.c - updates of many parameters in one call. Gradients carry the loss scale and are not yet
 * clipped: g counts as g clip / loss_scale, or as the control tensor says. Learning rate and step number are the
 * device's. Where a parameter of 16 bits has a master, that is the parameter, and p a copy of it. */
#include "../philox.h"
#include "../step_control.h"
#include "loops.h"

gm_status gm_ref_sum_squares(gm_device *dev, const gm_call *call)
{
    (void)dev;
    double sum = 0;
    for (int k = 0; k < call->n_in; k++)
        for (int64_t i = 0, n = gm_tensor_numel(call->in[k]); i < n; i++)
            sum += ref_get(call->in[k], i) * ref_get(call->in[k], i);
    ref_set(call->out[0], 0, sum);
    return GM_OK;
}

/* A small f64 tensor of one dimension, and back. */
static void load_all(const gm_tensor *t, double *to)
{
    for (int64_t i = 0, n = gm_tensor_numel(t); i < n; i++) to[i] = ref_get(t, i);
}

gm_status gm_ref_step_control(gm_device *dev, const gm_call *call)
{
    const gm_attrs *at = call->attrs;
    gm_control_rule rule = {at->max_norm, at->growth, at->backoff, (double)at->growth_interval, (int)at->not_finite};
    double          c[GM_CONTROL_SIZE], total = 0;
    (void)dev;
    for (int k = 2; k < call->n_in; k++) {
        double sum = 0;
        for (int64_t i = 0, n = gm_tensor_numel(call->in[k]); i < n; i++) sum += ref_get(call->in[k], i);
        total += sum;
    }
    load_all(call->out[0], c);
    gm_control_apply(c, &rule, ref_get(call->in[0], 0), ref_get(call->in[0], 1),
                     call->in[1] ? ref_get(call->in[1], 0) : sqrt(total), 0);
    for (int i = 0; i < GM_CONTROL_SIZE; i++) ref_set(call->out[0], i, c[i]);
    return GM_OK;
}

/* The step's numbers, and those that differ from call to call. */
typedef struct update {
    gm_control_step control;
    double          lr, momentum; /* momentum: SGD's, or Adam's beta1 */
} update;

static update update_of(const gm_device *dev, const gm_call *call, double momentum)
{
    const gm_step_block *b = &dev->step;
    const gm_tensor     *c = call->in[0], *missed = call->in[1];
    return (update){gm_control_of_step(c ? gm_tensor_data(c) : NULL, c ? c->stride[0] : 0,
                                       missed ? gm_tensor_data(missed) : NULL, (double)b->step, b->clip, b->loss_scale),
                    b->lr * call->attrs->lr_scale, b->has_momentum ? b->momentum : momentum};
}

/* What the step works on, element i. */
static double held(const gm_tensor *p, const gm_tensor *master, int64_t i) { return ref_get(master ? master : p, i); }

static void hold(const update *u, const gm_attrs *at, const gm_tensor *p, const gm_tensor *master, int64_t i, double v)
{
    if (master) ref_set(master, i, v);
    if (master) v = ref_get(master, i);
    if (!at->stochastic) {
        ref_set(p, i, v);
        return;
    }
    uint32_t word = gm_philox_word(at->stream.key, (uint64_t)i, (uint64_t)u->control.t);
    uint16_t bits = gm_round_by_chance(p->dtype, (float)v, word);
    memcpy((uint16_t *)gm_tensor_data(p) + ref_offset(p, i), &bits, 2);
}

/* As torch.optim.SGD: at step 1 the buffer becomes the gradient, without dampening. */
static void sgd_element(const update *u, const gm_attrs *at, const gm_tensor *tg, gm_tensor *const *out, int64_t i)
{
    const gm_tensor *buffer = out[1];
    double           p = held(out[0], out[2], i);
    double           g = ref_get(tg, i) * u->control.factor + at->weight_decay * p;
    if (buffer) {
        double b = u->control.t == 1 ? g : u->momentum * ref_get(buffer, i) + (1 - at->dampening) * g;
        ref_set(buffer, i, b);
        g = at->nesterov ? g + u->momentum * b : b;
    }
    hold(u, at, out[0], out[2], i, p - u->lr * g);
}

/* Kingma and Ba 2015; decoupled: Loshchilov and Hutter 2019 (AdamW). As torch.optim.Adam and AdamW. */
static void adam_element(const update *u, const gm_attrs *at, const gm_tensor *tg, gm_tensor *const *out, int64_t i)
{
    double t = u->control.t, beta1 = u->momentum, p = held(out[0], out[3], i);
    double g = ref_get(tg, i) * u->control.factor;
    if (at->decoupled) p *= 1 - u->lr * at->weight_decay;
    else g += at->weight_decay * p;
    double m = beta1 * ref_get(out[1], i) + (1 - beta1) * g;
    double v = at->beta2 * ref_get(out[2], i) + (1 - at->beta2) * g * g;
    double m_hat = m / (1 - pow(beta1, t)), v_hat = v / (1 - pow(at->beta2, t));
    hold(u, at, out[0], out[3], i, p - u->lr * m_hat / (sqrt(v_hat) + at->eps));
    ref_set(out[1], i, m);
    ref_set(out[2], i, v);
}

typedef void (*element)(const update *u, const gm_attrs *at, const gm_tensor *tg, gm_tensor *const *out, int64_t i);

static gm_status update_all(gm_device *dev, const gm_call *call, double momentum, element step)
{
    update u = update_of(dev, call, momentum);
    int    width = gm_op_gives(call->op)->n;
    for (int k = 2; k < call->n_in && u.control.go; k++)
        for (int64_t i = 0, n = gm_tensor_numel(call->in[k]); i < n; i++)
            step(&u, call->attrs, call->in[k], call->out + width * (k - 2), i);
    return GM_OK;
}

#define GM_OPTIMIZER(name, moments, momentum, ...)                           \
    gm_status gm_ref_##name(gm_device *dev, const gm_call *call)             \
    {                                                                        \
        return update_all(dev, call, call->attrs->momentum, name##_element); \
    }
#include "../optimizers.def"
#undef GM_OPTIMIZER
