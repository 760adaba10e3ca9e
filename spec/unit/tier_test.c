/* tier_test.c - tiers against memory: random sequences of opens, changes, fetches ahead; faults, limits, accounts. */
#include "../../host/checkpoint/checkpoint.h"
#include "../../host/tier/tier.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "unit.h"

#define OBJECTS 30
#define PAGE    4096

static char       folder[64];
static gm_device *dev;

static void begin(void)
{
    snprintf(folder, sizeof folder, "/tmp/gm-tier-XXXXXX");
    assert_non_null(mkdtemp(folder));
    OK(gm_device_new("cpu", 1, &dev));
}

static void end(void)
{
    assert_int_equal(gm_pool_stats(dev->pool).live, 0);
    gm_device_free(dev);
    assert_int_equal(rmdir(folder), 0);
}

static gm_tier_settings on_disk(size_t ring)
{
    return (gm_tier_settings){
        .kind = GM_TIER_DISK, .ring = ring, .disk = {.folder = folder, .depth = 4, .piece = 2 * PAGE}};
}

/* ---- against memory ---- */

typedef struct pair {
    gm_tensor *tensor;
    double    *truth;
    int64_t    n;
} pair;

static void fill(pair *p, unit_random *random)
{
    double *data = gm_tensor_data(p->tensor);
    for (int64_t i = 0; i < p->n; i++) data[i] = p->truth[i] = unit_between(random, -1, 1);
}

static void make(gm_tier *t, pair *p, unit_random *random)
{
    p->n = 1 + unit_below(random, 3000); /* up to 6 pages */
    p->truth = malloc((size_t)p->n * sizeof *p->truth);
    OK(gm_tensor_new(dev, GM_F64, 1, &p->n, &p->tensor));
    fill(p, random);
    OK(gm_tier_take(t, p->tensor->storage));
    assert_null(gm_tensor_data(p->tensor));
    assert_true(gm_tensor_has_data(p->tensor));
}

static void forget(pair *p)
{
    gm_tensor_release(p->tensor);
    free(p->truth);
}

static void compare(const pair *p) { assert_memory_equal(gm_tensor_data(p->tensor), p->truth, (size_t)p->n * 8); }

static void open_and_close(pair *p, unit_random *random)
{
    bool changes = unit_bits(random) % 2;
    OK(gm_storage_open(p->tensor->storage));
    OK(gm_storage_open(p->tensor->storage)); /* they nest */
    compare(p);
    if (changes) fill(p, random);
    gm_storage_close(p->tensor->storage, changes);
    compare(p);
    gm_storage_close(p->tensor->storage, false);
    assert_null(gm_tensor_data(p->tensor));
}

/* p *= 2 and the like, by ops that know of no tier. */
static void run_op(pair *p, pair *q)
{
    int64_t    n = p->n < q->n ? p->n : q->n;
    gm_tensor *a, *b;
    double     one;
    OK(gm_tensor_narrow(p->tensor, 0, 0, n, &a));
    OK(gm_tensor_narrow(q->tensor, 0, 0, n, &b));
    OK(gm_run_one(dev, GM_OP_copy, NULL, a, b));
    memmove(q->truth, p->truth, (size_t)n * sizeof *p->truth);
    OK(gm_host_load(q->tensor, n - 1, &one));
    assert_true(one == q->truth[n - 1]);
    OK(gm_host_store(q->tensor, 0, 7));
    q->truth[0] = 7;
    gm_tensor_release(a);
    gm_tensor_release(b);
}

static int64_t make_short(void *context, gm_disk_event event, uint64_t at, size_t bytes)
{
    (void)event, (void)at;
    return ++*(int *)context % 3 ? (int64_t)bytes : 1024;
}

void gm_test_tier_random(void **state)
{
    (void)state;
    begin();
    for (int way = 0; way < 4; way++) {
        pair             pairs[OBJECTS];
        unit_random      random = {(uint64_t)way};
        gm_tier         *t;
        int              events = 0;
        gm_tier_settings set = on_disk((way % 2 ? 60 : 24) * PAGE);
        uint64_t         placed = 0;
        set.disk.threads = way > 1;
        if (way) set.disk.fault = make_short, set.disk.fault_context = &events;
        OK(gm_tier_new(dev, &set, &t));
        for (int i = 0; i < OBJECTS; i++) make(t, &pairs[i], &random);
        for (int step = 0; step < 1500; step++) {
            pair *p = &pairs[unit_below(&random, OBJECTS)], *q = &pairs[unit_below(&random, OBJECTS)];
            switch (unit_below(&random, 8)) {
            case 0: OK(gm_tier_begin(p->tensor->storage)); break;
            case 1: OK(gm_tier_settle(t)); break;
            case 2:
                forget(p);
                make(t, p, &random);
                break;
            case 3:
                if (p != q) run_op(p, q);
                break;
            default: open_and_close(p, &random);
            }
        }
        for (int i = 0; i < OBJECTS; i++) placed += gm_tier_room(GM_TIER_DISK, (uint64_t)pairs[i].n * 8);
        gm_tier_stats s = gm_tier_stats_of(t);
        assert_int_equal(s.objects, OBJECTS);
        assert_int_equal(s.placed, placed);
        assert_true(s.resident <= s.resident_peak && s.resident_peak <= s.ring && s.fetched && s.kept && s.stored);
        gm_tier_release(t); /* its objects keep it */
        for (int i = 0; i < OBJECTS; i++) {
            open_and_close(&pairs[i], &random);
            forget(&pairs[i]);
        }
    }
    end();
}

/* ---- accounts ---- */

static gm_tensor *taken(gm_tier *t, int64_t pages)
{
    gm_tensor *x;
    OK(gm_tensor_new(dev, GM_U8, 1, (int64_t[]){pages * PAGE}, &x));
    OK(gm_run_one(dev, GM_OP_fill, NULL, NULL, x));
    OK(gm_tier_take(t, x->storage));
    return x;
}

void gm_test_tier_accounts(void **state)
{
    (void)state;
    gm_tier *t;
    begin();
    gm_tier_settings set = on_disk(8 * PAGE);
    set.limit = 9 * PAGE;
    OK(gm_tier_new(dev, &set, &t));
    OK(gm_tier_prepare(t, 9 * PAGE));
    FAILS(GM_ENOMEM, "would pass the limit", gm_tier_prepare(t, 10 * PAGE));
    gm_tensor *a = taken(t, 4), *b = taken(t, 4), *c;
    OK(gm_tensor_new(dev, GM_U8, 1, (int64_t[]){PAGE + 1}, &c));
    FAILS(GM_ENOMEM, "would pass the limit", gm_tier_take(t, c->storage));
    assert_non_null(gm_tensor_data(c)); /* it stayed as it was */
    OK(gm_tier_settle(t));
    OK(gm_storage_open(a->storage));
    gm_storage_close(a->storage, true);
    OK(gm_storage_open(a->storage)); /* it is on its way, and not read again */
    OK(gm_storage_open(b->storage));
    OK(gm_tier_settle(t));
    gm_tier_stats s = gm_tier_stats_of(t);
    assert_true(s.fetched == 0 && s.kept == 3 && s.read == 0 && s.stored == 3 && s.written == 12 * PAGE);
    assert_true(s.resident == 8 * PAGE && s.placed == 8 * PAGE && s.placed_peak == 8 * PAGE && s.ring == 8 * PAGE);
    assert_int_equal(gm_pool_stats(dev->pool).live, 9 * PAGE + PAGE + 1); /* the ring and its alignment, c */
    gm_tensor_release(c);
    gm_storage_close(a->storage, false);
    gm_storage_close(b->storage, false);
    c = taken(t, 1);
    gm_tensor_release(a);
    gm_tensor_release(b);
    assert_int_equal(gm_tier_stats_of(t).placed, PAGE);
    gm_tensor_release(c);
    gm_tier_release(t);
    OK(gm_tier_new(dev, &(gm_tier_settings){.kind = GM_TIER_HOST, .limit = 100}, &t));
    OK(gm_tensor_new(dev, GM_U8, 1, (int64_t[]){60}, &a));
    OK(gm_tier_take(t, a->storage));
    assert_non_null(gm_tensor_data(a)); /* the host's memory is this device's own */
    OK(gm_run_one(dev, GM_OP_fill, NULL, NULL, a));
    assert_int_equal(gm_tier_stats_of(t).placed, 60);
    gm_tensor_release(a);
    assert_int_equal(gm_tier_stats_of(t).placed, 0);
    gm_tier_release(t);
    end();
}

void gm_test_tier_ring(void **state)
{
    (void)state;
    gm_tier *t;
    begin();
    gm_tier_settings set = on_disk(8 * PAGE);
    OK(gm_tier_new(dev, &set, &t));
    gm_tensor *a = taken(t, 4), *b = taken(t, 4), *c = taken(t, 4);
    OK(gm_storage_open(a->storage));
    OK(gm_tier_begin(b->storage));
    OK(gm_tier_begin(c->storage));   /* no place: nothing happens */
    OK(gm_storage_open(c->storage)); /* b makes room */
    FAILS(GM_ENOMEM, "give offload.ring more", gm_storage_open(b->storage));
    gm_storage_close(a->storage, false);
    OK(gm_storage_open(b->storage));
    gm_storage_close(b->storage, false);
    gm_storage_close(c->storage, false);
    gm_tensor_release(a), gm_tensor_release(b), gm_tensor_release(c);
    gm_tier_release(t);
    end();
}

/* ---- faults ---- */

typedef struct fault {
    gm_disk_event event;
    bool          on;
} fault;

static int64_t inject(void *context, gm_disk_event event, uint64_t at, size_t bytes)
{
    const fault *f = context;
    (void)at;
    return f->on && event == f->event ? -EIO : (int64_t)bytes;
}

void gm_test_tier_faults(void **state)
{
    (void)state;
    begin();
    for (gm_disk_event event = GM_DISK_RESERVES; event <= GM_DISK_WRITES; event++) {
        gm_tier         *t;
        gm_tensor       *x;
        double           v;
        fault            f = {.event = event};
        gm_tier_settings set = on_disk(8 * PAGE);
        set.disk.fault = inject, set.disk.fault_context = &f;
        OK(gm_tier_new(dev, &set, &t));
        gm_tensor *a = taken(t, 4), *b = taken(t, 4), *z = taken(t, 8); /* z takes their place in the ring */
        OK(gm_tier_settle(t));
        f.on = true;
        if (event == GM_DISK_RESERVES) {
            OK(gm_tensor_new(dev, GM_U8, 1, (int64_t[]){PAGE}, &x));
            FAILS(GM_EIO, folder, gm_tier_take(t, x->storage));
            assert_non_null(gm_tensor_data(x));
            OK(gm_host_load(x, 0, &v));
            gm_tensor_release(x);
            OK(gm_host_load(a, 0, &v)); /* what rests there can be had */
        } else if (event == GM_DISK_READS) {
            FAILS(GM_EIO, folder, gm_run_one(dev, GM_OP_copy, NULL, a, b));
            FAILS(GM_EIO, "failed to read", gm_host_load(b, 0, &v));
        } else {
            OK(gm_host_store(a, 0, 1)); /* written behind: whoever comes next hears of it */
            FAILS(GM_EIO, folder, gm_tier_settle(t));
            FAILS(GM_EIO, "failed to write", gm_host_load(a, 0, &v));
        }
        gm_tensor_release(a), gm_tensor_release(b), gm_tensor_release(z);
        gm_tier_release(t);
    }
    end();
}

/* ---- what comes ahead ---- */

static void touch(gm_tensor *t, bool changed)
{
    OK(gm_storage_open(t->storage));
    gm_storage_close(t->storage, changed);
}

/* How many storages opening this one has fetched: itself, and what comes behind it. */
static int64_t fetched_by(const gm_tier *t, gm_tensor *x)
{
    uint64_t before = gm_tier_stats_of(t).fetched;
    touch(x, false);
    return (int64_t)(gm_tier_stats_of(t).fetched - before);
}

void gm_test_tier_order(void **state)
{
    (void)state;
    gm_tier         *t;
    gm_tensor       *x[6];
    gm_tier_settings set = on_disk(8 * PAGE);
    begin();
    OK(gm_tier_new(dev, &set, &t));
    for (int i = 0; i < 6; i++) x[i] = taken(t, 2);
    for (int i = 0; i < 6; i++) assert_int_equal(fetched_by(t, x[i]), 1); /* nothing is known of the order yet */
    gm_tier_end_step(t);
    assert_int_equal(fetched_by(t, x[0]), 2); /* and the next, which is on its way */
    assert_int_equal(fetched_by(t, x[1]), 1); /* the next but one, while this one is there */
    assert_int_equal(fetched_by(t, x[2]), 1);
    assert_int_equal(fetched_by(t, x[0]), 0); /* out of order: the order goes on behind it, where all is there */
    gm_tensor_release(x[3]);
    assert_int_equal(fetched_by(t, x[2]), 1); /* what has gone is left out, and x[4] comes */
    assert_int_equal(fetched_by(t, x[4]), 1);
    for (int i = 0; i < 6; i++)
        if (i != 3) gm_tensor_release(x[i]);
    gm_tier_release(t);
    end();
}

void gm_test_tier_stack(void **state)
{
    (void)state;
    gm_tier         *t;
    gm_tensor       *x[5];
    gm_tier_settings set = on_disk(8 * PAGE);
    begin();
    OK(gm_tier_new(dev, &set, &t));
    for (int i = 0; i < 5; i++) {
        OK(gm_tensor_new(dev, GM_U8, 1, (int64_t[]){2 * PAGE}, &x[i]));
        OK(gm_host_store(x[i], 0, i + 1));
        OK(gm_tier_push(t, x[i]->storage));
        assert_int_equal(fetched_by(t, x[i]), 0); /* still there */
    }
    gm_tensor *more = taken(t, 4); /* the oldest leave the ring: x[0] to x[2] are on the disk alone */
    assert_int_equal(fetched_by(t, x[4]), 0);
    assert_int_equal(fetched_by(t, x[3]), 0);
    assert_int_equal(fetched_by(t, x[2]), 2); /* what lies below it comes, too */
    gm_tensor_release(x[4]), gm_tensor_release(x[2]), gm_tensor_release(x[3]);
    for (int i = 1; i >= 0; i--) {
        double v;
        OK(gm_host_load(x[i], 0, &v));
        assert_true(v == i + 1);
        gm_tensor_release(x[i]);
    }
    gm_tensor_release(more);
    gm_tier_release(t);
    end();
}

/* Bytes that nobody needs are neither read nor written. */
void gm_test_tier_blank(void **state)
{
    (void)state;
    gm_tier         *t;
    gm_tensor       *x;
    double           v;
    gm_tier_settings set = on_disk(8 * PAGE);
    begin();
    OK(gm_tier_new(dev, &set, &t));
    size_t live = gm_pool_stats(dev->pool).live;
    OK(gm_tensor_new_absent(dev, GM_F64, 1, (int64_t[]){4 * PAGE / 8}, &x));
    OK(gm_tier_take(t, x->storage));
    assert_int_equal(gm_pool_stats(dev->pool).live, live);
    assert_int_equal(fetched_by(t, x), 0);
    assert_int_equal(gm_tier_stats_of(t).stored, 0);
    for (int i = 0; i < 3; i++) {
        OK(gm_host_store(x, 5, 7 + i)); /* the second time around and the third, what was there is not read */
        gm_tensor    *z = taken(t, 8);  /* takes its place in the ring */
        gm_tier_stats s = gm_tier_stats_of(t);
        assert_true(s.fetched == (uint64_t)i && s.stored == 2 * (uint64_t)(i + 1));
        OK(gm_host_load(x, 5, &v));
        assert_true(v == 7 + i);
        gm_tier_discard(x->storage);
        gm_tensor_release(z);
    }
    OK(gm_storage_open(x->storage));
    gm_tier_discard(x->storage); /* in use: nothing happens */
    assert_non_null(gm_tensor_data(x));
    gm_storage_close(x->storage, false);
    FAILS(GM_EINVAL, "rest elsewhere already", gm_tier_take(t, x->storage));
    gm_tensor_release(x);
    OK(gm_tensor_new(dev, GM_U8, 1, (int64_t[]){PAGE}, &x));
    OK(gm_storage_open(x->storage));
    FAILS(GM_EINVAL, "in use", gm_tier_take(t, x->storage));
    gm_storage_close(x->storage, true);
    OK(gm_tier_take(t, x->storage));
    gm_tensor_release(x);
    gm_tier_release(t);
    end();
}

/* ---- checkpoints ---- */

/* Saves both as tensors "a" and "b", in the background if there is memory -> what became of it. */
static gm_status save(const gm_tensor *a, const gm_tensor *b, int step, uint64_t limit)
{
    gm_save  *s;
    char      token[GM_SAVE_TOKEN];
    gm_mesh   mesh = gm_mesh_of_one();
    gm_layout layout = {0};
    gm_piece  pieces[] = {gm_piece_of("a", a, &layout, a->shape), gm_piece_of("b", b, &layout, b->shape)};
    OK(gm_save_new(&(gm_save_as){.folder = folder,
                                 .spared = -1,
                                 .step = step,
                                 .pieces = pieces,
                                 .n = 2,
                                 .meta = "{}",
                                 .mesh = &mesh,
                                 .background = true,
                                 .snapshot_limit = limit},
                   &s));
    OK(gm_save_prepare(s, token));
    OK(gm_save_start(s, token));
    gm_save_wait(s, GM_SAVE_DONE, -1);
    gm_status st = gm_save_result(s);
    gm_save_free(s);
    return st;
}

static void assert_loads(gm_tier *t, const char *path)
{
    gm_checkpoint *c;
    double         v;
    gm_mesh        mesh = gm_mesh_of_one();
    gm_layout      layout = {0};
    gm_tensor     *x = taken(t, 3);
    gm_piece       to = gm_piece_of("b", x, &layout, x->shape);
    OK(gm_checkpoint_open(path, 0, 1, &c));
    OK(gm_checkpoint_read(c, &mesh, 0, &to, NULL, false));
    gm_checkpoint_close(c);
    OK(gm_host_load(x, 3 * PAGE - 1, &v));
    assert_true(v == 17);
    gm_tensor_release(x);
}

void gm_test_tier_checkpoint(void **state)
{
    (void)state;
    char             path[2][200];
    gm_tier         *t;
    fault            f = {.event = GM_DISK_WRITES};
    gm_tier_settings set;
    begin();
    set = on_disk(8 * PAGE);
    set.disk.fault = inject, set.disk.fault_context = &f;
    OK(gm_tier_new(dev, &set, &t));
    gm_tensor *a = taken(t, 4), *b = taken(t, 3);
    OK(gm_host_store(b, 3 * PAGE - 1, 17));
    for (int i = 0; i < 2; i++) { /* from a copy, and one tensor after the other */
        snprintf(path[i], sizeof path[i], "%s/step-%08d", folder, i + 1);
        OK(save(a, b, i + 1, i));
        assert_loads(t, path[i]);
    }
    /* What could not be written is in no checkpoint: the save is the first to hear of it. */
    f.on = true;
    OK(gm_host_store(b, 0, 3));
    FAILS(GM_EIO, "failed to write", save(a, b, 3, 0));
    FAILS(GM_EIO, "failed to write", save(a, b, 3, 1));
    gm_tensor_release(a), gm_tensor_release(b);
    gm_tier_release(t);
    snprintf(path[0], sizeof path[0], "rm -r %s/step-00000001 %s/step-00000002", folder, folder);
    assert_int_equal(system(path[0]), 0); /* nothing else is there: end() removes the folder */
    end();
}
