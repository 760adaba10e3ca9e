/* region.c - see region.h. */
#include "region.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../../kernels/journal.h"
#include "apply_blocks.h"
#include "tape_nodes.h"

struct gm_region {
    gm_rank       *rank;
    char          *name;   /* in messages */
    gm_tape       *before; /* the rank's, while the region is recorded */
    gm_rank_moment moment;
    gm_drawn       drawn; /* when it began; then, by the first run */
    gm_callback    again;
    int            n_in, n_out;
    unsigned       version[GM_REGION_INPUTS]; /* of the inputs' bytes, before the first run */
    unsigned      *leaf_version;              /* of the leaves' bytes, behind it */
};

static void free_region(void *context)
{
    gm_region *g = context;
    gm_callback_release(&g->again);
    gm_rank_forget(&g->moment);
    free(g->leaf_version);
    free(g->name);
    free(g);
}

void gm_region_cancel(gm_region *g)
{
    if (!g) return;
    g->rank->regions--;
    gm_tape_restore(g->rank, g->before);
    free_region(g);
}

gm_status gm_region_begin(gm_rank *r, const char *name, int n_in, gm_value *const *in, gm_region **out)
{
    if (n_in > GM_REGION_INPUTS)
        return GM_FAIL(
            GM_EINVAL,
            "recompute: %s has %d tensors as arguments; at most %d are allowed. Make two regions of it, each "
            "with arguments of its own",
            name, n_in, GM_REGION_INPUTS);
    gm_region *g = calloc(1, sizeof *g);
    if (!g) return GM_FAIL(GM_ENOMEM, "no memory for a region");
    g->name = strdup(name);
    gm_status st = g->name ? gm_rank_remember(r, &g->moment) : GM_FAIL(GM_ENOMEM, "no memory for a region");
    if (st != GM_OK) {
        free(g->name);
        free(g);
        return st;
    }
    g->rank = r;
    g->n_in = n_in;
    for (int i = 0; i < n_in; i++) g->version[i] = in[i]->local->storage->version;
    g->drawn = r->drawn;
    g->before = gm_tape_set_aside(r);
    r->regions++;
    st = gm_tape_sketch(r);
    if (st == GM_OK) *out = g;
    else gm_region_cancel(g);
    return st;
}

/* ---- the second run ---- */

/* A leaf that stands for input i. */
static gm_status stand_in(gm_backward *b, int i, gm_value **out)
{
    const int64_t   *shape;
    const gm_layout *layout = gm_backward_input_layout(b, i, &shape);
    gm_tensor       *t = gm_backward_saved(b, i);
    if (!t) return b->work.st;
    gm_tensor_retain(t);
    GM_TRY(gm_value_take_block(b->rank, t, layout, t->ndim, shape, out));
    return gm_backward_wants(b, i) ? gm_value_require_grad(*out, true) : GM_OK;
}

/* The results are to be what they were, and those that have gradients now need what they depend on. */
static gm_status check_results(gm_backward *b, const gm_region *g, gm_value *const *out)
{
    for (int i = 0; i < g->n_out; i++) {
        gm_spec have, *want = &b->node->out[i].spec;
        if (out[i]) have = gm_tape_spec(out[i]->local);
        bool same = out[i] && have.dtype == want->dtype && have.ndim == want->ndim &&
                    !memcmp(have.shape, want->shape, (size_t)want->ndim * sizeof *want->shape);
        if (same && (out[i]->requires_grad || !b->node->out[i].grad)) continue;
        return GM_FAIL(GM_EINVAL,
                       "recompute: run again, %s gave another result %d than at first; it must depend on its arguments "
                       "and on parameters alone",
                       g->name, i + 1);
    }
    return GM_OK;
}

/* Other random numbers than those of the first run would make gradients of another function. */
static gm_status check_drawn(const gm_region *g, gm_drawn again)
{
    gm_drawn first = g->drawn;
    char     calls[96] = "the same number of times, but others";
    if (first.calls == again.calls && first.keys == again.keys) return GM_OK;
    if (first.calls != again.calls)
        snprintf(calls, sizeof calls, "%llu time%s, at first %llu", (unsigned long long)again.calls,
                 again.calls == 1 ? "" : "s", (unsigned long long)first.calls);
    return GM_FAIL(GM_EINVAL,
                   "recompute: run again, %s drew random numbers %s; it must depend on its arguments and on parameters "
                   "alone, and the seed must stay until backward has run",
                   g->name, calls);
}

/* What the region read beside its inputs is what it was, or the second run would give other numbers. Inputs are checked
 * by their slots. */
static gm_status check_leaves(gm_backward *b, const gm_region *g)
{
    for (int i = g->n_in; i < b->node->n_in; i++) {
        const gm_value *leaf = b->node->in[i].leaf;
        if (!leaf || leaf->local->storage->version == g->leaf_version[i - g->n_in]) continue;
        return GM_FAIL(GM_EINVAL,
                       "recompute: a parameter that %s reads was changed in place after its first run; go "
                       "backward before you change it",
                       g->name);
    }
    return GM_OK;
}

/* Runs the function on a tape of its own, at the moment of the first run. */
static gm_status run_again(gm_backward *b, gm_region *g, gm_value *const *in, gm_value **out, gm_tape **tape)
{
    gm_rank       *r = b->rank;
    gm_rank_moment moment;
    int            no_grad = r->no_grad;
    uint64_t       step = r->device->step.rng_step;
    gm_drawn       drawn = r->drawn;
    GM_TRY(gm_rank_copy_moment(&g->moment, &moment));
    gm_rank_exchange(r, &moment);
    gm_tape *before = gm_tape_set_aside(r);
    r->regions++;
    r->no_grad = 0;
    r->device->step.rng_step = b->node->rng_step;
    if (r->device->journal) r->device->journal->again++;
    gm_status st = g->again.call(g->again.context, g->n_in, in, g->n_out, NULL, out);
    if (r->device->journal) r->device->journal->again--;
    r->device->step.rng_step = step;
    r->no_grad = no_grad;
    r->regions--;
    if (st == GM_OK) st = gm_tape_take_any(r, tape);
    gm_tape_restore(r, before);
    gm_rank_exchange(r, &moment);
    gm_rank_forget(&moment);
    if (st == GM_OK) st = check_drawn(g, gm_rank_drawn_since(r, drawn));
    return st == GM_OK ? check_results(b, g, out) : st;
}

/* Backward through what the second run recorded, from the gradients of the results. Results and their gradients belong
 * to the inner tape alone from then on, which lets them go as it runs. A tape without nodes passes the gradients on:
 * the results are inputs or parameters. */
static gm_status run_back(gm_backward *b, gm_region *g, gm_tape *tape, gm_value **out)
{
    gm_tape_job job = {.pass = GM_TAPE_WHOLE};
    gm_status   st = GM_OK;
    for (int i = 0; i < g->n_out && st == GM_OK; i++) {
        gm_value *seed = NULL;
        if (!gm_backward_grad(b, i)) continue;
        st = gm_gradient_value(b, i, &seed);
        if (st == GM_OK) st = gm_tape_seed(b->rank, tape, out[i], seed);
        gm_value_release(seed);
        gm_tensor_release(b->node->out[i].grad);
        b->node->out[i].grad = NULL;
    }
    gm_release_all(g->n_out, out);
    memset(out, 0, (size_t)g->n_out * sizeof(gm_value *));
    return st == GM_OK ? gm_tape_run(b->rank, tape, &job) : st;
}

static void give_inputs(gm_backward *b, gm_region *g, gm_value *const *in)
{
    for (int i = 0; i < g->n_in; i++) {
        gm_tensor *grad = in[i] ? gm_value_grad(in[i]) : NULL;
        if (!grad || !gm_backward_wants(b, i)) continue;
        gm_backward_set_partial(b, i, in[i]->param->grad_partial);
        gm_backward_give(b, i, gm_work_share(gm_backward_work(b), grad));
    }
    for (int i = g->n_in; i < gm_backward_inputs(b); i++) gm_backward_set_partial(b, i, 0); /* have had their terms */
}

static void region_rule(gm_backward *b)
{
    gm_work   *w = gm_backward_work(b);
    gm_region *g = gm_backward_callback(b)->context;
    gm_value  *in[GM_REGION_INPUTS] = {NULL}, *out[GM_REGION_OUTPUTS] = {NULL};
    gm_tape   *tape = NULL;
    GM_STEP(w, check_leaves(b, g));
    for (int i = 0; i < g->n_in; i++) GM_STEP(w, stand_in(b, i, &in[i]));
    GM_STEP(w, run_again(b, g, in, out, &tape));
    GM_STEP(w, run_back(b, g, tape, out));
    gm_tape_free(tape);
    gm_release_all(g->n_out, out);
    if (w->st == GM_OK) give_inputs(b, g, in);
    gm_release_all(g->n_in, in);
}

/* ---- the node ---- */

static bool is_one_of(const gm_value *v, int n, gm_value *const *list)
{
    for (int i = 0; i < n; i++)
        if (list[i] == v) return true;
    return false;
}

/* What the first run had and gave. */
typedef struct first_run {
    int              n_in, n_out;
    gm_value *const *in, *const *inner, *const *out;
} first_run;

/* The inputs, and behind them the leaves that the first run read or gave as results. *all: an array of *n, of borrowed
 * values. */
static gm_status list_edges(gm_rank *r, gm_tape *t, const first_run *f, gm_value ***all, int *n)
{
    GM_TRY(gm_tape_count(r, t));
    int most = f->n_in + t->n_leaves + f->n_out;
    *all = calloc((size_t)most + 1, sizeof **all);
    if (!*all) return GM_FAIL(GM_ENOMEM, "no memory for a region of %d leaves", most);
    for (*n = 0; *n < f->n_in; ++*n) (*all)[*n] = f->in[*n];
    for (int i = 0; i < t->n_leaves; i++) {
        gm_value *leaf = t->leaves[i].leaf;
        if (leaf && !is_one_of(leaf, f->n_in, f->inner)) (*all)[(*n)++] = leaf;
    }
    for (int i = 0; i < f->n_out; i++) {
        gm_value *v = f->out[i];
        if (!v->node && !is_one_of(v, f->n_in, f->inner) && !is_one_of(v, *n, *all)) (*all)[(*n)++] = v;
    }
    return GM_OK;
}

static gm_status remember_leaves(gm_region *g, int n, gm_value *const *all)
{
    g->leaf_version = calloc((size_t)(n - g->n_in) + 1, sizeof *g->leaf_version);
    if (!g->leaf_version) return GM_FAIL(GM_ENOMEM, "no memory for a region of %d leaves", n);
    for (int i = g->n_in; i < n; i++) g->leaf_version[i - g->n_in] = all[i]->local->storage->version;
    return GM_OK;
}

/* Another value would be there in the second run. */
static gm_status check_inputs(const gm_region *g, gm_value *const *in)
{
    for (int i = 0; i < g->n_in; i++)
        if (in[i]->local->storage->version != g->version[i])
            return GM_FAIL(GM_EINVAL,
                           "recompute: %s changed its argument %d (of its tensors) in place, and would find that the "
                           "second time; write into a clone() of it",
                           g->name, i + 1);
    return GM_OK;
}

/* A result has a gradient through the region only if the region computed it, or it is a leaf. */
static gm_status check_origin(const gm_region *g, const gm_tape *t, const first_run *f)
{
    for (int i = 0; i < f->n_out; i++)
        if (f->out[i]->node && f->out[i]->node->tape != t)
            return GM_FAIL(GM_EINVAL,
                           "recompute: result %d of %s was computed outside of it, and is not one of its arguments; "
                           "pass it as an argument",
                           i + 1, g->name);
    return GM_OK;
}

static gm_status record(gm_region *g, gm_tape *t, const first_run *f, gm_value **results)
{
    gm_value **all = NULL;
    int        n = 0;
    gm_status  st = list_edges(g->rank, t, f, &all, &n);
    if (st == GM_OK) st = remember_leaves(g, n, all);
    if (st == GM_OK) {
        gm_record rec = {.name = "recompute",
                         .rule = region_rule,
                         .n_in = n,
                         .in = all,
                         .n_out = f->n_out,
                         .out = results,
                         .n_saved = f->n_in,
                         .saved = f->in,
                         .callback = {NULL, g, free_region}};
        st = gm_tape_record(g->rank, &rec);
    } else free_region(g);
    free(all);
    return st;
}

gm_status gm_region_end(gm_region *g, gm_value *const *in, gm_value *const *inner, int n_out, gm_value *const *out,
                        gm_callback again, gm_value **results)
{
    gm_rank  *r = g->rank;
    gm_tape  *t = NULL;
    first_run f = {g->n_in, n_out, in, inner, out};
    gm_status st = gm_tape_take_any(r, &t);
    g->drawn = gm_rank_drawn_since(r, g->drawn);
    gm_tape_restore(r, g->before);
    r->regions--;
    g->again = again;
    g->n_out = n_out;
    if (st == GM_OK) st = check_inputs(g, in);
    if (st == GM_OK && n_out > GM_REGION_OUTPUTS)
        st = GM_FAIL(GM_EINVAL, "recompute: %d results; at most %d are allowed", n_out, GM_REGION_OUTPUTS);
    if (st == GM_OK) st = check_origin(g, t, &f);
    for (int i = 0; i < n_out && st == GM_OK; i++) st = gm_value_detach(out[i], &results[i]);
    if (st == GM_OK) st = record(g, t, &f, results);
    else free_region(g);
    gm_tape_free(t);
    if (st != GM_OK) gm_release_all(n_out, results);
    return st;
}
