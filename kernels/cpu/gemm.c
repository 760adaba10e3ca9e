/* gemm.c - matmul, linear and the gradients of linear, by packed multiplication of our own, for all strides.
 *
 * gemm_thin.c has products of few rows, gemm_tile_t.h the register tile and the packing of all others, gemm_pairs.c the
 * packing of bf16 where this is multiplied as it is, gemm_block_t.h their blocking, gemm_ops.c the ops. The constants
 * below are the whole choice of algorithm. They depend on the instruction set and on the element type only. */
#include <stdatomic.h>

#if defined(__AVX512BF16__)
#define GEMM_PAIRS 1 /* a product of bf16 and bf16 is computed on pairs of numbers */
#else
#define GEMM_PAIRS 0
#endif

#if CPU_VECTOR == 64
#define GEMM_ROWS         14 /* 28 accumulators, two vectors of b and a broadcast: 31 of 32 registers */
#define GEMM_EACH_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
#else
#define GEMM_ROWS         6 /* 12 accumulators, two vectors of b and a broadcast: 15 of 16 registers */
#define GEMM_EACH_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6)
#endif

/* Measured on a Sapphire Rapids core (2 MiB of second-level cache), f32, one thread, 178 GFLOP/s at most: depth 192,
 * 256, 320, 384, 512 give 145, 155, 148, 154, 150 on 256 x 2304 x 768, and 151, 154, 152, 153, 137 on
 * 12000 x 768 x 1024. Resident rows want depth (1024 x 3072 x 768: 143 with at least 512 rows at a time, 137 with
 * all), resident columns want to be whole (3072 x 768 x 1024: 146 whole, 128 with at least 512). On a Zen 4, slivers
 * that are not packed make 1024 x 64 x 64 15 % faster, 1024 x 768 x 768 no faster, and 1024 x 2304 x 768 3 % slower. */
#define GEMM_DEPTH               256  /* k of one tile */
#define GEMM_DIRECT              24   /* panels, at most, for which slivers are not packed */
#define GEMM_CLASH               4096 /* bytes; rows so far apart have one place in the first-level cache */
#define GEMM_FETCH               8    /* k for each line fetched ahead */
#define GEMM_RESIDENT            ((int64_t)(1280 << 10) / (int64_t)sizeof(T)) /* elements of the packed block */
#define GEMM_SIDE(rows_resident) ((rows_resident) ? 512 : 1280)               /* of these, rows or columns at least */

/* Units of work that are handed out as threads come for them, many at first, one at the end: a core that others use
 * too takes fewer. Only for jobs whose result does not depend on who does which unit. */
typedef struct gemm_queue {
    _Atomic int64_t next;
    int64_t         units, parts;
    gm_job          job;
    void           *context;
    gm_threads     *threads;
} gemm_queue;

static void gemm_take(void *context, int64_t begin, int64_t end, int thread)
{
    gemm_queue *q = context;
    int64_t     at = atomic_load(&q->next), take;
    (void)begin;
    (void)end;
    while (at < q->units) {
        take = (q->units - at) / (2 * q->parts);
        if (take < 1) take = 1;
        if (!atomic_compare_exchange_weak(&q->next, &at, at + take)) continue;
        q->job(q->context, at, at + take, thread);
        gm_threads_look(q->threads);
        at = atomic_load(&q->next);
    }
}

/* How often one thread looks at what else must get on (gm_threads_look) while it does a job: every few hundred
 * microseconds of a large product. */
#define GEMM_LOOKS 8

/* job over [0, units), cost cycles a unit. */
static void gemm_parallel(gm_threads *threads, int64_t units, int64_t cost, gm_job job, void *context)
{
    gemm_queue q = {.units = units,
                    .parts = gm_parallel_parts(threads, units, cpu_grain(cost)),
                    .job = job,
                    .context = context,
                    .threads = threads};
    if (q.parts > 1) {
        gm_parallel(threads, q.parts, 1, gemm_take, &q);
        return;
    }
    for (int64_t i = 0; i < GEMM_LOOKS; i++) {
        job(context, units * i / GEMM_LOOKS, units * (i + 1) / GEMM_LOOKS, 0);
        gm_threads_look(threads);
    }
}

/* One product. Matrices of the element type; T is f32 or f64 as the function it is handed to says. */
typedef struct gemm gemm;
/* Column j of b from p to p + k, of which b has another form: becomes numbers of the element type at `to`, which has
 * room for GEMM_DEPTH of them. */
typedef void (*gemm_widen)(const gemm *g, int64_t j, int64_t p, int64_t k, void *to);
/* Packs the panel of columns j .. j + width of b, from p to p + k, where b is no matrix in memory (convolution.c). */
typedef void (*gemm_panel)(const gemm *g, void *to, int64_t j, int64_t width, int64_t p, int64_t k);

struct gemm {
    int64_t     m, n, k;
    const void *a, *b; /* a(i, p) at a[i * a_row + p * a_k], b(p, j) at b[p * b_k + j * b_column] */
    int64_t     a_row, a_k, b_k, b_column;
    int64_t numbers;   /* > 0, f32 and GEMM_PAIRS only: a and b are bf16, so many along k, and k counts pairs of them */
    gemm_widen  widen; /* NULL: b is of the element type. Else its columns lie b_column bytes apart */
    int64_t     b_bits; /* of a number in its other form, about */
    gemm_panel  panel;  /* NULL: b lies in memory */
    const void *form;   /* for widen and panel */
    void       *c;      /* c(i, j) at c[i * c_row + j] */
    int64_t     c_row;
    int64_t     image, c_image; /* image > 0: columns are images of so many, in y too; those of the next one begin
                                   c_image elements further on */
    const void *row_bias;       /* (m), or NULL: added at the end, if `finish` */
    double      alpha;
    bool        accumulate;
    const void *bias;   /* (n), or NULL */
    bool        finish; /* y = f(c) is written too, or, where there is a pre, c f'(pre); y may be c */
    gm_function f;
    const void *pre; /* NULL: none */
    int64_t     pre_row;
    void       *y;
    int64_t     y_row;
};

#define AS 32
#include "as.h"
#include "gemm_tile_t.h"
#include "gemm_pairs.c"
#include "gemm_block_t.h"
#undef GEMM_COLUMNS
#undef GEMM_OWN
#undef GEMM_PIECE
#define AS 64
#include "as.h"
#include "gemm_tile_t.h"
#include "gemm_block_t.h"
#undef GEMM_COLUMNS
#undef GEMM_OWN
#undef GEMM_PIECE
#define AS 0
#include "as.h"
#include "gemm_thin.c"
#include "gemm_ops.c"
