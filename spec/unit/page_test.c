/* page_test.c - the pages that ranks keep for other processes: what a reader gets, and what it refuses. */
#define _GNU_SOURCE
#include "../../host/comm/page.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../host/comm/state.h"
#include "unit.h"

static char folder[64], path[96];

static gm_page *begin(void)
{
    gm_page *page;
    strcpy(folder, "/tmp/gm-page-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/rank-1", folder);
    assert_int_equal(gm_page_make(path, 1, 4, &page), GM_OK);
    return page;
}

static void end(gm_page *page)
{
    gm_page_free(page);
    unlink(path);
    assert_int_equal(rmdir(folder), 0);
}

void gm_test_page_is_read(void **state)
{
    (void)state;
    static gm_page copy;
    gm_page       *page = begin(), *again;
    int            members[3] = {1, 2, 3};
    gm_group       group = {.name = "data", .size = 3, .member = members};
    gm_pending     call = {.group = &group,
                           .call = GM_CALL_all_reduce,
                           .record = {.call = GM_CALL_all_reduce,
                                      .dtype = GM_F32,
                                      .reduction = 0,
                                      .root = -1,
                                      .dim = -1,
                                      .join = -1,
                                      .ndim = 2,
                                      .shape = {4, 8},
                                      .number = 16,
                                      .place = "blocks.3"}};
    char           text[640];
    assert_int_not_equal(gm_page_make(path, 1, 4, &again), GM_OK); /* of another rank, or of an attacker */
    assert_int_equal(gm_page_read(path, &copy), GM_OK);
    assert_int_equal(copy.step, -1);
    assert_int_equal(copy.waiting.record.call, -1);
    for (int i = 1; i <= 20; i++) gm_page_stepped(page, i, (gm_page_step){i, 32.0 * i, 0, 0});
    gm_page_memory(page, 10, 30, 20);
    gm_page_called(page, &call);
    gm_page_waits(page, &call, 7.5);
    assert_int_equal(gm_page_read(path, &copy), GM_OK);
    assert_int_equal(copy.step, 20);
    assert_int_equal(copy.n_steps, 20);
    assert_true(copy.steps[19 % GM_PAGE_STEPS].samples == 640 && copy.steps[4 % GM_PAGE_STEPS].ended == 5);
    assert_int_equal(copy.peak, 30);
    assert_true(copy.waiting.since == 7.5);
    assert_int_equal(copy.waiting.peer, -1);
    assert_int_equal(copy.waiting.member[2], 3);
    assert_string_equal(gm_page_describe(&copy.waiting, text, sizeof text),
                        "all_reduce f32 (4, 8) sum (call 17 of data), at blocks.3");
    gm_page_waited(page, 0.5);
    gm_page_stepped(page, 21, (gm_page_step){21, 672, 0, 0});
    gm_page_waits(page, &call, 9.5);
    gm_page_waited(page, 0.25);
    assert_int_equal(gm_page_read(path, &copy), GM_OK);
    assert_int_equal(copy.waiting.record.call, -1);
    assert_true(copy.waited == 0.75 && copy.steps[20 % GM_PAGE_STEPS].waited == 0.5);
    assert_int_equal(copy.last.record.number, 16);
    page->changes++; /* a rank that was killed while it wrote: the reader does not wait for it */
    assert_int_equal(gm_page_read(path, &copy), GM_OK);
    end(page);
}

void gm_test_page_is_not_trusted(void **state)
{
    (void)state;
    static gm_page copy;
    gm_page       *page = begin();
    char           link[128];
    page->waiting.record.call = GM_CALL_COUNT;
    assert_int_equal(gm_page_read(path, &copy), GM_ECORRUPT);
    page->waiting.record.call = 0;
    page->waiting.record.ndim = GM_MAX_DIMS + 1;
    assert_int_equal(gm_page_read(path, &copy), GM_ECORRUPT);
    page->waiting.record.ndim = 0;
    page->waiting.record.dtype = GM_DTYPE_COUNT;
    assert_int_equal(gm_page_read(path, &copy), GM_ECORRUPT);
    page->waiting.record.dtype = -1;
    page->waiting.record.reduction = 4;
    assert_int_equal(gm_page_read(path, &copy), GM_ECORRUPT);
    page->waiting.record.reduction = -1;
    memset(page->waiting.group, 'g', sizeof page->waiting.group);
    memset(page->waiting.record.place, 'p', GM_PLACE_ROOM);
    assert_int_equal(gm_page_read(path, &copy), GM_OK);
    assert_int_equal(strlen(copy.waiting.group), sizeof copy.waiting.group - 1);
    assert_int_equal(strlen(copy.waiting.record.place), GM_PLACE_ROOM - 1);
    page->phase = GM_PHASE_COUNT;
    assert_int_equal(gm_page_read(path, &copy), GM_ECORRUPT);
    page->phase = 0;
    page->size++; /* another build's */
    assert_int_equal(gm_page_read(path, &copy), GM_ECORRUPT);
    page->size--;
    snprintf(link, sizeof link, "%s/link", folder);
    assert_int_equal(symlink(path, link), 0);
    assert_int_equal(gm_page_read(link, &copy), GM_EIO);
    unlink(link);
    if (geteuid() == 0) {
        assert_int_equal(chown(path, 65534, 65534), 0); /* another user's */
        assert_int_equal(gm_page_read(path, &copy), GM_ECORRUPT);
        assert_int_equal(chown(path, 0, 0), 0);
    }
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(gm_page_read(path, &copy), GM_ECORRUPT);
    end(page);
}
