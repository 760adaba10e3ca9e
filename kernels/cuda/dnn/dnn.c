/* dnn.c - see dnn.h: from calls to problems, the plans of a device, and running them. */
#include "dnn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../runtime/counts.h"
#include "../runtime/driver.h"
#include "state.h"

#define ALIGNMENT 16 /* bytes, of pointers and of rows */

struct planned {
    gm_dnn_key      key; /* with zeros behind the problem */
    gm_dnn_plan     plan;
    struct planned *next;
};

/* ---- what cuDNN can be asked ---- */

/* Strides of t (b, rows, heads, d) as cuDNN shall see them: where a size is 1, one that any check accepts. */
static bool read_strides(const gm_tensor *t, gm_dnn_strides *out)
{
    const int64_t each = ALIGNMENT / (int64_t)gm_dtype_size(t->dtype), *n = t->shape;
    int64_t       stride[3] = {t->stride[0], t->stride[1], t->stride[2]};
    int64_t       whole[3] = {n[1] * n[2] * n[3], n[2] * n[3], n[3]};
    for (int i = 0; i < 3; i++) {
        if (n[i] == 1) stride[i] = whole[i];
        if (stride[i] <= 0 || stride[i] % each) return false;
    }
    *out = (gm_dnn_strides){stride[0], stride[1], stride[2]};
    return (n[3] == 1 || t->stride[3] == 1) && (uintptr_t)gm_tensor_data(t) % ALIGNMENT == 0;
}

static bool has_elements(const gm_call *call)
{
    return gm_tensor_numel(call->in[0]) > 0 && gm_tensor_numel(call->in[1]) > 0;
}

static const gm_tensor *limits_of(const gm_call *call) { return call->in[call->op == GM_OP_attention ? 4 : 7]; }
static const gm_tensor *bias_of(const gm_call *call) { return call->in[call->op == GM_OP_attention ? 5 : 8]; }

/* false: something that a problem cannot express. */
static bool read_problem(const gm_call *call, const struct gm_dnn *dnn, gm_dnn_problem *p)
{
    const gm_tensor *q = call->in[0], *k = call->in[1], *v = call->in[2];
    const gm_attrs  *attrs = call->attrs;
    bool             gradient = call->op == GM_OP_attention_grad;
    memset(p, 0, sizeof *p);
    if (call->in[3] || limits_of(call) || attrs->p > 0 || attrs->accumulate || !has_elements(call)) return false;
    if (bias_of(call) || attrs->window || attrs->behind || attrs->softcap > 0) return false;
    p->b = q->shape[0], p->h = q->shape[2], p->hk = k->shape[2];
    p->s = q->shape[1], p->t = k->shape[1], p->d = q->shape[3];
    p->dtype = q->dtype;
    p->arch = dnn->arch;
    p->causal = attrs->causal;
    p->gradient = gradient;
    const gm_tensor *o = gradient ? call->in[4] : call->out[0], *lse = gradient ? call->in[5] : call->out[1];
    if (!read_strides(q, &p->q) || !read_strides(k, &p->k) || !read_strides(v, &p->v)) return false;
    if (!read_strides(o, &p->o) || !gm_tensor_is_contiguous(lse)) return false;
    if (!gradient) return true;
    return read_strides(call->in[6], &p->g) && read_strides(call->out[0], &p->dq) &&
           read_strides(call->out[1], &p->dk) && read_strides(call->out[2], &p->dv);
}

/* ---- the library and the plans of a device ---- */

static gm_status start(gm_cuda *cu, struct gm_dnn *dnn)
{
    int              major, minor;
    const gm_driver *d = cu->driver;
    if (!strcmp(d->dnn, "none")) {
        snprintf(dnn->missing, sizeof dnn->missing, "GANYMEDE_CUDA_DNN is none");
        return GM_OK;
    }
    gm_status st = gm_dnn_load(d->dnn, &dnn->lib);
    dnn->there = st == GM_OK;
    if (!dnn->there) {
        snprintf(dnn->missing, sizeof dnn->missing, "%.*s", (int)strcspn(gm_last_error(), ";"), gm_last_error());
        return GM_OK;
    }
    GM_CU(d, cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, cu->device));
    GM_CU(d, cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, cu->device));
    dnn->arch = 10 * major + minor;
    GM_CUDNN(&dnn->lib, cudnnCreate(&dnn->handle));
    GM_CUDNN(&dnn->lib, cudnnSetStream(dnn->handle, (cudaStream_t)cu->stream));
    return GM_OK;
}

gm_status gm_dnn_open(gm_cuda *cu)
{
    gm_dnn_library   lib;
    const gm_driver *d = cu->driver;
    return d->dnn_named && strcmp(d->dnn, "none") ? gm_dnn_load(d->dnn, &lib) : GM_OK;
}

static void drop(struct gm_dnn *dnn)
{
    while (dnn->plans) {
        struct planned *p = dnn->plans;
        dnn->plans = p->next;
        gm_dnn_plan_close(&p->plan);
        free(p);
    }
    if (dnn->handle) dnn->lib.cudnnDestroy(dnn->handle);
    free(dnn);
}

void gm_dnn_stop(gm_cuda *cu)
{
    if (cu->dnn) drop(cu->dnn);
    cu->dnn = NULL;
}

gm_status gm_dnn_enter(gm_device *dev, struct gm_dnn **out)
{
    gm_cuda *cu;
    GM_TRY(gm_cuda_enter(dev, &cu));
    if (!cu->dnn) {
        struct gm_dnn *dnn = calloc(1, sizeof *dnn);
        if (!dnn) return GM_FAIL(GM_ENOMEM, "no memory for cuDNN's state");
        gm_status st = start(cu, dnn);
        if (st != GM_OK) {
            drop(dnn);
            return st;
        }
        cu->dnn = dnn;
    }
    *out = cu->dnn;
    return GM_OK;
}

gm_status gm_dnn_find_plan(struct gm_dnn *dnn, const gm_dnn_writing *how, size_t size, const gm_dnn_plan **out)
{
    gm_dnn_key      key;
    struct planned *p = dnn->plans;
    memset(&key, 0, sizeof key);
    memcpy(&key, how->problem, size);
    while (p && memcmp(&p->key, &key, sizeof key)) p = p->next;
    if (!p) {
        if (!(p = calloc(1, sizeof *p))) return GM_FAIL(GM_ENOMEM, "no memory for a plan of cuDNN");
        p->key = key;
        gm_status st = gm_dnn_plan_new(&dnn->lib, how, dnn->handle, NULL, &p->plan);
        if (st != GM_OK) {
            free(p);
            return st;
        }
        p->next = dnn->plans;
        dnn->plans = p;
    }
    *out = &p->plan;
    return GM_OK;
}

/* ---- running ---- */

/* What a plan is given, with the numbers themselves. */
typedef struct pack {
    gm_dnn_pack given;
    float       scale, hidden, one;
    int32_t     later;
} pack;

void gm_dnn_give(gm_dnn_pack *k, int64_t uid, const void *data)
{
    k->uid[k->n] = uid;
    k->data[k->n++] = (void *)(uintptr_t)data;
}

static void give(pack *k, gm_dnn_uid uid, const void *data) { gm_dnn_give(&k->given, uid, data); }

static void give_tensor(pack *k, gm_dnn_uid uid, const gm_tensor *t) { give(k, uid, gm_tensor_data(t)); }

static void give_numbers(pack *k, const gm_dnn_problem *p, const gm_attrs *attrs)
{
    k->scale = (float)(attrs->scale > 0 ? attrs->scale : 1 / sqrt((double)p->d));
    k->hidden = -INFINITY;
    k->one = 1;
    k->later = (int32_t)(p->t - p->s);
    give(k, GM_DNN_SCALE, &k->scale);
    if (p->causal) give(k, GM_DNN_HIDDEN, &k->hidden);
    if (p->causal && p->s != p->t) give(k, GM_DNN_LATER, &k->later);
    if (p->gradient) give(k, GM_DNN_ONE, &k->one);
}

static void give_tensors(pack *k, const gm_call *call)
{
    static const gm_dnn_uid inputs[] = {GM_DNN_Q, GM_DNN_K, GM_DNN_V, 0, GM_DNN_O, GM_DNN_LSE, GM_DNN_G, 0, 0};
    static const gm_dnn_uid results[] = {GM_DNN_O, GM_DNN_LSE}, gradients[] = {GM_DNN_DQ, GM_DNN_DK, GM_DNN_DV};
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i]) give_tensor(k, inputs[i], call->in[i]); /* there are neither a mask nor limits nor a bias */
    for (int i = 0; i < call->n_out; i++)
        if (call->out[i]) give_tensor(k, (call->op == GM_OP_attention ? results : gradients)[i], call->out[i]);
}

gm_status gm_dnn_execute(struct gm_dnn *dnn, const gm_dnn_plan *plan, const gm_dnn_pack *k, void *workspace,
                         const char *what)
{
    gm_dnn_builder b;
    gm_dnn_begin(&b, &dnn->lib, 0);
    cudnnBackendDescriptor_t d = gm_dnn_make(&b, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    gm_dnn_set(&b, d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, k->n, k->uid);
    gm_dnn_set(&b, d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, k->n, k->data);
    gm_dnn_set(&b, d, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    gm_dnn_finalize(&b, d, what);
    gm_status st = b.st;
    if (st == GM_OK) {
        gm_cuda_count_library();
        cudnnStatus_t s = dnn->lib.cudnnBackendExecute(dnn->handle, plan->plan, d);
        if (s != CUDNN_STATUS_SUCCESS) st = gm_dnn_failed(&dnn->lib, s, __FILE__, __LINE__, what);
    }
    gm_dnn_end(&b);
    return st;
}

static size_t rounded(int64_t bytes) { return ((size_t)bytes + 255) / 256 * 256; }

/* One block holds cuDNN's workspace and, of a gradient, the two sums that it wants stored. */
static gm_status run(gm_device *dev, struct gm_dnn *dnn, const gm_dnn_problem *p, const gm_call *call)
{
    const gm_dnn_plan *plan = NULL;
    void              *data;
    gm_block          *block;
    pack               k = {.given.n = 0};
    gm_dnn_writing     how = gm_dnn_of_attention(p);
    GM_TRY(gm_dnn_find_plan(dnn, &how, sizeof *p, &plan));
    size_t own = rounded(plan->workspace), delta = p->gradient ? rounded(4 * p->b * p->h * p->s) : 0;
    size_t sums = p->gradient ? rounded(4 * p->b * p->h * p->s * p->d) : 0;
    GM_TRY(gm_cuda_scratch(dev, own + delta + sums + 256, &data, &block));
    give_tensors(&k, call);
    give_numbers(&k, p, call->attrs);
    if (p->gradient) {
        give(&k, GM_DNN_DELTA, (char *)data + own);
        give(&k, GM_DNN_DQ_SUM, (char *)data + own + delta);
    }
    gm_status st = gm_dnn_execute(dnn, plan, &k.given, data, how.what);
    gm_pool_release(dev->pool, block);
    return st;
}

/* Of a call that read_problem refuses. */
static const char *what_has_no_problem(const gm_call *call)
{
    if (call->in[3]) return "a key mask";
    if (limits_of(call)) return "limits of what a query sees";
    if (bias_of(call)) return "a bias";
    if (call->attrs->p > 0) return "dropout";
    if (call->attrs->accumulate) return "parts that are added up";
    if (call->attrs->window) return "a window";
    if (call->attrs->behind) return "keys that end before the last query";
    if (call->attrs->softcap > 0) return "a softcap";
    return "rows that do not begin at multiples of 16 bytes";
}

/* cuDNN adds dq up in f32 in the order in which blocks end (graph.c), though its notes call that deterministic. */
static void say_varying(gm_device *dev, const gm_call *call)
{
    char text[320];
    snprintf(
        text, sizeof text,
        "gradients of attention in %s are cuDNN's, which adds up in any order: their last bits may differ from run "
        "to run; deterministic = true takes our own kernel, which is slower",
        gm_dtype_name(call->in[0]->dtype));
    gm_device_note(dev, text);
}

/* Our own kernel does it: that is said once. */
static gm_status say_why(gm_device *dev, const gm_call *call, bool there, const char *why)
{
    char text[320];
    if (!has_elements(call)) return GM_OK;
    snprintf(text, sizeof text, "attention in %s runs on our own kernel, slower than cuDNN's%s%.200s",
             gm_dtype_name(call->in[0]->dtype), there ? ", which does not take " : ": ", why);
    gm_device_note(dev, text);
    return GM_OK;
}

static gm_status attend(gm_device *dev, const gm_call *call, bool *served)
{
    struct gm_dnn *dnn = NULL;
    gm_dnn_problem p;
    bool           gradient = call->op == GM_OP_attention_grad;
    *served = false;
    if (!gm_dtype_is_narrow(call->in[0]->dtype)) return GM_OK; /* without asking for the library */
    if (gradient && dev->deterministic) return GM_OK;          /* as the user has asked */
    GM_TRY(gm_dnn_enter(dev, &dnn));
    const char *why = dnn->there ? NULL : dnn->missing;
    if (!why && !read_problem(call, dnn, &p)) why = what_has_no_problem(call);
    if (!why) gm_dnn_takes(&p, &why);
    *served = !why;
    if (*served && gradient) say_varying(dev, call);
    return *served ? run(dev, dnn, &p, call) : say_why(dev, call, dnn->there, why);
}

gm_status gm_dnn_attention(gm_device *dev, const gm_call *call, bool *served) { return attend(dev, call, served); }
gm_status gm_dnn_attention_grad(gm_device *dev, const gm_call *call, bool *served) { return attend(dev, call, served); }
