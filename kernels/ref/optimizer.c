/* optimizer.c - updates of many parameters in one call. Gradients carry the loss scale and are not yet
 * clipped: g counts as g clip / loss_scale. Learning rate and step number are the device's. Where a parameter of
 * 16 bits has a master, that is the parameter, and p a copy of it. */
#include "../philox.h"
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

/* What the step works on, element i. */
static double held(const gm_tensor *p, const gm_tensor *master, int64_t i) { return ref_get(master ? master : p, i); }

static void hold(const gm_device *dev, const gm_attrs *at, const gm_tensor *p, const gm_tensor *master, int64_t i,
                 double v)
{
    if (master) ref_set(master, i, v);
    if (master) v = ref_get(master, i);
    if (!at->stochastic) {
        ref_set(p, i, v);
        return;
    }
    uint32_t word = gm_philox_word(at->stream.key, (uint64_t)i, (uint64_t)dev->step.step);
    uint16_t bits = gm_round_by_chance(p->dtype, (float)v, word);
    memcpy((uint16_t *)gm_tensor_data(p) + ref_offset(p, i), &bits, 2);
}

/* As torch.optim.SGD: at step 1 the buffer becomes the gradient, without dampening. */
static void sgd_element(const gm_device *dev, const gm_attrs *at, const gm_tensor *tg, gm_tensor *const *out, int64_t i)
{
    const gm_step_block *step = &dev->step;
    const gm_tensor     *buffer = out[1];
    double               p = held(out[0], out[2], i);
    double               g = ref_get(tg, i) * step->clip / step->loss_scale + at->weight_decay * p;
    if (buffer) {
        double b = step->step == 1 ? g : at->momentum * ref_get(buffer, i) + (1 - at->dampening) * g;
        ref_set(buffer, i, b);
        g = at->nesterov ? g + at->momentum * b : b;
    }
    hold(dev, at, out[0], out[2], i, p - step->lr * g);
}

gm_status gm_ref_sgd(gm_device *dev, const gm_call *call)
{
    for (int k = 0; k < call->n_in; k++)
        for (int64_t i = 0, n = gm_tensor_numel(call->in[k]); i < n; i++)
            sgd_element(dev, call->attrs, call->in[k], call->out + 3 * k, i);
    return GM_OK;
}

/* Kingma and Ba 2015; decoupled: Loshchilov and Hutter 2019 (AdamW). As torch.optim.Adam and AdamW. */
static void adam_element(const gm_device *dev, const gm_attrs *at, const gm_tensor *tg, gm_tensor *const *out,
                         int64_t i)
{
    const gm_step_block *step = &dev->step;
    double               t = (double)step->step, p = held(out[0], out[3], i);
    double               g = ref_get(tg, i) * step->clip / step->loss_scale;
    if (at->decoupled) p *= 1 - step->lr * at->weight_decay;
    else g += at->weight_decay * p;
    double m = at->beta1 * ref_get(out[1], i) + (1 - at->beta1) * g;
    double v = at->beta2 * ref_get(out[2], i) + (1 - at->beta2) * g * g;
    double m_hat = m / (1 - pow(at->beta1, t)), v_hat = v / (1 - pow(at->beta2, t));
    hold(dev, at, out[0], out[3], i, p - step->lr * m_hat / (sqrt(v_hat) + at->eps));
    ref_set(out[1], i, m);
    ref_set(out[2], i, v);
}

gm_status gm_ref_adam(gm_device *dev, const gm_call *call)
{
    for (int k = 0; k < call->n_in; k++)
        for (int64_t i = 0, n = gm_tensor_numel(call->in[k]); i < n; i++)
            adam_element(dev, call->attrs, call->in[k], call->out + 4 * k, i);
    return GM_OK;
}
