/* passes.c - runs a tape: seeds, passes, release of nodes, final gradients. See tape.h. backward.c runs one node. */
#include "layout_rules/rules.h"
#include "tape_nodes.h"

/* ---- roots ---- */

static gm_status seed_of(gm_rank *r, gm_tensor *scale, gm_dtype dtype, int ndim, const int64_t *shape, gm_tensor **out)
{
    gm_work w;
    gm_work_begin(&w, r, "backward");
    *out = gm_work_keep(&w, scale ? gm_work_cast(&w, gm_work_shaped(&w, scale, ndim, shape), dtype)
                                  : gm_work_full(&w, dtype, ndim, shape, 1));
    return gm_work_end(&w);
}

gm_status gm_loss_seed(gm_rank *r, gm_dtype dtype, gm_value **out)
{
    gm_device *dev;
    gm_tensor *t = NULL;
    GM_TRY(gm_rank_device(r, &dev));
    GM_TRY(seed_of(r, r->loss_scale, dtype, 0, NULL, &t));
    return gm_value_take(r, t, out);
}

/* For a loss of one element: 1, or *scale where that is not NULL, which has one, too. */
static gm_status new_seed(gm_value *loss, gm_tensor *scale, gm_tensor **out)
{
    char have[256];
    for (int d = 0; d < loss->ndim; d++)
        if (loss->shape[d] != 1)
            return GM_FAIL(GM_ESHAPE, "backward: a loss has one element, this is %s; sum() it or pass a seed gradient",
                           gm_value_describe(loss, have, sizeof have));
    return seed_of(loss->rank, scale, loss->local->dtype, loss->ndim, loss->local->shape, out);
}

static gm_status seed_gradient(gm_rank *r, gm_tape *t, gm_value *root, gm_value *seed, gm_tensor *scale)
{
    uint32_t   partial = 0;
    gm_value  *fitted = NULL;
    gm_tensor *g = NULL;
    if (seed) {
        GM_TRY(gm_fit_seed(root, seed, &fitted));
        g = fitted->local;
        gm_tensor_retain(g);
        partial = fitted->layout.partial;
        gm_value_release(fitted);
    } else GM_TRY(new_seed(root, scale, &g));
    return gm_tape_add_term(r, t, root, g, partial);
}

/* ---- which gradients are final ---- */

/* The last node of this tape that reads the leaf has run, in a final pass: it may be summed if no tape awaits it. */
static gm_status let_go(gm_rank *r, leaf_use *u)
{
    gm_value *leaf = u->leaf;
    gm_status st = GM_OK;
    if (!leaf) return GM_OK;
    if (!--leaf->param->awaited && r->reducer) st = r->gradient_is_final(r->reducer, leaf);
    u->leaf = NULL;
    gm_value_release(leaf);
    return st;
}

/* Node n has run. What only reports wait for is kept until then; a pass that reports nothing keeps no leaf that is an
 * input, which may be large. */
static gm_status count_leaves(gm_rank *r, gm_tape *t, const gm_node *n, bool final)
{
    for (int i = 0; i < n->n_in; i++) {
        leaf_use *u = n->in[i].leaf ? &t->leaves[n->in[i].at] : NULL;
        if (!u || --u->left) continue;
        if (final) GM_TRY(let_go(r, u));
        else if (u->input || !t->awaits) {
            if (t->awaits) u->leaf->param->awaited--;
            gm_value_release(u->leaf);
            u->leaf = NULL;
        }
    }
    return GM_OK;
}

gm_status gm_tape_await(gm_rank *r, gm_tape *t)
{
    if (!t || t->awaits) return GM_OK;
    GM_TRY(gm_tape_count(r, t));
    t->awaits = true;
    for (int i = 0; i < t->n_leaves; i++)
        if (t->leaves[i].leaf) t->leaves[i].leaf->param->awaited++;
    return GM_OK;
}

/* A final pass begins: what the first half has finished with is final. */
static gm_status begin_final(gm_rank *r, gm_tape *t)
{
    GM_TRY(gm_tape_await(r, t));
    for (int i = 0; i < t->n_leaves; i++)
        if (!t->leaves[i].left) GM_TRY(let_go(r, &t->leaves[i]));
    return GM_OK;
}

/* ---- which side a node is on ---- */

static leaf_use *use_of(gm_tape *t, const gm_value *v)
{
    if (v->param && v->param->used_on == t->number) return &t->leaves[v->param->used_at];
    for (int i = 0; i < t->n_leaves; i++) /* another tape listed it later */
        if (t->leaves[i].leaf == v) return &t->leaves[i];
    return NULL;
}

static bool leads(const gm_tape *t, const edge *e, bool has_inputs)
{
    if (e->leaf) return t->leaves[e->at].input;
    return e->from && (e->from->active || (!has_inputs && e->from->splits));
}

/* Nodes and edges on the side of the inputs. Edges lead to earlier nodes. */
static void find_sides(gm_tape *t, const gm_tape_job *job)
{
    for (int i = 0; i < job->n_inputs; i++) {
        leaf_use *u = use_of(t, job->inputs[i]);
        if (u) u->input = true; /* else nothing reads it */
    }
    for (gm_node *n = t->first; n; n = n->next)
        for (int i = 0; i < n->n_in; i++) {
            n->in[i].input = leads(t, &n->in[i], job->n_inputs > 0);
            n->active |= n->in[i].input;
        }
}

/* ---- passes ---- */

static bool has_gradient(const gm_node *n)
{
    for (int i = 0; i < n->n_out; i++)
        if (n->out[i].grad) return true;
    return false; /* the roots do not depend on it, as far as is known */
}

/* Has the rule something to compute in the second half? */
static bool waits(const gm_node *n)
{
    for (int i = 0; i < n->n_in && n->splits; i++)
        if (gm_edge_wants(&n->in[i]) && !n->in[i].input) return true;
    return false;
}

/* Which half of node n this pass runs; false: none. */
static bool choose(const gm_node *n, gm_tape_pass pass, gm_half *half)
{
    *half = n->halved ? GM_HALF_WEIGHT : GM_HALF_BOTH;
    if (pass != GM_TAPE_INPUT) return true;
    if (has_gradient(n) && waits(n)) *half = GM_HALF_INPUT;
    return n->active;
}

static gm_status run_nodes(gm_rank *r, gm_tape *t, const gm_tape_job *job)
{
    gm_status st = GM_OK;
    gm_half   half;
    for (gm_node *n = t->last, *before; n && st == GM_OK; n = before) {
        before = n->prev; /* the tape owns it */
        if (!choose(n, job->pass, &half)) continue;
        if (has_gradient(n) || n->halved) st = gm_tape_run_node(r, t, n, half);
        n->halved = half == GM_HALF_INPUT;
        if (st == GM_OK && !n->halved) st = count_leaves(r, t, n, job->final);
        if (st == GM_OK) st = gm_rank_poll(r);
        if (!n->halved && !t->retains) gm_node_let_go(n, true);
    }
    return st;
}

static gm_status check_job(const gm_tape *t, const gm_tape_job *job)
{
    bool second = job->pass == GM_TAPE_WEIGHT;
    if (t->ran != (second ? GM_TAPE_HALVED : GM_TAPE_NEW))
        return GM_FAIL(GM_EINVAL, "backward: %s",
                       second ? "the second half of a pass comes once, after the first"
                              : "a tape is run once: whole, or in two halves");
    if (job->final && job->pass == GM_TAPE_INPUT)
        return GM_FAIL(GM_EINVAL, "backward: the first half of a pass is not the final one");
    for (int i = 0; i < job->n && !second; i++) {
        const gm_value *v = job->outputs[i];
        if (!v->requires_grad || (v->node && v->node->tape != t))
            return GM_FAIL(GM_EINVAL,
                           "backward: output %d requires no gradient, or was not computed in this forward pass", i + 1);
    }
    for (int i = 0; i < job->n_inputs && job->pass == GM_TAPE_INPUT; i++)
        if (job->inputs[i]->node || !job->inputs[i]->requires_grad)
            return GM_FAIL(GM_EINVAL, "backward: input %d is not a leaf that requires a gradient", i + 1);
    return GM_OK;
}

static gm_status run_pass(gm_rank *r, gm_tape *t, const gm_tape_job *job)
{
    GM_TRY(gm_tape_count(r, t));
    if (job->pass == GM_TAPE_INPUT) find_sides(t, job);
    for (int i = 0; i < job->n && job->pass != GM_TAPE_WEIGHT; i++)
        GM_TRY(seed_gradient(r, t, job->outputs[i], job->seeds[i], job->losses ? r->loss_scale : NULL));
    if (job->final) GM_TRY(begin_final(r, t));
    return run_nodes(r, t, job);
}

gm_status gm_tape_seed(gm_rank *r, gm_tape *t, gm_value *output, gm_value *seed)
{
    gm_tape_job job = {.n = 1, .outputs = &output, .seeds = &seed};
    GM_TRY(check_job(t, &job));
    GM_TRY(gm_tape_count(r, t));
    r->no_grad++;
    gm_status st = seed_gradient(r, t, output, seed, NULL);
    r->no_grad--;
    return st;
}

gm_status gm_tape_run(gm_rank *r, gm_tape *t, const gm_tape_job *job)
{
    char *path;
    GM_TRY(check_job(t, job));
    GM_TRY(gm_rank_enter_path(r, "", &path));
    r->no_grad++;
    gm_status st = run_pass(r, t, job);
    r->no_grad--;
    gm_rank_leave_path(r, path);
    t->ran = st == GM_OK && job->pass == GM_TAPE_INPUT ? GM_TAPE_HALVED : GM_TAPE_SPENT;
    return st;
}

gm_status gm_tape_backward(gm_value *loss, gm_value *seed, bool retain)
{
    gm_rank    *r = loss->rank;
    gm_tape    *t = NULL;
    gm_tape_job job = {.n = 1, .outputs = &loss, .seeds = &seed, .losses = true, .final = true};
    if (!loss->requires_grad)
        return GM_FAIL(GM_EINVAL, "backward: the loss does not depend on anything that requires a gradient "
                                  "(or was computed under no_grad)");
    GM_TRY(gm_tape_find(loss, &t));
    t->retains = retain;
    gm_status st = gm_tape_run(r, t, &job);
    if (st == GM_OK && retain) gm_tape_return(r, t);
    else gm_tape_free(t);
    return st;
}
