/* gate.c - gate_grad: both gradients of a gate y = f(a) b in one pass over g, a and b. The gates themselves are binary
 * functions (elementwise_t.h). */

typedef struct gate_job {
    gm_function function;
    cpu_rows    g, a, b, da, db; /* da, db without data: not wanted */
} gate_job;

#define AS 32
#include "as.h"
#include "gate_t.h"
#define AS 64
#include "as.h"
#include "gate_t.h"
#define AS 16
#include "as.h"
#include "gate_t.h"
#define AS 0
#include "as.h"

static gm_status gate_grad_rows(gm_device *dev, const gm_call *call)
{
    gate_job j = {.function = call->attrs->function};
    j.g = cpu_rows_of(call->in[0]);
    j.a = cpu_rows_of(call->in[1]);
    j.b = cpu_rows_of(call->in[2]);
    j.da = rows_or_none(call->out[0]);
    j.db = rows_or_none(call->out[1]);
    int64_t bytes = 5 * j.g.width * j.g.size * function_weight(j.function, call->in[0]->dtype);
    cpu_parallel(dev, j.g.width ? j.g.rows : 0, bytes, BY_ELEMENT(call->in[0], gate_grad_part), &j);
    return GM_OK;
}

static gm_status cpu_gate_grad(gm_device *dev, const gm_call *call)
{
    return cpu_with_rows(dev, call, 0, -1, gate_grad_rows);
}
