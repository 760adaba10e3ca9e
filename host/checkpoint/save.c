/* save.c - one save on one rank: this rank's part, and on rank 0 the whole; see checkpoint.h.
 *
 * The thread sees this struct alone: no Lua, no communication, all signals blocked. The main thread waits on
 * `changed`; what the thread reports is written under the lock before the state says so. */
#define _GNU_SOURCE
#include "checkpoint.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "files.h"
#include "parts.h"
#include "shard.h"
#include "union.h"
#include "steps.h"

typedef struct outcome {
    gm_status st;
    char      text[1600];
} outcome;

typedef enum coming { PARTS_COME, PARTS_WRITTEN, PARTS_FAIL } coming; /* in this order */

struct gm_save {
    char         *folder, *target, *beside, *kept; /* kept: the state of rank 0's, of a save apart */
    int64_t       step, spared;
    int           keep_last, rank;
    char          token[GM_SAVE_TOKEN];
    gm_part_stamp stamp;
    bool          background, apart;
    int           sharers;
    uint64_t      limit;
    gm_shard      shard;
    gm_index      whole; /* rank 0: every tensor that is saved; boxes come from the parts */
    int           met;   /* rank 0: so many ranks, from 0, have said how they fared */

    pthread_t       thread;
    bool            threaded, prepared, started;
    atomic_bool     stop; /* nobody wants the outcome any more */
    pthread_mutex_t mutex;
    pthread_cond_t  changed;
    gm_save_state   state;
    coming          others; /* rank 0: what is still to be expected of other ranks */
    char            why[1000];
    int             lock; /* rank 0: of the folder, while it writes there; -1 */
    outcome         part, result;
};

/* ---- making one ---- */

static gm_status check_names(const gm_piece *pieces, int n)
{
    for (int i = 0; i < n; i++) {
        const char *name = pieces[i].name;
        if (!*name || !strcmp(name, "__metadata__") || name[strlen(name) - 1] == ']') /* boxes have such names */
            return GM_FAIL(GM_EINVAL, "a tensor cannot be called '%s'", name);
    }
    return GM_OK;
}

/* What rank 0 will publish, without boxes. */
static gm_status describe_whole(gm_save *s, const gm_save_as *as, const gm_piece *pieces, int n)
{
    gm_index *x = &s->whole;
    x->world = s->stamp.world;
    x->files = calloc((size_t)x->world, sizeof *x->files);
    x->tensors = calloc((size_t)n + 1, sizeof *x->tensors);
    x->meta = strdup(as->meta);
    if (!x->files || !x->tensors || !x->meta) return GM_FAIL(GM_ENOMEM, "no memory to save %d tensors", n);
    for (int i = 0; i < n; i++) {
        gm_index_tensor *t = &x->tensors[x->n_tensors++];
        t->dtype = pieces[i].dtype, t->ndim = pieces[i].ndim;
        memcpy(t->shape, pieces[i].shape, (size_t)t->ndim * sizeof *t->shape);
        if (!(t->name = strdup(pieces[i].name))) return GM_FAIL(GM_ENOMEM, "no memory to save %d tensors", n);
    }
    return GM_OK;
}

static gm_status plan(gm_save *s, const gm_save_as *as)
{
    gm_union all;
    GM_TRY(gm_union_make(as->mesh, as->rank, as->lists, as->pieces, as->n, &all));
    gm_planned *planned = calloc((size_t)all.n + 1, sizeof *planned);
    gm_status   st = planned ? GM_OK : GM_FAIL(GM_ENOMEM, "no memory to save %d tensors", all.n);
    if (st == GM_OK) st = check_names(all.pieces, all.n);
    if (st == GM_OK) st = gm_plan(as->mesh, as->rank, all.pieces, all.n, planned);
    if (st == GM_OK) s->stamp.digest = gm_plan_digest(as->mesh, all.pieces, all.n);
    if (st == GM_OK) st = gm_shard_new(s->stamp.world, as->rank, all.pieces, planned, all.n, &s->shard);
    if (st == GM_OK && as->rank == 0) st = describe_whole(s, as, all.pieces, all.n);
    free(planned);
    gm_union_free(&all);
    return st;
}

gm_status gm_save_new(const gm_save_as *as, gm_save **out)
{
    pthread_condattr_t attributes;
    if (as->step < 0 || as->step > (int64_t)1 << 53)
        return GM_FAIL(GM_EINVAL, "a checkpoint of step %lld", (long long)as->step);
    gm_save *s = calloc(1, sizeof *s);
    if (!s) return GM_FAIL(GM_ENOMEM, "no memory to save %d tensors", as->n);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    s->lock = -1;
    s->step = as->step, s->spared = as->spared, s->keep_last = as->keep_last, s->rank = as->rank;
    s->background = as->background, s->limit = as->snapshot_limit;
    s->apart = as->apart, s->sharers = as->sharers;
    bool keeps = as->apart && as->rank == 0;
    s->kept = keeps ? strdup(as->meta) : NULL;
    s->stamp = (gm_part_stamp){.token = s->token, .world = gm_mesh_size(as->mesh), .state = s->kept};
    s->folder = strdup(as->folder);
    s->target = gm_steps_path(as->folder, as->step, "");
    s->beside = gm_steps_path(as->folder, as->step, as->apart ? "" : ".tmp");
    bool      all = s->folder && s->target && s->beside && (s->kept || !keeps);
    gm_status st = all ? plan(s, as) : GM_FAIL(GM_ENOMEM, "no memory for a path");
    if (st == GM_OK) *out = s;
    else gm_save_free(s);
    return st;
}

gm_status gm_save_prepare(gm_save *s, char *token)
{
    uint64_t drawn;
    GM_TRY(gm_steps_prepare(s->folder, s->beside, &s->lock));
    s->prepared = true;
    if (getrandom(&drawn, sizeof drawn, 0) != sizeof drawn)
        return GM_FAIL(GM_EIO, "the system gave no random bytes: %s", strerror(errno));
    snprintf(token, GM_SAVE_TOKEN, "%016llx", (unsigned long long)drawn);
    return GM_OK;
}

/* ---- waiting and telling ---- */

static void set_outcome(outcome *o, gm_status st)
{
    o->st = st;
    snprintf(o->text, sizeof o->text, "%s", st == GM_OK ? "" : gm_last_error());
}

static void reach(gm_save *s, gm_save_state state, outcome *o, gm_status st)
{
    pthread_mutex_lock(&s->mutex);
    set_outcome(o, st);
    s->state = state;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
}

/* The moment `seconds` from now, on the clock of `changed`. */
static struct timespec moment(double seconds)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += (time_t)seconds;
    at.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    if (at.tv_nsec >= 1000000000) at.tv_sec++, at.tv_nsec -= 1000000000;
    return at;
}

gm_save_state gm_save_wait(gm_save *s, gm_save_state until, double seconds)
{
    struct timespec end = moment(seconds > 0 ? seconds : 0);
    int             over = 0;
    pthread_mutex_lock(&s->mutex);
    while (s->state < until && over != ETIMEDOUT)
        over = seconds < 0 ? pthread_cond_wait(&s->changed, &s->mutex)
                           : pthread_cond_timedwait(&s->changed, &s->mutex, &end);
    gm_save_state state = s->state;
    pthread_mutex_unlock(&s->mutex);
    return state;
}

static void expect(gm_save *s, coming others, const char *why)
{
    pthread_mutex_lock(&s->mutex);
    if (s->others < others) {
        s->others = others;
        snprintf(s->why, sizeof s->why, "%s", why);
    }
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
}

void gm_save_all_written(gm_save *s) { expect(s, PARTS_WRITTEN, ""); }

void gm_save_give_up(gm_save *s, const char *why) { expect(s, PARTS_FAIL, why); }

/* Sleeps a little, unless nothing more will come -> what is to be expected. */
static coming pause_for_parts(gm_save *s, double seconds)
{
    struct timespec end = moment(seconds);
    pthread_mutex_lock(&s->mutex);
    if (s->others != PARTS_FAIL && !atomic_load(&s->stop)) pthread_cond_timedwait(&s->changed, &s->mutex, &end);
    coming others = atomic_load(&s->stop) ? PARTS_FAIL : s->others;
    pthread_mutex_unlock(&s->mutex);
    return others;
}

/* ---- the whole, on rank 0 ---- */

/* What is written on one machine may be seen on another some seconds later, where machines share a folder. */
#define SEEN_LATE 10.0

/* Waits until rank r has said how it fared. */
static gm_status await_part(gm_save *s, int r)
{
    double late = 0;
    for (double pause = 0.0005; gm_part_look(s->beside, r) == GM_PART_NONE; pause = pause < 0.02 ? pause * 2 : pause) {
        coming others = pause_for_parts(s, pause);
        if (others == PARTS_WRITTEN) late += pause;
        bool lost = others == PARTS_WRITTEN && (late > SEEN_LATE || access(s->beside, F_OK));
        if ((others != PARTS_FAIL && !lost) || gm_part_look(s->beside, r) != GM_PART_NONE) continue;
        if (lost)
            return GM_FAIL(GM_EIO, "%s: rank %d has written its part, which is gone: who removes it?", s->beside, r);
        return GM_FAIL(GM_EIO, "%s", s->others == PARTS_FAIL ? s->why : "the save was left unfinished");
    }
    return GM_OK;
}

static gm_status merge_part(gm_save *s, int r)
{
    gm_index part;
    GM_TRY(await_part(s, r));
    s->met = r + 1;
    GM_TRY(gm_part_read(s->beside, r, &s->stamp, &part));
    gm_status st = gm_index_merge(&s->whole, &part);
    gm_index_free(&part);
    return st;
}

static gm_status write_index(gm_save *s)
{
    char     *text = NULL;
    size_t    size;
    gm_writer w;
    GM_TRY(gm_index_format(&s->whole, &text, &size));
    gm_status st = gm_writer_open(s->beside, GM_INDEX_NAME, &w);
    if (st == GM_OK) st = gm_writer_write(&w, text, size);
    if (st == GM_OK) st = gm_writer_finish(&w);
    gm_writer_drop(&w);
    free(text);
    return st;
}

static bool is_there(const char *folder, const char *name)
{
    char *path = gm_files_join(folder, name);
    bool  there = path && !access(path, F_OK);
    free(path);
    return there;
}

/* Somebody who was removing `beside` goes on under its new name: then there is no checkpoint, and none may be seen. */
static gm_status check_published(const gm_save *s)
{
    bool all = is_there(s->target, GM_INDEX_NAME);
    for (int i = 0; i < s->whole.n_files; i++) all = all && is_there(s->target, s->whole.files[i].name);
    if (all) return GM_OK;
    (void)gm_files_remove(s->target);
    (void)rename(s->beside, s->target); /* the one of this step that was exchanged, if there was one */
    return GM_FAIL(GM_EIO, "%s: files of it are gone: who removes them?", s->target);
}

static gm_status merge(gm_save *s)
{
    GM_TRY(gm_index_merge(&s->whole, &s->shard.index));
    for (int r = 1; r < s->stamp.world; r++) GM_TRY(merge_part(s, r));
    GM_TRY(gm_index_check_cover(s->beside, &s->whole));
    GM_TRY(write_index(s));
    for (int r = 1; r < s->stamp.world; r++) GM_TRY(gm_part_forget(s->beside, r));
    GM_TRY(gm_steps_publish(s->folder, s->beside, s->target));
    return check_published(s);
}

/* Removes what could not be finished; not under the hands of others. */
static gm_status clear(gm_save *s)
{
    for (int r = s->met ? s->met : 1; r < s->stamp.world; r++)
        if (await_part(s, r) != GM_OK) break;
    return atomic_load(&s->stop) ? GM_OK : gm_files_remove(s->beside);
}

static gm_status finish_whole(gm_save *s)
{
    outcome   o;
    gm_status st = s->part.st == GM_OK ? merge(s) : gm_fail_again(s->part.st, s->part.text);
    set_outcome(&o, st);
    if (st == GM_OK) { /* what is left in `beside` is the one that was replaced: all of it is ours */
        GM_TRY(gm_files_remove(s->beside));
        return s->keep_last > 0 ? gm_steps_prune(s->folder, s->keep_last, s->step, s->spared) : GM_OK;
    }
    (void)clear(s); /* the next save tries again; why this one failed is what matters */
    return gm_fail_again(o.st, o.text);
}

static void unlock(gm_save *s)
{
    if (s->lock >= 0) close(s->lock);
    s->lock = -1;
}

/* ---- this rank's part ---- */

static gm_status check_folder(const gm_save *s)
{
    if (!access(s->beside, F_OK)) return GM_OK;
    return GM_FAIL(GM_EIO,
                   "%s: rank 0 made it, rank %d does not see it: %s; checkpoints need a folder that all ranks share",
                   s->beside, s->rank, strerror(errno));
}

/* What an earlier start of the ranks has left of this part goes. */
static gm_status make_folder(const gm_save *s)
{
    GM_TRY(gm_files_mkdirs(s->beside));
    gm_part_drop(s->beside, s->rank);
    return GM_OK;
}

static gm_status write_part(gm_save *s)
{
    bool      told = s->apart || s->rank > 0;
    gm_status st = s->apart ? make_folder(s) : check_folder(s);
    if (st == GM_OK) st = gm_shard_write(&s->shard, s->beside, &s->stop);
    if (st == GM_OK && told) st = gm_part_announce(s->beside, s->rank, &s->shard.index, &s->stamp);
    if (st != GM_OK && told) {
        outcome o;
        set_outcome(&o, st);
        gm_part_fail(s->beside, s->rank, o.text);
        gm_fail_again(st, o.text);
    }
    return st;
}

static void work_part(gm_save *s) { reach(s, GM_SAVE_WRITTEN, &s->part, write_part(s)); }

static void work_whole(gm_save *s)
{
    bool      merges = s->rank == 0 && !s->apart;
    gm_status st = merges ? finish_whole(s) : gm_fail_again(s->part.st, s->part.text);
    unlock(s);
    reach(s, GM_SAVE_DONE, &s->result, st);
}

static void *thread_main(void *context)
{
    gm_save *s = context;
    if (s->state == GM_SAVE_WRITING) work_part(s);
    work_whole(s);
    return NULL;
}

/* Half of what the system has available, for all ranks together that may be on this machine. */
static uint64_t memory_for_copy(const gm_save *s)
{
    unsigned long long kilobytes = 0;
    char               line[256];
    FILE              *f = fopen("/proc/meminfo", "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %llu kB", &kilobytes) == 1) break;
    if (f) fclose(f);
    uint64_t most = (uint64_t)kilobytes * 512 / (uint64_t)(s->sharers ? s->sharers : s->stamp.world);
    return s->limit && s->limit < most ? s->limit : most;
}

static gm_status start_thread(gm_save *s)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&s->thread, NULL, thread_main, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) return GM_FAIL(GM_ENOMEM, "no thread to write a checkpoint: %s", strerror(error));
    s->threaded = true;
    return GM_OK;
}

/* One rank in the foreground needs no thread; rank 0 of several has others to wait for, which must not keep
 * the main thread from its own communication. */
gm_status gm_save_start(gm_save *s, const char *token)
{
    snprintf(s->token, sizeof s->token, "%s", token);
    s->started = true;
    s->background = s->background && gm_shard_copy(&s->shard, memory_for_copy(s)) == GM_OK;
    if (s->background && start_thread(s) == GM_OK) return GM_OK;
    s->background = false;
    work_part(s);
    if (s->rank > 0 || s->stamp.world == 1 || s->apart) {
        work_whole(s);
        return GM_OK;
    }
    gm_status st = start_thread(s);
    if (st != GM_OK) reach(s, GM_SAVE_DONE, &s->result, st);
    return GM_OK;
}

/* ---- asking ---- */

static gm_status retell(const outcome *o) { return o->st == GM_OK ? GM_OK : gm_fail_again(o->st, o->text); }

bool        gm_save_is_started(const gm_save *s) { return s->started; }
bool        gm_save_in_background(const gm_save *s) { return s->background; }
gm_status   gm_save_part(const gm_save *s) { return retell(&s->part); }
gm_status   gm_save_result(const gm_save *s) { return retell(&s->result); }
const char *gm_save_path(const gm_save *s) { return s->target; }

void gm_save_free(gm_save *s)
{
    if (!s) return;
    atomic_store(&s->stop, true);
    gm_save_give_up(s, "the save was left unfinished");
    if (s->threaded) pthread_join(s->thread, NULL);
    if (s->prepared && !s->started && s->stamp.world == 1) (void)gm_files_remove(s->beside); /* nobody writes there */
    unlock(s);
    pthread_mutex_destroy(&s->mutex);
    pthread_cond_destroy(&s->changed);
    gm_shard_free(&s->shard);
    gm_index_free(&s->whole);
    free(s->folder);
    free(s->target);
    free(s->beside);
    free(s->kept);
    free(s);
}
