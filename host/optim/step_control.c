/* step_control.c - see step_control.h. */
#include "step_control.h"

#include <stdlib.h>
#include <string.h>
#include "../../kernels/clock.h"
#include "../comm/comm.h"
#include "../job/signals.h"

/* Numbers on their way to the host: in page-locked memory until the mark behind the copy has been passed. */
typedef struct slot {
    double   *numbers;
    gm_block *block; /* NULL: numbers is memory of malloc */
    void     *mark;
} slot;

struct gm_control {
    gm_rank   *rank;
    gm_device *device;
    gm_tensor *control, *targets;  /* targets: a view of its element */
    gm_tensor *scale;              /* another; NULL until losses are scaled */
    gm_tensor *loss, *sum, *asked; /* f64 (3), and views of its first element and of the two others */
    gm_tensor *wish;               /* f64 (2): what gm_control_ask wrote last */
    double     wished[2];          /* its values */
    bool       has_loss;           /* of the step under way */
    slot       ring[GM_CONTROL_RING];
    int        first, sent;
};

/* Element i of t as a scalar. */
static gm_status element(gm_tensor *t, int64_t i, gm_tensor **out)
{
    gm_tensor *one;
    GM_TRY(gm_tensor_narrow(t, 0, i, 1, &one));
    gm_status st = gm_tensor_reshape(one, 0, NULL, out);
    gm_tensor_release(one);
    return st;
}

static gm_status fill(gm_device *dev, gm_tensor *t, double value)
{
    gm_attrs a = gm_attrs_default();
    a.value = value;
    return gm_run_one(dev, GM_OP_fill, &a, NULL, t);
}

static gm_status new_slot(gm_control *c, slot *s)
{
    gm_pool *pool;
    void    *data;
    if (c->device->backend->on_host || !c->device->backend->has_data) {
        s->numbers = calloc(GM_CONTROL_SIZE, sizeof(double));
        return s->numbers ? GM_OK : GM_FAIL(GM_ENOMEM, "no memory for the numbers of a step");
    }
    GM_TRY(gm_device_host_pool(c->device, &pool));
    GM_TRY(gm_pool_alloc(pool, GM_CONTROL_SIZE * sizeof(double), &data, &s->block));
    s->numbers = data;
    return GM_OK;
}

static gm_status make(gm_control *c)
{
    gm_rank_place(c->rank, "control");
    GM_TRY(gm_tensor_new(c->device, GM_F64, 1, (int64_t[]){GM_CONTROL_SIZE}, &c->control));
    GM_TRY(gm_tensor_new(c->device, GM_F64, 1, (int64_t[]){3}, &c->loss));
    GM_TRY(element(c->control, GM_CONTROL_TARGETS, &c->targets));
    GM_TRY(element(c->loss, 0, &c->sum));
    GM_TRY(gm_tensor_narrow(c->loss, 0, 1, 2, &c->asked));
    GM_TRY(gm_tensor_new(c->device, GM_F64, 1, (int64_t[]){2}, &c->wish));
    GM_TRY(fill(c->device, c->wish, 0));
    GM_TRY(fill(c->device, c->control, 0));
    GM_TRY(fill(c->device, c->loss, 0));
    for (int i = 0; i < GM_CONTROL_RING; i++) GM_TRY(new_slot(c, &c->ring[i]));
    return gm_control_set(c, GM_CONTROL_LOSS_SCALE, 1);
}

gm_status gm_control_new(gm_rank *r, gm_control **out)
{
    gm_control *c = calloc(1, sizeof *c);
    if (!c) return GM_FAIL(GM_ENOMEM, "no memory for the control of steps");
    c->rank = r;
    gm_status st = gm_rank_device(r, &c->device);
    if (st == GM_OK) st = make(c);
    if (st != GM_OK) gm_control_free(c);
    else *out = c;
    return st;
}

/* Memory that a copy may still write into stays with the pool. */
static void free_slot(const gm_control *c, slot *s)
{
    bool passed = !s->mark;
    if (s->mark && gm_device_passed(c->device, s->mark, &passed) != GM_OK) passed = false;
    gm_device_unmark(c->device, s->mark);
    if (!s->block) free(s->numbers);
    else if (passed) gm_pool_release(c->device->host, s->block);
}

void gm_control_free(gm_control *c)
{
    if (!c) return;
    gm_tensor *const tensors[] = {c->control, c->targets, c->scale, c->loss, c->sum, c->asked, c->wish};
    if (c->rank->loss_scale && c->rank->loss_scale == c->scale) gm_rank_scale_losses(c->rank, NULL);
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) gm_tensor_release(tensors[i]);
    for (int i = 0; i < GM_CONTROL_RING; i++) {
        free_slot(c, &c->ring[i]);
    }
    free(c);
}

gm_tensor *gm_control_tensor(gm_control *c) { return c->control; }
int        gm_control_sent(const gm_control *c) { return c->sent; }

/* ---- the loss ---- */

/* sum = part, or sum += part, of any float dtype. */
static gm_status add(gm_control *c, gm_tensor *part)
{
    gm_attrs   a = gm_attrs_default();
    gm_tensor *wide;
    gm_status  st;
    a.dtype = GM_F64;
    if (!c->has_loss) {
        c->has_loss = true;
        return gm_run_one(c->device, GM_OP_copy, &a, part, c->sum);
    }
    GM_TRY(gm_tensor_new(c->device, GM_F64, 0, NULL, &wide));
    st = gm_run_one(c->device, GM_OP_copy, &a, part, wide);
    if (st == GM_OK) st = gm_run_one(c->device, GM_OP_axpy, NULL, wide, c->sum);
    gm_tensor_release(wide);
    return st;
}

gm_status gm_control_add_loss(gm_control *c, gm_tensor *part)
{
    gm_tensor *scalar;
    char       text[96];
    if (gm_tensor_numel(part) != 1)
        return GM_FAIL(GM_ESHAPE, "a loss is %s; it should have one element",
                       gm_tensor_describe(part, text, sizeof text));
    GM_TRY(gm_tensor_reshape(part, 0, NULL, &scalar));
    gm_status st = add(c, scalar);
    gm_tensor_release(scalar);
    return st;
}

gm_status gm_control_add_number(gm_control *c, double part)
{
    gm_tensor *t;
    GM_TRY(gm_tensor_new(c->device, GM_F64, 0, NULL, &t));
    gm_status st = fill(c->device, t, part);
    if (st == GM_OK) st = add(c, t);
    gm_tensor_release(t);
    return st;
}

void gm_control_forget(gm_control *c) { c->has_loss = false; }

/* 30 bits of the numbers (FNV-1a over their bytes, mixed once more). -0 is 0. */
static double digest(const double *numbers, int n)
{
    uint64_t h = UINT64_C(14695981039346656037);
    for (int i = 0; i < n; i++) {
        double        x = numbers[i] + 0.0;
        unsigned char byte[sizeof x];
        memcpy(byte, &x, sizeof x);
        for (size_t k = 0; k < sizeof x; k++) h = (h ^ byte[k]) * UINT64_C(1099511628211);
    }
    h ^= h >> 32;
    h *= UINT64_C(0x9e3779b97f4a7c15);
    return (double)(h >> 34);
}

/* The terms of all ranks add up to 0 where their digests are the same: rank 0 takes off what the others add. f64 holds
 * such sums of 2^22 ranks without rounding, in any order. */
gm_status gm_control_ask(gm_control *c, double asked, const double *numbers, int n)
{
    double weight = c->rank->rank == 0 ? 1.0 - c->rank->world : 1;
    double wish[2] = {asked, weight * digest(numbers, n)};
    if (c->wished[0] == wish[0] && c->wished[1] == wish[1]) return GM_OK;
    if (gm_tensor_data(c->wish)) GM_TRY(gm_device_write(c->device, gm_tensor_data(c->wish), wish, sizeof wish));
    memcpy(c->wished, wish, sizeof wish);
    return GM_OK;
}

gm_status gm_control_loss(gm_control *c, gm_tensor **out)
{
    if (!c->has_loss) GM_TRY(fill(c->device, c->sum, 0));
    c->has_loss = true;
    *out = c->loss;
    return gm_run_one(c->device, GM_OP_copy, NULL, c->wish, c->asked);
}

gm_status gm_control_set_targets(gm_control *c, gm_tensor *counts)
{
    return gm_run_one(c->device, GM_OP_sum, NULL, counts, c->targets);
}

/* ---- the decision ---- */

static gm_status run(gm_control *c, gm_tensor *norm, const gm_norm_terms *squares, const gm_attrs *rule)
{
    gm_tensor *in[2 + GM_CONTROL_TERMS] = {c->loss, norm};
    for (int i = 0; i < squares->n; i++) in[2 + i] = squares->term[i];
    return gm_run(
        c->device,
        &(gm_call){
            .op = GM_OP_step_control, .n_in = 2 + squares->n, .n_out = 1, .in = in, .out = &c->control, .attrs = rule});
}

gm_status gm_control_decide(gm_control *c, const gm_norm_item *items, int n, double norm, const gm_attrs *rule)
{
    gm_norm_terms squares = {0};
    gm_tensor    *given = NULL;
    gm_status     st = GM_OK;
    if (!c->has_loss) GM_TRY(fill(c->device, c->sum, 0));
    if (items) {
        GM_TRY(gm_layout_squares(c->rank, items, n, &squares));
    } else {
        GM_TRY(gm_tensor_new(c->device, GM_F64, 0, NULL, &given));
        st = fill(c->device, given, norm);
    }
    if (st == GM_OK) st = run(c, given, &squares, rule);
    gm_norm_terms_release(&squares);
    gm_tensor_release(given);
    if (st == GM_OK) c->has_loss = false;
    return st;
}

/* ---- to the host ---- */

gm_status gm_control_send(gm_control *c)
{
    slot  *s = &c->ring[(c->first + c->sent) % GM_CONTROL_RING];
    void  *data = gm_tensor_data(c->control);
    size_t bytes = GM_CONTROL_SIZE * sizeof(double);
    if (c->sent == GM_CONTROL_RING)
        return GM_FAIL(GM_EINVAL, "the numbers of %d steps wait to be taken; settle them before the next step",
                       c->sent);
    if (s->block) {
        GM_TRY(gm_device_read_later(c->device, s->numbers, data, bytes));
        GM_TRY(gm_device_mark(c->device, &s->mark));
    } else if (data) {
        memcpy(s->numbers, data, bytes);
    }
    c->sent++;
    return GM_OK;
}

/* Messages of other ranks move on. Where operations between devices are queued, which a rank that has died would keep
 * from ending, it is looked whether they still can. */
static gm_status attend(gm_control *c)
{
    bool idle;
    return c->device->attend ? c->device->attend(c->device->attend_context, &idle) : gm_rank_poll(c->rank);
}

/* Has the slot's mark been passed? The failures of other ranks and Ctrl-C end the wait. */
static gm_status arrive(gm_control *c, const slot *s, bool wait, bool *there)
{
    double   since = gm_now();
    unsigned turns = 0;
    for (;;) {
        GM_TRY(gm_device_passed(c->device, s->mark, there));
        if (*there || !wait) return GM_OK;
        GM_TRY(attend(c));
        if (gm_signals_pending() != GM_STOP_NONE) return GM_FAIL(GM_EINTERRUPT, "interrupted while waiting for a step");
        gm_comm_pause(since, &turns);
    }
}

gm_status gm_control_take(gm_control *c, bool wait, double numbers[GM_CONTROL_SIZE], bool *there)
{
    slot *s = &c->ring[c->first];
    *there = c->sent > 0;
    if (*there && s->block) GM_TRY(arrive(c, s, wait, there));
    if (!*there) return GM_OK;
    memcpy(numbers, s->numbers, GM_CONTROL_SIZE * sizeof *numbers);
    c->first = (c->first + 1) % GM_CONTROL_RING;
    c->sent--;
    return GM_OK;
}

gm_status gm_control_set(gm_control *c, int place, double value)
{
    double *data = gm_tensor_data(c->control);
    return data ? gm_device_write(c->device, data + place, &value, sizeof value) : GM_OK;
}

gm_status gm_control_scale_losses(gm_control *c, bool on)
{
    if (on && !c->scale) GM_TRY(element(c->control, GM_CONTROL_LOSS_SCALE, &c->scale));
    gm_rank_scale_losses(c->rank, on ? c->scale : NULL);
    return GM_OK;
}

gm_status gm_control_resume(gm_control *c)
{
    GM_TRY(gm_control_set(c, GM_CONTROL_HALTED, 0));
    c->sent = 0;
    c->has_loss = false;
    return gm_device_synchronize(c->device);
}
