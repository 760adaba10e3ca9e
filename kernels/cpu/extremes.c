/* extremes.c - max, min and argmax along one dimension.
 *
 * The first of equals counts, and the first NaN before all else. A row is searched twice, for its extreme and for its
 * place. Where rows are short, or where the dimension is not the last of a contiguous tensor, lanes are rows: each
 * vector of elements k is compared with what the lanes have found before, and nothing is turned in memory. */

#define EXTREME_VECTORS 4  /* of columns that are searched beside each other: no one waits for the one before */
#define EXTREME_COLUMNS 8  /* so few lanes are worth it */
#define EXTREME_SHORT   64 /* elements of rows that are copied beside each other */

typedef struct extreme_job {
    cpu_rows x, value, index;
    int64_t  width;
    bool     smallest, has_value;
} extreme_job;

/* Contiguous: x (outer, n, inner), results (outer, inner). */
typedef struct extreme_columns {
    const void *x;
    void       *value; /* or NULL */
    int64_t    *index;
    int64_t     n, inner, strips; /* strips: of columns, for each of the outer places */
    bool        smallest;
} extreme_columns;

#define AS 32
#include "as.h"
#include "extremes_t.h"
#define AS 64
#include "as.h"
#include "extremes_t.h"
#define AS 0
#include "as.h"

/* One value a row: the reduced dimension is gone, or of size 1 and moved to the end. */
static cpu_rows reduced_rows(const gm_tensor *t, const gm_tensor *x)
{
    return t->ndim == x->ndim ? cpu_rows_of(t) : cpu_scalars_of(t);
}

/* Are rows of x neighbours, and what they give, too? */
static bool extremes_beside(const extreme_job *j)
{
    return j->width <= EXTREME_SHORT && j->x.even && j->index.even && j->index.step == sizeof(int64_t) &&
           (!j->has_value || (j->value.even && j->value.step == j->x.size));
}

static gm_status extreme_rows(gm_device *dev, const gm_call *call)
{
    gm_tensor  *x = call->in[0], *value = call->op == GM_OP_argmax ? NULL : call->out[0];
    extreme_job j = {.x = cpu_rows_of(x), .smallest = call->op == GM_OP_min, .has_value = value};
    j.width = j.x.width;
    if (value) j.value = reduced_rows(value, x);
    j.index = reduced_rows(call->out[value ? 1 : 0], x);
    gm_job part = extremes_beside(&j) ? BY_TYPE(x, extreme_beside_part) : BY_TYPE(x, extreme_part);
    cpu_parallel(dev, j.x.rows, j.width * j.x.size, part, &j);
    return GM_OK;
}

/* Does the call go by columns? Then j is what they need but for strips. */
static bool extreme_by_columns(const gm_call *call, int dim, extreme_columns *j)
{
    const gm_tensor *x = call->in[0], *value = call->op == GM_OP_argmax ? NULL : call->out[0];
    const gm_tensor *index = call->out[value ? 1 : 0];
    if (!gm_tensor_is_contiguous(x) || !gm_tensor_is_contiguous(index)) return false;
    if (value && !gm_tensor_is_contiguous(value)) return false;
    *j = (extreme_columns){.x = gm_tensor_data(x),
                           .value = value ? gm_tensor_data(value) : NULL,
                           .index = gm_tensor_data(index),
                           .n = x->shape[dim],
                           .inner = 1,
                           .smallest = call->op == GM_OP_min};
    for (int d = dim + 1; d < x->ndim; d++) j->inner *= x->shape[d];
    return j->inner >= EXTREME_COLUMNS && j->n > 0 && j->n < INT32_MAX;
}

static gm_status extreme_along(gm_device *dev, const gm_call *call)
{
    const gm_tensor *x = call->in[0];
    const int        dim = (int)(call->attrs->dim < 0 ? call->attrs->dim + x->ndim : call->attrs->dim);
    extreme_columns  j;
    if (!x->ndim || !extreme_by_columns(call, dim, &j)) return cpu_with_rows(dev, call, x->ndim, dim, extreme_rows);
    const int64_t size = (int64_t)gm_dtype_size(x->dtype), strip = EXTREME_VECTORS * CPU_VECTOR / size;
    j.strips = (j.inner + strip - 1) / strip;
    const int64_t outer = gm_tensor_numel(x) / (j.n * j.inner), columns = j.inner < strip ? j.inner : strip;
    cpu_parallel(dev, outer * j.strips, columns * j.n * size, BY_TYPE(x, extreme_columns_part), &j);
    return GM_OK;
}

static gm_status cpu_max(gm_device *dev, const gm_call *call) { return extreme_along(dev, call); }
static gm_status cpu_min(gm_device *dev, const gm_call *call) { return extreme_along(dev, call); }
static gm_status cpu_argmax(gm_device *dev, const gm_call *call) { return extreme_along(dev, call); }
