/* order.c - sort along the last dimension, and what undoes it. A thread has whole rows.
 *
 * A float and its place are one integer, whose upper half has the order of floats: no two are equal, and equal floats
 * keep their order. Short rows count how many integers are below each. Others are sorted by the four bytes of the upper
 * half, the lowest first. Doubles are merged. */

typedef struct order_job {
    cpu_rows x, y, index;
    int64_t  n;
    bool     descending;
    char    *room; /* of each thread: two rows of elements with their places */
    size_t   each;
} order_job;

#define ORDER_COUNTED 40 /* elements of a row that are counted, at most: whole vectors */
#define ORDER_BYTES   4
#define ORDER_VALUES  256

/* Numbers go up as floats do, NaN being the largest and -0 being 0; down: the other way. */
CPU_INLINE uint32_t order_number(float v, bool descending)
{
    uint32_t u;
    v = v == 0 ? 0 : v;
    memcpy(&u, &v, sizeof u);
    u = v != v ? UINT32_MAX : u >> 31 ? ~u : u | 0x80000000u;
    return descending ? ~u : u;
}

/* As signed integers: vectors compare them in one instruction. */
static void order_counted(bool descending, int64_t n, const float *x, float *y, int64_t *index)
{
    int64_t all[ORDER_COUNTED];
    for (int64_t i = 0; i < ORDER_COUNTED; i++)
        all[i] = i < n ? (int64_t)((uint64_t)(order_number(x[i], descending) ^ 0x80000000u) << 32) + i : INT64_MAX;
    for (int64_t i = 0; i < n; i++) {
        int64_t below = 0;
        for (int64_t k = 0; k < (n + 7) / 8 * 8; k++) below += all[k] < all[i];
        y[below] = x[i];
        index[below] = i;
    }
}

/* Sorts by bytes of the upper half; the result is in a or in b, whichever is returned. Bytes that all have in common
 * are left out. */
static const uint64_t *order_by_bytes(int64_t n, uint64_t *a, uint64_t *b)
{
    uint32_t count[ORDER_BYTES][ORDER_VALUES] = {{0}};
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < ORDER_BYTES; k++) count[k][a[i] >> (32 + 8 * k) & 0xff]++;
    for (int k = 0; k < ORDER_BYTES; k++) {
        uint32_t before = 0;
        if (count[k][a[0] >> (32 + 8 * k) & 0xff] == n) continue;
        for (int v = 0; v < ORDER_VALUES; v++) {
            uint32_t here = count[k][v];
            count[k][v] = before;
            before += here;
        }
        for (int64_t i = 0; i < n; i++) b[count[k][a[i] >> (32 + 8 * k) & 0xff]++] = a[i];
        uint64_t *other = a;
        a = b;
        b = other;
    }
    return a;
}

/* room: 2 n integers */
static void order_floats(bool descending, int64_t n, const float *x, float *y, int64_t *index, uint64_t *room)
{
    if (n <= ORDER_COUNTED) {
        order_counted(descending, n, x, y, index);
        return;
    }
    for (int64_t i = 0; i < n; i++) room[i] = (uint64_t)order_number(x[i], descending) << 32 | (uint64_t)i;
    const uint64_t *sorted = order_by_bytes(n, room, room + n);
    for (int64_t i = 0; i < n; i++) {
        index[i] = (int64_t)(sorted[i] & UINT32_MAX);
        y[i] = x[index[i]];
    }
}

#define AS 32
#include "as.h"
#include "order_t.h"
#define AS 64
#include "as.h"
#include "order_t.h"
#define AS 0
#include "as.h"

static gm_status sort_rows(gm_device *dev, const gm_call *call)
{
    order_job j = {.x = cpu_rows_of(call->in[0]), .y = cpu_rows_of(call->out[0]), .index = cpu_rows_of(call->out[1])};
    gm_block *block;
    int64_t   bytes = 16; /* an element with its place, and padding */
    j.n = j.x.width;
    j.descending = call->attrs->descending;
    j.each = (size_t)(2 * j.n * bytes);
    if (!j.n || !j.x.rows) return GM_OK;
    int64_t passes = 1;
    while (((int64_t)1 << passes) < j.n) passes++;
    int parts = cpu_parts(dev, j.x.rows, j.n * bytes * passes);
    GM_TRY(cpu_scratch(dev, (size_t)parts * j.each, &j.room, &block));
    cpu_parallel(dev, j.x.rows, j.n * bytes * passes, BY_TYPE(call->in[0], sort_part), &j);
    gm_pool_release(dev->pool, block);
    return GM_OK;
}

static gm_status cpu_sort(gm_device *dev, const gm_call *call) { return cpu_with_rows(dev, call, 0, -1, sort_rows); }

static gm_status unsort_rows(gm_device *dev, const gm_call *call)
{
    order_job j = {.index = cpu_rows_of(call->in[0]), .x = cpu_rows_of(call->in[1]), .y = cpu_rows_of(call->out[0])};
    j.n = j.x.width;
    cpu_parallel(dev, j.x.rows, 3 * j.n * j.x.size, BY_TYPE(call->in[1], unsort_part), &j);
    return GM_OK;
}

static gm_status cpu_unsort(gm_device *dev, const gm_call *call)
{
    return cpu_with_rows(dev, call, 0, -1, unsort_rows);
}
