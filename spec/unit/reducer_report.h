/* reducer_report.h - what tests of reducers share: a backward that says when a gradient is final. */
#ifndef GM_REDUCER_REPORT_H
#define GM_REDUCER_REPORT_H

#include "../../host/gradients/reducer.h"

/* As the last tape that awaits a leaf does it: its gradient is final now. */
static inline gm_status report(gm_value *v)
{
    if (v->param->awaited) v->param->awaited--;
    return gm_reducer_ready(v->rank->reducer, v);
}

#endif
