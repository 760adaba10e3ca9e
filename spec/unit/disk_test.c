/* disk_test.c - the disk module against memory: random transfers in each way, faults, space, accounts. */
#include "../../host/tier/disk_way.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "unit.h"

#define BLOCK GM_DISK_ALIGN
#define SLOTS 24 /* ranges of the file, of 1 to 9 blocks each */

typedef struct setting {
    bool threads, buffered;
} setting;
static const setting settings[] = {{false, false}, {true, false}, {false, true}, {true, true}};

static char folder[64];

static void make_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/gm-disk-XXXXXX");
    assert_non_null(mkdtemp(folder));
}

/* What is in the folder: nothing, as soon as the file is open. */
static void assert_empty(void)
{
    DIR *d = opendir(folder);
    int  n = 0;
    while (readdir(d)) n++;
    closedir(d);
    assert_int_equal(n, 2);
}

static char *blocks(int n)
{
    char *p = aligned_alloc(BLOCK, (size_t)n * BLOCK);
    assert_non_null(p);
    return p;
}

/* ---- against memory ---- */

typedef struct slot {
    uint64_t          at;
    int               n; /* blocks */
    char             *memory, *truth;
    gm_disk_transfer *under_way;
    bool              writes, filled;
} slot;

static void wait_for(gm_disk *d, slot *s)
{
    if (!s->under_way) return;
    OK(gm_disk_wait(d, s->under_way));
    s->under_way = NULL;
    if (!s->writes) assert_memory_equal(s->memory, s->truth, (size_t)s->n * BLOCK);
}

static void begin(gm_disk *d, slot *s, unit_random *random)
{
    s->writes = !s->filled || unit_bits(random) % 2;
    if (s->writes) {
        for (size_t i = 0; i < (size_t)s->n * BLOCK; i += 8) {
            uint64_t word = unit_bits(random);
            memcpy(s->memory + i, &word, 8);
        }
        memcpy(s->truth, s->memory, (size_t)s->n * BLOCK);
        OK(gm_disk_write(d, s->at, s->memory, (size_t)s->n * BLOCK, &s->under_way));
        s->filled = true;
    } else {
        memset(s->memory, 0x55, (size_t)s->n * BLOCK);
        OK(gm_disk_read(d, s->at, s->memory, (size_t)s->n * BLOCK, &s->under_way));
    }
}

/* Returns how many bytes were asked for in each direction. */
static void exercise(gm_disk *d, int steps, uint64_t seed, uint64_t *read, uint64_t *written)
{
    slot        slots[SLOTS] = {0};
    unit_random random = {seed};
    *read = *written = 0;
    for (int i = 0; i < SLOTS; i++) {
        slot *s = &slots[i];
        s->n = 1 + (int)unit_below(&random, 9);
        s->memory = blocks(s->n), s->truth = blocks(s->n);
        OK(gm_disk_reserve(d, (size_t)s->n * BLOCK - 100, &s->at));
    }
    for (int step = 0; step < steps; step++) {
        slot *s = &slots[unit_below(&random, SLOTS)];
        wait_for(d, s);
        if (unit_below(&random, 8) == 0) { /* another place */
            gm_disk_give_back(d, s->at, (size_t)s->n * BLOCK);
            OK(gm_disk_reserve(d, (size_t)s->n * BLOCK, &s->at));
            s->filled = false;
        }
        begin(d, s, &random);
        *(s->writes ? written : read) += (size_t)s->n * BLOCK;
    }
    for (int i = 0; i < SLOTS; i++) {
        wait_for(d, &slots[i]);
        gm_disk_give_back(d, slots[i].at, (size_t)slots[i].n * BLOCK);
        free(slots[i].memory), free(slots[i].truth);
    }
}

/* What was recorded adds up to the statistics. A wait whose transfer is done takes microseconds, and is no span. */
static void check_spans(const gm_disk_spans *spans, const gm_disk_stats *s)
{
    uint64_t bytes[2] = {0};
    double   waited = 0;
    for (size_t i = 0; i < spans->n; i++) {
        const gm_disk_span *span = &spans->list[i];
        assert_true(span->end >= span->begin);
        if (span->what == GM_DISK_WAITING) waited += span->end - span->begin;
        else bytes[span->what] += span->bytes;
    }
    assert_int_equal(spans->lost, 0);
    assert_int_equal(bytes[GM_DISK_READING], s->read);
    assert_int_equal(bytes[GM_DISK_WRITING], s->written);
    assert_true(waited <= 1.01 * s->waited + 1e-3 && waited >= 0.8 * s->waited);
}

void gm_test_disk_random(void **state)
{
    (void)state;
    make_folder();
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        gm_disk *d;
        uint64_t read, written;
        OK(gm_disk_open(&(gm_disk_settings){.folder = folder,
                                            .depth = 3,
                                            .piece = 2 * BLOCK,
                                            .threads = settings[i].threads,
                                            .buffered = settings[i].buffered},
                        &d));
        assert_empty();
        gm_disk_spans_set(gm_disk_spans_of(d), true);
        exercise(d, 400, i, &read, &written);
        gm_disk_stats s = gm_disk_stats_of(d);
        check_spans(gm_disk_spans_of(d), &s);
        assert_true(s.read == read && s.written == written && s.reserved == 0 && s.waited > 0);
        assert_true(s.size <= 3 * SLOTS * 9 * BLOCK);
        assert_false(s.io_uring && settings[i].threads);
        assert_false(s.direct && settings[i].buffered);
        gm_disk_close(d);
    }
    assert_int_equal(rmdir(folder), 0);
}

/* ---- faults ---- */

typedef struct fault {
    gm_disk_event event;
    int           after;  /* so many events of this kind go well */
    int64_t       result; /* of those that follow; > 0: bytes at most, of every other one */
    int           seen;
} fault;

static int64_t inject(void *context, gm_disk_event event, uint64_t at, size_t bytes)
{
    fault *f = context;
    (void)at;
    if (event != f->event || f->seen++ < f->after) return (int64_t)bytes;
    return f->result > 0 && f->seen % 2 ? (int64_t)bytes : f->result;
}

/* A disk that never answers is given up soon; all others have as long as a busy machine takes. */
static gm_disk *open_with(fault *f, bool threads)
{
    gm_disk *d;
    OK(gm_disk_open(&(gm_disk_settings){.folder = folder,
                                        .depth = 2,
                                        .piece = BLOCK,
                                        .threads = threads,
                                        .deadline = f->result == INT64_MIN ? 0.05 : 0,
                                        .fault = inject,
                                        .fault_context = f},
                    &d));
    return d;
}

void gm_test_disk_short(void **state)
{
    (void)state;
    make_folder();
    for (int way = 0; way < 2; way++)
        for (gm_disk_event event = GM_DISK_READS; event <= GM_DISK_WRITES; event++) {
            uint64_t read, written;
            fault    f = {.event = event, .result = 1000};
            gm_disk *d = open_with(&f, way);
            exercise(d, 200, 7, &read, &written);
            gm_disk_stats s = gm_disk_stats_of(d);
            assert_true(s.read == read && s.written == written);
            assert_true(f.seen > 400);
            gm_disk_close(d);
        }
    assert_int_equal(rmdir(folder), 0);
}

/* A disk that answers at some time, and a process that is stopped in the first look for much longer. */
typedef struct slow {
    double now, answers, stopped;
    int    looks;
} slow;

static bool look(void *context, double seconds)
{
    slow *s = context;
    s->now += seconds;
    if (s->answers <= s->now) return true;
    if (s->looks++ == 0) s->now += s->stopped;
    return false;
}

void gm_test_disk_stopped(void **state)
{
    (void)state;
    slow s = {.answers = 300.5, .stopped = 299}; /* half a second after it goes on */
    assert_true(gm_disk_ask(look, &s, 120));
    s = (slow){.answers = 300 + 100, .stopped = 299}; /* a hundred seconds after */
    assert_true(gm_disk_ask(look, &s, 120));
    s = (slow){.answers = 119.5};
    assert_true(gm_disk_ask(look, &s, 120));
    s = (slow){.answers = 1000};
    assert_false(gm_disk_ask(look, &s, 120.25));
    assert_true(s.now == 120.25);
}

void gm_test_disk_errors(void **state)
{
    (void)state;
    static const struct {
        gm_disk_event event;
        int64_t       result;
        const char   *says;
    } cases[] = {{GM_DISK_WRITES, -EIO, "failed to write"},
                 {GM_DISK_READS, -EIO, "failed to read"},
                 {GM_DISK_WRITES, -ENOSPC, "No space left"},
                 {GM_DISK_READS, 0, "it moved fewer"},
                 {GM_DISK_WRITES, INT64_MIN, "has not answered"}};
    char *memory = blocks(8);
    make_folder();
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        gm_disk_transfer *w, *r;
        uint64_t          at;
        fault             f = {.event = cases[i / 2].event, .after = 3, .result = cases[i / 2].result};
        gm_disk          *d = open_with(&f, i % 2);
        memset(memory, 1, 8 * BLOCK);
        OK(gm_disk_reserve(d, 8 * BLOCK, &at));
        OK(gm_disk_write(d, at, memory, 8 * BLOCK, &w));
        if (cases[i / 2].event == GM_DISK_WRITES) {
            FAILS(GM_EIO, cases[i / 2].says, gm_disk_wait(d, w));
        } else {
            OK(gm_disk_wait(d, w));
            OK(gm_disk_read(d, at, memory, 8 * BLOCK, &r));
            FAILS(GM_EIO, cases[i / 2].says, gm_disk_wait(d, r));
        }
        assert_non_null(strstr(gm_last_error(), folder));
        FAILS(GM_EIO, cases[i / 2].says, gm_disk_read(d, at, memory, BLOCK, &r)); /* it stays broken */
        FAILS(GM_EIO, cases[i / 2].says, gm_disk_reserve(d, BLOCK, &at));
        gm_disk_close(d);
    }
    free(memory);
    assert_int_equal(rmdir(folder), 0);
}

static int64_t refuse_first(void *context, gm_disk_event event, uint64_t at, size_t bytes)
{
    (void)at;
    return event != GM_DISK_RESERVES && *(int *)context && (*(int *)context)-- ? -EINVAL : (int64_t)bytes;
}

static void hear(void *context, const char *text) { *(int *)context += strstr(text, "has no direct I/O") != NULL; }

/* A file system that opens files for direct I/O and then refuses it. */
void gm_test_disk_no_direct(void **state)
{
    (void)state;
    gm_disk *d;
    uint64_t read, written;
    int      refusals = 1, said = 0;
    make_folder();
    OK(gm_disk_open(
        &(gm_disk_settings){
            .folder = folder, .say = hear, .say_context = &said, .fault = refuse_first, .fault_context = &refusals},
        &d));
    refusals = gm_disk_stats_of(d).direct;
    exercise(d, 100, 3, &read, &written);
    assert_int_equal(said, 1);
    assert_false(gm_disk_stats_of(d).direct);
    gm_disk_close(d);
    assert_int_equal(rmdir(folder), 0);
}

void gm_test_disk_space(void **state)
{
    (void)state;
    uint64_t          at[4];
    gm_disk_transfer *t;
    fault             f = {.event = GM_DISK_RESERVES, .after = 1, .result = -ENOSPC};
    make_folder();
    gm_disk *d = open_with(&f, false);
    OK(gm_disk_prepare(d, 10 * BLOCK));
    assert_int_equal(gm_disk_stats_of(d).size, 10 * BLOCK);
    for (int i = 0; i < 3; i++) OK(gm_disk_reserve(d, 3 * BLOCK, &at[i]));
    FAILS(GM_EIO, "No space left", gm_disk_reserve(d, 2 * BLOCK, &at[3]));
    assert_non_null(strstr(gm_last_error(), folder));
    assert_non_null(strstr(gm_last_error(), "no room for 4.0 KiB more of what is offloaded, beside 40.0 KiB"));
    char text[32];
    assert_string_equal(gm_disk_amount(1023, text), "1023 bytes");
    assert_string_equal(gm_disk_amount(3 << 20, text), "3.0 MiB");
    OK(gm_disk_reserve(d, 1, &at[3])); /* what there is, can be had still */
    gm_disk_give_back(d, at[0], 3 * BLOCK);
    gm_disk_give_back(d, at[2], 3 * BLOCK);
    gm_disk_give_back(d, at[1], 3 * BLOCK); /* three holes become one */
    OK(gm_disk_reserve(d, 9 * BLOCK, &at[0]));
    assert_int_equal(gm_disk_stats_of(d).reserved, 10 * BLOCK);
    FAILS(GM_EINVAL, "not aligned, or outside", gm_disk_read(d, 100, NULL, BLOCK, &t));
    FAILS(GM_EINVAL, "not aligned, or outside", gm_disk_read(d, 10 * BLOCK, NULL, BLOCK, &t));
    gm_disk_close(d);
    FAILS(GM_EIO, "is no folder", gm_disk_open(&(gm_disk_settings){.folder = "/dev/null"}, &d));
    FAILS(GM_EIO, "is no folder", gm_disk_open(&(gm_disk_settings){.folder = "/tmp/no/such"}, &d));
    FAILS(GM_EINVAL, "multiples of", gm_disk_open(&(gm_disk_settings){.folder = folder, .piece = 5000}, &d));
    assert_int_equal(rmdir(folder), 0);
}
