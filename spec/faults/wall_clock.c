/* wall_clock.c - loaded into every process of a job (LD_PRELOAD) by clocks_jump_spec.lua: a clock of the wall that can
 * be set while they run, without touching the machine's.
 *
 * The file that WALL_CLOCK names holds one double, the seconds by which the wall is ahead of the machine's clock; all
 * processes map it, so that the time jumps for all of them at once. The monotonic clock stays as it is, as it does when
 * a clock is set. The trap: other readers of the time of day (C11's timespec_get) are not covered; clocks_spec.lua
 * says that the program has none. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile double *ahead;

__attribute__((constructor)) static void open_file(void)
{
    const char *path = getenv("WALL_CLOCK");
    int         fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void       *p = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) abort(); /* a job whose clock does not jump would show nothing */
    ahead = p;
    close(fd);
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t id, struct timespec *t)
{
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(id, t);
    if (!failed && ahead && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) t->tv_sec += (time_t)floor(*ahead);
    return failed;
}

__attribute__((visibility("default"))) time_t time(time_t *out)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (out) *out = t.tv_sec;
    return t.tv_sec;
}

__attribute__((visibility("default"))) int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    struct timespec t;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &t);
    *out = (struct timeval){t.tv_sec, t.tv_nsec / 1000};
    return 0;
}
