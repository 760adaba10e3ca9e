/* recurrent.c - the cells of recurrent layers (ops.def). A row has the numbers of a sample, those of each gate one
 * after the other. They are read beside each other, and all of a cell is worked out in registers. */

/* x, moved, dx, dmoved, gates: rows of several parts; the rest: rows of one, as wide as a state. Without data: not
 * given, or not wanted. */
typedef struct cell_job {
    int64_t  width;
    cpu_rows x, moved, gates, state, y, next; /* state: c or h */
    cpu_rows g, gh, gc, dx, dmoved, dstate;   /* backward */
} cell_job;

#define AS 32
#include "as.h"
#include "recurrent_t.h"
#define AS 64
#include "as.h"
#include "recurrent_t.h"
#define AS 16
#include "as.h"
#include "recurrent_t.h"
#define AS 0
#include "as.h"

/* Numbers of `parts` times the width are moved for each row; the functions of the gates cost as much again. */
static gm_status run_cell(gm_device *dev, cell_job *j, const cpu_rows *rows, int parts, int weight, gm_job part)
{
    cpu_parallel(dev, j->width ? rows->rows : 0, parts * weight * j->width * rows->size, part, j);
    return GM_OK;
}

static gm_status lstm_cell_rows(gm_device *dev, const gm_call *call)
{
    cell_job j = {.x = cpu_rows_of(call->in[0]),
                  .moved = rows_or_none(call->in[1]),
                  .state = rows_or_none(call->in[2]),
                  .y = cpu_rows_of(call->out[0]),
                  .next = cpu_rows_of(call->out[1]),
                  .gates = rows_or_none(call->out[2])};
    j.width = j.y.width;
    return run_cell(dev, &j, &j.y, 15, 4, BY_ELEMENT(call->in[0], lstm_cell_part));
}

static gm_status lstm_cell_grad_rows(gm_device *dev, const gm_call *call)
{
    cell_job j = {.g = rows_or_none(call->in[0]),
                  .gh = rows_or_none(call->in[1]),
                  .gc = rows_or_none(call->in[2]),
                  .gates = cpu_rows_of(call->in[3]),
                  .state = rows_or_none(call->in[4]),
                  .next = cpu_rows_of(call->in[5]),
                  .dx = cpu_rows_of(call->out[0]),
                  .dstate = rows_or_none(call->out[1])};
    j.width = j.next.width;
    return run_cell(dev, &j, &j.next, 14, 2, BY_ELEMENT(call->in[3], lstm_cell_grad_part));
}

static gm_status gru_cell_rows(gm_device *dev, const gm_call *call)
{
    cell_job j = {.x = cpu_rows_of(call->in[0]),
                  .moved = rows_or_none(call->in[1]),
                  .state = rows_or_none(call->in[2]),
                  .y = cpu_rows_of(call->out[0]),
                  .gates = rows_or_none(call->out[1])};
    j.width = j.y.width;
    return run_cell(dev, &j, &j.y, 12, 4, BY_ELEMENT(call->in[0], gru_cell_part));
}

static gm_status gru_cell_grad_rows(gm_device *dev, const gm_call *call)
{
    cell_job j = {.g = rows_or_none(call->in[0]),
                  .gh = rows_or_none(call->in[1]),
                  .gates = cpu_rows_of(call->in[2]),
                  .state = rows_or_none(call->in[3]),
                  .dx = cpu_rows_of(call->out[0]),
                  .dmoved = rows_or_none(call->out[1]),
                  .dstate = rows_or_none(call->out[2])};
    j.width = j.dx.width / 3;
    return run_cell(dev, &j, &j.dx, 14, 1, BY_ELEMENT(call->in[2], gru_cell_grad_part));
}

static gm_status cpu_lstm_cell(gm_device *dev, const gm_call *call)
{
    return cpu_with_rows(dev, call, 0, -1, lstm_cell_rows);
}

static gm_status cpu_lstm_cell_grad(gm_device *dev, const gm_call *call)
{
    return cpu_with_rows(dev, call, 0, -1, lstm_cell_grad_rows);
}

static gm_status cpu_gru_cell(gm_device *dev, const gm_call *call)
{
    return cpu_with_rows(dev, call, 0, -1, gru_cell_rows);
}

static gm_status cpu_gru_cell_grad(gm_device *dev, const gm_call *call)
{
    return cpu_with_rows(dev, call, 0, -1, gru_cell_grad_rows);
}
