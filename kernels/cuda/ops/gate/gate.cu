/* gate.cu - gradients of gates y = f(a) b: da = g b f'(a) and db = g f(a), in one pass over g, a and b. The limit is
 * bandwidth: five tensors are moved. */
#include "../../common/functions.cuh"
#include "../../common/rows.cuh"
#include "gate_args.h"

/* f(x) and f'(x) of the activation of a gate. */
template <class R> GM_DEVICE void gm_gate_of(int function, R x, R *value, R *slope)
{
    const R none = 0;
    switch (function) {
    case GM_FN_reglu: *value = gm_fn_relu(x, none), *slope = gm_slope_relu(x, none); break;
    case GM_FN_geglu: *value = gm_fn_gelu(x, none), *slope = gm_slope_gelu(x, none); break;
    case GM_FN_geglu_tanh: *value = gm_fn_gelu_tanh(x, none), *slope = gm_slope_gelu_tanh(x, none); break;
    default: *value = gm_fn_silu(x, none), *slope = gm_slope_silu(x, none);
    }
}

template <class T, class R = gm_real<T>, int V = gm_lanes<T>> GM_DEVICE void gm_gate_grad(const gm_gate_args a)
{
    GM_TEAM(team, lane, row);
    if (row >= a.rows) return;
    const int64_t g_at = gm_row_start(&a.g, row), a_at = gm_row_start(&a.a, row), b_at = gm_row_start(&a.b, row);
    const int64_t da_at = a.da.data ? gm_row_start(&a.da, row) : 0, db_at = a.db.data ? gm_row_start(&a.db, row) : 0;
    for (int64_t i = lane * V; i < a.width; i += (int64_t)team * V) {
        R g[V], u[V], v[V];
        gm_row_take<T>(&a.g, g_at, i, a.width, g);
        gm_row_take<T>(&a.a, a_at, i, a.width, u);
        gm_row_take<T>(&a.b, b_at, i, a.width, v);
        GM_UNROLL for (int k = 0; k < V; k++)
        {
            R value, slope;
            gm_gate_of(a.function, u[k], &value, &slope);
            u[k] = g[k] * v[k] * slope;
            v[k] = g[k] * value;
        }
        if (a.da.data) gm_row_give<T>(&a.da, da_at, i, a.width, u);
        if (a.db.data) gm_row_give<T>(&a.db, db_at, i, a.width, v);
    }
}

GM_KERNELS(gm_gate_grad, gm_gate_args)
