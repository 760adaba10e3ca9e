/* disk_threads.c - pieces through pread and pwrite in two threads: one reads while the other writes. All signals are
 * blocked in them. */
#define _GNU_SOURCE
#include "disk_way.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define THREADS 2

typedef struct queue {
    gm_disk_piece *first, **end;
} queue;

typedef struct threads {
    pthread_t       thread[THREADS];
    int             n;
    pthread_mutex_t mutex;
    pthread_cond_t  asked, ended;
    queue           waiting, done;
    bool            stop;
} threads;

static void put(queue *q, gm_disk_piece *p)
{
    p->next = NULL;
    *q->end = p;
    q->end = &p->next;
}

static gm_disk_piece *take(queue *q)
{
    gm_disk_piece *p = q->first;
    if (!p) return NULL;
    q->first = p->next;
    if (!q->first) q->end = &q->first;
    return p;
}

static void move(gm_disk_piece *p)
{
    ssize_t n;
    do
        n = p->write ? pwrite(p->fd, p->memory, p->bytes, (off_t)p->at)
                     : pread(p->fd, p->memory, p->bytes, (off_t)p->at);
    while (n < 0 && errno == EINTR);
    p->result = n < 0 ? -errno : n;
}

static void *work(void *context)
{
    threads *t = context;
    pthread_mutex_lock(&t->mutex);
    for (;;) {
        gm_disk_piece *p = take(&t->waiting);
        if (!p && t->stop) break;
        if (!p) {
            pthread_cond_wait(&t->asked, &t->mutex);
            continue;
        }
        pthread_mutex_unlock(&t->mutex);
        move(p);
        pthread_mutex_lock(&t->mutex);
        put(&t->done, p);
        pthread_cond_signal(&t->ended);
    }
    pthread_mutex_unlock(&t->mutex);
    return NULL;
}

static void threads_close(void *state)
{
    threads *t = state;
    pthread_mutex_lock(&t->mutex);
    t->stop = true;
    pthread_cond_broadcast(&t->asked);
    pthread_mutex_unlock(&t->mutex);
    for (int i = 0; i < t->n; i++) pthread_join(t->thread[i], NULL);
    pthread_cond_destroy(&t->asked);
    pthread_cond_destroy(&t->ended);
    pthread_mutex_destroy(&t->mutex);
    free(t);
}

static gm_status threads_open(int depth, void **state)
{
    (void)depth;
    sigset_t           all, before;
    pthread_condattr_t attributes;
    threads           *t = calloc(1, sizeof *t);
    if (!t) return GM_FAIL(GM_ENOMEM, "no memory for threads");
    t->waiting.end = &t->waiting.first;
    t->done.end = &t->done.first;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&t->mutex, NULL);
    pthread_cond_init(&t->asked, NULL);
    pthread_cond_init(&t->ended, &attributes);
    pthread_condattr_destroy(&attributes);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = 0;
    while (t->n < THREADS && !(error = pthread_create(&t->thread[t->n], NULL, work, t))) t->n++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (t->n) {
        *state = t;
        return GM_OK;
    }
    threads_close(t);
    return GM_FAIL(GM_EIO, "a thread for the disk: %s", strerror(error));
}

static void threads_submit(void *state, gm_disk_piece *p)
{
    threads *t = state;
    pthread_mutex_lock(&t->mutex);
    put(&t->waiting, p);
    pthread_cond_signal(&t->asked);
    pthread_mutex_unlock(&t->mutex);
}

static gm_disk_piece *threads_reap(void *state, double seconds)
{
    threads        *t = state;
    struct timespec end;
    int             over = 0;
    gm_disk_piece  *p;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += (time_t)seconds;
    end.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    if (end.tv_nsec >= 1000000000) end.tv_sec++, end.tv_nsec -= 1000000000;
    pthread_mutex_lock(&t->mutex);
    while (!(p = take(&t->done)) && seconds > 0 && over != ETIMEDOUT)
        over = pthread_cond_timedwait(&t->ended, &t->mutex, &end);
    pthread_mutex_unlock(&t->mutex);
    return p;
}

const gm_disk_way gm_disk_threads = {threads_open, threads_submit, threads_reap, threads_close};
