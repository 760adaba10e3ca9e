/* muon.h - Muon: momentum whose update of each matrix is orthogonalised (Jordan 2024, newton_schulz.h; Moonlight: Liu
 * et al. 2025, arXiv:2502.16982). As torch.optim.Muon:
 *
 *     buffer = momentum buffer + (1 - momentum) g
 *     u      = momentum buffer + (1 - momentum) g with nesterov, else buffer
 *     w      = (1 - lr weight_decay) w - lr scale orthogonal(u)
 *
 * The iteration needs the whole matrix, and ranks may hold parts of it: of the parameter, or with ZeRO of its gradient
 * and states. So each matrix has one owner (muon_plan.h). The others send it their parts of u, the owner iterates, and
 * the parts travel back. No rank repeats another's work. Matrices travel together, about 64 MiB at a time: for each set
 * of matrices that are cut alike there are two all_to_all over the ranks that hold different parts, and one all_gather
 * over the ranks that hold copies. Matrices are computed in f32, or in f64 if the parameters are f64.
 *
 * The buffers have the layout of the gradients. Parameters of 16 bits have masters, as in optimizer.h. A parameter
 * without a gradient is not changed. The trap: a step is collective over all ranks of a stage, whatever cuts the
 * parameters. */
#ifndef GM_MUON_H
#define GM_MUON_H

#include "muon_plan.h"
#include "newton_schulz.h"
#include "optimizer.h"

typedef struct gm_muon gm_muon;

/* What scale is, for a matrix (rows, cols). */
typedef enum gm_muon_scale {
    GM_MUON_ORIGINAL,       /* sqrt(max(1, rows / cols)) */
    GM_MUON_MATCH_RMS_ADAMW /* 0.2 sqrt(max(rows, cols)): updates are as large as AdamW's */
} gm_muon_scale;

typedef struct gm_muon_rule {
    double           momentum;
    bool             nesterov, stochastic; /* stochastic: no masters */
    gm_muon_scale    scale;
    gm_newton_schulz iteration;
} gm_muon_rule;

/* The settings of one parameter. */
typedef struct gm_muon_item {
    gm_optimizer_item set;
    int               n_parts; /* how its rows are shared out among several matrices: gm_muon_shape */
    int64_t           part[GM_MUON_PARTS];
} gm_muon_item;

/* Retains the parameters: leaves that require gradients, of two or three dimensions. */
gm_status gm_muon_new(gm_rank *r, int n, gm_value *const *parameters, const gm_muon_rule *rule,
                      const gm_muon_item *items, gm_muon **out);
void      gm_muon_free(gm_muon *m); /* NULL is allowed */

/* Makes one update; collective over the ranks of the stage. The arguments are those of gm_optimizer_step. */
gm_status gm_muon_step(gm_muon *m, double lr, double clip, double loss_scale, gm_tensor *control);

/* What applies the updates: it counts steps, and holds the masters. Borrowed. */
gm_optimizer *gm_muon_update(gm_muon *m);
/* As gm_optimizer_state, _bytes. The states are "momentum_buffer" and "master". */
gm_status gm_muon_state(gm_muon *m, int i, int k, const char **name, gm_tensor **out);
size_t    gm_muon_bytes(const gm_muon *m);
/* How many elements of matrices this rank iterates on in a step, of all parameters. */
gm_status gm_muon_owned(gm_muon *m, int64_t *out);

#endif
