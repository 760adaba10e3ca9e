/* muon.c - see muon.h. */
#include "muon.h"

#include <math.h>
#include <stdlib.h>
#include "../../kernels/step_control.h"
#include "../autograd/padding.h"
#include "../comm/comm.h"
#include "../gradients/parts.h"
#include "muon_exchange.h"

typedef struct item {
    gm_value    *parameter;
    gm_muon_item set;
    gm_tensor   *buffer;         /* NULL: not made yet */
    gm_tensor   *direction;      /* in a step: what is orthogonalised, and then the result */
    int          matrices, left; /* of it: all, and those of the step that are not ready yet */
} item;

struct gm_muon {
    gm_rank      *rank;
    gm_muon_rule  rule;
    gm_optimizer *update;
    gm_muon_plan *plan; /* made at the first step, when all layouts are known */
    gm_tensor    *gate; /* the control tensor for the update: what is orthogonal is not clipped */
    int           n;
    item          items[];
};

static gm_status check_parameter(const gm_value *v, int i)
{
    if (v->ndim == 2 || v->ndim == 3) return GM_OK;
    char text[160];
    return GM_FAIL(GM_ESHAPE, "muon: parameter %d is %s; a matrix has two dimensions, a stack of matrices three", i + 1,
                   gm_value_describe(v, text, sizeof text));
}

/* The optimizer that applies updates: w -= lr (u + weight_decay w). */
static gm_status new_update(gm_muon *m, gm_value *const *parameters, const gm_muon_item *items)
{
    gm_attrs           a = gm_attrs_default();
    gm_optimizer_item *set = malloc(((size_t)m->n + 1) * sizeof *set);
    if (!set) return GM_FAIL(GM_ENOMEM, "no memory for an optimizer of %d parameters", m->n);
    for (int i = 0; i < m->n; i++) set[i] = items[i].set;
    a.stochastic = m->rule.stochastic;
    gm_status st = gm_optimizer_new(m->rank, GM_OP_sgd, m->n, parameters, 1, &a, set, &m->update);
    if (st == GM_OK) gm_optimizer_take_updates(m->update);
    free(set);
    return st;
}

gm_status gm_muon_new(gm_rank *r, int n, gm_value *const *parameters, const gm_muon_rule *rule,
                      const gm_muon_item *items, gm_muon **out)
{
    for (int i = 0; i < n; i++) GM_TRY(check_parameter(parameters[i], i));
    gm_muon *m = calloc(1, sizeof *m + (size_t)n * sizeof *m->items);
    if (!m) return GM_FAIL(GM_ENOMEM, "no memory for an optimizer of %d parameters", n);
    m->rank = r;
    m->rule = *rule;
    m->n = n;
    gm_status st = new_update(m, parameters, items);
    for (int i = 0; i < n; i++) {
        m->items[i] = (item){.parameter = parameters[i], .set = items[i]};
        gm_value_retain(parameters[i]);
    }
    if (st != GM_OK) gm_muon_free(m);
    else *out = m;
    return st;
}

void gm_muon_free(gm_muon *m)
{
    if (!m) return;
    for (int i = 0; i < m->n; i++) {
        gm_value_release(m->items[i].parameter);
        gm_tensor_release(m->items[i].buffer);
        gm_tensor_release(m->items[i].direction);
    }
    gm_optimizer_free(m->update);
    gm_muon_plan_free(m->plan);
    gm_tensor_release(m->gate);
    free(m);
}

/* ---- plan and states ---- */

static gm_muon_shape shape_of(const gm_muon *m, int i)
{
    const item     *it = &m->items[i];
    const gm_value *v = it->parameter;
    gm_muon_shape   s = {.layout = *gm_optimizer_layout(m->update, i),
                         .ndim = v->ndim,
                         .dtype = gm_dtype_wide(v->local->dtype),
                         .n_parts = it->set.n_parts};
    for (int d = 0; d < v->ndim; d++) s.shape[d] = v->shape[d];
    for (int k = 0; k < s.n_parts; k++) s.part[k] = it->set.part[k];
    return s;
}

static gm_status make_plan(gm_muon *m)
{
    if (m->plan) return GM_OK;
    gm_muon_shape *shapes = malloc(((size_t)m->n + 1) * sizeof *shapes);
    if (!shapes) return GM_FAIL(GM_ENOMEM, "no memory for a plan of %d parameters", m->n);
    for (int i = 0; i < m->n; i++) shapes[i] = shape_of(m, i);
    gm_status st = gm_muon_plan_new(&m->rank->mesh, m->rank->rank, shapes, m->n, &m->plan);
    free(shapes);
    if (st != GM_OK) return st;
    for (int s = 0; s < m->plan->n_sets; s++)
        for (int k = 0; k < m->plan->set[s].n; k++) m->items[m->plan->set[s].matrix[k].parameter].matrices++;
    return GM_OK;
}

static gm_status make_buffer(gm_muon *m, int i)
{
    item           *it = &m->items[i];
    const gm_value *v = it->parameter;
    gm_attrs        zero = gm_attrs_default();
    int64_t         shape[GM_MAX_DIMS];
    if (it->buffer) return GM_OK;
    if (m->rank->device->capture)
        return GM_FAIL(GM_EINVAL, "the state of a parameter is made in its first step, which cannot be part of a "
                                  "graph");
    gm_layout_local(&m->rank->mesh, gm_optimizer_layout(m->update, i), v->ndim, v->shape, shape);
    gm_rank_place(m->rank, "optimizer state");
    GM_TRY(gm_tensor_new(m->rank->device, gm_dtype_wide(v->local->dtype), v->ndim, shape, &it->buffer));
    return gm_run_one(m->rank->device, GM_OP_fill, &zero, NULL, it->buffer);
}

gm_optimizer *gm_muon_update(gm_muon *m) { return m->update; }

gm_status gm_muon_state(gm_muon *m, int i, int k, const char **name, gm_tensor **out)
{
    if (k > 0) return gm_optimizer_state(m->update, i, k - 1, name, out);
    GM_TRY(make_buffer(m, i));
    *name = "momentum_buffer";
    *out = m->items[i].buffer;
    return GM_OK;
}

size_t gm_muon_bytes(const gm_muon *m)
{
    size_t bytes = gm_optimizer_bytes(m->update);
    for (int i = 0; i < m->n; i++)
        if (m->items[i].buffer) bytes += m->items[i].buffer->storage->bytes;
    return bytes;
}

gm_status gm_muon_owned(gm_muon *m, int64_t *out)
{
    *out = 0;
    GM_TRY(make_plan(m));
    for (int s = 0; s < m->plan->n_sets; s++)
        for (int k = 0; k < m->plan->set[s].n; k++) {
            const gm_muon_matrix *x = &m->plan->set[s].matrix[k];
            if (x->owner == m->rank->rank) *out += x->rows * x->cols;
        }
    return GM_OK;
}

/* ---- what a step reads from the control tensor ---- */

static gm_tensor *element(gm_work *w, gm_tensor *t, int64_t i)
{
    return gm_work_shaped(w, gm_work_narrow(w, t, 0, i, 1), 0, NULL);
}

/* The gate: whether there is an update, as the control tensor says, and a factor of 1. *factor: that of the gradients,
 * f64 (); *go: u8 (). */
static void open_gate(gm_muon *m, gm_work *w, double factor, gm_tensor *control, gm_tensor **factor_out,
                      gm_tensor **go_out)
{
    int64_t n = GM_CONTROL_SIZE;
    if (!m->gate) m->gate = gm_work_keep(w, gm_work_full(w, GM_F64, 1, &n, 0));
    if (w->st != GM_OK) return;
    gm_tensor *gate = gm_work_share(w, m->gate), *own_factor = element(w, gate, GM_CONTROL_FACTOR);
    if (control) {
        gm_work_copy(w, control, gate);
    } else {
        gm_work_fill(w, element(w, gate, GM_CONTROL_GO), 1);
        gm_work_fill(w, own_factor, factor);
    }
    if (w->st != GM_OK) return;
    *factor_out = gm_work_cast(w, own_factor, GM_F64);
    *go_out = gm_work_binary(w, GM_FN_ne, element(w, gate, GM_CONTROL_GO), gm_work_scalar(w, GM_F64, 0));
    gm_work_fill(w, own_factor, 1);
}

/* ---- momentum ---- */

typedef struct step {
    gm_muon   *m;
    gm_work    work;
    gm_tensor *factor, *go; /* of the gradients, f64 (); u8 () */
} step;

/* a x + b factor y, in the dtype of x; y may be of 16 bits */
static gm_tensor *mix(step *s, double a, gm_tensor *x, double b, gm_tensor *y)
{
    gm_work *w = &s->work;
    gm_attrs more = gm_attrs_default();
    more.accumulate = true;
    gm_tensor *sum = gm_work_affine(w, x, a, 0);
    if (w->st != GM_OK) return NULL;
    if (y->dtype != x->dtype) y = gm_work_cast(w, y, x->dtype);
    gm_tensor *in[] = {y, gm_work_cast(w, gm_work_affine(w, s->factor, b, 0), x->dtype)};
    gm_work_into(w, GM_OP_scale, 2, in, &more, 1, &sum);
    return sum;
}

/* A gradient of a whole block as the part that this rank has states of; any other as it is. */
static gm_tensor *owned_gradient(gm_work *w, const item *it, gm_tensor *g)
{
    gm_tensor *from = NULL, *to = NULL;
    if (gm_tensor_same_shape(g, it->buffer)) return g;
    gm_tensor *part = gm_work_full(w, g->dtype, it->buffer->ndim, it->buffer->shape, 0);
    GM_STEP(w, gm_owned_part(it->parameter, g, &from));
    GM_STEP(w, gm_owned_part(it->parameter, part, &to));
    gm_work_copy(w, gm_work_hold(w, from), gm_work_hold(w, to));
    return part;
}

/* The buffer takes the gradient in, if there is an update; the direction follows from both. */
static gm_status add_gradient(step *s, item *it, gm_tensor *g)
{
    gm_work *w = &s->work;
    int      mark = w->n_held;
    double   keep = s->m->rule.momentum;
    g = owned_gradient(w, it, g);
    gm_tensor *next = mix(s, keep, it->buffer, 1 - keep, g);
    gm_work_copy(w, gm_work_where(w, s->go, next, it->buffer), it->buffer);
    w->sent = true; /* nothing may begin anew: the buffer would take the gradient in twice */
    if (s->m->rule.nesterov) next = mix(s, keep, next, 1 - keep, g);
    it->direction = gm_work_keep(w, next);
    gm_work_drop(w, mark);
    return w->st;
}

/* Copies of a parameter would part if each were updated by its own rank's terms. */
static gm_status check_gradient(const gm_muon *m, int i, const gm_layout *layout)
{
    char axes[128];
    if (!layout->partial) return GM_OK;
    return GM_FAIL(GM_EINVAL,
                   "muon: the gradient of parameter %d is still to be summed over %s; reduce gradients before the step "
                   "(the engine does, unless gradient_handler says which handlers shall)",
                   i + 1, gm_mesh_describe(&m->rank->mesh, layout->partial, axes, sizeof axes));
}

/* The direction of a parameter that has a gradient, when its first matrix is due. */
static gm_status begin_item(step *s, int i)
{
    item     *it = &s->m->items[i];
    gm_layout layout;
    GM_TRY(make_buffer(s->m, i));
    if (!it->parameter->param->stored) GM_TRY(gm_padding_renew(it->parameter)); /* of the gradient */
    return add_gradient(s, it, gm_value_final_grad(it->parameter, &layout));
}

/* ---- rounds ---- */

static double scale_of(const gm_muon *m, const gm_muon_matrix *x)
{
    double rows = (double)x->rows, cols = (double)x->cols;
    if (m->rule.scale == GM_MUON_ORIGINAL) return sqrt(rows > cols ? rows / cols : 1);
    return 0.2 * sqrt(rows > cols ? rows : cols);
}

/* For gm_muon_exchange: makes of a matrix its update. */
static gm_tensor *orthogonal(void *context, const gm_muon_matrix *x, gm_tensor *t)
{
    step *s = context;
    return gm_work_affine(&s->work, gm_orthogonalize(&s->work, &s->m->rule.iteration, t), scale_of(s->m, x), 0);
}

/* For gm_muon_exchange: the tensor that parts are read from and written to. */
static gm_tensor *direction_of(void *context, int parameter)
{
    const step *s = context;
    return s->m->items[parameter].direction;
}

static void forget(gm_muon *m)
{
    for (int i = 0; i < m->n; i++) {
        gm_optimizer_give(m->update, i, NULL);
        gm_tensor_release(m->items[i].direction);
        m->items[i].direction = NULL;
    }
}

/* Updates the parameters whose matrices are all ready. */
static gm_status apply(step *s, double lr)
{
    gm_muon  *m = s->m;
    int64_t   steps = gm_optimizer_steps(m->update);
    bool      any = false;
    gm_status st = GM_OK;
    for (int i = 0; i < m->n; i++) {
        item *it = &m->items[i];
        if (!it->direction || it->left) continue;
        gm_optimizer_give(m->update, i, it->direction);
        any = true;
    }
    if (any) st = gm_optimizer_step(m->update, lr, 1, 1, m->gate);
    gm_optimizer_set_steps(m->update, steps); /* they are one step */
    for (int i = 0; i < m->n; i++) {
        item *it = &m->items[i];
        if (!it->direction || it->left) continue;
        gm_optimizer_give(m->update, i, NULL);
        gm_tensor_release(it->direction);
        it->direction = NULL;
    }
    return st;
}

/* The matrices of a round whose parameters have a gradient. */
static int due(const gm_muon *m, const gm_muon_matrix *matrix, int n, gm_muon_matrix *out)
{
    gm_layout layout;
    int       k = 0;
    for (int i = 0; i < n; i++)
        if (gm_value_final_grad(m->items[matrix[i].parameter].parameter, &layout)) out[k++] = matrix[i];
    return k;
}

static gm_status run_round(step *s, const gm_muon_set *set, int first, int n, gm_muon_matrix *room, double lr)
{
    gm_muon         *m = s->m;
    int              k = due(m, set->matrix + first, n, room);
    gm_muon_exchange x = {.plan = m->plan,
                          .set = set,
                          .matrix = room,
                          .n = k,
                          .work = &s->work,
                          .context = s,
                          .tensor = direction_of,
                          .compute = orthogonal};
    if (!k) return GM_OK;
    for (int i = 0; i < k; i++)
        if (!m->items[room[i].parameter].direction) GM_TRY(begin_item(s, room[i].parameter));
    GM_TRY(gm_muon_exchange_run(&x));
    for (int i = 0; i < k; i++) m->items[room[i].parameter].left--;
    return apply(s, lr);
}

static gm_status run_set(step *s, const gm_muon_set *set, double lr)
{
    gm_muon_matrix *room = malloc((size_t)set->n * sizeof *room);
    gm_status       st = room ? GM_OK : GM_FAIL(GM_ENOMEM, "no memory for a list of %d matrices", set->n);
    for (int at = 0, n; at < set->n && st == GM_OK; at += n) {
        n = gm_muon_round(s->m->plan, set, at);
        st = run_round(s, set, at, n, room, lr);
    }
    free(room);
    return st;
}

static gm_status begin(gm_muon *m)
{
    gm_comm *comm;
    GM_TRY(gm_rank_comm(m->rank, &comm)); /* first: a rank that is alone gets a mesh with it */
    GM_TRY(make_plan(m));
    for (int i = 0; i < m->n; i++) {
        gm_layout layout;
        m->items[i].left = m->items[i].matrices;
        if (gm_value_final_grad(m->items[i].parameter, &layout)) GM_TRY(check_gradient(m, i, &layout));
    }
    return GM_OK;
}

gm_status gm_muon_step(gm_muon *m, double lr, double clip, double loss_scale, gm_tensor *control)
{
    step s = {.m = m};
    GM_TRY(begin(m));
    gm_work_begin(&s.work, m->rank, "muon");
    open_gate(m, &s.work, clip / loss_scale, control, &s.factor, &s.go);
    for (int i = 0; i < m->plan->n_sets; i++) GM_STEP(&s.work, run_set(&s, &m->plan->set[i], lr));
    forget(m);
    if (s.work.st == GM_OK) gm_optimizer_set_steps(m->update, gm_optimizer_steps(m->update) + 1);
    return gm_work_end(&s.work);
}
