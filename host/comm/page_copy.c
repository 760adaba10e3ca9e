/* page_copy.c - see page_copy.h. */
#define _GNU_SOURCE
#include "page_copy.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PAUSE 1 /* seconds between two copies */
#define LIMIT 2 /* seconds that an end waits for a file system */

struct gm_page_copy {
    pthread_t       thread;
    pthread_mutex_t lock;
    pthread_cond_t  wake; /* on CLOCK_MONOTONIC */
    bool            leave;
    const gm_page  *page;
    char           *path, *part; /* part: what is being written */
};

static struct timespec after(int seconds)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += seconds;
    return t;
}

/* Makes or removes the folder of the copy: only the last one, because the run's folder is rank 0's business. One that
 * is not empty stays. */
static void with_folder(const gm_page_copy *c, bool make)
{
    char *end = strrchr(c->part, '/');
    if (!end) return;
    *end = 0;
    if (make) (void)mkdir(c->part, 0700);
    else (void)rmdir(c->part);
    *end = '/';
}

static bool write_all(int fd, const void *data, size_t n)
{
    for (const char *at = data; n;) {
        ssize_t done = write(fd, at, n);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        at += done;
        n -= (size_t)done;
    }
    return true;
}

static void copy_once(gm_page_copy *c)
{
    gm_page copy;
    gm_page_snapshot(c->page, &copy);
    int fd = open(c->part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 && errno == ENOENT) {
        with_folder(c, true);
        fd = open(c->part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    }
    if (fd < 0) return;
    bool whole = write_all(fd, &copy, sizeof copy);
    whole = close(fd) == 0 && whole;
    if (!whole || rename(c->part, c->path)) unlink(c->part);
}

static void *run(void *arg)
{
    gm_page_copy *c = arg;
    pthread_mutex_lock(&c->lock);
    while (!c->leave) {
        pthread_mutex_unlock(&c->lock);
        copy_once(c);
        pthread_mutex_lock(&c->lock);
        struct timespec until = after(PAUSE);
        while (!c->leave && pthread_cond_timedwait(&c->wake, &c->lock, &until) == 0) {
        }
    }
    pthread_mutex_unlock(&c->lock);
    unlink(c->path);
    with_folder(c, false);
    return NULL;
}

static void free_copy(gm_page_copy *c)
{
    pthread_cond_destroy(&c->wake);
    pthread_mutex_destroy(&c->lock);
    free(c->path);
    free(c->part);
    free(c);
}

/* Signals are the business of the rank's own thread. */
static int start_thread(gm_page_copy *c)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&c->thread, NULL, run, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

gm_status gm_page_copy_start(const gm_page *page, const char *path, gm_page_copy **out)
{
    pthread_condattr_t even;
    gm_page_copy      *c = calloc(1, sizeof *c);
    size_t             n = strlen(path);
    if (!c) return GM_FAIL(GM_ENOMEM, "no memory for the copy of a page");
    c->page = page;
    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_init(&even);
    pthread_condattr_setclock(&even, CLOCK_MONOTONIC);
    pthread_cond_init(&c->wake, &even);
    pthread_condattr_destroy(&even);
    c->path = strdup(path);
    c->part = malloc(n + 6);
    if (!c->path || !c->part) {
        free_copy(c);
        return GM_FAIL(GM_ENOMEM, "no memory for the copy of a page");
    }
    snprintf(c->part, n + 6, "%s.part", path);
    int error = start_thread(c);
    if (error) {
        free_copy(c);
        return GM_FAIL(GM_EIO, "no thread for the copy of a page: %s", strerror(error));
    }
    *out = c;
    return GM_OK;
}

bool gm_page_copy_stop(gm_page_copy *c)
{
    if (!c) return true;
    pthread_mutex_lock(&c->lock);
    c->leave = true;
    pthread_cond_signal(&c->wake);
    pthread_mutex_unlock(&c->lock);
    struct timespec until = after(LIMIT);
    if (pthread_clockjoin_np(c->thread, NULL, CLOCK_MONOTONIC, &until)) {
        pthread_detach(c->thread);
        return false;
    }
    free_copy(c);
    return true;
}
