/* supervise_failure.c - the first failure of a job: who it was, who hears of it and when. See supervise.h. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../../kernels/clock.h"
#include "supervise_state.h"
#include "where.h"

void gm_supervisor_tell(gm_supervisor *job, gm_word word, int except, int rank, int code, const char *text)
{
    for (int i = 0; i < job->n; i++)
        if (i != except && job->ranks[i].rank >= 0)
            gm_wire_send(job->ranks[i].rank, word, rank, code, 0, text, strlen(text), false);
}

void gm_supervisor_kill(gm_supervisor *job)
{
    job->killed = true;
    for (int i = 0; i < job->n; i++)
        if (job->ranks[i].keeper >= 0 && !job->ranks[i].ended)
            gm_wire_send(job->ranks[i].keeper, GM_WORD_SIGNAL, i, SIGKILL, 0, NULL, 0, false);
}

/* The user's own doing, of which it does not matter who says so first. */
static bool was_asked_for(const gm_supervisor *job, int code)
{
    return (job->asked == GM_STOP_INTERRUPT && code == 130) || (job->asked == GM_STOP_DEADLINE && code == 7) ||
           (job->asked == GM_STOP_TERMINATE && (code == 143 || code == 75));
}

static void set_first(gm_supervisor *job, int rank, int code, const char *text, size_t n, bool agreed)
{
    if (job->text) return;
    job->text = strndup(text, n);
    job->first = (gm_supervisor_failure){.rank = agreed || was_asked_for(job, code) ? -1 : rank, .code = code};
    job->first.text = job->text ? job->text : "a failure whose message does not fit in memory";
    job->failed_at = gm_now();
    gm_output_limit(); /* it must be told, and the job must end, also when nobody reads */
    job->alike = 1;
    /* 75: all ranks stop after the same step, nobody is in the way of anybody */
    job->spread = code == 75 || agreed;
}

void gm_supervisor_spread(gm_supervisor *job)
{
    bool at_once = job->first.rank < 0 || job->first.code == 6;
    if (!job->text || job->spread || (!at_once && gm_now() < job->failed_at + AGREE_SECONDS)) return;
    job->spread = true;
    gm_supervisor_tell(job, GM_WORD_PEER, job->first.rank, job->first.rank, job->first.code, job->first.text);
}

void gm_supervisor_fail(gm_supervisor *job, int rank, int code, const char *format, ...)
{
    char    text[1000];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    set_first(job, rank, code, text, strlen(text), false);
}

/* A rank that hangs may have been stopped from outside, which only its keeper can tell. */
static size_t name_halted(const gm_supervisor *job, char *text, size_t n, size_t room)
{
    for (int i = 0; i < job->n; i++)
        if (job->ranks[i].halted && !job->ranks[i].ended && n < room)
            n += (size_t)snprintf(text + n, room - n, "; rank %d was stopped by signal %d (%s)", i,
                                  job->ranks[i].halted, strsignal(job->ranks[i].halted));
    return n < room ? n : room - 1;
}

/* Ranks that the failure says do not answer: what the kernel knows of them goes into the text, and they are asked to
 * show where they are. */
static size_t name_silent(gm_supervisor *job, char *text, size_t n, size_t room)
{
    char where[200];
    for (int i = 0; i < job->n; i++) {
        member *m = &job->ranks[i];
        if (m->ended || m->halted || !m->process || !gm_where_is_silent(text, i) || n >= room) continue;
        n += (size_t)snprintf(text + n, room - n, "; rank %d: %s", i, gm_where_is(m->process, where, sizeof where));
        gm_wire_send(m->keeper, GM_WORD_SIGNAL, i, gm_where_signal(), 0, NULL, 0, false);
    }
    return n < room ? n : room - 1;
}

void gm_supervisor_rank_failed(gm_supervisor *job, int rank, const gm_packet *p)
{
    static char text[GM_WIRE_TEXT + 1000];
    job->ranks[rank].failed = true;
    if (job->text) {
        job->alike += p->code == job->first.code && !strcmp(p->text, job->first.text);
        return;
    }
    size_t n = p->n;
    memcpy(text, p->text, n);
    text[n] = 0;
    if (p->code == 7) n = name_silent(job, text, n, sizeof text);
    if (p->code == 7) n = name_halted(job, text, n, sizeof text);
    set_first(job, rank, p->code, text, n, p->extra != 0);
}

/* The time limit in the words in which ranks say it (lua/ganymede/job/session.lua): they may not have come so far. */
static const char *stop_text(const gm_supervisor *job, char *buf, size_t size)
{
    if (job->asked == GM_STOP_INTERRUPT) return "stopped by Ctrl-C";
    if (job->asked == GM_STOP_TERMINATE) return "stopped by SIGTERM";
    snprintf(buf, size, "the run did not end within %g seconds (--timeout); what did not stop then was ended",
             job->options.timeout);
    return buf;
}

static int stop_code(const gm_supervisor *job)
{
    return job->asked == GM_STOP_INTERRUPT ? 130 : job->asked == GM_STOP_TERMINATE ? 143 : 7;
}

const gm_supervisor_failure *gm_supervisor_first(const gm_supervisor *job) { return job->text ? &job->first : NULL; }

bool gm_supervisor_can_tell(const gm_supervisor *job)
{
    if (!job->text || job->told || job->out.n || job->err.n) return false;
    return job->first.rank < 0 || job->first.code == 6 || job->alike == job->n || job->ended == job->started ||
           gm_now() > job->failed_at + AGREE_SECONDS;
}

/* A rank that waits for a disk or device that does not answer cannot be killed, and a keeper that was stopped tells
 * nothing. */
static void say_left(gm_supervisor *job, int rank)
{
    char where[200] = "it has told no process", line[400];
    if (job->ranks[rank].process) gm_where_is(job->ranks[rank].process, where, sizeof where);
    int n = snprintf(
        line, sizeof line,
        "ganymede: warning: rank %d was killed %.0f s ago and has not ended; the job ends without it: %s\n", rank,
        job->watched.had, where);
    gm_outlet_put(&job->err, line, (size_t)n);
}

/* What the ranks that have not ended take of the cores; false: the kernel tells nothing of any. */
static bool core_use_of_rest(const gm_supervisor *job, gm_core_use *sum)
{
    bool known = false;
    *sum = (gm_core_use){0};
    for (int i = 0; i < job->n; i++) {
        const member *m = &job->ranks[i];
        if (m->started && !m->ended && m->process) known |= gm_core_use_add(m->process, sum);
    }
    return known;
}

bool gm_supervisor_leaves_some(gm_supervisor *job)
{
    gm_core_use use;
    if (job->leaves_some || !job->killed) return job->leaves_some;
    gm_patience_add(&job->watched, gm_now(), NULL);
    gm_patience_add(&job->dying, gm_now(), core_use_of_rest(job, &use) ? &use : NULL);
    if (job->dying.had < LOST_SECONDS && job->watched.had < LOST_SECONDS + LOST_MORE) return false;
    job->leaves_some = true;
    for (int i = 0; i < job->n; i++)
        if (job->ranks[i].started && !job->ranks[i].ended) say_left(job, i);
    return true;
}

void gm_supervisor_end_by_stop(gm_supervisor *job)
{
    char text[160];
    gm_supervisor_fail(job, -1, stop_code(job), "%s", stop_text(job, text, sizeof text));
    gm_supervisor_kill(job);
}
