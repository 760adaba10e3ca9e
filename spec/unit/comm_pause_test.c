/* comm_pause_test.c - a rank that waits on a core that another wants leaves it asleep: yields in turns would cost both
 * their time. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "../../host/comm/comm.h"
#include "../../kernels/clock.h"
#include "unit.h"

static void *compute(void *context)
{
    _Atomic bool *quit = context;
    while (!*quit) {
    }
    return NULL;
}

/* Times that this thread has gone to sleep. */
static long slept(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
}

void gm_test_comm_pause_on_a_shared_core(void **state)
{
    (void)state;
    cpu_set_t    before, one;
    pthread_t    neighbour;
    _Atomic bool quit = false;
    unsigned     turns = 0;
    CPU_ZERO(&one);
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_SET(sched_getcpu(), &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(pthread_create(&neighbour, NULL, compute, &quit), 0); /* on the same core */
    long sleeps = -slept();
    for (int i = 0; i < 1000; i++) gm_comm_pause(gm_now(), &turns); /* as if something had just come */
    sleeps += slept();
    quit = true;
    pthread_join(neighbour, NULL);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_in_range(sleeps, 500, 1000); /* the first 64 spin, then yields, until one takes long */
}
