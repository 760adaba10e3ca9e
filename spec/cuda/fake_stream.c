/* fake_stream.c - streams and events of the fake driver: a queue for each stream, whose tasks run in order when
 * something waits for them, and no sooner.
 *
 * Between streams there is no order but what events make, and to find what relies on more, a wait runs the stream that
 * it is for as far as it goes before any other stream gets a turn. A task may be not ready yet, since it needs another
 * process: its stream stands still then, and the host goes on unless it waits for that stream. The first look at an
 * event or a stream finds it not passed, where something is queued: who does not look again finds the work not done. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fake_memory.h"
#include "fake_task.h"

struct CUstream_st {
    CUstream      next;
    gm_fake_task *tasks; /* those from `first` on are to be run */
    int           first, n, room;
    bool          looked; /* since the last task came */
};

struct CUevent_st {
    int           refs; /* the caller's, and those of tasks */
    bool          timed, looked;
    gm_fake_point captured; /* where it was recorded last, if that was in a capture, so that nobody may ask */
    uint64_t      recorded, passed;
    CUstream      stream;  /* where it was recorded last */
    double        seconds; /* when it was passed */
};

static CUstream streams;
static char     error[512]; /* of a task, not reported yet */
static char     words[512]; /* of what was reported last */

const char *gm_fake_words(void) { return words; }

static CUresult take_error(void)
{
    if (!error[0]) return CUDA_SUCCESS;
    memcpy(words, error, sizeof words);
    error[0] = 0;
    return CUDA_ERROR_LAUNCH_FAILED;
}

static double clock_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double spent; /* by gm_fake_spend */

void gm_fake_spend(double seconds) { spent += seconds; }

/* ---- running ---- */

static void forget(CUevent e)
{
    if (!--e->refs) free(e);
}

/* false: not yet */
static bool run(const gm_fake_task *t)
{
    if (t->kind == GM_FAKE_AWAIT) return t->event->passed >= t->number;
    if (t->kind == GM_FAKE_RECORD) {
        t->event->passed = t->number;
        t->event->seconds = clock_now() + spent;
        return true;
    }
    if (t->kind == GM_FAKE_GRAPH) return gm_fake_run_launch(t->launch, error, sizeof error);
    if (t->kind == GM_FAKE_CALL && t->call.attempt) return t->call.attempt(t->call.context, error, sizeof error) == 0;
    gm_fake_run(t, error, sizeof error);
    return true;
}

/* As far as it goes; did it? */
static bool run_stream(CUstream s)
{
    bool any = false;
    if (s->first == s->n) return false;
    gm_fake_open(true);
    while (s->first < s->n && run(&s->tasks[s->first])) {
        gm_fake_task *t = &s->tasks[s->first++];
        if (t->event) forget(t->event);
        gm_fake_drop(t);
        any = true;
    }
    gm_fake_open(false);
    if (s->first == s->n) s->first = s->n = 0;
    return any;
}

/* Of s first (NULL: of none), and of others only where s stands still. */
static bool run_some(CUstream s)
{
    if (s && run_stream(s)) return true;
    for (CUstream other = streams; other; other = other->next)
        if (other != s && run_stream(other)) return true;
    return false;
}

/* Until s is empty, as a host that waits; its lock is free while others are waited for. */
static void wait_for(CUstream s)
{
    while (s->n) {
        if (run_some(s)) continue;
        gm_fake_leave(CUDA_SUCCESS);
        usleep(50);
        gm_fake_enter();
    }
}

void gm_fake_run_all(void)
{
    for (CUstream s = streams; s; s = s->next) wait_for(s);
}

void gm_fake_progress(void)
{
    gm_fake_enter();
    while (run_some(NULL)) {
    }
    gm_fake_leave(CUDA_SUCCESS);
}

int gm_fake_is_captured(void *stream)
{
    gm_fake_enter();
    int captured = gm_fake_captures(stream);
    gm_fake_leave(CUDA_SUCCESS);
    return captured;
}

CUresult gm_fake_put(CUstream s, gm_fake_task t)
{
    if (gm_fake_captures(s)) return gm_fake_record(s, &t);
    if (t.kind == GM_FAKE_GRAPH) gm_fake_count_graph(gm_fake_launch_nodes(t.launch));
    if (s->n == s->room) {
        s->room = s->room ? 2 * s->room : 256;
        s->tasks = realloc(s->tasks, (size_t)s->room * sizeof *s->tasks);
        if (!s->tasks) abort();
    }
    s->tasks[s->n++] = t;
    s->looked = false;
    return CUDA_SUCCESS;
}

/* ---- streams ---- */

CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    (void)flags;
    CUstream s = *stream = calloc(1, sizeof *s);
    if (!s) return CUDA_ERROR_OUT_OF_MEMORY;
    gm_fake_enter();
    s->next = streams;
    streams = s;
    return gm_fake_leave(CUDA_SUCCESS);
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
    (void)priority;
    return cuStreamCreate(stream, flags);
}

/* What is queued is still run. */
CUresult cuStreamDestroy(CUstream stream)
{
    gm_fake_enter();
    wait_for(stream);
    for (CUstream *at = &streams; *at; at = &(*at)->next)
        if (*at == stream) {
            *at = stream->next;
            break;
        }
    free(stream->tasks);
    free(stream);
    return gm_fake_leave(CUDA_SUCCESS);
}

CUresult cuStreamSynchronize(CUstream stream)
{
    gm_fake_enter();
    CUresult r = gm_fake_refuse_wait(stream);
    if (r != CUDA_SUCCESS) return gm_fake_leave(r);
    gm_fake_count_wait();
    wait_for(stream);
    return gm_fake_leave(take_error());
}

CUresult cuStreamQuery(CUstream stream)
{
    gm_fake_enter();
    CUresult r = gm_fake_refuse_wait(stream);
    if (r != CUDA_SUCCESS) return gm_fake_leave(r);
    bool looked = stream->looked;
    stream->looked = true;
    while (looked && stream->n && run_some(stream)) {
    }
    return gm_fake_leave(stream->n ? CUDA_ERROR_NOT_READY : take_error());
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    (void)flags;
    gm_fake_enter();
    if (event->captured.capture || gm_fake_captures(stream))
        return gm_fake_leave(gm_fake_capture_await(stream, &event->captured));
    if (event->passed >= event->recorded) return gm_fake_leave(CUDA_SUCCESS);
    event->refs++;
    gm_fake_line("await");
    return gm_fake_leave(
        gm_fake_put(stream, (gm_fake_task){.kind = GM_FAKE_AWAIT, .event = event, .number = event->recorded}));
}

/* ---- events ---- */

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    CUevent e = *event = calloc(1, sizeof *e);
    if (!e) return CUDA_ERROR_OUT_OF_MEMORY;
    e->refs = 1;
    e->timed = !(flags & CU_EVENT_DISABLE_TIMING);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event)
{
    gm_fake_enter();
    forget(event);
    return gm_fake_leave(CUDA_SUCCESS);
}

/* Nobody may ask for an event that was recorded in a capture. */
CUresult cuEventRecord(CUevent event, CUstream stream)
{
    gm_fake_enter();
    event->looked = false;
    event->captured.capture = 0;
    event->stream = stream;
    if (gm_fake_captures(stream)) {
        gm_fake_capture_event(stream, &event->captured);
        return gm_fake_leave(CUDA_SUCCESS);
    }
    event->recorded++;
    if (!stream->n) { /* nothing to come behind */
        event->passed = event->recorded;
        event->seconds = clock_now() + spent;
        return gm_fake_leave(CUDA_SUCCESS);
    }
    event->refs++;
    return gm_fake_leave(
        gm_fake_put(stream, (gm_fake_task){.kind = GM_FAKE_RECORD, .event = event, .number = event->recorded}));
}

/* Of a capture that is over, too; only one that is under way becomes invalid. */
static CUresult refuse_captured(CUevent event)
{
    return event->captured.capture == gm_fake_capture() ? gm_fake_refuse_wait(NULL) : CUDA_ERROR_CAPTURED_EVENT;
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent from, CUevent to)
{
    if (!from->timed || !to->timed) return CUDA_ERROR_INVALID_HANDLE;
    gm_fake_enter();
    if (from->passed < from->recorded || to->passed < to->recorded) return gm_fake_leave(CUDA_ERROR_NOT_READY);
    *milliseconds = (float)(1e3 * (to->seconds - from->seconds));
    return gm_fake_leave(CUDA_SUCCESS);
}

CUresult cuEventQuery(CUevent event)
{
    gm_fake_enter();
    bool looked = event->looked;
    event->looked = true;
    if (event->captured.capture) return gm_fake_leave(refuse_captured(event));
    while (looked && event->passed < event->recorded && run_some(event->stream)) {
    }
    return gm_fake_leave(event->passed < event->recorded ? CUDA_ERROR_NOT_READY : take_error());
}

/* The host waits only where it has to. */
CUresult cuEventSynchronize(CUevent event)
{
    gm_fake_enter();
    if (event->captured.capture) return gm_fake_leave(refuse_captured(event));
    if (event->passed < event->recorded) {
        gm_fake_count_wait();
        wait_for(event->stream);
    }
    return gm_fake_leave(take_error());
}
