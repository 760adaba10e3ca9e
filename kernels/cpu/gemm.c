/* gemm.c - matmul, linear and the gradients of linear, by packed multiplication of our own, for all strides.
 *
 * gemm_thin.c has products of few rows, gemm_tile_t.h the register tile and the packing of all others, gemm_pairs.c the
 * packing of bf16 where this is multiplied as it is, gemm_block_t.h their blocking, gemm_amx.c and gemm_amx_run.c
 * products in tiles where the processor has AMX, gemm_turned_t.h products of some more rows, gemm_run_t.h the choice,
 * gemm_ops.c and gemm_grads.c the ops. The constants below are the whole choice of algorithm. They depend on
 * instruction set and element type only. */
#include <stdatomic.h>

#if defined(__AVX512BF16__) || defined(GM_EMULATED_BF16)
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
/* Kinds of tiles whose steps are known when they are compiled (KIND_PACKED below). Emulated ones compile too long. */
#if CPU_VECTOR == 16 || defined(GM_EMULATED_AVX512)
#define GEMM_KINDS 1
#else
#define GEMM_KINDS 3
#endif

/* Measured on a Sapphire Rapids core (2 MiB of second-level cache), f32, one thread, 178 GFLOP/s at most: depth 192,
 * 256, 320, 384, 512 give 145, 155, 148, 154, 150 on 256 x 2304 x 768, and 151, 154, 152, 153, 137 on
 * 12000 x 768 x 1024. Resident rows want depth (1024 x 3072 x 768: 143 with at least 512 rows at a time, 137 with
 * all), resident columns want to be whole (3072 x 768 x 1024: 146 whole, 128 with at least 512). On a Zen 4, slivers
 * that are not packed make 1024 x 64 x 64 15 % faster, 1024 x 768 x 768 no faster, and 1024 x 2304 x 768 3 % slower.
 * On a Sapphire Rapids core of 225 GFLOP/s, where columns of a lie in a row, 24 panels want packed slivers (3072 x 768
 * x 1024: 172 packed, 130 not), 2 panels do not (64 x 64 x 1024: 114, 148). Panels that 55 slivers meet want to be
 * packed (768 x 50257 x 256: 124 not packed, 143 packed); for others it is the same. Rows of c that are fetched one
 * after the other, and not all when a tile begins, make it 3 to 10 % faster: 16 lines at a time can be waited for, and
 * slivers from the second level wait behind them.
 *
 * With AVX2 on a Zen 3 (0.5 MiB; 96 GFLOP/s at most; its other thread was at work, so ratios count): panels of b that
 * are not packed make 256 x 768 x 2304 30 % slower; slivers whose columns lie in a row, 192 x 64 x 1024 25 % faster and
 * 768 x 192 x 1600 10 % slower. 4 slivers together make this 15 % faster (8: 15, 16: 13, 32: 8). Turned, 16 rows take
 * 0.67 of the time, 32 rows 0.8, 64 rows as long. 256 KiB that stay resident instead of 1280 halve 3072 x 768 x 256.
 *
 * On a Zen 5 core of 272 GFLOP/s (48 KiB, 1 MiB), 640 or 900 KiB resident give 0.94 to 1.04 of the speed. 4 slivers
 * together make 768 x 192 x 1600 with a transposed 14 % faster, because they share lines; where rows of a lie apart,
 * they make 1600 x 768 x 192 up to 9 % slower. Turned, 16 to 64 rows are 1.1 to 1.4 times as fast,
 * pairs 1.1 to 1.2 times where most of a vector is used (13 to 16, 26 to 32 rows); 128 rows are no faster. Where few
 * tiles meet a panel, one line for each fetch left half of the next panel behind: 4 make 96 to 192 rows of b transposed
 * 3 to 8 % faster. */
#define GEMM_DEPTH               256                        /* k of one tile */
#define GEMM_DIRECT              24                         /* panels, at most, for which slivers are not packed */
#define GEMM_DIRECT_BESIDE       (CPU_VECTOR == 32 ? 4 : 8) /* likewise, where columns of a are contiguous */
#define GEMM_DIRECT_SLIVERS      (CPU_VECTOR >= 32 ? 8 : INT64_MAX) /* at most, for which panels are not packed */
#define GEMM_TOGETHER            (CPU_VECTOR >= 32 ? 4 : 1) /* slivers that meet a resident panel while it is near */
#define GEMM_TOGETHER_OF(beside) (CPU_VECTOR == 64 && !(beside) ? 1 : GEMM_TOGETHER) /* beside: rows of a */
#define GEMM_TURNED              (CPU_VECTOR == 64 ? 64 : CPU_VECTOR == 32 ? 48 : 0) /* rows of a: gemm_turned_t.h */
#define GEMM_TURNED_LEAST        (CPU_VECTOR == 64 ? 9 : 2)
#define GEMM_TURNED_PAIRS        32   /* likewise of pairs, at most */
#define GEMM_CLASH               4096 /* bytes; rows so far apart have one place in the first-level cache */
#define GEMM_FETCH               8    /* k for each time that lines are fetched ahead */
#define GEMM_FETCH_LINES         (CPU_VECTOR == 64 ? 4 : 1) /* of these, at most, each time */
#define GEMM_SPREAD              (CPU_VECTOR == 64) /* rows of c are fetched one after the other while a tile runs */
#define GEMM_RESIDENT            ((int64_t)(1280 << 10) / (int64_t)sizeof(T)) /* elements of the packed block */
#define GEMM_SIDE(rows_resident) ((rows_resident) ? 512 : 1280)               /* of these, rows or columns at least */

/* Cycles that pay for waking another thread: a thread that spins comes within a microsecond. */
#define GEMM_GRAIN (32 << 10)
#define GEMM_SPANS 64 /* at most: more threads share the spans */

/* A span of the units: those before `next` are taken. */
typedef struct gemm_span {
    _Atomic int64_t next;
    int64_t         end;
} __attribute__((aligned(64))) gemm_span;

/* Units of work. Each thread has a span of its own and takes half of what is left of it, again and again, then of what
 * is left to others: a core that others use too takes fewer. So as a rule a thread works on the same part of a tensor
 * in op after op, which is in its cache. Only for jobs whose result does not depend on who does which unit. */
typedef struct gemm_queue {
    int64_t     parts, spans;
    gm_job      job;
    void       *context;
    gm_threads *threads;
    gemm_span   span[GEMM_SPANS];
} gemm_queue;

static void gemm_take(void *context, int64_t begin, int64_t end, int thread)
{
    gemm_queue *q = context;
    int64_t     home = thread * q->spans / q->parts;
    (void)begin;
    (void)end;
    for (int64_t i = 0; i < q->spans; i++) {
        gemm_span *s = &q->span[(home + i) % q->spans];
        int64_t    at = atomic_load(&s->next);
        while (at < s->end) {
            int64_t to = at + (s->end - at + 1) / 2;
            if (!atomic_compare_exchange_weak(&s->next, &at, to)) continue;
            q->job(q->context, at, to, thread);
            gm_threads_look(q->threads);
            at = atomic_load(&s->next);
        }
    }
}

/* How often one thread looks at what else must get on (gm_threads_look) while it does a job: every few hundred
 * microseconds of a large product. */
#define GEMM_LOOKS 8

/* job over [0, units), cost cycles a unit. */
static void gemm_parallel(gm_threads *threads, int64_t units, int64_t cost, gm_job job, void *context)
{
    int64_t grain = cost > 0 ? GEMM_GRAIN / cost : GEMM_GRAIN, parts;
    parts = gm_parallel_parts(threads, units, grain > 0 ? grain : 1);
    if (parts > 1) {
        gemm_queue q = {.parts = parts, .job = job, .context = context, .threads = threads};
        q.spans = parts < GEMM_SPANS ? parts : GEMM_SPANS;
        for (int64_t i = 0; i < q.spans; i++) {
            atomic_init(&q.span[i].next, units * i / q.spans);
            q.span[i].end = units * (i + 1) / q.spans;
        }
        gm_parallel(threads, parts, 1, gemm_take, &q);
        return;
    }
    for (int64_t i = 0; i < GEMM_LOOKS; i++) {
        job(context, units * i / GEMM_LOOKS, units * (i + 1) / GEMM_LOOKS, 0);
        gm_threads_look(threads);
    }
}

/* Where the numbers of a tile lie. Kinds of tiles, one function each, where GEMM_KINDS is 3. */
enum {
    KIND_PACKED, /* a sliver of the tile's rows, and a panel */
    KIND_ROWS,   /* the numbers of a row of a beside each other */
    KIND_BESIDE, /* the rows of a beside each other */
    KIND_ANY
};

typedef struct amx_kind amx_kind; /* gemm_amx.c */

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
    int64_t numbers; /* > 0, f32 and GEMM_PAIRS only: a and b are bf16, so many along k, and k counts pairs of them */
    const amx_kind *amx;        /* not NULL, with numbers > 0: by tiles of AMX, or their emulation (gemm_amx.c) */
    bool            configured; /* the caller has amx->begin() behind it and amx->end() before it */
    bool            narrow;     /* with amx only: c, y and pre are bf16, each rounded once from f32 */
    gemm_widen      widen;      /* NULL: b is of the element type. Else its columns lie b_column bytes apart */
    int64_t         b_bits;     /* of a number in its other form, about */
    gemm_panel      panel;      /* NULL: b lies in memory */
    const void     *form;       /* for widen and panel */
    void           *c;          /* c(i, j) at c[i * c_row + j] */
    int64_t         c_row;
    int64_t         image, c_image; /* image > 0: columns are images of so many, in y too; those of the next one begin
                                   c_image elements further on */
    const void     *row_bias;       /* (m), or NULL: added at the end, if `finish` */
    double          alpha;
    bool            accumulate;
    const void     *bias; /* (n), or NULL */
    double     *row_sums; /* NULL, or (pieces of GEMM_DEPTH numbers along k, m): sums of rows of a. Of pairs with amx
                                 only; else a_row is 1 */
    bool        finish;   /* y = f(c) is written too, or, where there is a pre, c f'(pre); y may be c */
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
#include "gemm_amx.c"
#include "gemm_amx_run.c"
#include "gemm_block_t.h"
#include "gemm_turned_t.h"
#include "gemm_run_t.h"
#undef GEMM_COLUMNS
#undef GEMM_OWN
#undef GEMM_PIECE
#undef GEMM_TALL
#define AS 64
#include "as.h"
#include "gemm_tile_t.h"
#include "gemm_block_t.h"
#include "gemm_turned_t.h"
#include "gemm_run_t.h"
#undef GEMM_COLUMNS
#undef GEMM_OWN
#undef GEMM_PIECE
#undef GEMM_TALL
#define AS 0
#include "as.h"
#include "gemm_thin.c"
#include "gemm_ops.c"
#include "gemm_grads.c"
