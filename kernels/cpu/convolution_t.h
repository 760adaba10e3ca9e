/* convolution_t.h - the innermost loops of convolutions for one element type (as.h); see convolution.c. */

/* n elements of x that are `step` apart. Of two, whole vectors are read, as long as there is an element behind them. */
static void F(conv_take_each)(int64_t n, const T *x, int64_t step, T *to)
{
    int64_t i = 0;
    VI      even;
    for (int j = 0; j < LANES; j++) even[j] = 2 * j;
    for (; step == 2 && i + LANES < n; i += LANES)
        F(store)(to + i, __builtin_shuffle(F(load)(x + 2 * i), F(load)(x + 2 * i + LANES), even));
    for (; i < n; i++) to[i] = x[i * step];
}

/* Job: units are planes, of an image and a channel. Rows and columns that no place of the kernel reads are left out. */
static void F(conv_fill_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const conv_fill *w = context;
    int64_t          row = w->phases * w->width, plane = w->length[0] * w->length[1] * row;
    (void)thread;
    for (int64_t u = begin; u < end; u++)
        for (int64_t r = 0; r < w->length[0] * w->length[1]; r++) {
            int64_t r0 = r / w->length[1], r1 = r % w->length[1], i0 = r0 - w->low[0], i1 = r1 - w->low[1];
            if (!conv_reads(w, 0, r0) || !conv_reads(w, 1, r1)) continue;
            bool     inside = i0 >= 0 && i0 < w->size[0] && i1 >= 0 && i1 < w->size[1];
            const T *from = (const T *)w->from + ((u * w->size[0] + i0) * w->size[1] + i1) * w->size[2];
            T       *to = (T *)w->to + u * plane + r * row;
            if (!inside) memset(to, 0, (size_t)row * sizeof(T));
            for (int64_t f = 0; inside && f < w->phases; f++, to += w->width) {
                int64_t first = w->low[2] > f ? (w->low[2] - f + w->phases - 1) / w->phases : 0;
                int64_t behind = w->size[2] + w->low[2] - f;
                int64_t last = behind > 0 ? (behind + w->phases - 1) / w->phases : 0;
                if (!conv_reads_phase(w, f)) continue;
                if (first > w->width) first = w->width;
                if (last > w->width) last = w->width;
                if (last < first) last = first;
                memset(to, 0, (size_t)first * sizeof(T));
                memset(to + last, 0, (size_t)(w->width - last) * sizeof(T));
                if (last == first) continue;
                const T *x = from + (first * w->phases + f - w->low[2]);
                if (w->phases == 1) memcpy(to + first, x, (size_t)(last - first) * sizeof(T));
                else F(conv_take_each)(last - first, x, w->phases, to + first);
            }
        }
}

/* b of a product: rows are channels and places of the kernel, columns places of the result. */
static void F(conv_panel)(const gemm *g, void *to, int64_t j, int64_t width, int64_t p, int64_t k)
{
    const conv_product *w = g->form;
    conv_run            run[GEMM_COLUMNS];
    int                 n = conv_runs(w, j, width, run);
    T                  *dst = to;
    for (int64_t q = p; q < p + k; q++, dst += GEMM_COLUMNS) {
        const T *planes = (const T *)w->planes + w->tap[q];
        if (n == 1 && width == GEMM_COLUMNS) {
            F(store)(dst, F(load)(planes + run[0].from));
            F(store)(dst + LANES, F(load)(planes + run[0].from + LANES));
            continue;
        }
        for (int r = 0; r < n; r++)
            for (int64_t i = 0; i < run[r].n; i += LANES)
                F(put)(dst + run[r].at, i, run[r].n - i, F(at)(planes + run[r].from, i, run[r].n - i));
        for (int64_t i = width; i < GEMM_COLUMNS; i++) dst[i] = 0;
    }
}

/* b of the product that gives the gradient of weights: the same, its rows and columns exchanged. */
static void F(conv_turned)(const gemm *g, void *to, int64_t j, int64_t width, int64_t p, int64_t k)
{
    const conv_product *w = g->form;
    conv_run            run[GEMM_DEPTH];
    int                 n = conv_runs(w, p, k, run);
    for (int64_t half = 0; half < GEMM_COLUMNS; half += LANES)
        for (int r = 0; r < n; r++)
            for (int64_t i = 0; i < run[r].n; i += LANES) {
                const T *planes = (const T *)w->planes + run[r].from + i;
                T       *dst = (T *)to + (run[r].at + i) * GEMM_COLUMNS + half;
                int64_t  m = run[r].n - i < LANES ? run[r].n - i : LANES;
                V        v[LANES];
#pragma GCC unroll 16
                for (int l = 0; l < LANES; l++)
                    v[l] = half + l < width ? F(at)(planes + w->tap[j + half + l], 0, m) : F(splat)(0);
                F(transpose)(v);
                for (int l = 0; l < m; l++) F(store)(dst + l * GEMM_COLUMNS, v[l]);
            }
}

/* n places of a row of the result: sums over the k places of the kernel and channels. */
static void F(conv_row)(const conv_product *w, const T *a, T bias, const T *planes, int64_t n, T *c)
{
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        V s0 = F(splat)(bias), s1 = s0, s2 = s0, s3 = s0;
        for (int64_t q = 0; q < w->k; q++) {
            const T *x = planes + w->tap[q] + i;
            V        v = F(splat)(a[q]);
            s0 += v * F(load)(x);
            s1 += v * F(load)(x + LANES);
            s2 += v * F(load)(x + 2 * LANES);
            s3 += v * F(load)(x + 3 * LANES);
        }
        F(store)(c + i, s0);
        F(store)(c + i + LANES, s1);
        F(store)(c + i + 2 * LANES, s2);
        F(store)(c + i + 3 * LANES, s3);
    }
    for (; i < n; i += LANES) {
        V s = F(splat)(bias);
        for (int64_t q = 0; q < w->k; q++) s += F(splat)(a[q]) * F(at)(planes + w->tap[q], i, n - i);
        F(put)(c, i, n - i, s);
    }
}

/* Job: units are rows of the result, of an image, a group, one of its m channels, and two places. */
static void F(conv_direct_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const conv_product *w = context;
    int64_t             rows = w->q[0] * w->q[1];
    (void)thread;
    for (int64_t u = begin; u < end; u++) {
        int64_t  r = u % rows, channel = u / rows % (w->groups * w->m), image = u / rows / (w->groups * w->m);
        int64_t  group = channel / w->m, at = image * w->c_image + channel * w->c_row + r * w->q[2];
        const T *a = (const T *)w->a + channel * w->k;
        const T *planes = (const T *)w->planes + image * w->image + group * w->group + r / w->q[1] * w->step[0] +
                          r % w->q[1] * w->step[1];
        T *c = (T *)w->c + at;
        F(conv_row)(w, a, w->bias ? ((const T *)w->bias)[channel] : 0, planes, w->q[2], c);
        if (w->y != w->c || w->f != GM_FN_none) F(activation_row)(w->f, w->q[2], c, (T *)w->y + at);
    }
}

/* The sum over the results of an image of g times what they read at one tap. */
static double F(conv_correlate)(const conv_product *w, const T *g, const T *planes)
{
    V s0 = F(splat)(0), s1 = s0;
    for (int64_t q0 = 0; q0 < w->q[0]; q0++)
        for (int64_t q1 = 0; q1 < w->q[1]; q1++, g += w->q[2]) {
            const T *x = planes + q0 * w->step[0] + q1 * w->step[1];
            int64_t  i = 0, n = w->q[2];
            for (; i + 2 * LANES <= n; i += 2 * LANES) {
                s0 += F(load)(g + i) * F(load)(x + i);
                s1 += F(load)(g + i + LANES) * F(load)(x + i + LANES);
            }
            for (; i < n; i += LANES) s0 += F(at)(g, i, n - i) * F(at)(x, i, n - i);
        }
    return F(sum_v)(s0 + s1);
}

/* Job: units are the elements of dw, (groups m, k). */
static void F(conv_direct_weight_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const conv_product *w = context;
    (void)thread;
    for (int64_t u = begin; u < end; u++) {
        int64_t  channel = u / w->k;
        double   sum = w->accumulate ? ((T *)w->c)[u] : 0;
        const T *planes = (const T *)w->planes + channel / w->m * w->group + w->tap[u % w->k];
        const T *g = (const T *)w->a + channel * w->a_row;
        for (int64_t image = 0; image < w->images; image++)
            sum += F(conv_correlate)(w, g + image * w->a_image, planes + image * w->image);
        ((T *)w->c)[u] = (T)sum;
    }
}

/* Job: units are channels of x of a transposed convolution's w, of all groups: rows of a for one phase. */
static void F(conv_weights_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const conv_phase *w = context;
    (void)thread;
    for (int64_t u = begin; u < end; u++) {
        int64_t  group = u / w->outputs, o = u % w->outputs;
        T       *to = (T *)w->a + u * w->channels * w->n;
        const T *from = (const T *)w->w + (group * w->channels * w->outputs + o) * w->places;
        for (int64_t c = 0; c < w->channels; c++, from += w->outputs * w->places)
            for (int64_t k = 0; k < w->n; k++) *to++ = from[w->place[k]];
    }
}

/* Job: units are planes of the result: what one phase gave goes to its places. */
static void F(conv_spread_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const conv_phase *w = context;
    (void)thread;
    for (int64_t u = begin; u < end; u++) {
        const T *from = (const T *)w->part + u * w->q[0] * w->q[1] * w->q[2];
        for (int64_t r = 0; r < w->q[0] * w->q[1]; r++) {
            int64_t s0 = w->first[0] + r / w->q[1] * w->stride[0], s1 = w->first[1] + r % w->q[1] * w->stride[1];
            T      *to = (T *)w->to + ((u * w->size[0] + s0) * w->size[1] + s1) * w->size[2] + w->first[2];
            for (int64_t i = 0; i < w->q[2]; i++) to[i * w->stride[2]] = *from++;
        }
    }
}

/* Job: units are rows: y = f(c). */
static void F(conv_activate_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const conv_rows *w = context;
    (void)thread;
    for (int64_t u = begin; u < end; u++)
        F(activation_row)(w->f, w->n, (const T *)w->from + u * w->n, (T *)w->to + u * w->n);
}

/* Job: units are channels: their rows of all images, one behind the other. */
static void F(conv_gather_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const conv_rows *w = context;
    (void)thread;
    for (int64_t u = begin; u < end; u++)
        for (int64_t i = 0; i < w->images; i++)
            memcpy((T *)w->to + (u * w->images + i) * w->n, (const T *)w->from + (i * w->channels + u) * w->n,
                   (size_t)w->n * sizeof(T));
}

/* Job: units are channels: the sums of their rows. */
static void F(conv_sums_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const conv_rows *w = context;
    (void)thread;
    for (int64_t u = begin; u < end; u++) {
        double sum = w->accumulate ? ((T *)w->to)[u] : 0;
        for (int64_t i = 0; i < w->images; i++)
            sum += F(sum_row)(w->n, (const T *)w->from + (i * w->channels + u) * w->n);
        ((T *)w->to)[u] = (T)sum;
    }
}
