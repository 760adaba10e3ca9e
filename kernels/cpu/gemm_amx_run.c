/* gemm_amx_run.c - the plan of a product in tiles of AMX (gemm_amx.c).
 *
 * One operand is packed by all threads together, as much of it as stays in their second-level caches: it is resident.
 * Units of the other one are walked. A thread packs AMX_DEPTH numbers of such a unit, which stay in the first-level
 * cache while all resident units meet them. Where k goes on, sums of these blocks wait in memory of the thread, and
 * their next numbers are added to them in the order of k.
 *
 * k is cut for the resident operand only where a few units of it would fill the cache. The sums of all blocks then
 * wait, in scratch of the size of c in f32. Part of gemm.c. */
#if GEMM_PAIRS

/* Measured on a core of an Intel Xeon with AMX (first-level cache 48 KiB, second 2 MiB), blocks of zeros alone, one
 * thread: a depth of 256, 384, 512, 768, 1024 numbers makes 2,300, 2,100, 1,900, 1,350, 1,200 GFLOP/s where sums begin,
 * and 2,100, 1,800, 1,750, 1,330, 1,180 where they go on. The walked unit must stay in the first-level cache while a
 * resident one goes through it. Both from there make 2,900. Blocks of numbers that are not zero take 1.2 times as
 * long. */
#define AMX_DEPTH    256
#define AMX_UNIT     (AMX_DEPTH / AMX_NUMBERS * AMX_STEP) /* floats of a walked unit, packed */
#define AMX_TOGETHER 2                                    /* walked units, at most, that are packed together */
#define AMX_RESIDENT (3 << 19)                            /* bytes of what is resident */
#define AMX_FEW      128                                  /* rows, at most, of products that are turned */
#define AMX_CLASH    2048 /* bytes; rows so far apart have one place of 32 in the second-level cache */
#define AMX_LEAST    12   /* units that are resident at least, before k is cut */
#define AMX_HUGE     ((int64_t)(CPU_PAGE / sizeof(float))) /* floats of a huge page, which make this 7 % faster */
#define AMX_CYCLES   64                                    /* of a step of a block */
#define AMX_BESIDE   200                                   /* cycles of a block besides its steps */

typedef struct amx_plan {
    gemm        g;             /* what is multiplied: what is wanted, or, turned, c' = b' a' */
    const gemm *of;            /* what is wanted */
    bool        turned;        /* blocks of sums are transposed at last */
    bool        rows_resident; /* else columns are */
    int64_t     k;             /* numbers */
    bool        lines;         /* numbers of a walked row or column are neighbours */
    int64_t     walked, side;  /* units */
    int64_t     step, depth;   /* so many units at a time are resident, so many numbers of each */
    /* of the piece at hand */
    int64_t first, units; /* resident units */
    int64_t p0, p1;       /* of their numbers */
    int64_t chunks;       /* pieces of the resident units that a unit of work covers */
    float  *resident, *own, *sums;
    int64_t each; /* floats of `own` for each thread: a walked unit, and sums */
} amx_plan;

CPU_INLINE int64_t amx_least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Must the sums of all blocks wait until all numbers of all resident units were packed? */
CPU_INLINE bool amx_is_deep(const amx_plan *w) { return w->depth < w->k; }

/* Are rows resident? The smaller operand is, because half of it or more comes from other cores. But what is walked is
 * packed once for each piece of what is resident. So columns are not walked several times where their k rows share few
 * places of a cache: of two lines that the processor fetches together, the second would be driven out before it is
 * used. */
static bool amx_keeps_rows(const gemm *g)
{
    const bool clash = g->b_k != 1 && 2 * g->b_k % AMX_CLASH == 0, pieces = 2 * g->m * g->numbers > AMX_RESIDENT;
    return g->m <= g->n && !(clash && pieces && g->a_k == 1);
}

/* Few rows meet columns whose numbers are neighbours. Then columns are copied as if they were rows, which is quicker,
 * and blocks of sums are transposed. */
static bool amx_turns(const gemm *g)
{
    return g->m <= AMX_FEW && g->m < g->n && g->b_k == 1 && !g->panel && !g->image && !g->row_bias && !g->row_sums;
}

/* a and b change places; c is left as it is. */
static void amx_swap(gemm *g)
{
    const gemm was = *g;
    g->m = was.n;
    g->n = was.m;
    g->a = was.b;
    g->a_row = was.b_column;
    g->a_k = was.b_k;
    g->b = was.a;
    g->b_column = was.a_row;
    g->b_k = was.a_k;
}

static amx_plan amx_plan_of(const gemm *g)
{
    amx_plan w = {.g = *g, .of = g, .turned = amx_turns(g), .k = g->numbers};
    if (w.turned) amx_swap(&w.g);
    g = &w.g;
    w.rows_resident = amx_keeps_rows(g);
    const int64_t rows = amx_up(g->m, AMX_SIDE), columns = amx_up(g->n, AMX_SIDE);
    const int64_t number = 2 * AMX_SIDE; /* bytes of a unit for each number along k */
    w.lines = w.rows_resident ? g->b_k == 1 : g->a_k == 1;
    w.walked = w.rows_resident ? columns : rows;
    w.side = w.rows_resident ? rows : columns;
    w.depth = AMX_RESIDENT / number / amx_least(w.side, AMX_LEAST) / AMX_DEPTH * AMX_DEPTH;
    if (w.depth >= w.k) w.depth = w.k;
    w.step = AMX_RESIDENT / number / (amx_up(w.depth, AMX_NUMBERS) * AMX_NUMBERS + !w.depth);
    w.step = amx_least(w.side, w.step);
    w.each = AMX_TOGETHER * (AMX_UNIT + (amx_is_deep(&w) || w.k <= AMX_DEPTH ? 1 : w.step) * AMX_BLOCK);
    return w;
}

/* So many floats of scratch, or as many as fill huge pages, if they are not few. */
static int64_t amx_paged(int64_t floats)
{
    return floats > AMX_HUGE / 8 ? amx_up(floats, AMX_HUGE) * AMX_HUGE : floats;
}

/* Floats of scratch that amx_run needs. */
static int64_t amx_scratch(const gemm *g, int threads)
{
    const amx_plan w = amx_plan_of(g);
    const int64_t  resident = w.step * amx_up(w.depth, AMX_NUMBERS) * AMX_STEP;
    return amx_paged(threads * w.each + resident + (amx_is_deep(&w) ? w.walked * w.step * AMX_BLOCK : 0));
}

/* The same for this product and all with as many rows, and no more columns or numbers along k. */
static int64_t amx_most_scratch(const gemm *g, int threads)
{
    const int64_t number = 2 * AMX_SIDE, most = AMX_RESIDENT / number; /* numbers along k of one resident unit */
    const int64_t rows = amx_up(g->m, AMX_SIDE), columns = amx_up(g->n, AMX_SIDE);
    const int64_t few_rows = amx_least(rows, AMX_LEAST), few_columns = amx_least(columns, AMX_LEAST);
    const int64_t units = amx_least(rows > columns ? rows : columns, most / AMX_DEPTH); /* whose sums a thread keeps */
    const bool    deep_rows = g->numbers > most / few_rows / AMX_DEPTH * AMX_DEPTH;
    const bool    deep_columns = g->numbers > most / few_columns / AMX_DEPTH * AMX_DEPTH;
    const int64_t by_rows = deep_rows ? columns * few_rows : 0, by_columns = deep_columns ? rows * few_columns : 0;
    int64_t       floats = threads * AMX_TOGETHER * (AMX_UNIT + units * AMX_BLOCK) + AMX_RESIDENT / 4;
    floats += (by_rows > by_columns ? by_rows : by_columns) * AMX_BLOCK;
    return amx_paged(floats);
}

/* Sums of the rows of unit u, packed at src, over numbers p .. p + k. */
static void amx_sum_rows(const gemm *g, const float *src, int64_t u, int64_t p, int64_t k)
{
    const int64_t at = u * AMX_SIDE, count = amx_least(g->m - at, AMX_SIDE);
    float         sums[AMX_SIDE * 16] __attribute__((aligned(64)));
    double       *to = g->row_sums + p / AMX_DEPTH * g->m + at;
    g->amx->row_sums(src, amx_up(k, AMX_NUMBERS), sums, count > 16);
    for (int64_t i = 0; i < count; i++) to[i] = (double)sums[16 * i];
}

/* Packs unit u of the rows, or of the columns: numbers p .. p + k. */
static void amx_pack(const gemm *g, bool rows, float *dst, int64_t u, int64_t p, int64_t k)
{
    const int64_t at = u * AMX_SIDE, left = (rows ? g->m : g->n) - at, count = amx_least(left, AMX_SIDE);
    if (rows) amx_pack_rows(dst, (const pairs_word *)g->a + at * g->a_row + p * g->a_k, g->a_row, g->a_k, count, k);
    else amx_pack_columns(g, dst, at, count, p, k);
}

/* Where resident unit r of the piece stands, from number p on. */
CPU_INLINE float *amx_resident(const amx_plan *w, int64_t r, int64_t p)
{
    return w->resident + (r * amx_up(w->p1 - w->p0, AMX_NUMBERS) + (p - w->p0) / AMX_NUMBERS) * AMX_STEP;
}

/* Job: packs pieces [begin, end) of the resident units; a piece is AMX_DEPTH numbers of one. */
static void amx_pack_resident(void *context, int64_t begin, int64_t end, int thread)
{
    const amx_plan *w = context;
    const bool      sums = w->rows_resident && w->g.row_sums;
    (void)thread;
    if (sums && !w->g.configured) w->g.amx->begin();
    for (int64_t i = begin; i < end; i++) { /* units that are beside each other follow each other */
        const int64_t r = i % w->units, p = w->p0 + i / w->units * AMX_DEPTH;
        const int64_t k = amx_least(AMX_DEPTH, w->p1 - p);
        amx_pack(&w->g, w->rows_resident, amx_resident(w, r, p), w->first + r, p, k);
        if (sums) amx_sum_rows(&w->g, amx_resident(w, r, p), w->first + r, p, k);
    }
    if (sums && !w->g.configured) w->g.amx->end();
}

/* Brings what amx_finish reads into the cache while the block runs, because its rows lie far apart. */
CPU_INLINE void amx_fetch_finish(const gemm *g, int64_t i, int64_t rows, int64_t j)
{
    if (!g->pre) return;
    for (int64_t r = i; r < i + rows; r++) __builtin_prefetch(amx_at(g, g->pre, r * g->pre_row + j));
}

/* A walked unit, packed at `own`, meets resident unit r, over numbers p .. p + k. */
static void amx_meet(const amx_plan *w, const float *own, float *sums, int64_t unit, int64_t r, int64_t p, int64_t k,
                     amx_soon *soon)
{
    const gemm   *g = &w->g;
    const float  *resident = amx_resident(w, r, p);
    const int64_t i = AMX_SIDE * (w->rows_resident ? w->first + r : unit);
    const int64_t j = AMX_SIDE * (w->rows_resident ? unit : w->first + r);
    const int64_t rows = amx_least(g->m - i, AMX_SIDE), columns = amx_least(g->n - j, AMX_SIDE);
    const bool    last = p + k == w->k;
    if (last && !w->turned) amx_fetch_finish(g, i, rows, j);
    g->amx->block[rows > 16][columns > 16](w->rows_resident ? resident : own, w->rows_resident ? own : resident,
                                           amx_up(k, AMX_NUMBERS), sums, p == 0, soon);
    if (last && w->turned) amx_finish_turned(w->of, sums, j, columns, i, rows);
    else if (last) amx_finish_images(g, sums, i, rows, j, columns);
}

/* What is packed next of the walked units: k numbers from p on of `count` units from `unit` on. It is asked for during
 * `steps` steps. */
static amx_soon amx_next(const amx_plan *w, int64_t unit, int64_t count, int64_t p, int64_t k, int64_t steps)
{
    const gemm   *g = &w->g;
    const bool    rows = !w->rows_resident;
    const int64_t side = rows ? g->a_row : g->b_column, along = rows ? g->a_k : g->b_k, at = unit * AMX_SIDE;
    const int64_t left = (rows ? g->m : g->n) - at, sides = amx_least(count * AMX_SIDE, left);
    if (sides <= 0 || k <= 0 || (!rows && g->panel)) return (amx_soon){0};
    amx_soon s = {.at = (const char *)((const pairs_word *)(rows ? g->a : g->b) + at * side + p * along),
                  .rows = along == 1 ? sides : k,
                  .stride = 2 * (along == 1 ? side : along),
                  .lines = amx_up(along == 1 ? k : sides, AMX_NUMBERS)};
    s.each = amx_up(s.rows * s.lines, steps);
    return s;
}

/* Job: units of work [begin, end). One is a walked unit and a piece of the resident ones. Where a walked unit is lines
 * of a row each, two units are packed together, because the processor fetches lines in pairs. */
static void amx_walk(void *context, int64_t begin, int64_t end, int thread)
{
    const amx_plan *w = context;
    float          *own = w->own + thread * w->each, *room = own + AMX_TOGETHER * AMX_UNIT;
    const int64_t   waiting = w->k <= AMX_DEPTH ? 0 : w->units; /* blocks of sums of a walked unit */
    const bool      sums_of_rows = w->g.row_sums && !w->rows_resident && w->first == 0;
    if (!w->g.configured) w->g.amx->begin();
    for (int64_t u = begin, n; u < end; u += n) {
        const int64_t unit = u / w->chunks, chunk = u % w->chunks;
        const int64_t r0 = w->units * chunk / w->chunks, r1 = w->units * (chunk + 1) / w->chunks;
        n = w->chunks > 1 || w->lines ? 1 : amx_least(end - u, AMX_TOGETHER);
        for (int64_t p = w->p0, k; p < w->p1 || p == w->p0; p += AMX_DEPTH) {
            k = amx_least(AMX_DEPTH, w->p1 - p);
            const bool deeper = p + AMX_DEPTH < w->p1;
            amx_soon   soon = amx_next(w, deeper ? unit : unit + n, n, deeper ? p + AMX_DEPTH : w->p0,
                                       amx_least(AMX_DEPTH, deeper ? w->p1 - p - AMX_DEPTH : w->p1 - w->p0),
                                       n * (r1 - r0) * amx_up(k, AMX_NUMBERS));
            for (int64_t v = 0; v < n; v++) amx_pack(&w->g, !w->rows_resident, own + v * AMX_UNIT, unit + v, p, k);
            for (int64_t v = 0; v < n && sums_of_rows && chunk == 0; v++)
                amx_sum_rows(&w->g, own + v * AMX_UNIT, unit + v, p, k);
            for (int64_t v = 0; v < n; v++)
                for (int64_t r = r0; r < r1; r++) {
                    float *sums = w->sums ? w->sums + ((unit + v) * w->units + r) * AMX_BLOCK
                                          : room + (waiting ? v * waiting + r : 0) * AMX_BLOCK;
                    amx_meet(w, own + v * AMX_UNIT, sums, unit + v, r, p, k, &soon);
                }
        }
    }
    if (w->g.narrow) gm_stream_end();
    if (!w->g.configured) w->g.amx->end();
}

/* threads NULL: on the caller alone. cycles: of all units together. */
static void amx_job(gm_threads *threads, int64_t units, int64_t cycles, gm_job job, amx_plan *w)
{
    if (threads) gemm_parallel(threads, units, cycles / units, job, w);
    else job(w, 0, units, 0);
}

/* Numbers p0 .. p1 of resident units first .. first + units. */
static void amx_piece(gm_threads *threads, amx_plan *w)
{
    const int     count = threads ? gm_threads_count(threads) : 1;
    const int64_t deep = amx_up(w->p1 - w->p0, AMX_DEPTH), steps = amx_up(w->p1 - w->p0, AMX_NUMBERS);
    w->chunks = w->walked % count && w->walked < 8 * count && w->units >= count ? count : 1;
    if (deep) amx_job(threads, w->units * deep, w->units * steps * AMX_CYCLES, amx_pack_resident, w);
    amx_job(threads, w->walked * w->chunks, w->walked * w->units * (steps * AMX_CYCLES + AMX_BESIDE), amx_walk, w);
}

/* As gemm_run. scratch: amx_scratch(g, threads) floats, aligned to 64 bytes. */
static void amx_run(gm_threads *threads, const gemm *g, float *scratch)
{
    amx_plan      w = amx_plan_of(g);
    const int     count = threads ? gm_threads_count(threads) : 1;
    const int64_t pieces = amx_up(w.side, w.step);
    w.own = scratch;
    w.resident = w.own + count * w.each;
    if (amx_is_deep(&w)) w.sums = w.resident + w.step * amx_up(w.depth, AMX_NUMBERS) * AMX_STEP;
    for (int64_t piece = 0; piece < pieces; piece++) {
        w.first = w.side * piece / pieces;
        w.units = w.side * (piece + 1) / pieces - w.first;
        for (w.p0 = 0; w.p0 < w.k || w.p0 == 0; w.p0 += w.depth) {
            w.p1 = amx_least(w.p0 + w.depth, w.k);
            amx_piece(threads, &w);
            if (w.depth == 0) break;
        }
    }
}
#endif
