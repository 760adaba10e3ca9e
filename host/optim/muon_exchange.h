/* muon_exchange.h - brings the parts of some matrices to their owners, and what the owners make of them back to all
 * ranks that hold parts or copies. See muon_plan.h for the groups. */
#ifndef GM_MUON_EXCHANGE_H
#define GM_MUON_EXCHANGE_H

#include "../autograd/work.h"
#include "muon_plan.h"

typedef struct gm_muon_exchange {
    const gm_muon_plan   *plan;
    const gm_muon_set    *set;
    const gm_muon_matrix *matrix; /* of the set: those that travel now */
    int                   n;
    gm_work              *work;
    void                 *context;
    /* This rank's block of a parameter, of the set's dtype: parts are read from it and written to it. */
    gm_tensor *(*tensor)(void *context, int parameter);
    /* Gives the owner's result for a matrix, in a tensor of the work. t and the result are (rows, cols), or (cols,
     * rows) if there are more rows than columns. */
    gm_tensor *(*compute)(void *context, const gm_muon_matrix *m, gm_tensor *t);
} gm_muon_exchange;

/* Collective over the ranks of the stage. */
gm_status gm_muon_exchange_run(gm_muon_exchange *x);

#endif
