/* copy.c - fill and copy: any strides, any dtype to any.
 *
 * A copy within a dtype first widens its elements: a short innermost run that is contiguous in both tensors becomes one
 * element of up to 64 bytes. So a patch of four floats moves as 16 bytes. Then the copy moves whole rows, transposes
 * (transpose.c), or moves element by element. A cast between f32 and f64, bf16, f16, u8, i32 or i64, and of f64 to i32
 * or i64, converts contiguous rows in vector code. Other casts go through gm_load and gm_store, which define all. */

/* ---- casts of contiguous rows ---- */

#define CAST_ROW(name, from, to, expression)                      \
    static void name(int64_t n, const void *source, void *target) \
    {                                                             \
        const from *x = source;                                   \
        to         *y = target;                                   \
        for (int64_t i = 0; i < n; i++) y[i] = expression;        \
    }
CAST_ROW(cast_f32_f64, float, double, x[i])
CAST_ROW(cast_f64_f32, double, float, (float)x[i])
CAST_ROW(cast_u8_f32, uint8_t, float, x[i])
CAST_ROW(cast_i32_f32, int32_t, float, (float)x[i])
CAST_ROW(cast_i64_f32, int64_t, float, (float)(double)x[i])
CAST_ROW(cast_i32_i64, int32_t, int64_t, x[i])
CAST_ROW(cast_u8_f64, uint8_t, double, x[i])

/* Toward zero, saturating; NaN gives 0, as gm_store has it. below: the largest float below the bound `high`, which is a
 * power of two and exact. Without branches, so that compilers make vectors of it. */
#define TO_WHOLE(name, from, to, low, below, high, most)                   \
    static void name(int64_t n, const void *source, void *target)          \
    {                                                                      \
        const from *x = source;                                            \
        to         *y = target;                                            \
        for (int64_t i = 0; i < n; i++) {                                  \
            from v = x[i], some = v > low ? v : low; /* NaN becomes low */ \
            some = some < below ? some : below;                            \
            to whole = (to)some;                                           \
            whole = v >= high ? most : whole;                              \
            y[i] = v != v ? 0 : whole;                                     \
        }                                                                  \
    }
TO_WHOLE(cast_f32_i32, float, int32_t, -0x1p31f, 0x1.fffffep30f, 0x1p31f, INT32_MAX)
TO_WHOLE(cast_f32_i64, float, int64_t, -0x1p63f, 0x1.fffffep62f, 0x1p63f, INT64_MAX)
TO_WHOLE(cast_f64_i32, double, int32_t, -0x1p31, 0x1.fffffffcp30, 0x1p31, INT32_MAX)
TO_WHOLE(cast_f64_i64, double, int64_t, -0x1p63, 0x1.fffffffffffffp62, 0x1p63, INT64_MAX)
TO_WHOLE(whole_of_f32, float, int32_t, 0.0f, 255.0f, 256.0f, 255)

/* Through 32 bits, since compilers know no conversion to bytes. */
static void cast_f32_u8(int64_t n, const void *source, void *target)
{
    int32_t      whole[CPU_BURST / 4];
    const float *x = source;
    uint8_t     *y = target;
    for (int64_t i = 0; i < n; i += CPU_BURST / 4) {
        int64_t m = n - i < CPU_BURST / 4 ? n - i : CPU_BURST / 4;
        whole_of_f32(m, x + i, whole);
        for (int64_t k = 0; k < m; k++) y[i + k] = (uint8_t)whole[k];
    }
}

static void cast_bf16_f32(int64_t n, const void *source, void *target)
{
    const bits2 *x = source;
    float       *y = target;
    for (int64_t i = 0; i < n; i += NARROW_LANES) put_f32(y, i, n - i, at_bf16(x, i, n - i));
}

static void cast_f32_bf16(int64_t n, const void *source, void *target)
{
    const float *x = source;
    bits2       *y = target;
    for (int64_t i = 0; i < n; i += NARROW_LANES) put_bf16(y, i, n - i, at_f32(x, i, n - i));
}

static void cast_f16_f32(int64_t n, const void *source, void *target)
{
    const bits2 *x = source;
    float       *y = target;
    int64_t      i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(x + i))));
#endif
    for (; i < n; i++) y[i] = gm_f16_to_f32(x[i]);
}

static void cast_f32_f16(int64_t n, const void *source, void *target)
{
    const float *x = source;
    bits2       *y = target;
    int64_t      i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8) {
        __m256  v = _mm256_loadu_ps(x + i);
        __m128i h = _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
        if (_mm256_movemask_ps(_mm256_cmp_ps(v, v, _CMP_UNORD_Q))) break; /* NaN: one bit pattern, as gm_f32_to_f16 */
        _mm_storeu_si128((__m128i *)(y + i), h);
    }
#endif
    for (; i < n; i++) y[i] = gm_f32_to_f16(x[i]);
}

typedef void (*cast_row)(int64_t n, const void *x, void *y);

static cast_row find_cast(gm_dtype from, gm_dtype to)
{
    static const cast_row rows[GM_DTYPE_COUNT][GM_DTYPE_COUNT] = {
        [GM_F32] = {[GM_F64] = cast_f32_f64,
                    [GM_BF16] = cast_f32_bf16,
                    [GM_F16] = cast_f32_f16,
                    [GM_I32] = cast_f32_i32,
                    [GM_I64] = cast_f32_i64,
                    [GM_U8] = cast_f32_u8},
        [GM_F64] = {[GM_F32] = cast_f64_f32, [GM_I32] = cast_f64_i32, [GM_I64] = cast_f64_i64},
        [GM_BF16] = {[GM_F32] = cast_bf16_f32},
        [GM_F16] = {[GM_F32] = cast_f16_f32},
        [GM_U8] = {[GM_F32] = cast_u8_f32, [GM_F64] = cast_u8_f64},
        [GM_I32] = {[GM_F32] = cast_i32_f32, [GM_I64] = cast_i32_i64},
        [GM_I64] = {[GM_F32] = cast_i64_f32},
    };
    return rows[from][to];
}

typedef struct cast_job {
    gm_dtype from, to;
    cast_row row;
} cast_job;

static void cast_dense(const void *context, int64_t n, char *const *p, bool past)
{
    const cast_job *j = context;
    (void)past;
    if (j->row) j->row(n, p[1], p[0]);
    else
        for (int64_t i = 0; i < n; i++) gm_store(j->to, p[0], i, gm_load(j->from, p[1], i));
}

/* ---- copies within a dtype ---- */

#define COPY_RUN   5  /* runs of so many elements that are neighbours in both tensors are copied as such */
#define COPY_LEAST 16 /* bytes of runs that are copied many at a time */
#define COPY_MOST  2048

/* Joins the innermost run, contiguous in both, into one element if it is 2 to 64 bytes of a power of two. */
static void widen_element(cpu_walk *w)
{
    int     last = w->ndim - 1;
    int64_t run = w->shape[last], bytes = run * w->size[0];
    if (last == 0 || w->stride[0][last] != 1 || w->stride[1][last] != 1) return;
    if (bytes > 64 || bytes & (bytes - 1)) return;
    for (int d = 0; d < last; d++)
        if (w->stride[0][d] % run || w->stride[1][d] % run) return;
    for (int k = 0; k < 2; k++) {
        w->size[k] = bytes;
        for (int d = 0; d < last; d++) w->stride[k][d] /= run;
    }
    w->ndim = last;
    w->rows /= w->shape[last - 1];
    w->numel /= run;
}

/* n elements from one step to another. */
static void copy_elements(const cpu_walk *w, int64_t n, char *to, int64_t to_step, const char *from, int64_t step)
{
    if (to_step == 1 && step == 1) {
        if (cpu_streams(w->numel * w->size[0])) gm_stream_out(to, from, n * w->size[0]);
        else gm_copy_bytes(to, from, (size_t)(n * w->size[0]));
        return;
    }
    switch (w->size[0]) {
    case 16:
        for (int64_t i = 0; i < n; i++) memcpy(to + 16 * i * to_step, from + 16 * i * step, 16);
        break;
    case 32:
        for (int64_t i = 0; i < n; i++) memcpy(to + 32 * i * to_step, from + 32 * i * step, 32);
        break;
    case 64:
        for (int64_t i = 0; i < n; i++) memcpy(to + 64 * i * to_step, from + 64 * i * step, 64);
        break;
    default: copy_strided(w->size[0], n, to, to_step, from, step);
    }
}

/* Rows are visited along the dimension of fewest places among the two that either tensor would take innermost:
 * the one read (or written) out of order is then a few streams, which the hardware prefetches. */
static void order_rows(cpu_walk *w)
{
    int a = w->ndim - 2, b = a;
    for (int d = 0; d < a; d++)
        if (w->stride[1][d] < w->stride[1][b]) b = d;
    if (a < 1 || b == a || w->shape[b] >= w->shape[a]) return;
    for (int d = b; d < a; d++) walk_swap(w, d, d + 1);
}

/* Does copy_rows take the turns? */
static bool copies_rows(const cpu_walk *w)
{
    const int row = w->ndim - 1;
    return w->size[0] <= 8 && w->turn[0] == 1 && w->stride[0][row] == w->turns &&
           is_rows(w->turns, w->stride[1][row], w->turn[1]);
}

/* `rows` runs of `bytes` bytes, COPY_LEAST or more, from one step to another, in bytes. Two pieces that overlap end a
 * run, so that nothing is written behind it. */
static void copy_runs(int64_t rows, int64_t bytes, char *to, int64_t to_step, const char *from, int64_t step)
{
    const int64_t last = bytes - CPU_VECTOR, half = bytes - 16;
    for (int64_t i = 0; i < rows; i++, to += to_step, from += step) {
        int64_t k = 0;
        for (; k < last; k += CPU_VECTOR) *(bytes_v *)(to + k) = *(const bytes_v *)(from + k);
        if (last >= 0) *(bytes_v *)(to + last) = *(const bytes_v *)(from + last);
        else {
            for (; k < half; k += 16) memcpy(to + k, from + k, 16);
            memcpy(to + half, from + half, 16);
        }
    }
}

/* Are the turns runs for copy_runs? */
static bool copies_runs(const cpu_walk *w)
{
    return w->turn[0] == 1 && w->turn[1] == 1 && w->turns * w->size[0] >= COPY_LEAST;
}

/* A run that is contiguous in both tensors becomes turns, unless it is long or goes past the caches as it is. */
static void copy_take_runs(cpu_walk *w)
{
    const int     last = w->ndim - 1;
    const int64_t run = w->shape[last], bytes = run * w->size[0];
    if (last == 0 || w->stride[0][last] != 1 || w->stride[1][last] != 1) return;
    if (bytes < COPY_LEAST || bytes > COPY_MOST || run >= CPU_TURNS) return;
    if (!cpu_streams(w->numel * w->size[0]) || run < 4 * CPU_SHORT) walk_take_turns(w);
}

/* A short last dimension becomes turns, where that is quicker. */
static void copy_turn(cpu_walk *w)
{
    cpu_walk t = *w;
    walk_turn(&t, cpu_streams(w->numel * w->size[0]) ? 4 * CPU_SHORT : 16 * CPU_SHORT);
    if (copies_rows(&t)) *w = t;
    else if (t.turns < (t.turn[0] == 1 && t.turn[1] == 1 ? COPY_RUN : CPU_SHORT)) *w = t;
    if (w->turns > 1) return;
    order_rows(w);
    copy_take_runs(w);
}

static void copy_row(const void *context, int64_t n, char *const *p, const int64_t *stride)
{
    const cpu_walk *w = context;
    if (copies_rows(w)) {
        copy_rows(w->size[0], n, w->turns, p[0], p[1], stride[1], w->turn[1] == 0);
        return;
    }
    if (copies_runs(w)) {
        copy_runs(n, w->turns * w->size[0], p[0], stride[0] * w->size[0], p[1], stride[1] * w->size[1]);
        return;
    }
    for (int64_t t = 0; t < w->turns; t++)
        copy_elements(w, n, p[0] + t * w->turn[0] * w->size[0], stride[0], p[1] + t * w->turn[1] * w->size[1],
                      stride[1]);
}

static gm_status cpu_copy(gm_device *dev, const gm_call *call)
{
    gm_tensor *x = call->in[0], *y = call->out[0];
    cpu_walk   w;
    if (x->dtype != y->dtype) {
        cast_job j = {.from = x->dtype, .to = y->dtype, .row = find_cast(x->dtype, y->dtype)};
        cpu_elementwise(dev, 2, (gm_tensor *[]){y, x}, 0, j.row ? 1 : 4, cast_dense, &j);
        return GM_OK;
    }
    cpu_walk_new(&w, 2, (gm_tensor *[]){y, x});
    if (!w.numel) return GM_OK;
    widen_element(&w);
    if (copy_transposed(dev, &w)) return GM_OK;
    copy_turn(&w);
    cpu_walk_run(dev, &w, 1, copy_row, &w);
    return GM_OK;
}

static gm_status copy_tensor(gm_device *dev, gm_tensor *y, gm_tensor *x)
{
    gm_attrs at = {.dtype = y->dtype};
    return cpu_copy(dev, &(gm_call){GM_OP_copy, 1, 1, (gm_tensor *[]){x}, (gm_tensor *[]){y}, &at});
}

/* ---- kernels that work on contiguous tensors ---- */

/* *out: a contiguous tensor like t in this dtype, with the values of t if `read`. The caller releases it. */
static gm_status cpu_compact(gm_device *dev, gm_dtype dtype, gm_tensor *t, bool read, gm_tensor **out)
{
    *out = NULL;
    GM_TRY(gm_tensor_new(dev, dtype, t->ndim, t->shape, out));
    gm_status st = read ? copy_tensor(dev, *out, t) : GM_OK;
    if (st == GM_OK) return GM_OK;
    gm_tensor_release(*out);
    *out = NULL;
    return st;
}

/* The same, or t itself (a new reference) if it is such a tensor. NULL stays NULL. */
static gm_status cpu_plain(gm_device *dev, gm_dtype dtype, gm_tensor *t, bool read, gm_tensor **out)
{
    *out = NULL;
    if (t && (t->dtype != dtype || !gm_tensor_is_contiguous(t))) return cpu_compact(dev, dtype, t, read, out);
    if (t) gm_tensor_retain(*out = t);
    return GM_OK;
}

/* What was computed in a copy of t goes where it belongs, if all went well; the copy is released in any case. */
static gm_status cpu_home(gm_device *dev, gm_tensor *plain, gm_tensor *t, gm_status st)
{
    if (st == GM_OK && plain && plain != t) st = copy_tensor(dev, t, plain);
    gm_tensor_release(plain);
    return st;
}

/* ---- kernels that work on rows with a last stride of 1 ---- */

#define CPU_TENSORS 16 /* of a call that works on rows */

/* *out: t with dimension dim moved to the end (dim < 0: as it is) and a last stride of 1: t itself, a view or,
 * where the strides demand it, a copy. */
static gm_status make_dense(gm_device *dev, gm_tensor *t, int dim, bool read, gm_tensor **out)
{
    gm_tensor *view = t, *copy;
    if (dim >= 0 && dim < t->ndim - 1) {
        int order[GM_MAX_DIMS];
        for (int d = 0; d < t->ndim; d++) order[d] = d < dim ? d : d + 1;
        order[t->ndim - 1] = dim;
        GM_TRY(gm_tensor_permute(t, order, &view));
    } else gm_tensor_retain(t);
    *out = view;
    int last = view->ndim - 1;
    if (last < 0 || view->shape[last] <= 1 || view->stride[last] == 1) return GM_OK;
    gm_status st = gm_tensor_new(dev, view->dtype, view->ndim, view->shape, &copy);
    if (st == GM_OK) {
        if (read) copy_tensor(dev, copy, view);
        *out = copy;
    }
    gm_tensor_release(view);
    return st;
}

/* Brings a result back from where make_dense had it written. */
static void give_back(gm_device *dev, gm_tensor *t, int dim, gm_tensor *used)
{
    gm_tensor target = *t; /* t with dim last */
    if (used->storage == t->storage) return;
    for (int d = dim; dim >= 0 && d < t->ndim; d++) {
        int from = d == t->ndim - 1 ? dim : d + 1;
        target.shape[d] = t->shape[from];
        target.stride[d] = t->stride[from];
    }
    copy_tensor(dev, &target, used);
}

/* Runs kernel on the call with every tensor's last stride 1. Where dim >= 0, tensors of `ndim` dimensions have
 * dimension dim moved to the end. GM_ENOMEM before anything is written. */
static gm_status cpu_with_rows(gm_device *dev, const gm_call *call, int ndim, int dim, gm_kernel kernel)
{
    gm_tensor *dense[CPU_TENSORS] = {0};
    gm_call    c = *call;
    gm_status  st = GM_OK;
    c.in = dense;
    c.out = dense + c.n_in;
    for (int i = 0; i < c.n_in + c.n_out && st == GM_OK; i++) {
        gm_tensor *t = i < c.n_in ? call->in[i] : call->out[i - c.n_in];
        if (t) st = make_dense(dev, t, t->ndim == ndim ? dim : -1, i < c.n_in || call->attrs->accumulate, &dense[i]);
    }
    if (st == GM_OK) st = kernel(dev, &c);
    for (int i = 0; i < c.n_out && st == GM_OK; i++)
        if (c.out[i]) give_back(dev, call->out[i], call->out[i]->ndim == ndim ? dim : -1, c.out[i]);
    for (int i = 0; i < c.n_in + c.n_out; i++) gm_tensor_release(dense[i]);
    return st;
}

/* ---- fill ---- */

/* A row gets the element again and again from a pattern of whole elements. memset knows what a machine writes
 * fastest; it serves where all bytes of the element are equal, as those of 0 are. But of what goes past the caches an
 * Intel core writes 11 GB/s so (rep stosb), and 26 from a pattern. */
typedef struct fill_job {
    int64_t size, turns, turn; /* turns: as in cpu_walk */
    bool    one_byte, stream;
    char    pattern[CPU_BURST] __attribute__((aligned(64))); /* gm_store writes an element of any dtype to it */
} fill_job;

static void fill_row(const void *context, int64_t n, char *const *p, const int64_t *stride)
{
    const fill_job *j = context;
    if ((stride[0] != 1 && n > 1) || j->turns > 1) {
        for (int64_t t = 0; t < j->turns; t++)
            copy_strided(j->size, n, p[0] + t * j->turn * j->size, stride[0], j->pattern, 0);
        return;
    }
    if (j->one_byte) {
        memset(p[0], j->pattern[0], (size_t)(n * j->size));
        return;
    }
    for (int64_t i = 0; i < n * j->size; i += CPU_BURST) {
        int64_t bytes = n * j->size - i < CPU_BURST ? n * j->size - i : CPU_BURST;
        if (j->stream) gm_stream_out(p[0] + i, j->pattern, bytes);
        else memcpy(p[0] + i, j->pattern, (size_t)bytes);
    }
}

static gm_status cpu_fill(gm_device *dev, const gm_call *call)
{
    gm_tensor *y = call->out[0];
    fill_job   j = {.size = (int64_t)gm_dtype_size(y->dtype), .one_byte = true};
    cpu_walk   w;
    cpu_walk_new(&w, 1, &y);
    if (!w.numel) return GM_OK;
    walk_turn(&w, CPU_SHORT);
    j.turns = w.turns;
    j.turn = w.turn[0];
    gm_store(y->dtype, j.pattern, 0, call->attrs->value);
    for (int64_t i = 1; i < j.size; i++) j.one_byte &= j.pattern[i] == j.pattern[0];
    copy_strided(j.size, w.numel < CPU_BURST / j.size ? w.numel : CPU_BURST / j.size, j.pattern, 1, j.pattern, 0);
    j.stream = cpu_streams(w.numel * j.size);
    j.one_byte &= !(j.stream && gm_cpu_is_intel());
    cpu_walk_run(dev, &w, 1, fill_row, &j);
    return GM_OK;
}
