/* optimizer.c - updates of many parameters in one call. Gradients carry the loss scale and are not yet
 * clipped: g counts as g clip / loss_scale, or as the control tensor says. Learning rate and step number are the
 * device's. Where a parameter of 16 bits has a master, that is the parameter, and p a copy of it. optimizers.def has
 * the parts of an update. */
#include "../sample.h"
#include "../states.h"
#include "../step_control.h"
#include "../trust.h"
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
    gm_control_apply(c, &rule, ref_get(call->in[0], 0), ref_get(call->in[0], 1), ref_get(call->in[0], 2),
                     call->in[1] ? ref_get(call->in[1], 0) : sqrt(total), 0);
    for (int i = 0; i < GM_CONTROL_SIZE; i++) ref_set(call->out[0], i, c[i]);
    return GM_OK;
}

#define MOMENTS 3 /* of a parameter, at most */

/* The step's numbers, and those that differ from call to call. */
typedef struct update {
    gm_control_step control;
    double          lr, momentum;     /* momentum: the attribute that schedulers may write over */
    double          scale, l2, decay; /* g = scale g + l2 w; w is multiplied by decay */
    double          outside;          /* LAMB: u += outside w */
    gm_trust_rule   trust;
} update;

static update update_of(const gm_device *dev, const gm_call *call, double momentum)
{
    const gm_step_block *b = &dev->step;
    const gm_attrs      *at = call->attrs;
    const gm_tensor     *c = call->in[0], *missed = call->in[1];
    gm_control_step      control = gm_control_of_step(c ? gm_tensor_data(c) : NULL, c ? c->stride[0] : 0,
                                                 missed ? gm_tensor_data(missed) : NULL, (double)b->step, b->clip,
                                                 b->loss_scale);
    double lr = b->lr * at->lr_scale / (1 + (control.t - 1) * at->lr_decay);
    bool   outside = at->decoupled && at->trust == GM_TRUST_LAMB;
    return (update){control,
                    lr,
                    b->has_momentum ? b->momentum : momentum,
                    at->maximize ? -control.factor : control.factor,
                    at->decoupled ? 0 : at->weight_decay,
                    at->decoupled && !outside ? 1 - lr * at->weight_decay : 1,
                    outside ? at->weight_decay : 0,
                    {at->trust, at->trust_coefficient, at->eps, at->weight_decay, at->trust_min, at->trust_max}};
}

/* ---- directions: from the gradient and the moments m, which they advance ---- */

/* As torch.optim.SGD: at step 1 the buffer becomes the gradient, without dampening. */
static double sgd_direction(const update *u, const gm_attrs *at, double g, double *m)
{
    if (at->momentum == 0) return g;
    m[0] = u->control.t == 1 ? g : u->momentum * m[0] + (1 - at->dampening) * g;
    return at->nesterov ? g + u->momentum * m[0] : m[0];
}

/* Kingma and Ba 2015; amsgrad: Reddi, Kale and Kumar 2018. As torch.optim.Adam. */
static double adam_direction(const update *u, const gm_attrs *at, double g, double *m)
{
    double t = u->control.t, beta1 = u->momentum;
    m[0] = beta1 * m[0] + (1 - beta1) * g;
    m[1] = at->beta2 * m[1] + (1 - at->beta2) * g * g;
    if (at->amsgrad && !(m[2] >= m[1])) m[2] = m[1];
    double first = m[0], second = at->amsgrad ? m[2] : m[1];
    double corrected = at->bias_correction ? 1 - pow(at->beta2, t) : 1;
    if (at->bias_correction) first /= 1 - pow(beta1, t);
    return first / (sqrt(second / corrected) + (at->early_eps ? at->eps / sqrt(corrected) : at->eps));
}

/* Chen et al. 2023, arXiv:2302.06675 */
static double lion_direction(const update *u, const gm_attrs *at, double g, double *m)
{
    double c = u->momentum * m[0] + (1 - u->momentum) * g;
    m[0] = at->beta2 * m[0] + (1 - at->beta2) * g;
    return c > 0 ? 1 : c < 0 ? -1 : c;
}

/* Tieleman and Hinton 2012; centered: Graves 2013, arXiv:1308.0850. As torch.optim.RMSprop, but that a variance which
 * rounding has made negative is 0. */
static double rmsprop_direction(const update *u, const gm_attrs *at, double g, double *m)
{
    double v = m[0] = at->beta2 * m[0] + (1 - at->beta2) * g * g;
    if (at->centered) {
        m[2] = at->beta2 * m[2] + (1 - at->beta2) * g;
        v -= m[2] * m[2];
        if (v < 0) v = 0;
    }
    double direction = g / (sqrt(v) + at->eps);
    if (at->momentum != 0) direction = m[1] = u->momentum * m[1] + direction;
    return direction;
}

/* Duchi, Hazan and Singer 2011. As torch.optim.Adagrad. */
static double adagrad_direction(const update *u, const gm_attrs *at, double g, double *m)
{
    (void)u;
    m[0] += g * g;
    return g / (sqrt(m[0]) + at->eps);
}

typedef double direction(const update *u, const gm_attrs *at, double g, double *m);

/* ---- application ---- */

/* What the step works on, element i. */
static double held(const gm_tensor *p, const gm_tensor *master, int64_t i) { return ref_get(master ? master : p, i); }

/* The random word of element i of a tensor: that of its index in the global one. */
static uint32_t word_of(const update *u, const gm_attrs *at, uint64_t key, const gm_tensor *t, int64_t i)
{
    int64_t coordinate[GM_MAX_DIMS], rest = i;
    for (int d = t->ndim - 1; d >= 0; d--) {
        coordinate[d] = rest % t->shape[d];
        rest /= t->shape[d];
    }
    return gm_philox_word(key, gm_box_index(&at->box, t->ndim, t->shape, coordinate), (uint64_t)u->control.t);
}

static void hold(const update *u, const gm_attrs *at, const gm_tensor *p, const gm_tensor *master, int64_t i, double v)
{
    if (master) ref_set(master, i, v);
    if (master) v = ref_get(master, i);
    if (!at->stochastic) {
        ref_set(p, i, v);
        return;
    }
    uint32_t word = word_of(u, at, at->stream.key, p, i);
    uint16_t bits = gm_round_by_chance(p->dtype, (float)v, word);
    memcpy((uint16_t *)gm_tensor_data(p) + ref_offset(p, i), &bits, 2);
}

/* The tensors of a parameter: out[0] is p, moments follow, then master and trust. */
typedef struct parameter {
    const gm_tensor  *g;
    gm_tensor *const *out;
    int               moments;
    unsigned          squares; /* bit k: moment k is never below 0 */
    double           *room;    /* the moments one behind the other, where they are kept in blocks */
} parameter;

static const gm_tensor *master_of(const parameter *x) { return x->out[x->moments + 1]; }

/* Element i before the update: its gradient, weight and moments. */
static double load_element(const update *u, const parameter *x, int64_t i, double *w, double *m)
{
    *w = held(x->out[0], master_of(x), i);
    for (int k = 0; k < x->moments; k++) {
        m[k] = 0;
        if (x->out[1 + k]) m[k] = x->room ? x->room[k * gm_tensor_numel(x->g) + i] : ref_get(x->out[1 + k], i);
    }
    return ref_get(x->g, i) * u->scale;
}

/* Moment k of element i after the update. */
static void store_moment(const update *u, const gm_attrs *at, const parameter *x, int k, int64_t i, double v)
{
    const gm_tensor *t = x->out[1 + k];
    if (x->room) {
        x->room[k * gm_tensor_numel(x->g) + i] = v;
    } else if (at->states == GM_STATES_BF16) {
        uint32_t word = word_of(u, at, gm_state_key(at->stream.key), t, i);
        uint16_t bits = gm_round_by_chance(GM_BF16, (float)v, gm_state_word(word, k));
        memcpy((uint16_t *)gm_tensor_data(t) + ref_offset(t, i), &bits, 2);
    } else {
        ref_set(t, i, v);
    }
}

/* ---- moments in blocks: all of a tensor are decoded before the update, and encoded after it ---- */

static void decode_block(const uint8_t *code, float scale, const float *values, int n, double *to)
{
    for (int i = 0; i < n; i++) to[i] = values[code[i]] * scale;
}

static void encode_block(const double *from, int n, bool squares, uint8_t *code, float *scale)
{
    float    largest = (float)from[0], least = largest;
    uint32_t bits = 0;
    for (int i = 0; i < n; i++) {
        float v = (float)from[i], size = fabsf(v);
        if (v > largest) largest = v;
        if (v < least) least = v;
        uint32_t u;
        memcpy(&u, &size, 4);
        if (u > bits) bits = u;
    }
    *scale = gm_state_scale(largest, least, bits);
    for (int i = 0; i < n; i++) {
        float ratio = *scale != 0 && *scale == *scale ? (float)from[i] / *scale : 0;
        if (squares) code[i] = gm_code_unsigned(ratio, gm_code_nearest(gm_codes_unsigned, 255, ratio));
        else code[i] = gm_code_signed(ratio, gm_code_nearest(gm_codes_signed, ratio < 0 ? 127 : 128, fabsf(ratio)));
    }
}

static void code_moments(const parameter *x, bool encode)
{
    gm_state_rows rows = gm_state_rows_of(x->g->ndim, x->g->shape);
    for (int k = 0; k < x->moments; k++) {
        uint8_t *code = x->out[1 + k] ? gm_tensor_data(x->out[1 + k]) : NULL;
        bool     squares = x->squares >> k & 1;
        for (int64_t b = 0; code && b < rows.blocks; b++) {
            int64_t first = gm_state_first(rows, b);
            float  *scale = (float *)(code + gm_state_scales_at(rows.n)) + b;
            double *room = x->room + k * rows.n + first;
            int     n = gm_state_length(rows, b);
            if (encode) encode_block(room, n, squares, code + first, scale);
            else decode_block(code + first, *scale, squares ? gm_codes_unsigned : gm_codes_signed, n, room);
        }
    }
}

static void measure(const update *u, const gm_attrs *at, const parameter *x, direction *take)
{
    double w, m[MOMENTS], squares[2] = {0, 0};
    for (int64_t i = 0, n = gm_tensor_numel(x->g); i < n; i++) {
        double g = load_element(u, x, i, &w, m), other = g;
        if (at->trust == GM_TRUST_LAMB) other = take(u, at, g + u->l2 * w, m) + u->outside * w;
        squares[0] += w * w;
        squares[1] += other * other;
    }
    for (int k = 0; k < 2; k++) ref_set(x->out[x->moments + 2], k, squares[k]);
}

static void apply(const update *u, const gm_attrs *at, const parameter *x, direction *take)
{
    const gm_tensor *trust = x->out[x->moments + 2];
    double           w, m[MOMENTS], ratio = trust ? gm_trust_ratio(&u->trust, ref_get(trust, 0), ref_get(trust, 1)) : 1;
    double           before = at->trust == GM_TRUST_LARS ? ratio : 1, after = at->trust == GM_TRUST_LAMB ? ratio : 1;
    for (int64_t i = 0, n = gm_tensor_numel(x->g); i < n; i++) {
        double g = load_element(u, x, i, &w, m);
        double step = take(u, at, (g + u->l2 * w) * before, m) + u->outside * w;
        hold(u, at, x->out[0], master_of(x), i, w * u->decay - u->lr * after * step);
        for (int k = 0; k < x->moments; k++)
            if (x->out[1 + k]) store_moment(u, at, x, k, i, m[k]);
    }
}

static gm_status update_all(gm_device *dev, const gm_call *call, double momentum, unsigned squares, direction *take)
{
    const gm_attrs *at = call->attrs;
    update          u = update_of(dev, call, momentum);
    int             width = gm_op_gives(call->op)->n;
    for (int k = 2; k < call->n_in; k++) {
        parameter x = {call->in[k], call->out + width * (k - 2), width - 3, squares, NULL};
        bool      coded = at->states == GM_STATES_BLOCKS;
        if (coded) GM_TRY(ref_scratch(MOMENTS * gm_tensor_numel(x.g), &x.room));
        if (coded) code_moments(&x, false);
        if (at->measure) measure(&u, at, &x, take);
        else if (u.control.go) apply(&u, at, &x, take);
        if (coded && u.control.go && !at->measure) code_moments(&x, true);
        free(x.room);
    }
    return GM_OK;
}

#define GM_OPTIMIZER(name, moments, there, positive, momentum, ...)                      \
    gm_status gm_ref_##name(gm_device *dev, const gm_call *call)                         \
    {                                                                                    \
        return update_all(dev, call, call->attrs->momentum, positive, name##_direction); \
    }
#include "../optimizers.def"
#undef GM_OPTIMIZER
