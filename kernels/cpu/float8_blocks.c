/* float8_blocks.c - floats of 8 bits with scales of blocks (../float8.h): codes in both orders with their scales from
 * one read of the numbers, and the product, which is that of float8.c with the scale of each block. */

/* One call; what is NULL is not wanted. */
typedef struct float8_blocks {
    float8_job of; /* x, rows, k, dtype, format, and codes in both orders */
    bool       square;
    void      *scales, *turned_scales; /* float or double, as x is */
} float8_blocks;

/* A tile of at most 128 x 128 numbers at row r and column c. */
typedef struct float8_square {
    int64_t  r, c, high, wide;
    uint32_t row[GM_FLOAT8_BLOCK], column[GM_FLOAT8_BLOCK]; /* bits of the largest magnitudes, then of the scales */
} float8_square;

CPU_INLINE uint32_t float8_magnitude(const float8_job *j, int64_t at)
{
    if (j->dtype == GM_F32) return ((const bits4 *)j->x)[at] & 0x7fffffffu;
    return gm_float8_narrow(((const bits8 *)j->x)[at]) & 0x7fffffffu;
}

static void float8_square_scales(const float8_blocks *j, float8_square *s)
{
    uint32_t most = 0;
    memset(s->row, 0, sizeof s->row);
    memset(s->column, 0, sizeof s->column);
    for (int64_t i = 0; i < s->high; i++)
        for (int64_t d = 0; d < s->wide; d++) {
            uint32_t size = float8_magnitude(&j->of, (s->r + i) * j->of.k + s->c + d);
            if (size > s->row[i]) s->row[i] = size;
            if (size > s->column[d]) s->column[d] = size;
        }
    for (int64_t i = 0; i < s->high; i++) most = s->row[i] > most ? s->row[i] : most;
    for (int i = 0; i < GM_FLOAT8_BLOCK; i++) {
        s->row[i] = gm_float8_scale(j->of.format, j->square ? most : s->row[i]);
        s->column[i] = gm_float8_scale(j->of.format, j->square ? most : s->column[i]);
    }
}

static void float8_put_scale(const float8_blocks *j, void *to, int64_t at, uint32_t bits)
{
    if (j->of.dtype == GM_F32) ((float *)to)[at] = float8_number(bits);
    else ((double *)to)[at] = (double)float8_number(bits);
}

static void float8_give_scales(const float8_blocks *j, const float8_square *s)
{
    int64_t m = j->of.rows, k = j->of.k, down = s->r / GM_FLOAT8_BLOCK, across = s->c / GM_FLOAT8_BLOCK;
    if (j->square) {
        if (j->scales) float8_put_scale(j, j->scales, down * gm_float8_blocks(k) + across, s->row[0]);
        if (j->turned_scales) float8_put_scale(j, j->turned_scales, across * gm_float8_blocks(m) + down, s->row[0]);
        return;
    }
    for (int64_t i = 0; j->scales && i < s->high; i++) float8_put_scale(j, j->scales, across * m + s->r + i, s->row[i]);
    for (int64_t d = 0; j->turned_scales && d < s->wide; d++)
        float8_put_scale(j, j->turned_scales, down * k + s->c + d, s->column[d]);
}

/* The code of number `at` of x, divided by a scale. An infinite number is none of those that become the largest. */
CPU_INLINE uint8_t float8_block_code(const float8_job *j, int format, int64_t at, uint32_t scale)
{
    const float by = float8_number(gm_float8_inverse(scale));
    if (j->dtype == GM_F32) {
        const float v = float8_number(((const bits4 *)j->x)[at]);
        return gm_float8_code(format, float8_bits(v * by + 0 * v));
    }
    double v;
    memcpy(&v, j->x + at * 8, sizeof v);
    return gm_float8_code(format, float8_bits_f64(v * (double)by + 0 * v));
}

/* The codes of row i of the tile with the scales of rows (NULL: of columns). */
CPU_INLINE void float8_square_row(const float8_blocks *j, const float8_square *s, int format, int64_t i, bool of_rows,
                                  uint8_t *to)
{
    int64_t from = (s->r + i) * j->of.k + s->c;
    for (int64_t d = 0; d < s->wide; d++)
        to[d] = float8_block_code(&j->of, format, from + d, of_rows ? s->row[i] : s->column[d]);
}

static void float8_square_codes(const float8_blocks *j, const float8_square *s, int64_t i, bool of_rows, uint8_t *to)
{
    if (j->of.format == GM_FLOAT8_E4M3) float8_square_row(j, s, GM_FLOAT8_E4M3, i, of_rows, to);
    else float8_square_row(j, s, GM_FLOAT8_E5M2, i, of_rows, to);
}

/* Rows of tiles [begin, end). */
static void float8_blocks_part(void *context, int64_t begin, int64_t end, int thread)
{
    const float8_blocks *j = context;
    const float8_job    *of = &j->of;
    float8_square        s;
    uint8_t              tile[GM_FLOAT8_BLOCK][GM_FLOAT8_BLOCK];
    (void)thread;
    for (int64_t at = begin * gm_float8_blocks(of->k); at < end * gm_float8_blocks(of->k); at++) {
        s.r = at / gm_float8_blocks(of->k) * GM_FLOAT8_BLOCK;
        s.c = at % gm_float8_blocks(of->k) * GM_FLOAT8_BLOCK;
        s.high = of->rows - s.r < GM_FLOAT8_BLOCK ? of->rows - s.r : GM_FLOAT8_BLOCK;
        s.wide = of->k - s.c < GM_FLOAT8_BLOCK ? of->k - s.c : GM_FLOAT8_BLOCK;
        float8_square_scales(j, &s);
        float8_give_scales(j, &s);
        for (int64_t i = 0; of->codes && i < s.high; i++)
            float8_square_codes(j, &s, i, true, of->codes + (s.r + i) * of->k + s.c);
        for (int64_t i = 0; of->turned && i < s.high; i++) float8_square_codes(j, &s, i, false, tile[i]);
        for (int64_t d = 0; of->turned && d < s.wide; d++)
            for (int64_t i = 0; i < s.high; i++) of->turned[(s.c + d) * of->rows + s.r + i] = tile[i][d];
    }
}

static gm_status cpu_float8_block_encode(gm_device *dev, const gm_call *call)
{
    gm_tensor    *x = NULL, *out[4] = {NULL, NULL, NULL, NULL};
    gm_dtype      wide = call->in[0]->dtype;
    gm_status     st;
    float8_blocks j = {.of = {.dtype = wide, .format = (int)call->attrs->format}, .square = call->attrs->square};
    void         *to[4] = {NULL, NULL, NULL, NULL};
    GM_TRY_OR(cpu_plain(dev, wide, call->in[0], true, &x), st, done);
    for (int i = 0; i < 4; i++) {
        GM_TRY_OR(cpu_plain(dev, i % 2 ? wide : GM_U8, cpu_out(call, i), false, &out[i]), st, done);
        to[i] = out[i] ? gm_tensor_data(out[i]) : NULL;
    }
    if (!gm_tensor_numel(x)) goto done;
    j.of.codes = to[0];
    j.scales = to[1];
    j.of.turned = to[2];
    j.turned_scales = to[3];
    j.of.x = gm_tensor_data(x);
    j.of.k = x->shape[x->ndim - 1];
    j.of.rows = gm_tensor_numel(x) / j.of.k;
    cpu_parallel(dev, gm_float8_blocks(j.of.rows), 8 * GM_FLOAT8_BLOCK * j.of.k, float8_blocks_part, &j);
done:
    gm_tensor_release(x);
    for (int i = 0; i < 4; i++) st = cpu_home(dev, out[i], cpu_out(call, i), st);
    return st;
}

/* ---- products ---- */

/* The numbers of codes of a matrix: a table of those of scale 1, and the scale of row i and block l at
 * i / group * row + l * block. */
typedef struct float8_matrix {
    float8_table table;
    const char  *scales;
    int64_t      group, row, block;
    gm_dtype     dtype; /* of scales and of the numbers */
} float8_matrix;

static float8_matrix float8_matrix_of(int format, const gm_tensor *scales, bool square, int64_t rows, int64_t k)
{
    return (float8_matrix){.table = float8_table_of(format, 1, k),
                           .scales = gm_tensor_data(scales),
                           .group = square ? GM_FLOAT8_BLOCK : 1,
                           .row = square ? gm_float8_blocks(k) : 1,
                           .block = square ? 1 : rows,
                           .dtype = scales->dtype};
}

/* n numbers of row i from column p on. */
static void float8_matrix_row(const float8_matrix *m, const uint8_t *codes, int64_t i, int64_t p, int64_t n, void *to)
{
    for (int64_t at = 0, run; at < n; at += run) {
        int64_t l = (p + at) / GM_FLOAT8_BLOCK, place = i / m->group * m->row + l * m->block;
        run = (l + 1) * GM_FLOAT8_BLOCK - (p + at);
        run = run < n - at ? run : n - at;
        if (m->dtype == GM_F32) {
            const float scale = ((const float *)m->scales)[place];
            for (int64_t c = at; c < at + run; c++) ((float *)to)[c] = m->table.narrow[codes[c]] * scale;
        } else {
            const double scale = ((const double *)m->scales)[place];
            for (int64_t c = at; c < at + run; c++) ((double *)to)[c] = m->table.number[codes[c]] * scale;
        }
    }
}

static void float8_widen_blocks(const gemm *g, int64_t j, int64_t p, int64_t k, void *to)
{
    const float8_matrix *m = g->form;
    float8_matrix_row(m, (const uint8_t *)g->b + j * m->table.step + p, j, p, k, to);
}

typedef struct float8_block_decode {
    const float8_matrix *m;
    const uint8_t       *codes;
    char                *to;
    int64_t              k;
} float8_block_decode;

static void float8_block_decode_part(void *context, int64_t begin, int64_t end, int thread)
{
    const float8_block_decode *j = context;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        float8_matrix_row(j->m, j->codes + i * j->k, i, 0, j->k,
                          j->to + i * j->k * (int64_t)gm_dtype_size(j->m->dtype));
}

/* *out: a new tensor of the numbers of a's codes, rows of k. */
static gm_status float8_block_numbers(gm_device *dev, gm_tensor *a, const float8_matrix *m, gm_tensor **out)
{
    gm_tensor *codes;
    GM_TRY(cpu_plain(dev, GM_U8, a, true, &codes));
    gm_status st = gm_tensor_new(dev, m->dtype, a->ndim, a->shape, out);
    if (st == GM_OK && gm_tensor_numel(a)) {
        float8_block_decode j = {m, gm_tensor_data(codes), gm_tensor_data(*out), a->shape[a->ndim - 1]};
        cpu_parallel(dev, gm_tensor_numel(a) / j.k, 8 * j.k, float8_block_decode_part, &j);
    }
    gm_tensor_release(codes);
    return st;
}

static gm_status cpu_float8_block_product(gm_device *dev, const gm_call *call)
{
    gm_tensor *a = NULL, *b = NULL, *bias = NULL, *y = NULL, *scales[2] = {NULL, NULL}, *to = call->out[0];
    int64_t    n = call->in[1]->shape[0], k = call->in[1]->shape[1];
    gm_status  st;
    for (int i = 0; i < 2; i++) GM_TRY_OR(cpu_plain(dev, to->dtype, call->in[2 + i], true, &scales[i]), st, done);
    GM_TRY_OR(cpu_plain(dev, GM_U8, call->in[1], true, &b), st, done);
    GM_TRY_OR(cpu_plain(dev, to->dtype, cpu_in(call, 4), true, &bias), st, done);
    GM_TRY_OR(cpu_plain(dev, to->dtype, to, call->attrs->accumulate, &y), st, done);
    float8_matrix of_b = float8_matrix_of(GM_FLOAT8_E4M3, scales[1], call->attrs->square, n, k);
    float8_matrix of_a = float8_matrix_of((int)call->attrs->format, scales[0], false, n ? gm_tensor_numel(to) / n : 0,
                                          k);
    GM_TRY_OR(float8_block_numbers(dev, call->in[0], &of_a, &a), st, done);
    st = float8_gemm(dev, call, b, a, bias, y, float8_widen_blocks, &of_b);
done:
    gm_tensor_release(a);
    gm_tensor_release(b);
    gm_tensor_release(bias);
    for (int i = 0; i < 2; i++) gm_tensor_release(scales[i]);
    return cpu_home(dev, y, to, st);
}
