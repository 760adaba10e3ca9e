/* elementwise.c - axpy, affine, scale, unary, binary, compare and where, with gradients of the unary functions.
 *
 * Each op is a function over contiguous rows (elementwise_t.h). cpu_elementwise brings tensors of any strides, and
 * broadcasting, to this form. All functions are vector code; only sin, cos, pow and power of doubles call libm for each
 * element. */

#define AS 32
#include "as.h"
#include "elementwise_t.h"
#define AS 64
#include "as.h"
#include "elementwise_t.h"
#define AS 16
#include "as.h"
#include "elementwise_t.h"
#define AS 17
#include "as.h"
#include "elementwise_t.h"
#define AS 0
#include "as.h"

#define BY_TYPE(tensor, name)    ((tensor)->dtype == GM_F32 ? name##_f32 : name##_f64)
#define BY_ELEMENT(tensor, name) ((tensor)->dtype == GM_BF16 ? name##_bf16 : BY_TYPE(tensor, name))
#define BY_ANY(tensor, name)     ((tensor)->dtype == GM_F16 ? name##_f16 : BY_ELEMENT(tensor, name)) /* f16, too */

/* Arithmetic of a function in units of the traffic of an element: how soon threads pay. */
static int function_weight(gm_function f, gm_dtype dtype)
{
    switch (f) {
    case GM_FN_sin:
    case GM_FN_cos:
    case GM_FN_power:
    case GM_FN_pow: return dtype == GM_F64 ? 16 : 8;
    case GM_FN_gelu:
    case GM_FN_gelu_tanh:
    case GM_FN_silu:
    case GM_FN_sigmoid:
    case GM_FN_tanh:
    case GM_FN_geglu:
    case GM_FN_geglu_tanh:
    case GM_FN_swiglu:
    case GM_FN_exp:
    case GM_FN_log:
    case GM_FN_softplus: return 4;
    default: return 1;
    }
}

/* How a function's rows write: those that call libm for each element do not stream themselves. */
static int function_rows(gm_function f, gm_dtype dtype)
{
    return function_weight(f, dtype) == 16 ? 0 : CPU_ROW_STREAMS;
}

static gm_status cpu_axpy(gm_device *dev, const gm_call *call)
{
    gm_tensor *x = call->in[0], *y = call->out[0];
    cpu_elementwise(dev, 2, (gm_tensor *[]){y, x}, CPU_ROW_UPDATES, 1, BY_ANY(y, axpy_dense), call->attrs);
    return GM_OK;
}

static gm_status cpu_affine(gm_device *dev, const gm_call *call)
{
    gm_tensor *x = call->in[0], *y = call->out[0];
    cpu_elementwise(dev, 2, (gm_tensor *[]){y, x}, CPU_ROW_STREAMS, 1, BY_ANY(y, affine_dense), call->attrs);
    return GM_OK;
}

static gm_status cpu_scale(gm_device *dev, const gm_call *call)
{
    gm_tensor *x = call->in[0], *s = call->in[1], *y = call->out[0];
    gm_attrs   at = gm_attrs_default();
    at.alpha = gm_load(s->dtype, gm_tensor_data(s), 0);
    if (call->attrs->accumulate)
        cpu_elementwise(dev, 2, (gm_tensor *[]){y, x}, CPU_ROW_UPDATES, 1, BY_ANY(y, axpy_dense), &at);
    else cpu_elementwise(dev, 2, (gm_tensor *[]){y, x}, CPU_ROW_STREAMS, 1, BY_ANY(y, affine_dense), &at);
    return GM_OK;
}

static gm_status cpu_unary(gm_device *dev, const gm_call *call)
{
    gm_tensor *x = call->in[0], *y = call->out[0];
    cpu_elementwise(dev, 2, (gm_tensor *[]){y, x}, function_rows(call->attrs->function, y->dtype),
                    function_weight(call->attrs->function, y->dtype), BY_ANY(y, unary_dense), call->attrs);
    return GM_OK;
}

static gm_status cpu_unary_grad(gm_device *dev, const gm_call *call)
{
    gm_tensor *x = call->in[0], *g = call->in[1], *dx = call->out[0];
    cpu_elementwise(dev, 3, (gm_tensor *[]){dx, x, g}, function_rows(call->attrs->function, dx->dtype),
                    function_weight(call->attrs->function, dx->dtype), BY_ANY(x, unary_grad_dense), call->attrs);
    return GM_OK;
}

/* Has binary_across this function? */
static bool has_across(gm_function f) { return f == GM_FN_add || f == GM_FN_sub || f == GM_FN_mul || f == GM_FN_div; }

static gm_status cpu_binary(gm_device *dev, const gm_call *call)
{
    gm_tensor        *a = call->in[0], *b = call->in[1], *y = call->out[0];
    const gm_function f = call->attrs->function;
    cpu_elementwise_across(dev, 3, (gm_tensor *[]){y, a, b}, function_rows(f, y->dtype), function_weight(f, y->dtype),
                           BY_ANY(a, binary_dense), has_across(f) ? BY_ANY(a, binary_across) : NULL, call->attrs);
    return GM_OK;
}

static gm_status cpu_compare(gm_device *dev, const gm_call *call)
{
    gm_tensor *a = call->in[0], *b = call->in[1], *y = call->out[0];
    cpu_elementwise(dev, 3, (gm_tensor *[]){y, a, b}, 0, 1, BY_ANY(a, compare_dense), call->attrs);
    return GM_OK;
}

static gm_status cpu_where(gm_device *dev, const gm_call *call)
{
    gm_tensor *c = call->in[0], *a = call->in[1], *b = call->in[2], *y = call->out[0];
    cpu_elementwise(dev, 4, (gm_tensor *[]){y, c, a, b}, 0, 1, BY_ANY(a, where_dense), call->attrs);
    return GM_OK;
}
