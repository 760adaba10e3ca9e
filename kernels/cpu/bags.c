/* bags.c - bags of rows of tables, gradients of tables as lists of rows, and rows that such a list names (ops.def).
 *
 * All indices are checked before anything is written. Rows are read where they lie; those of the next bags are fetched
 * ahead, because they are anywhere in memory. A list of touched rows is a stable sort of the places by row, of 11 bits
 * in each pass and of as many passes as the largest row needs; nothing is as long as the table. Each row is then summed
 * by one thread, in double, in order of the places: the bits are those of embedding_grad. */

#define BAG_COLUMNS 512 /* elements of a row that are summed at a time */
#define BAG_AHEAD   16  /* places whose rows are fetched before they are needed */
#define RADIX_BITS  11

typedef struct bag_job {
    cpu_rows w, y, weight, g;
    int64_t *row;  /* of each place */
    int64_t  each; /* places of a bag */
    bool     weighted;
    cast_row widen, round; /* NULL: the elements are T */
} bag_job;

/* A place and the row of the table that it names. */
typedef struct row_place {
    int64_t row, place;
} row_place;

typedef struct rows_job {
    cpu_rows   g, weight, sum;
    row_place *list;  /* in order of rows, then of places */
    int64_t   *start; /* where the places of each kept row begin; one more: their end */
    int64_t   *kept, kept_step, count, each;
    bool       weighted;
} rows_job;

/* The row of a fixed length from `row` on is on its way. */
static inline void fetch_row(const cpu_rows *w, int64_t row)
{
    if (row < 0) return;
    const char *p = cpu_row_at(w, row);
    for (int64_t at = 0; at < w->width * w->size && at < 256; at += 64) __builtin_prefetch(p + at);
}

#define AS 32
#include "as.h"
#include "bags_t.h"
#define AS 64
#include "as.h"
#include "bags_t.h"
#define AS 0
#include "as.h"

/* The rows of w at all places, -1 where there is none. */
static gm_status find_places(const gm_call *call, int64_t *row)
{
    const gm_tensor *index = call->in[1], *bounds = call->in[2];
    const int64_t   *bound = gm_tensor_data(bounds);
    cpu_rows         at = cpu_scalars_of(index);
    int64_t          tables = index->shape[1], each = index->shape[2], rows = call->in[0]->shape[0];
    for (int64_t i = 0; i < at.rows; i++) {
        int64_t table = i / each % tables, v = load_index(&at, i), begin = bound[table * bounds->stride[0]];
        int64_t count = bound[(table + 1) * bounds->stride[0]] - begin;
        if (v != -1 && !inside(v, count))
            return GM_FAIL(GM_EINVAL,
                           "embedding_bag: index %" PRId64 " at position %" PRId64 " (from 0) is outside a table of "
                           "%" PRId64 " rows",
                           v, i, count);
        v = v == -1 ? -1 : v + begin - call->attrs->first;
        row[i] = inside(v, rows) ? v : -1;
    }
    return GM_OK;
}

static gm_status bag_rows(gm_device *dev, const gm_call *call)
{
    gm_tensor *w = call->in[0], *weight = cpu_in(call, 3), *row = cpu_out(call, 1);
    gm_block  *block = NULL;
    int64_t    places = gm_tensor_numel(call->in[1]);
    bool       narrow = gm_dtype_is_narrow(w->dtype);
    bag_job    j = {.w = cpu_rows_of(w), .y = cpu_rows_of(call->out[0]), .each = call->in[1]->shape[2]};
    if (weight) j.weight = cpu_scalars_of(weight), j.weighted = true;
    if (narrow) j.widen = find_cast(w->dtype, GM_F32), j.round = find_cast(GM_F32, w->dtype);
    GM_TRY(cpu_scratch(dev, (size_t)places * 8, &j.row, &block));
    gm_status st = find_places(call, j.row);
    if (st == GM_OK && row) {
        cpu_rows to = cpu_scalars_of(row);
        for (int64_t i = 0; i < places; i++) *(int64_t *)cpu_row_at(&to, i) = j.row[i];
    }
    int64_t traffic = (j.each + 1) * j.w.width * j.w.size;
    if (st == GM_OK)
        cpu_parallel(dev, j.w.width ? j.y.rows : 0, traffic, w->dtype == GM_F64 ? bag_part_f64 : bag_part_f32, &j);
    gm_pool_release(dev->pool, block);
    return st;
}

static gm_status cpu_embedding_bag(gm_device *dev, const gm_call *call)
{
    return cpu_with_rows(dev, call, 0, -1, bag_rows);
}

/* Places for each row of g. */
static int64_t places_each(const gm_tensor *row, const cpu_rows *g)
{
    return g->rows ? gm_tensor_numel(row) / g->rows : 1;
}

static gm_status bag_weight_grad_rows(gm_device *dev, const gm_call *call)
{
    gm_block *block;
    cpu_rows  row = cpu_scalars_of(call->in[1]);
    bag_job   j = {.w = cpu_rows_of(call->in[0]), .g = cpu_rows_of(call->in[2]), .y = cpu_scalars_of(call->out[0])};
    if (!row.rows) return GM_OK;
    GM_TRY(cpu_scratch(dev, (size_t)row.rows * 8, &j.row, &block));
    for (int64_t i = 0; i < row.rows; i++) j.row[i] = *(int64_t *)cpu_row_at(&row, i);
    j.each = places_each(call->in[1], &j.g);
    cpu_parallel(dev, row.rows, 2 * j.w.width * j.w.size, BY_TYPE(call->in[0], bag_weight_part), &j);
    gm_pool_release(dev->pool, block);
    return GM_OK;
}

static gm_status cpu_embedding_bag_weight_grad(gm_device *dev, const gm_call *call)
{
    return cpu_with_rows(dev, call, 0, -1, bag_weight_grad_rows);
}

/* ---- the touched rows ---- */

/* The places that name a row, and which; *largest: of these rows. */
static int64_t list_places(const gm_call *call, row_place *list, int64_t *largest)
{
    cpu_rows row = cpu_scalars_of(call->in[0]);
    int64_t  n = 0;
    *largest = 0;
    for (int64_t i = 0; i < row.rows; i++) {
        int64_t r = *(int64_t *)cpu_row_at(&row, i);
        if (r < 0 || r == call->attrs->padding_index) continue;
        list[n++] = (row_place){r, i};
        if (r > *largest) *largest = r;
    }
    return n;
}

/* Sorts n entries by row, stably; the result is in a or in b, whichever is returned. */
static row_place *sort_by_row(int64_t n, int64_t largest, row_place *a, row_place *b)
{
    for (int shift = 0; shift < 64 && largest >> shift; shift += RADIX_BITS) {
        int64_t at[1 << RADIX_BITS] = {0}, sum = 0, mask = (1 << RADIX_BITS) - 1;
        for (int64_t i = 0; i < n; i++) at[a[i].row >> shift & mask]++;
        for (int64_t d = 0; d <= mask; d++) {
            int64_t count = at[d];
            at[d] = sum;
            sum += count;
        }
        for (int64_t i = 0; i < n; i++) b[at[a[i].row >> shift & mask]++] = a[i];
        row_place *other = a;
        a = b;
        b = other;
    }
    return a;
}

/* Where the places of each row begin; returns how many rows there are. */
static int64_t find_starts(int64_t n, const row_place *list, int64_t *start)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        if (i == 0 || list[i].row != list[i - 1].row) start[count++] = i;
    start[count] = n;
    return count;
}

static gm_status touched_rows(gm_device *dev, const gm_call *call)
{
    gm_tensor *row = call->in[0], *weight = cpu_in(call, 2);
    int64_t    places = gm_tensor_numel(row), largest;
    row_place *list;
    gm_block  *block;
    rows_job   j = {.g = cpu_rows_of(call->in[1]),
                    .sum = cpu_rows_of(call->out[1]),
                    .kept = gm_tensor_data(call->out[0]),
                    .kept_step = call->out[0]->stride[0],
                    .weighted = weight != NULL};
    if (weight) j.weight = cpu_scalars_of(weight);
    if (!places) return GM_OK;
    j.each = places_each(row, &j.g);
    GM_TRY(cpu_scratch(dev, (size_t)places * (2 * sizeof *list + 8) + 8, &list, &block));
    j.start = (int64_t *)(list + 2 * places);
    int64_t n = list_places(call, list, &largest);
    j.list = sort_by_row(n, largest, list, list + places);
    j.count = find_starts(n, j.list, j.start);
    cpu_parallel(dev, places, 2 * j.g.width * j.g.size + 16, BY_TYPE(call->in[1], touched_part), &j);
    gm_pool_release(dev->pool, block);
    return GM_OK;
}

static gm_status cpu_embedding_rows(gm_device *dev, const gm_call *call)
{
    return cpu_with_rows(dev, call, 0, -1, touched_rows);
}

/* ---- rows that a list names ---- */

typedef struct move_job {
    char          *x, *y;
    int64_t        x_step, y_step, x_inner, y_inner, width, size; /* bytes */
    const int64_t *row;
    int64_t        row_step, n;
    bool           put;
} move_job;

static void move_part(void *context, int64_t begin, int64_t end, int thread)
{
    const move_job *j = context;
    size_t          bytes = (size_t)(j->width * j->size);
    bool            dense = j->x_inner == j->size && j->y_inner == j->size;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t row = j->row[i * j->row_step], ahead = i + BAG_AHEAD < end ? j->row[(i + BAG_AHEAD) * j->row_step] : -1;
        char   *y = j->y + i * j->y_step, *x = j->x + row * j->x_step;
        if (ahead >= 0) __builtin_prefetch(j->x + ahead * j->x_step, 0);
        if (row < 0 && j->put) continue;
        for (int64_t c = 0; c < j->width && (row < 0 || !dense); c++) {
            char *to = y + c * j->y_inner, *at = x + c * j->x_inner;
            if (row < 0) memset(to, 0, (size_t)j->size);
            else memcpy(j->put ? at : to, j->put ? to : at, (size_t)j->size);
        }
        if (row >= 0 && dense) memcpy(j->put ? x : y, j->put ? y : x, bytes);
    }
}

static gm_status move_rows(gm_device *dev, const gm_call *call, const gm_tensor *x, const gm_tensor *y, bool put)
{
    const gm_tensor *row = call->in[1];
    int64_t          size = (int64_t)gm_dtype_size(x->dtype);
    move_job         j = {.x = gm_tensor_data(x),
                          .y = gm_tensor_data(y),
                          .x_step = x->stride[0] * size,
                          .y_step = y->stride[0] * size,
                          .x_inner = x->stride[1] * size,
                          .y_inner = y->stride[1] * size,
                          .width = x->shape[1],
                          .size = size,
                          .row = gm_tensor_data(row),
                          .row_step = row->stride[0],
                          .n = row->shape[0],
                          .put = put};
    if (j.width == 1) j.x_inner = j.y_inner = size;
    for (int64_t i = 0; i < j.n; i++)
        if (j.row[i * j.row_step] >= x->shape[0])
            return GM_FAIL(GM_EINVAL,
                           "%s: row %" PRId64 " at position %" PRId64 " (from 0) is outside a table of %" PRId64
                           " rows",
                           gm_op_name(call->op), j.row[i * j.row_step], i, x->shape[0]);
    cpu_parallel(dev, j.width ? j.n : 0, 2 * j.width * size + 8, move_part, &j);
    return GM_OK;
}

static gm_status cpu_rows_take(gm_device *dev, const gm_call *call)
{
    return move_rows(dev, call, call->in[0], call->out[0], false);
}

static gm_status cpu_rows_put(gm_device *dev, const gm_call *call)
{
    return move_rows(dev, call, call->out[0], call->in[0], true);
}
