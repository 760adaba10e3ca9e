/* convolution_pairs.c - what a convolution of bf16 packs for vdpbf16ps (gemm_pairs.c); a part of convolution.c.
 *
 * Planes are in f32, of numbers that are bf16, so that nothing is rounded here. The other operand, weights or the
 * gradient of the results, is made bf16 before (conv_paired). Tiles of AMX take the same panels. What goes another way
 * stays in f32: Winograd's way, and groups of few channels, of which nothing is packed. */

/* Numbers in f32 that are bf16, and where they go as such. */
typedef struct conv_cast {
    const float *from;
    bits2       *to;
    int64_t      n;
} conv_cast;

#define CONV_CAST 4096 /* numbers of a unit */

/* Job: units are CONV_CAST numbers. */
static void conv_cast_part(void *context, int64_t begin, int64_t end, int thread)
{
    const conv_cast *w = context;
    int64_t          first = begin * CONV_CAST, last = end * CONV_CAST < w->n ? end * CONV_CAST : w->n;
    (void)thread;
    cast_f32_bf16(last - first, w->from + first, w->to + first);
}

/* The n numbers of a as bf16, at `room`; a itself where there is no room, because numbers do not become pairs. */
static const void *conv_paired(gm_device *dev, const void *a, void *room, int64_t n)
{
    conv_cast w = {a, room, n};
    if (!room) return a;
    cpu_parallel(dev, (n + CONV_CAST - 1) / CONV_CAST, CONV_CAST * 6, conv_cast_part, &w);
    return room;
}

#if GEMM_PAIRS

/* As conv_panel_f32; a row of the panel has the pairs of two rows of b. */
static void conv_pair_panel(const gemm *g, void *to, int64_t j, int64_t width, int64_t p, int64_t k)
{
    const conv_product *w = g->form;
    conv_run            run[32];
    int                 n = conv_runs(w, j, width, run);
    int64_t             reach = 0;
    float              *dst = to;
    for (int r = 0; r < n; r++) reach = run[r].from + run[r].n > reach ? run[r].from + run[r].n : reach;
    bool whole = reach + w->far + 16 <= w->elements;
    for (int64_t q = p; q < p + k; q++, dst += 32) {
        const float *x = (const float *)w->planes + w->tap[2 * q];
        const float *y = 2 * q + 1 < g->numbers ? (const float *)w->planes + w->tap[2 * q + 1] : NULL;
        for (int r = 0; r < n; r++)
            for (int64_t i = 0, m; i < run[r].n; i += 16) {
                m = whole && q + 1 < p + k ? 16 : run[r].n - i;
                vf32 behind = y ? at_f32(y + run[r].from, i, m) : splat_f32(0);
                put_f32(dst + run[r].at, i, m, pairs_of(at_f32(x + run[r].from, i, m), behind));
            }
        for (int64_t i = width; i < 32; i++) dst[i] = 0;
    }
}

/* As conv_turned_f32: columns become lines of bf16, whose pairs are 32 bits that are transposed. */
static void conv_pair_turned(const gemm *g, void *to, int64_t j, int64_t width, int64_t p, int64_t k)
{
    const conv_product *w = g->form;
    bits2               line[32][2 * GEMM_DEPTH + 16]; /* whole vectors are written */
    conv_run            run[2 * GEMM_DEPTH];
    int64_t             numbers = g->numbers - 2 * p < 2 * k ? g->numbers - 2 * p : 2 * k;
    int                 n = conv_runs(w, 2 * p, numbers, run);
    for (int64_t c = 0; c < width; c++)
        for (int r = 0; r < n; r++) {
            const float *x = (const float *)w->planes + w->tap[j + c] + run[r].from;
            for (int64_t i = 0; i < run[r].n; i += 16) pairs_store(line[c] + run[r].at + i, at_f32(x, i, run[r].n - i));
        }
    pairs_pack(to, 32, line[0], 2 * GEMM_DEPTH + 16, 1, width, numbers);
}

/* g, whose k are numbers, with their pairs. */
static gemm conv_of_pairs(gemm g, bool turned, const amx_kind *amx)
{
    g.panel = turned ? conv_pair_turned : conv_pair_panel;
    return gemm_of_pairs(g, amx);
}

#else
static gemm conv_of_pairs(gemm g, bool turned, const amx_kind *amx)
{
    (void)turned;
    (void)amx;
    return g;
}
#endif
