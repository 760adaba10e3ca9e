/* recurrent.h - LSTM and GRU along a whole sequence (kernels/ops.def has the cells).
 *
 * The function stands above gm_apply: it is made of the steps of ops.def, a product and a cell for each place of the
 * sequence, and records one node. Backward, one product makes the gradient of the weights of all places. Ranks may
 * share the samples; it sends nothing. */
#ifndef GM_RECURRENT_H
#define GM_RECURRENT_H

#include "../../autograd/apply.h"

/* x (length, samples, gates width): the part of the inputs, with its bias; w (gates width, width), b (gates width); h
 * and c (samples, width): the state before the first place. b, h, c may be NULL: zeros. */
enum { GM_RNN_X, GM_RNN_W, GM_RNN_B, GM_RNN_H, GM_RNN_C, GM_RNN_INPUTS };

/* *y (length, samples, width): h behind each place. cell: GM_OP_lstm_cell or GM_OP_gru_cell. *last: c behind the last
 * place of an LSTM, (samples, width); NULL for a GRU, which has none, nor in[GM_RNN_C]. reverse: from the last place to
 * the first. GM_ESHAPE: shapes or layouts do not fit. */
gm_status gm_recurrent(gm_rank *r, gm_op cell, gm_value *const *in, bool reverse, gm_value **y, gm_value **last);

#endif
