/* executor_test.c - schedules carried out on ranks that are threads: gradients of one tape, what is sent and held,
 * shapes that vary, delays, failures. */
#include "executor_job.h"

static void run_all(kind k, int stages, int micro)
{
    chain c = make_chain(k, stages, micro);
    c.steps = 3; /* what crosses the borders is known from the second on */
    run_chain(&c);
}

void gm_test_executor_schedules(void **state)
{
    (void)state;
    for (int stages = 1; stages <= STAGES; stages++)
        for (int micro = 1; micro <= MICRO; micro += micro == 1 ? 2 : 5)
            for (kind k = GPIPE; k <= V_SHAPED; k++) run_all(k, stages, micro);
}
