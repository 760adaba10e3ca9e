/* rotary.c - rotary position embeddings. The angles of a place are worked out once, in double, for all of its lines
 * (heads), in all rows of the batch if these have one position there; then each line is one pass. */

typedef struct rotary_job {
    cpu_rows    x, y;
    cpu_rows    index;                         /* without data: positions count from first */
    bool        narrow;                        /* index is i32 */
    bool        per_row, interleaved, inverse; /* per_row: index is (b, s) */
    int64_t     first, sequence, lines;        /* lines of d elements at a position */
    int64_t     rows, places;                  /* positions in all; as many of them have angles of their own */
    int64_t     entries, rotated, pairs;       /* of `entries` lines that follow one another the first are turned */
    double      alpha;
    const void *frequency;
    void       *angles; /* 2 pairs for each thread */
} rotary_job;

/* Of row r = b sequence + s. */
static double rotary_position(const rotary_job *j, int64_t r)
{
    if (!j->index.data) return (double)(j->first + r % j->sequence);
    const void *p = cpu_row_at(&j->index, j->per_row ? r : r % j->sequence);
    return j->narrow ? (double)*(const int32_t *)p : (double)*(const int64_t *)p;
}

#define AS 32
#include "as.h"
#include "rotary_t.h"
#define AS 64
#include "as.h"
#include "rotary_t.h"
#define AS 16
#include "as.h"
#include "rotary_t.h"
#define AS 0
#include "as.h"

static rotary_job rotary_job_of(const gm_call *call)
{
    const gm_tensor *x = call->in[0], *index = call->in[2];
    const gm_attrs  *at = call->attrs;
    rotary_job       j = {.x = cpu_rows_of(x), .y = cpu_rows_of(call->out[0]), .sequence = x->shape[1], .lines = 1};
    for (int d = 2; d < x->ndim - 1; d++) j.lines *= x->shape[d];
    j.entries = x->ndim > 3 ? x->shape[x->ndim - 2] : 1;
    j.rotated = at->rotated ? at->rotated : j.entries;
    j.first = at->first + (at->box.ndim ? at->box.offset[1] : 0);
    j.pairs = call->in[1]->shape[0];
    j.frequency = gm_tensor_data(call->in[1]);
    j.alpha = at->alpha;
    j.interleaved = at->interleaved;
    j.inverse = at->inverse;
    if (index) {
        j.index = cpu_scalars_of(index);
        j.narrow = index->dtype == GM_I32;
        j.per_row = index->ndim == 2;
    }
    return j;
}

static gm_status rotary_rows(gm_device *dev, const gm_call *call)
{
    const gm_tensor *x = call->in[0];
    rotary_job       j = rotary_job_of(call);
    gm_block        *block;
    j.rows = j.lines && j.x.width ? x->shape[0] * x->shape[1] : 0;
    if (!j.rows) return GM_OK;
    j.places = j.per_row ? j.rows : j.sequence;
    int64_t bytes = j.rows / j.places * 2 * j.lines * j.x.width * j.x.size + 64 * j.pairs;
    size_t  room = (size_t)cpu_parts(dev, j.places, bytes) * 2 * (size_t)j.pairs *
                  gm_dtype_size(gm_dtype_wide(x->dtype));
    GM_TRY(cpu_scratch(dev, room, &j.angles, &block));
    cpu_parallel(dev, j.places, bytes, BY_ELEMENT(x, rotary_part), &j);
    gm_pool_release(dev->pool, block);
    return GM_OK;
}

static gm_status cpu_rotary(gm_device *dev, const gm_call *call)
{
    return cpu_with_rows(dev, call, 0, -1, rotary_rows);
}
