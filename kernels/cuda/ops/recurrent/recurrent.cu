/* recurrent.cu - the cells of recurrent layers, forward and backward, in one pass over the numbers of the gates. The
 * limit is bandwidth, or that of a launch: a step of a layer has few numbers. */
#include "../../common/functions.cuh"
#include "../../common/rows.cuh"
#include "recurrent_args.h"

#define GM_CELL_VALUES(v) template <class T, class R = gm_real<T>, int V = gm_lanes<T>> GM_DEVICE void v

/* V elements of a row from i on; zeros where the tensor is not given. */
GM_CELL_VALUES(gm_cell_take)(const gm_row_view *rows, int64_t row, int64_t i, int64_t n, R (&x)[V])
{
    if (rows->data) {
        gm_row_take<T>(rows, gm_row_start(rows, row), i, n, x);
    } else {
        GM_UNROLL for (int k = 0; k < V; k++) x[k] = 0;
    }
}

GM_CELL_VALUES(gm_cell_give)(const gm_row_view *rows, int64_t row, int64_t i, int64_t n, const R (&x)[V])
{
    if (rows->data) gm_row_give<T>(rows, gm_row_start(rows, row), i, n, x);
}

/* x + moved of a gate. */
GM_CELL_VALUES(gm_cell_sum)(const gm_cell_args *a, int gate, int64_t row, int64_t i, R (&x)[V])
{
    R moved[V];
    gm_cell_take<T>(&a->x[gate], row, i, a->width, x);
    gm_cell_take<T>(&a->moved[gate], row, i, a->width, moved);
    GM_UNROLL for (int k = 0; k < V; k++) x[k] += moved[k];
}

template <class T, class R = gm_real<T>, int V = gm_lanes<T>> GM_DEVICE void gm_lstm_cell(const gm_cell_args a)
{
    GM_TEAM(team, lane, row);
    if (row >= a.rows) return;
    for (int64_t i = lane * V; i < a.width; i += (int64_t)team * V) {
        R in[V], forget[V], candidate[V], out[V], c[V];
        gm_cell_sum<T>(&a, 0, row, i, in);
        gm_cell_sum<T>(&a, 1, row, i, forget);
        gm_cell_sum<T>(&a, 2, row, i, candidate);
        gm_cell_sum<T>(&a, 3, row, i, out);
        gm_cell_take<T>(&a.state, row, i, a.width, c);
        GM_UNROLL for (int k = 0; k < V; k++)
        {
            in[k] = gm_sigmoid(in[k]), forget[k] = gm_sigmoid(forget[k]);
            candidate[k] = tanh(candidate[k]), out[k] = gm_sigmoid(out[k]);
            c[k] = forget[k] * c[k] + in[k] * candidate[k];
        }
        gm_cell_give<T>(&a.next, row, i, a.width, c);
        GM_UNROLL for (int k = 0; k < V; k++) c[k] = out[k] * tanh(c[k]);
        gm_cell_give<T>(&a.y, row, i, a.width, c);
        gm_cell_give<T>(&a.gates[0], row, i, a.width, in);
        gm_cell_give<T>(&a.gates[1], row, i, a.width, forget);
        gm_cell_give<T>(&a.gates[2], row, i, a.width, candidate);
        gm_cell_give<T>(&a.gates[3], row, i, a.width, out);
    }
}

template <class T, class R = gm_real<T>, int V = gm_lanes<T>> GM_DEVICE void gm_lstm_cell_grad(const gm_cell_args a)
{
    GM_TEAM(team, lane, row);
    if (row >= a.rows) return;
    for (int64_t i = lane * V; i < a.width; i += (int64_t)team * V) {
        R in[V], forget[V], candidate[V], out[V], c[V], t[V], g[V], s[V], more[V];
        gm_cell_take<T>(&a.gates[0], row, i, a.width, in);
        gm_cell_take<T>(&a.gates[1], row, i, a.width, forget);
        gm_cell_take<T>(&a.gates[2], row, i, a.width, candidate);
        gm_cell_take<T>(&a.gates[3], row, i, a.width, out);
        gm_cell_take<T>(&a.state, row, i, a.width, c);
        gm_cell_take<T>(&a.next, row, i, a.width, t);
        gm_cell_take<T>(&a.g, row, i, a.width, g);
        gm_cell_take<T>(&a.gh, row, i, a.width, more);
        gm_cell_take<T>(&a.gc, row, i, a.width, s);
        GM_UNROLL for (int k = 0; k < V; k++)
        {
            t[k] = tanh(t[k]);
            g[k] += more[k];
            s[k] += g[k] * out[k] * (1 - t[k] * t[k]);
            out[k] = g[k] * t[k] * out[k] * (1 - out[k]);
            c[k] = s[k] * c[k] * forget[k] * (1 - forget[k]);
            forget[k] *= s[k];
            g[k] = s[k] * candidate[k] * in[k] * (1 - in[k]);
            candidate[k] = s[k] * in[k] * (1 - candidate[k] * candidate[k]);
        }
        gm_cell_give<T>(&a.x[0], row, i, a.width, g);
        gm_cell_give<T>(&a.x[1], row, i, a.width, c);
        gm_cell_give<T>(&a.x[2], row, i, a.width, candidate);
        gm_cell_give<T>(&a.x[3], row, i, a.width, out);
        gm_cell_give<T>(&a.dstate, row, i, a.width, forget);
    }
}

template <class T, class R = gm_real<T>, int V = gm_lanes<T>> GM_DEVICE void gm_gru_cell(const gm_cell_args a)
{
    GM_TEAM(team, lane, row);
    if (row >= a.rows) return;
    for (int64_t i = lane * V; i < a.width; i += (int64_t)team * V) {
        R reset[V], z[V], candidate[V], given[V], h[V];
        gm_cell_sum<T>(&a, 0, row, i, reset);
        gm_cell_sum<T>(&a, 1, row, i, z);
        gm_cell_take<T>(&a.x[2], row, i, a.width, candidate);
        gm_cell_take<T>(&a.moved[2], row, i, a.width, given);
        gm_cell_take<T>(&a.state, row, i, a.width, h);
        GM_UNROLL for (int k = 0; k < V; k++)
        {
            reset[k] = gm_sigmoid(reset[k]), z[k] = gm_sigmoid(z[k]);
            candidate[k] = tanh(candidate[k] + reset[k] * given[k]);
            h[k] = (1 - z[k]) * candidate[k] + z[k] * h[k];
        }
        gm_cell_give<T>(&a.y, row, i, a.width, h);
        gm_cell_give<T>(&a.gates[0], row, i, a.width, reset);
        gm_cell_give<T>(&a.gates[1], row, i, a.width, z);
        gm_cell_give<T>(&a.gates[2], row, i, a.width, candidate);
        gm_cell_give<T>(&a.gates[3], row, i, a.width, given);
    }
}

template <class T, class R = gm_real<T>, int V = gm_lanes<T>> GM_DEVICE void gm_gru_cell_grad(const gm_cell_args a)
{
    GM_TEAM(team, lane, row);
    if (row >= a.rows) return;
    for (int64_t i = lane * V; i < a.width; i += (int64_t)team * V) {
        R reset[V], z[V], candidate[V], given[V], h[V], g[V], more[V];
        gm_cell_take<T>(&a.gates[0], row, i, a.width, reset);
        gm_cell_take<T>(&a.gates[1], row, i, a.width, z);
        gm_cell_take<T>(&a.gates[2], row, i, a.width, candidate);
        gm_cell_take<T>(&a.gates[3], row, i, a.width, given);
        gm_cell_take<T>(&a.state, row, i, a.width, h);
        gm_cell_take<T>(&a.g, row, i, a.width, g);
        gm_cell_take<T>(&a.gh, row, i, a.width, more);
        GM_UNROLL for (int k = 0; k < V; k++)
        {
            g[k] += more[k];
            h[k] = g[k] * (h[k] - candidate[k]) * z[k] * (1 - z[k]);
            candidate[k] = g[k] * (1 - z[k]) * (1 - candidate[k] * candidate[k]);
            g[k] *= z[k];
            z[k] = candidate[k] * reset[k];
            reset[k] = candidate[k] * given[k] * reset[k] * (1 - reset[k]);
        }
        gm_cell_give<T>(&a.x[0], row, i, a.width, reset);
        gm_cell_give<T>(&a.x[1], row, i, a.width, h);
        gm_cell_give<T>(&a.x[2], row, i, a.width, candidate);
        gm_cell_give<T>(&a.moved[0], row, i, a.width, reset);
        gm_cell_give<T>(&a.moved[1], row, i, a.width, h);
        gm_cell_give<T>(&a.moved[2], row, i, a.width, z);
        gm_cell_give<T>(&a.dstate, row, i, a.width, g);
    }
}

GM_KERNELS(gm_lstm_cell, gm_cell_args)
GM_KERNELS(gm_lstm_cell_grad, gm_cell_args)
GM_KERNELS(gm_gru_cell, gm_cell_args)
GM_KERNELS(gm_gru_cell_grad, gm_cell_args)
