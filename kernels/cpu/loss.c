/* loss.c - lookup tables and cross entropy. Indices and targets are i32 or i64. All of them are checked before anything
 * is written.
 *
 * The gradient of a table is summed without races. A stable counting sort orders the positions by row of the table. One
 * thread then sums each element of the table, in double, in order of position, so the bits do not depend on the number
 * of threads. Cross entropy reads its logits once, in small blocks. It subtracts a shift from the logits before exp.
 * The shift becomes the largest logit so far only when that exceeds it by more than LOSS_LAG. */
#include <inttypes.h>

#define LOSS_BLOCK    256 /* logits at a time: few enough to stay in registers and flight */
#define LOSS_LAG      16  /* how far exp's arguments may rise above 0 */
#define TABLE_PANEL   64  /* least columns of a table that a thread works on */
#define TABLE_COLUMNS 512 /* columns summed at a time */

static inline int64_t load_index(const cpu_rows *index, int64_t i)
{
    const void *p = cpu_row_at(index, i);
    return index->size == 4 ? *(const int32_t *)p : *(const int64_t *)p;
}

static inline bool inside(int64_t row, int64_t rows) { return row >= 0 && row < rows; }

/* part: of a table of which these are some rows only. */
static gm_status check_indices(const char *op, const cpu_rows *index, int64_t rows, bool part)
{
    for (int64_t i = 0; i < index->rows && !part; i++) {
        int64_t v = load_index(index, i);
        if (!inside(v, rows))
            return GM_FAIL(GM_EINVAL,
                           "%s: index %" PRId64 " at position %" PRId64 " (from 0) is outside a table of "
                           "%" PRId64 " rows",
                           op, v, i, rows);
    }
    return GM_OK;
}

/* ---- embedding ---- */

typedef struct lookup_job {
    cpu_rows w, index, y;
    int64_t  rows; /* of the table */
} lookup_job;

/* Rows of a number of bytes that compilers know are moved without a call. */
CPU_INLINE void lookup(const lookup_job *j, int64_t begin, int64_t end, size_t bytes)
{
    for (int64_t i = begin; i < end; i++) {
        int64_t row = load_index(&j->index, i);
        if (inside(row, j->rows)) memcpy(cpu_row_at(&j->y, i), cpu_row_at(&j->w, row), bytes);
        else memset(cpu_row_at(&j->y, i), 0, bytes);
    }
}

static void lookup_part(void *context, int64_t begin, int64_t end, int thread)
{
    const lookup_job *j = context;
    const size_t      bytes = (size_t)(j->w.width * j->w.size);
    (void)thread;
    switch (bytes) {
    case 4: lookup(j, begin, end, 4); break;
    case 8: lookup(j, begin, end, 8); break;
    case 16: lookup(j, begin, end, 16); break;
    case 32: lookup(j, begin, end, 32); break;
    case 64: lookup(j, begin, end, 64); break;
    default: lookup(j, begin, end, bytes);
    }
}

static gm_status embedding_rows(gm_device *dev, const gm_call *call)
{
    lookup_job j = {cpu_rows_of(call->in[0]), cpu_scalars_of(call->in[1]), cpu_rows_of(call->out[0]),
                    call->in[0]->shape[0]};
    GM_TRY(check_indices("embedding", &j.index, j.rows, call->attrs->part));
    cpu_parallel(dev, j.w.width ? j.index.rows : 0, 2 * j.w.width * j.w.size, lookup_part, &j);
    return GM_OK;
}

static gm_status cpu_embedding(gm_device *dev, const gm_call *call)
{
    return cpu_with_rows(dev, call, 0, -1, embedding_rows);
}

typedef struct table_job {
    cpu_rows g, dw;
    int64_t  padding;
    bool     accumulate, stream;
    int64_t *start, *position; /* table row r has positions[start[r] .. start[r + 1]) */
    int64_t  rows, panels, groups;
} table_job;

typedef struct entropy_job {
    cpu_rows x, target, loss, largest, sum, g, dx; /* logits and their gradient; the rest has one value a row */
    int64_t  ignore;
    double   smoothing;
    bool     stream;
} entropy_job;

typedef struct rescale_job {
    cpu_rows x, g;
    gm_dtype dtype, wide; /* of x, of g */
    int64_t  step;        /* between the elements of a row of x */
    double   scale;
} rescale_job;

/* What is known of the elements of a row so far: the largest, and the sum of exp(x - shift). The shift follows the
 * largest element only when it has fallen LOSS_LAG behind: until then nothing can overflow. */
typedef struct row_sum {
    double shift, largest, sum;
} row_sum;

static void clear_row(void *to, int64_t bytes, bool stream)
{
    static const char zeros[4096];
    if (!stream) memset(to, 0, (size_t)bytes);
    else
        for (int64_t i = 0; i < bytes; i += (int64_t)sizeof zeros)
            gm_stream_out((char *)to + i, zeros, bytes - i < (int64_t)sizeof zeros ? bytes - i : (int64_t)sizeof zeros);
}

#define AS 32
#include "as.h"
#include "loss_t.h"
#define AS 64
#include "as.h"
#include "loss_t.h"
#define AS 16
#include "as.h"
#include "loss_t.h"
#define AS 0
#include "as.h"

/* Positions of what is in the table by table row, in order within a row. start has rows + 1 entries, all 0 before. */
static void sort_positions(const cpu_rows *index, table_job *j)
{
    for (int64_t i = 0; i < index->rows; i++) {
        int64_t row = load_index(index, i);
        if (inside(row, j->rows)) j->start[row + 1]++;
    }
    for (int64_t r = 0; r < j->rows; r++) j->start[r + 1] += j->start[r];
    for (int64_t i = 0; i < index->rows; i++) {
        int64_t row = load_index(index, i);
        if (inside(row, j->rows)) j->position[j->start[row]++] = i;
    }
    for (int64_t r = j->rows; r > 0; r--) j->start[r] = j->start[r - 1]; /* the fill moved each start to its end */
    j->start[0] = 0;
}

static gm_status embedding_grad_rows(gm_device *dev, const gm_call *call)
{
    gm_tensor *dw = call->out[0];
    cpu_rows   index = cpu_scalars_of(call->in[0]);
    gm_block  *block;
    table_job  j = {.g = cpu_rows_of(call->in[1]),
                    .dw = cpu_rows_of(dw),
                    .padding = call->attrs->padding_index,
                    .accumulate = call->attrs->accumulate,
                    .rows = dw->shape[0]};
    j.stream = cpu_streams(gm_tensor_numel(dw) * j.dw.size);
    GM_TRY(check_indices("embedding_grad", &index, j.rows, call->attrs->part));
    if (gm_tensor_numel(dw) == 0) return GM_OK;
    GM_TRY(cpu_scratch(dev, (size_t)(j.rows + 1 + index.rows) * sizeof(int64_t), &j.start, &block));
    memset(j.start, 0, (size_t)(j.rows + 1) * sizeof(int64_t));
    j.position = j.start + j.rows + 1;
    sort_positions(&index, &j);
    int64_t threads = gm_threads_count(dev->threads), most = j.dw.width / TABLE_PANEL;
    j.panels = most < 1 ? 1 : most < threads ? most : threads;
    j.groups = (threads + j.panels - 1) / j.panels;
    int64_t items = j.panels * j.groups, traffic = (2 * index.rows + j.rows) * j.dw.width * j.dw.size;
    cpu_parallel(dev, items, traffic / items, BY_ELEMENT(dw, table_part), &j);
    gm_pool_release(dev->pool, block);
    return GM_OK;
}

static gm_status cpu_embedding_grad(gm_device *dev, const gm_call *call)
{
    return cpu_with_rows(dev, call, 0, -1, embedding_grad_rows);
}

/* ---- cross entropy ---- */

static gm_status check_targets(const gm_call *call, const cpu_rows *target, int64_t classes)
{
    for (int64_t r = 0; r < target->rows; r++) {
        int64_t v = load_index(target, r);
        if (v != call->attrs->ignore_index && (v < 0 || v >= classes))
            return GM_FAIL(GM_EINVAL,
                           "%s: target %" PRId64 " of row %" PRId64 " (from 0) is none of %" PRId64 " classes",
                           gm_op_called(call->op, call->attrs), v, r, classes);
    }
    return GM_OK;
}

static entropy_job entropy_of(const gm_call *call)
{
    return (entropy_job){.x = cpu_rows_of(call->in[0]),
                         .target = cpu_scalars_of(call->in[1]),
                         .ignore = call->attrs->ignore_index,
                         .smoothing = call->attrs->label_smoothing};
}

static gm_status cross_entropy_rows(gm_device *dev, const gm_call *call)
{
    gm_tensor  *logits = call->in[0];
    entropy_job j = entropy_of(call);
    GM_TRY(check_targets(call, &j.target, j.x.width));
    j.loss = cpu_scalars_of(call->out[0]);
    j.largest = cpu_scalars_of(call->out[1]);
    j.sum = cpu_scalars_of(call->out[2]);
    cpu_parallel(dev, j.x.rows, 2 * j.x.width * j.x.size, BY_ELEMENT(logits, entropy_part), &j);
    return GM_OK;
}

static gm_status cross_entropy_grad_rows(gm_device *dev, const gm_call *call)
{
    gm_tensor  *logits = call->in[0];
    entropy_job j = entropy_of(call);
    GM_TRY(check_targets(call, &j.target, j.x.width));
    j.largest = cpu_scalars_of(call->in[2]);
    j.sum = cpu_scalars_of(call->in[3]);
    j.g = cpu_scalars_of(call->in[4]);
    j.dx = cpu_rows_of(call->out[0]);
    j.stream = cpu_streams(j.x.rows * j.x.width * j.x.size);
    cpu_parallel(dev, j.x.rows, 3 * j.x.width * j.x.size, BY_ELEMENT(logits, entropy_grad_part), &j);
    return GM_OK;
}

/* The loss of a row and its gradient while the row is in the caches. */
static gm_status cross_entropy_both_rows(gm_device *dev, const gm_call *call)
{
    gm_tensor  *logits = call->in[0];
    entropy_job j = entropy_of(call);
    GM_TRY(check_targets(call, &j.target, j.x.width));
    j.loss = cpu_scalars_of(call->out[0]);
    j.g = cpu_scalars_of(call->in[2]);
    j.dx = cpu_rows_of(call->out[1]);
    j.stream = cpu_streams(j.x.rows * j.x.width * j.x.size);
    cpu_parallel(dev, j.x.rows, 4 * j.x.width * j.x.size, BY_ELEMENT(logits, entropy_both_part), &j);
    return GM_OK;
}

static gm_status cpu_cross_entropy_both(gm_device *dev, const gm_call *call)
{
    return cpu_with_rows(dev, call, 0, -1, cross_entropy_both_rows);
}

/* Rows of x whose g is not the scale that they were made with: there are none as a rule. */
static void rescale_part(void *context, int64_t begin, int64_t end, int thread)
{
    const rescale_job *j = context;
    bool               unknown = j->scale == 0 || !isfinite(j->scale);
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        void  *x = cpu_row_at(&j->x, r);
        double g = gm_load(j->wide, cpu_row_at(&j->g, r), 0);
        for (int64_t i = 0; i < j->x.width && g != j->scale; i++) {
            double v = gm_load(j->dtype, x, i * j->step);
            gm_store(j->dtype, x, i * j->step, unknown ? NAN : v == 0 ? 0 : v * (g / j->scale));
        }
    }
}

static gm_status cpu_rescale_rows(gm_device *dev, const gm_call *call)
{
    gm_tensor  *x = call->out[0], *scale = call->in[0];
    rescale_job j = {.x = cpu_rows_of(x),
                     .g = cpu_scalars_of(call->in[1]),
                     .dtype = x->dtype,
                     .wide = scale->dtype,
                     .step = x->stride[x->ndim - 1],
                     .scale = gm_load(scale->dtype, gm_tensor_data(scale), 0)};
    cpu_parallel(dev, j.x.width ? j.x.rows : 0, 2 * j.x.width * j.x.size, rescale_part, &j);
    return GM_OK;
}

static gm_status cpu_cross_entropy(gm_device *dev, const gm_call *call)
{
    return cpu_with_rows(dev, call, 0, -1, cross_entropy_rows);
}

static gm_status cpu_cross_entropy_grad(gm_device *dev, const gm_call *call)
{
    return cpu_with_rows(dev, call, 0, -1, cross_entropy_grad_rows);
}
