/* grouped.c - products of groups of rows, each with a matrix of its own. All threads share the pieces of all groups.
 *
 * A piece is some rows or some columns of the result of one group, and one thread computes it, by the blocking of
 * gemm_block_t.h or, for groups of few rows, by gemm_thin.c. Sums go along k in the order of the products that `linear`
 * and `matmul` make of one group, so the bits are those of a product for each group, on any number of threads. Numbers
 * of 16 bits are multiplied as they are where the instruction set can (gemm_pairs.c). Elsewhere rows are widened at
 * once, and weights as they are packed, so that no weight is ever held in f32. Part of cpu.c. */
#define GROUPED_SIDE  64        /* rows or columns that a piece has at least, as far as there are so many */
#define GROUPED_EACH  8         /* pieces for each thread, about */
#define GROUPED_LEAST (1 << 20) /* operations that pay for a piece of their own */
#define GROUPED_AREA  (1 << 20) /* numbers of a piece whose result has 16 bits: they are kept in f32 until it is done */

#define GROUPED_PANEL (2 * CPU_LANES_F32) /* columns of a panel of floats (gemm_tile_t.h) */

typedef struct grouped_piece {
    int64_t group, i0, i1, j0, j1; /* of the group's result */
} grouped_piece;

/* Products c[e] (+)= a[e] b[e] (+ bias[e]). Strides in elements. */
typedef struct grouped {
    bool             along; /* rows of groups are what is summed over; else they are the rows of the result */
    bool             pairs, accumulate;
    const amx_kind  *amx;      /* not NULL, with pairs: by tiles of AMX (gemm_amx.c) */
    gm_dtype         sums, to; /* of sums; of c, which may have 16 bits */
    int64_t          m, n, k;  /* m or k: of no group, where these are its rows */
    const char      *a, *b;
    const gm_tensor *weights, *bias; /* b; NULL, or contiguous (groups, n) */
    char            *c;
    int64_t          a_row, a_k, b_group, b_k, b_column, c_group, c_row;
    int64_t          a_size, b_size, c_size; /* bytes of an element */
    int64_t          groups, *bounds;
    grouped_piece   *piece;
    int64_t          pieces;
    char            *scratch;
    size_t           step, of_product, of_numbers; /* bytes for each thread; of these for gemm_run, for c */
} grouped;

static int64_t grouped_rows(const grouped *w, int64_t e) { return w->bounds[e + 1] - w->bounds[e]; }

/* Are results rounded to bf16 as they are stored? */
static bool grouped_narrow(const grouped *w) { return w->pairs && w->amx && w->to == GM_BF16; }

static bool grouped_converts(const grouped *w) { return w->to != w->sums && !grouped_narrow(w); }

/* Are the products of this group those of few rows? */
static bool grouped_thin(const grouped *w, int64_t e)
{
    int64_t rows = grouped_rows(w, e);
    return !w->along && !w->accumulate && w->sums == GM_F32 && (w->b_k == 1 || w->k == 1) && rows >= 1 &&
           rows <= thin_most(w->weights->dtype, w->pairs ? w->amx : NULL) && w->k > 0;
}

/* ---- pieces ---- */

/* The pieces of group e, of `most` operations, at `to` (NULL: they are only counted) -> how many. */
static int64_t grouped_cut(const grouped *w, int64_t e, double most, grouped_piece *to)
{
    int64_t m = w->along ? w->m : grouped_rows(w, e), n = w->n, k = w->along ? grouped_rows(w, e) : w->k;
    if (m == 0 || n == 0) return 0;
    double  want = ceil(2.0 * (double)m * (double)n * (double)k / most);
    int64_t area = grouped_converts(w) ? (m * n + GROUPED_AREA - 1) / GROUPED_AREA : 1;
    bool    by_rows = m > n && m >= 2 * GROUPED_SIDE;
    int64_t parts = want < (double)area ? area : (int64_t)want, side = by_rows ? m : n;
    if (parts > side / GROUPED_SIDE) parts = side / GROUPED_SIDE;
    if (parts < 1) parts = 1;
    for (int64_t s = 0; to && s < parts; s++) {
        int64_t units = (side + GROUPED_SIDE - 1) / GROUPED_SIDE; /* vectors of columns stay whole */
        int64_t first = units * s / parts * GROUPED_SIDE, last = units * (s + 1) / parts * GROUPED_SIDE;
        if (last > side) last = side;
        to[s] = by_rows ? (grouped_piece){e, first, last, 0, n} : (grouped_piece){e, 0, m, first, last};
    }
    return parts;
}

/* Operations of a piece: by shapes and the number of threads only. */
static double grouped_most(const grouped *w, int threads)
{
    double rows = (double)(w->bounds[w->groups] - w->bounds[0]), rest = (double)w->n * (double)(w->along ? w->m : w->k);
    double most = 2 * rows * rest / (threads * GROUPED_EACH);
    if (threads == 1) return 2 * rows * rest + 1;
    return most > GROUPED_LEAST ? most : GROUPED_LEAST;
}

/* ---- one piece ---- */

/* A panel of rows of 16 bits (gemm_panel). */
static void grouped_panel(const gemm *g, void *to, int64_t j, int64_t width, int64_t p, int64_t k)
{
    const grouped *w = g->form;
    const cast_row widen = find_cast(w->weights->dtype, GM_F32);
    float         *panel = to;
    for (int64_t i = 0; i < k; i++, panel += GROUPED_PANEL) {
        widen(width, (const char *)g->b + ((p + i) * g->b_k + j) * 2, panel);
        if (width < GROUPED_PANEL) memset(panel + width, 0, (size_t)(GROUPED_PANEL - width) * sizeof *panel);
    }
}

/* The product of a piece, into `c`, whose rows lie c_row apart. */
static gemm grouped_product(const grouped *w, const grouped_piece *u, void *c, int64_t c_row)
{
    int64_t first = w->bounds[u->group], rows = grouped_rows(w, u->group), i = u->i0 + (w->along ? 0 : first);
    gemm    g = {.m = u->i1 - u->i0,
                 .n = u->j1 - u->j0,
                 .k = w->along ? rows : w->k,
                 .a_row = w->a_row,
                 .a_k = w->a_k,
                 .b_k = w->b_k,
                 .b_column = w->b_column,
                 .c = c,
                 .c_row = c_row,
                 .alpha = 1,
                 .configured = true,
                 .narrow = grouped_narrow(w),
                 .accumulate = w->accumulate};
    g.a = w->a + (i * w->a_row + (w->along ? first * w->a_k : 0)) * w->a_size;
    g.b = w->b + (u->j0 * w->b_column + (w->along ? first * w->b_k : u->group * w->b_group)) * w->b_size;
    if (w->pairs) return gemm_of_pairs(g, w->amx);
    if (w->b_size == (int64_t)gm_dtype_size(w->sums)) return g;
    g.form = w;
    if (w->b_k == 1) {
        g.widen = w->weights->dtype == GM_BF16 ? widen_bf16 : widen_f16;
        g.b_bits = 16;
        g.b_column = w->b_column * w->b_size;
    } else {
        g.panel = grouped_panel;
    }
    return g;
}

/* A piece of few rows, into c without gaps. room: k floats. */
static void grouped_thin_piece(const grouped *w, const grouped_piece *u, const void *bias, float *c, float *room)
{
    gemm_thin t = {.m = u->i1 - u->i0, .n = u->j1 - u->j0, .k = w->k, .w_row = w->b_column, .bias = bias, .y = c};
    t.w = w->b + (u->group * w->b_group + u->j0 * w->b_column) * w->b_size;
    const char *x = w->a + (w->bounds[u->group] + u->i0) * w->a_row * w->a_size;
    if (w->pairs) t.x_bf16 = (const bits2 *)x;
    else t.x = (const float *)(const void *)x;
    gm_job job = thin_part(w->weights, &t);
    if (t.m == 1 && job == thin_part_bf16) {
        thin_turned(t.k, t.x, room);
        t.x = room;
    }
    job(&t, 0, (t.n + 3) / 4, 0);
}

/* Columns j0 .. of the biases of a group in the dtype of sums: there, or widened to `room`. */
static const void *grouped_bias(const grouped *w, const grouped_piece *u, void *room)
{
    if (!w->bias) return NULL;
    const char *b = (const char *)gm_tensor_data(w->bias) +
                    (size_t)(u->group * w->n + u->j0) * gm_dtype_size(w->bias->dtype);
    if (w->bias->dtype == w->sums) return b;
    find_cast(w->bias->dtype, w->sums)(u->j1 - u->j0, b, room);
    return room;
}

/* Rows of a piece between c and what it was computed in, which has no gaps. */
static void grouped_move(const grouped *w, const grouped_piece *u, float *numbers, bool out)
{
    int64_t        n = u->j1 - u->j0, first = w->along ? 0 : w->bounds[u->group];
    const cast_row cast = out ? find_cast(GM_F32, w->to) : find_cast(w->to, GM_F32);
    for (int64_t i = u->i0; i < u->i1; i++, numbers += n) {
        char *c = w->c + ((w->along ? u->group * w->c_group : 0) + (first + i) * w->c_row + u->j0) * w->c_size;
        if (!cast) memcpy(out ? (void *)c : numbers, out ? (const void *)numbers : c, (size_t)n * sizeof *numbers);
        else if (out) cast(n, numbers, c);
        else cast(n, c, numbers);
    }
}

static void grouped_run(const grouped *w, const grouped_piece *u, char *scratch)
{
    int64_t first = w->along ? 0 : w->bounds[u->group], n = u->j1 - u->j0;
    float  *numbers = (float *)(void *)(scratch + w->of_product), *room;
    bool    thin = grouped_thin(w, u->group), apart = thin || grouped_converts(w);
    char   *c = w->c + ((w->along ? u->group * w->c_group : 0) + (first + u->i0) * w->c_row + u->j0) * w->c_size;
    room = (float *)(void *)(scratch + w->of_product + w->of_numbers);
    const void *bias = grouped_bias(w, u, room);
    if (thin) {
        grouped_thin_piece(w, u, bias, numbers, room + w->n);
    } else {
        gemm g = grouped_product(w, u, apart ? (void *)numbers : c, apart ? n : w->c_row);
        g.bias = bias;
        if (apart && w->accumulate) grouped_move(w, u, numbers, false);
        gemm_run(NULL, w->sums, &g, scratch);
    }
    if (apart) grouped_move(w, u, numbers, true);
}

static void grouped_part(void *context, int64_t begin, int64_t end, int thread)
{
    const grouped *w = context;
    gemm_use_tiles(w->amx, true);
    for (int64_t i = begin; i < end; i++) grouped_run(w, &w->piece[i], w->scratch + (size_t)thread * w->step);
    gemm_use_tiles(w->amx, false);
}

/* ---- all of them ---- */

/* GM_EINVAL unless these divide so many rows, or the first of them, into groups. */
static gm_status grouped_check(const gm_call *call, const int64_t *bounds, int64_t n, int64_t rows)
{
    for (int64_t e = 0, least = 0; e < n; least = bounds[e++])
        if (bounds[e] < least || bounds[e] > rows)
            return GM_FAIL(GM_EINVAL,
                           "%s: bound %" PRId64 " at position %" PRId64 " (from 0) is not from %" PRId64
                           ", the one before it, to %" PRId64 ", the number of rows",
                           gm_op_name(call->op), bounds[e], e, least, rows);
    return GM_OK;
}

/* The bytes that a thread needs. */
static void grouped_size(grouped *w)
{
    for (int64_t i = 0; i < w->pieces; i++) {
        const grouped_piece *u = &w->piece[i];
        gemm                 g = grouped_product(w, u, NULL, 0);
        bool                 thin = grouped_thin(w, u->group);
        size_t               product = thin ? 0 : gemm_scratch_bytes(w->sums, &g, 1), numbers = 0;
        if (thin || grouped_converts(w)) numbers = (size_t)((u->i1 - u->i0) * (u->j1 - u->j0)) * sizeof(float);
        if (product > w->of_product) w->of_product = product;
        if (numbers > w->of_numbers) w->of_numbers = (numbers + 63) & ~(size_t)63;
    }
    w->step = w->of_product + w->of_numbers + (size_t)(w->n + w->k + 16) * sizeof(float);
    w->step = (w->step + 63) & ~(size_t)63;
}

/* Runs all pieces. w->bounds is good. */
static gm_status grouped_all(gm_device *dev, grouped *w)
{
    int       threads = gm_threads_count(dev->threads);
    double    most = grouped_most(w, threads);
    gm_block *list, *block;
    w->pieces = 0;
    for (int64_t e = 0; e < w->groups; e++) w->pieces += grouped_cut(w, e, most, NULL);
    if (!w->pieces) return GM_OK;
    GM_TRY(cpu_scratch(dev, (size_t)w->pieces * sizeof *w->piece, &w->piece, &list));
    for (int64_t e = 0, at = 0; e < w->groups; e++) at += grouped_cut(w, e, most, w->piece + at);
    grouped_size(w);
    gm_status st = cpu_scratch(dev, w->step * (size_t)threads, &w->scratch, &block);
    if (st == GM_OK) {
        double rows = (double)(w->bounds[w->groups] - w->bounds[0]);
        double cost = rows * (double)w->n * (double)((w->along ? w->m : w->k) + 8) / 16 / (double)w->pieces;
        gemm_parallel(dev->threads, w->pieces, (int64_t)cost, grouped_part, w);
        gm_pool_release(dev->pool, block);
    }
    gm_pool_release(dev->pool, list);
    return st;
}

/* ---- grouped_matmul ---- */

/* Rows of y that are in no group. */
static void grouped_clear(const grouped *w, int64_t rows)
{
    int64_t bytes = w->c_row * w->c_size, first = w->bounds[0], end = w->bounds[w->groups];
    if (w->accumulate) return;
    memset(w->c, 0, (size_t)(first * bytes));
    memset(w->c + end * bytes, 0, (size_t)((rows - end) * bytes));
}

static gm_status grouped_matmul_plain(gm_device *dev, const gm_call *call, const amx_kind *amx, gm_tensor *x,
                                      gm_tensor *weights, gm_tensor *bounds, gm_tensor *bias, gm_tensor *y)
{
    bool    tb = call->attrs->transpose_b;
    grouped w = {.pairs = gemm_takes_pairs(call),
                 .amx = amx,
                 .accumulate = call->attrs->accumulate,
                 .sums = gm_dtype_wide(y->dtype),
                 .to = y->dtype,
                 .n = y->shape[1],
                 .k = x->shape[1],
                 .a = gm_tensor_data(x),
                 .b = gm_tensor_data(weights),
                 .weights = weights,
                 .bias = bias,
                 .c = gm_tensor_data(y),
                 .a_row = x->shape[1],
                 .a_k = 1,
                 .b_group = weights->stride[0],
                 .b_k = weights->stride[tb ? 2 : 1],
                 .b_column = weights->stride[tb ? 1 : 2],
                 .c_row = y->shape[1],
                 .a_size = (int64_t)gm_dtype_size(x->dtype),
                 .b_size = (int64_t)gm_dtype_size(weights->dtype),
                 .c_size = (int64_t)gm_dtype_size(y->dtype),
                 .groups = weights->shape[0],
                 .bounds = gm_tensor_data(bounds)};
    GM_TRY(grouped_check(call, w.bounds, w.groups + 1, x->shape[0]));
    GM_TRY(grouped_all(dev, &w));
    grouped_clear(&w, x->shape[0]);
    return GM_OK;
}

/* Weights whose last stride is 1, or of f32 or f64, stay where they are. */
static gm_status grouped_weights(gm_device *dev, gm_tensor *t, gm_tensor **view)
{
    if (gm_dtype_is_narrow(t->dtype) && t->stride[2] != 1) return cpu_plain(dev, t->dtype, t, true, view);
    gm_tensor_retain(*view = t);
    return GM_OK;
}

/* amx, here and below: not NULL, products of bf16 by its tiles (gemm_amx.c). */
static gm_status grouped_matmul_by(gm_device *dev, const gm_call *call, const amx_kind *amx)
{
    gm_tensor *x = NULL, *w = NULL, *bounds = NULL, *b = NULL, *y = NULL, *out = call->out[0], *bias = cpu_in(call, 3);
    gm_dtype   of_x = gemm_takes_pairs(call) ? GM_BF16 : gm_dtype_wide(out->dtype);
    gm_status  st;
    GM_TRY_OR(cpu_plain(dev, of_x, call->in[0], true, &x), st, done);
    GM_TRY_OR(grouped_weights(dev, call->in[1], &w), st, done);
    GM_TRY_OR(cpu_plain(dev, GM_I64, call->in[2], true, &bounds), st, done);
    GM_TRY_OR(cpu_plain(dev, bias ? bias->dtype : GM_F32, bias, true, &b), st, done);
    GM_TRY_OR(cpu_plain(dev, out->dtype, out, call->attrs->accumulate, &y), st, done);
    st = grouped_matmul_plain(dev, call, amx, x, w, bounds, b, y);
done:
    gm_tensor_release(x);
    gm_tensor_release(w);
    gm_tensor_release(bounds);
    gm_tensor_release(b);
    return cpu_home(dev, y, out, st);
}

static gm_status cpu_grouped_matmul(gm_device *dev, const gm_call *call) { return grouped_matmul_by(dev, call, NULL); }

/* ---- grouped_weight_grad ---- */

typedef struct grouped_sums {
    const gm_tensor *g, *db; /* contiguous */
    int64_t          n, blocks, *bounds;
    bool             accumulate;
} grouped_sums;

/* Job: blocks of columns of groups. Rows are added up in order, in double. */
static void grouped_sums_part(void *context, int64_t begin, int64_t end, int thread)
{
    const grouped_sums *w = context;
    const gm_dtype      dtype = w->g->dtype;
    const cast_row      widen = gm_dtype_is_narrow(dtype) ? find_cast(dtype, GM_F32) : NULL;
    const int64_t       size = (int64_t)gm_dtype_size(dtype);
    (void)thread;
    for (int64_t u = begin; u < end; u++) {
        float   room[GROUPED_SIDE];
        double  sum[GROUPED_SIDE] = {0};
        int64_t e = u / w->blocks, j = u % w->blocks * GROUPED_SIDE,
                n = w->n - j < GROUPED_SIDE ? w->n - j : GROUPED_SIDE;
        for (int64_t r = w->bounds[e]; r < w->bounds[e + 1]; r++) {
            const char *x = (const char *)gm_tensor_data(w->g) + (r * w->n + j) * size;
            if (widen) widen(n, x, room);
            for (int64_t i = 0; i < n; i++)
                sum[i] += dtype == GM_F64 ? ((const double *)(const void *)x)[i]
                                          : (double)(dtype == GM_F32 ? (const float *)(const void *)x : room)[i];
        }
        for (int64_t i = 0; i < n; i++) {
            int64_t at = e * w->n + j + i;
            void   *db = gm_tensor_data(w->db);
            gm_store(w->db->dtype, db, at, (w->accumulate ? gm_load(w->db->dtype, db, at) : 0) + sum[i]);
        }
    }
}

static gm_status grouped_bias_grad(gm_device *dev, const gm_call *call, const gm_tensor *g, int64_t *bounds)
{
    gm_tensor *db = NULL, *out = cpu_out(call, 1);
    if (!out) return GM_OK;
    GM_TRY(cpu_plain(dev, out->dtype, out, call->attrs->accumulate, &db));
    grouped_sums w = {.g = g,
                      .db = db,
                      .n = db->shape[1],
                      .blocks = (db->shape[1] + GROUPED_SIDE - 1) / GROUPED_SIDE,
                      .bounds = bounds,
                      .accumulate = call->attrs->accumulate};
    int64_t      units = db->shape[0] * w.blocks, bytes = gm_tensor_numel(g) * (int64_t)gm_dtype_size(GM_F32);
    cpu_parallel(dev, units, units ? bytes / units : 1, grouped_sums_part, &w);
    return cpu_home(dev, db, out, GM_OK);
}

static gm_status grouped_weight_product(gm_device *dev, const gm_call *call, const amx_kind *amx, gm_tensor *g,
                                        gm_tensor *x, int64_t *bounds)
{
    gm_tensor *dw = NULL, *out = cpu_out(call, 0);
    if (!out) return GM_OK;
    bool dense = out->stride[2] == 1 || out->shape[2] <= 1; /* its rows may have gaps */
    if (dense) gm_tensor_retain(dw = out);
    else GM_TRY(cpu_compact(dev, out->dtype, out, call->attrs->accumulate, &dw));
    grouped w = {.along = true,
                 .pairs = gemm_takes_pairs(call),
                 .amx = amx,
                 .accumulate = call->attrs->accumulate,
                 .sums = gm_dtype_wide(dw->dtype),
                 .to = dw->dtype,
                 .m = g->shape[1],
                 .n = x->shape[1],
                 .a = gm_tensor_data(g),
                 .b = gm_tensor_data(x),
                 .weights = x,
                 .c = gm_tensor_data(dw),
                 .a_row = 1,
                 .a_k = g->shape[1],
                 .b_k = x->shape[1],
                 .b_column = 1,
                 .c_group = dw->stride[0],
                 .c_row = dw->stride[1],
                 .a_size = (int64_t)gm_dtype_size(g->dtype),
                 .b_size = (int64_t)gm_dtype_size(x->dtype),
                 .c_size = (int64_t)gm_dtype_size(dw->dtype),
                 .groups = dw->shape[0],
                 .bounds = bounds};
    return cpu_home(dev, dw, out, grouped_all(dev, &w));
}

static gm_status grouped_weight_grad_by(gm_device *dev, const gm_call *call, const amx_kind *amx)
{
    gm_tensor *g = NULL, *x = NULL, *bounds = NULL;
    gm_dtype   dtype = gemm_takes_pairs(call) ? GM_BF16 : gm_dtype_wide(call->in[0]->dtype);
    gm_status  st;
    GM_TRY_OR(cpu_plain(dev, dtype, call->in[0], true, &g), st, done);
    GM_TRY_OR(cpu_plain(dev, dtype, call->in[1], true, &x), st, done);
    GM_TRY_OR(cpu_plain(dev, GM_I64, call->in[2], true, &bounds), st, done);
    GM_TRY_OR(grouped_check(call, gm_tensor_data(bounds), bounds->shape[0], g->shape[0]), st, done);
    GM_TRY_OR(grouped_weight_product(dev, call, amx, g, x, gm_tensor_data(bounds)), st, done);
    st = grouped_bias_grad(dev, call, g, gm_tensor_data(bounds));
done:
    gm_tensor_release(g);
    gm_tensor_release(x);
    gm_tensor_release(bounds);
    return st;
}

static gm_status cpu_grouped_weight_grad(gm_device *dev, const gm_call *call)
{
    return grouped_weight_grad_by(dev, call, NULL);
}
