/* widened.c - see widened.h. */
#include "widened.h"

#include <string.h>

#include "../../dnn/dnn.h"
#include "convolution.h"
#include "turned.h"

#define MULTIPLE 8 /* of channels, for products on tensor cores */

enum { X, W, Y, ROLES };

/* The call on other tensors. Of each role (gm_dnn_roles): the tensor that was given, and the wider one in its place, or
 * NULL. */
typedef struct widened {
    gm_call      call;
    gm_dnn_roles roles;
    gm_attrs     attrs;
    gm_tensor   *in[3], *out[1], *given[ROLES], *made[ROLES];
    int64_t      low[2]; /* zeros before the elements of x, in each dimension of space */
} widened;

static gm_tensor **place_of(widened *c, int role)
{
    int place = c->roles.place[role];
    return place == GM_DNN_OUT ? &c->out[0] : &c->in[place];
}

/* Takes padding that differs between the sides out of the call, for x to have it. */
static void take_padding(widened *c, int64_t *more)
{
    int  space = c->given[X]->ndim - 2;
    bool differs = false;
    for (int d = 0; d < space; d++) differs = differs || c->attrs.pad_low.at[d] != c->attrs.pad_high.at[d];
    for (int d = 0; differs && d < space; d++) {
        c->low[d] = c->attrs.pad_low.at[d];
        more[d] = c->low[d] + c->attrs.pad_high.at[d];
        c->attrs.pad_low.at[d] = c->attrs.pad_high.at[d] = 0;
    }
}

static int64_t up(int64_t n) { return (n + MULTIPLE - 1) / MULTIPLE * MULTIPLE; }

/* Makes the wider tensor of a role, without values, where it must differ. Of x the second dimension is the channels, of
 * y too, and of w the first two are those of y and of x. more: what x has more in each dimension of space. */
static gm_status widen(gm_device *dev, widened *c, int role, const int64_t *more)
{
    const gm_tensor *t = c->given[role];
    int64_t          shape[GM_MAX_DIMS];
    bool             same = gm_tensor_is_contiguous(t);
    for (int d = 0; d < t->ndim; d++) {
        bool channels = d == 1 || (d == 0 && role == W);
        shape[d] = channels && c->attrs.groups == 1 ? up(t->shape[d]) : t->shape[d];
        if (role == X && d >= 2) shape[d] += more[d - 2];
        same = same && shape[d] == t->shape[d];
    }
    if (same) return GM_OK;
    GM_TRY(gm_tensor_new(dev, t->dtype, t->ndim, shape, &c->made[role]));
    *place_of(c, role) = c->made[role];
    if (c->roles.place[role] == GM_DNN_OUT) c->attrs.accumulate = 0; /* the copy adds */
    return GM_OK;
}

static gm_status begin(gm_device *dev, const gm_call *call, widened *c)
{
    int64_t more[2] = {0, 0};
    *c = (widened){.call = *call, .roles = gm_dnn_roles_of(call->op), .attrs = *call->attrs, .out = {call->out[0]}};
    for (int i = 0; i < call->n_in && i < 3; i++) c->in[i] = call->in[i];
    for (int role = 0; role < ROLES; role++) c->given[role] = *place_of(c, role);
    c->call.in = c->in;
    c->call.out = c->out;
    c->call.n_out = 1;
    c->call.attrs = &c->attrs;
    take_padding(c, more);
    for (int role = 0; role < ROLES; role++) GM_TRY(widen(dev, c, role, more));
    return GM_OK;
}

/* A view of packs of 16 bytes, where rows of space are whole packs. */
static bool view_packs(gm_convolution_view *v, gm_dtype dtype)
{
    int64_t lanes = 16 / (int64_t)gm_dtype_size(dtype), space = v->size[2] * v->size[3] * v->size[4];
    if (space % lanes || (uintptr_t)v->data % 16) return false;
    *v = (gm_convolution_view){v->data,
                               {v->size[0], v->size[1], 1, 1, space / lanes},
                               {v->size[1] * space / lanes, space / lanes, space / lanes, space / lanes, 1}};
    return true;
}

/* Copies what both have, and writes zeros where only `to` has elements: to[i] = from[i + shift] in space. */
static gm_status refit(gm_device *dev, const gm_tensor *from, const gm_tensor *to, const int64_t *shift, int accumulate)
{
    char                name[GM_CUDA_NAME];
    gm_convolution_args a = {.x = gm_convolution_view_of(from), .y = gm_convolution_view_of(to)}, packs = a;
    int                 lack = 5 - to->ndim;
    a.accumulate = accumulate;
    for (int d = 0; d < to->ndim - 2; d++) a.low[d + lack] = (int32_t)shift[d];
    bool whole = !accumulate && gm_tensor_is_contiguous(from) && gm_tensor_is_contiguous(to) &&
                 !memcmp(a.x.size + 2, a.y.size + 2, 3 * sizeof a.x.size[0]);
    if (whole && view_packs(&packs.x, from->dtype) && view_packs(&packs.y, to->dtype)) {
        packs.n = packs.y.size[0] * packs.y.size[1] * packs.y.size[4];
        return GM_LAUNCH(dev, "gm_convolution_refit_packs", gm_cuda_over(dev, packs.n, 1, 256), packs);
    }
    a.n = gm_tensor_numel(to);
    return GM_LAUNCH(dev, gm_cuda_name(name, "gm_convolution_refit", to->dtype), gm_cuda_over(dev, a.n, 1, 256), a);
}

static gm_status compute(gm_device *dev, const widened *c, int accumulate, bool *served)
{
    static const int64_t none[2] = {0, 0};
    const int64_t        into[2] = {-c->low[0], -c->low[1]};
    for (int role = 0; role < ROLES; role++)
        if (c->made[role] && c->roles.place[role] != GM_DNN_OUT)
            GM_TRY(refit(dev, c->given[role], c->made[role], role == X ? into : none, 0));
    GM_TRY(gm_convolve_turned(dev, &c->call, served));
    if (!*served) GM_TRY(gm_dnn_convolve_call(dev, &c->call, served));
    for (int role = 0; *served && role < ROLES; role++)
        if (c->made[role] && c->roles.place[role] == GM_DNN_OUT)
            GM_TRY(refit(dev, c->made[role], c->given[role], role == X ? c->low : none, accumulate));
    return GM_OK;
}

gm_status gm_convolve_widened(gm_device *dev, const gm_call *call, bool *served)
{
    widened            c;
    bool               takes = false;
    gm_dnn_convolution problem;
    gm_tensor         *t[ROLES];
    *served = false;
    if (!gm_dtype_is_narrow(call->out[0]->dtype) || call->out[0]->ndim > 4) return GM_OK;
    gm_status st = begin(dev, call, &c);
    if (st == GM_OK) st = gm_dnn_problem_of(dev, &c.call, &problem, t, &takes);
    if (st == GM_OK && takes) st = compute(dev, &c, call->attrs->accumulate, served);
    for (int role = 0; role < ROLES; role++) gm_tensor_release(c.made[role]);
    return st;
}
