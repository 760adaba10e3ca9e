/* convolution_t.h - the innermost loops of convolutions for one element type (as.h); see convolution.c. */

/* n elements of x that are `step` apart. Of two, whole vectors are read, none behind the last element. */
static void F(conv_take_each)(int64_t n, const T *x, int64_t step, T *to)
{
    VI even; /* of a vector, and of one that begins at its last element */
    for (int j = 0; j < LANES; j++) even[j] = 2 * j + (2 * j >= LANES);
    if (step == 2 && n >= LANES) {
        for (int64_t i = 0;; i = i + LANES < n - LANES ? i + LANES : n - LANES) { /* the last one may read again */
            F(store)(to + i, __builtin_shuffle(F(load)(x + 2 * i), F(load)(x + 2 * i + LANES - 1), even));
            if (i == n - LANES) return;
        }
    }
    for (int64_t i = 0; i < n; i++) to[i] = x[i * step];
}

/* Phase f of the rows of plane u that some place of the kernel reads: zeros, elements of x, zeros. */
static void F(conv_fill_phase)(const conv_fill *w, int64_t u, int64_t f)
{
    int64_t row = w->phases * w->width, first = w->low[2] > f ? (w->low[2] - f + w->phases - 1) / w->phases : 0;
    int64_t behind = w->size[2] + w->low[2] - f, last = behind > 0 ? (behind + w->phases - 1) / w->phases : 0;
    T      *to = (T *)w->to + u * w->length[0] * w->length[1] * row + f * w->width;
    first = first < w->width ? first : w->width;
    last = last < w->width ? last : w->width;
    last = last < first ? first : last;
    for (int64_t r0 = 0; r0 < w->length[0]; r0++) {
        int64_t i0 = r0 - w->low[0];
        bool    is_read = conv_reads(w, 0, r0);
        for (int64_t r1 = 0; r1 < w->length[1]; r1++, to += row) {
            int64_t i1 = r1 - w->low[1], n = last - first;
            if (!is_read || !conv_reads(w, 1, r1)) continue;
            if (i0 < 0 || i0 >= w->size[0] || i1 < 0 || i1 >= w->size[1] || n == 0) {
                memset(to, 0, (size_t)w->width * sizeof(T));
                continue;
            }
            const T *x = (const T *)w->from + ((u * w->size[0] + i0) * w->size[1] + i1) * w->size[2] +
                         (first * w->phases + f - w->low[2]);
            if (first > 0) memset(to, 0, (size_t)first * sizeof(T));
            if (last < w->width) memset(to + last, 0, (size_t)(w->width - last) * sizeof(T));
            if (w->phases == 1) memcpy(to + first, x, (size_t)n * sizeof(T));
            else F(conv_take_each)(n, x, w->phases, to + first);
        }
    }
}

/* All of plane u, which has one phase and short rows: calls of memset for each row would take longer than the rest. */
static void F(conv_fill_small)(const conv_fill *w, int64_t u)
{
    const int64_t rows = w->length[0] * w->length[1];
    const int64_t n = w->size[2] < w->width - w->low[2] ? w->size[2] : w->width - w->low[2];
    const T      *x = (const T *)w->from + u * conv_volume(w->size);
    T            *plane = (T *)w->to + u * rows * w->width;
    memset(plane, 0, (size_t)(rows * w->width) * sizeof(T));
    for (int64_t i0 = 0; i0 < w->size[0] && i0 + w->low[0] < w->length[0]; i0++)
        for (int64_t i1 = 0; i1 < w->size[1] && i1 + w->low[1] < w->length[1]; i1++) {
            const T *from = x + (i0 * w->size[1] + i1) * w->size[2];
            T       *to = plane + ((i0 + w->low[0]) * w->length[1] + i1 + w->low[1]) * w->width + w->low[2];
            for (int64_t i = 0; i < n; i += LANES) F(put)(to, i, n - i, F(at)(from, i, n - i));
        }
}

/* Job: units are planes, of an image and a channel. Rows and columns that no place of the kernel reads are left out. */
static void F(conv_fill_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const conv_fill *w = context;
    const bool       small = w->phases == 1 && w->width <= CONV_SMALL;
    (void)thread;
    for (int64_t u = begin; u < end; u++) {
        if (small) {
            F(conv_fill_small)(w, u);
            continue;
        }
        for (int64_t f = 0; f < w->phases; f++)
            if (conv_reads_phase(w, f)) F(conv_fill_phase)(w, u, f);
    }
}

/* b of a product: rows are channels and places of the kernel, columns places of the result. Each row but the last is
 * written in whole vectors, if the planes have elements to read so: what is behind a run is the next run's, or the next
 * row's. */
static void F(conv_panel)(const gemm *g, void *to, int64_t j, int64_t width, int64_t p, int64_t k)
{
    const conv_product *w = g->form;
    conv_run            run[GEMM_COLUMNS];
    int                 n = conv_runs(w, j, width, run);
    int64_t             reach = 0;
    T                  *dst = to;
    for (int r = 0; r < n; r++) reach = run[r].from + run[r].n > reach ? run[r].from + run[r].n : reach;
    bool whole = reach + w->far + LANES <= w->elements;
    for (int64_t q = p; q < p + k; q++, dst += GEMM_COLUMNS) {
        const T *planes = (const T *)w->planes + w->tap[q];
        if (n == 1 && width == GEMM_COLUMNS) {
            F(store)(dst, F(load)(planes + run[0].from));
            F(store)(dst + LANES, F(load)(planes + run[0].from + LANES));
            continue;
        }
        for (int r = 0; r < n; r++)
            for (int64_t i = 0, m; i < run[r].n; i += LANES) {
                m = whole && q + 1 < p + k ? LANES : run[r].n - i;
                F(put)(dst + run[r].at, i, m, F(at)(planes + run[r].from, i, m));
            }
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

#define EACH_CHAIN(index, count) _Pragma("GCC unroll 8") for (int index = 0; index < (count); index++)

/* The same of `rows` rows, at most `most`, which are neighbours: so many sums grow at a time, because one
 * multiplication takes as long as eight that do not wait for each other. The last row stands for those that are
 * missing. */
CPU_INLINE void F(conv_rows)(const conv_product *w, const T *a, T bias, const T *planes, int64_t rows, T *c,
                             const int most)
{
    const int64_t n = w->q[2];
    int64_t       from[CONV_CHAINS];
    EACH_CHAIN(r, most) from[r] = (r < rows ? r : rows - 1) * w->step[1];
    for (int64_t i = 0; i < n; i += LANES) {
        const int64_t m = n - i;
        V             s[CONV_CHAINS];
        EACH_CHAIN(r, most) s[r] = F(splat)(bias);
        if (m >= LANES)
            for (int64_t q = 0; q < w->k; q++) {
                const T *x = planes + w->tap[q] + i;
                const V  v = F(splat)(a[q]);
                EACH_CHAIN(r, most) s[r] += v * F(load)(x + from[r]);
            }
        else
            for (int64_t q = 0; q < w->k; q++) {
                const T *x = planes + w->tap[q] + i;
                const V  v = F(splat)(a[q]);
                EACH_CHAIN(r, most) s[r] += v * F(load_n)(x + from[r], m);
            }
        EACH_CHAIN(r, most) if (r < rows) F(put)(c + r * n, i, m, s[r]);
    }
}

/* The same where the places of the kernel lie as rows of results do (conv_find_rows): row p of planes, read at a place
 * across, serves result r = p - y for place y down. So it is read once, and moves from sum to sum. A row of results has
 * the same bits whatever its neighbours. m places from i on; `whole`: a vector of them. */
CPU_INLINE void F(conv_strip_down)(const conv_product *w, const T *a, T bias, const T *planes, int64_t rows, T *c,
                                   int64_t i, int64_t m, const bool whole, const int most)
{
    const int64_t tall = w->k / w->across, step = w->step[1], last = rows + tall - 2;
    const int64_t first = w->upwards ? w->k - w->across : 0, next = w->upwards ? -w->across : w->across;
    V             s[CONV_CHAINS], v[CONV_CHAINS];
    EACH_CHAIN(r, most) s[r] = F(splat)(bias);
    for (int64_t q = first; q < first + w->across; q++) {
        const T *x = planes + w->tap[q] + i, *by = a + q;
        EACH_CHAIN(r, most - 1) v[r] = F(some)(x, (r < last ? r : last) * step, m, whole);
        for (int64_t p = most - 1; p < tall + most - 1; p++, by += next) {
            const V weight = F(splat)(*by);
            v[most - 1] = F(some)(x, (p < last ? p : last) * step, m, whole);
            EACH_CHAIN(r, most) s[r] += weight * v[r];
            EACH_CHAIN(r, most - 1) v[r] = v[r + 1];
        }
    }
    EACH_CHAIN(r, most) if (r < rows) F(put)(c + r * w->q[2], i, m, s[r]);
}

CPU_INLINE void F(conv_rows_down)(const conv_product *w, const T *a, T bias, const T *planes, int64_t rows, T *c,
                                  const int most)
{
    int64_t i = 0, n = w->q[2];
    for (; i + LANES <= n; i += LANES) F(conv_strip_down)(w, a, bias, planes, rows, c, i, LANES, true, most);
    if (i < n) F(conv_strip_down)(w, a, bias, planes, rows, c, i, n - i, false, most);
}

/* n rows of a result, at most CONV_CHAINS, which are neighbours. */
static void F(conv_few_rows)(const conv_product *w, const T *a, T bias, const T *planes, int64_t n, T *c)
{
    if (w->across) {
        if (n > CONV_CHAINS / 2) F(conv_rows_down)(w, a, bias, planes, n, c, CONV_CHAINS);
        else if (n > 1) F(conv_rows_down)(w, a, bias, planes, n, c, CONV_CHAINS / 2);
        else F(conv_rows_down)(w, a, bias, planes, n, c, 1);
    } else if (n > CONV_CHAINS / 2) {
        F(conv_rows)(w, a, bias, planes, n, c, CONV_CHAINS);
    } else if (n > 1) {
        F(conv_rows)(w, a, bias, planes, n, c, CONV_CHAINS / 2);
    } else {
        F(conv_row)(w, a, bias, planes, w->q[2], c);
    }
}

/* Job: units are rows of the result, of an image, a group, one of its m channels, and two places. */
static void F(conv_direct_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const conv_product *w = context;
    int64_t             rows = w->q[0] * w->q[1];
    (void)thread;
    for (int64_t u = begin, n; u < end; u += n) {
        int64_t  r = u % rows, channel = u / rows % (w->groups * w->m), image = u / rows / (w->groups * w->m);
        int64_t  group = channel / w->m, at = image * w->c_image + channel * w->c_row + r * w->q[2];
        const T *a = (const T *)w->a + channel * w->k;
        const T *planes = (const T *)w->planes + image * w->image + group * w->group + r / w->q[1] * w->step[0] +
                          r % w->q[1] * w->step[1];
        T *c = (T *)w->c + at, bias = w->bias ? ((const T *)w->bias)[channel] : 0;
        n = w->q[1] - r % w->q[1] < end - u ? w->q[1] - r % w->q[1] : end - u; /* neighbours */
        n = n < CONV_CHAINS ? n : CONV_CHAINS;
        F(conv_few_rows)(w, a, bias, planes, n, c);
        if (w->y != w->c || w->f != GM_FN_none) F(activation_row)(w->f, n * w->q[2], c, (T *)w->y + at);
    }
}

/* sums[t] += the sums over the results of an image of g times what they read at tap t. The last tap stands for those
 * that are missing. */
static void F(conv_correlate)(const conv_product *w, const T *g, const T *planes, const int64_t *tap, int64_t taps,
                              double *sums)
{
    int64_t from[CONV_CHAINS], n = w->q[2];
    V       s[CONV_CHAINS];
    EACH_CHAIN(t, CONV_CHAINS) from[t] = tap[t < taps ? t : taps - 1];
    EACH_CHAIN(t, CONV_CHAINS) s[t] = F(splat)(0);
    for (int64_t q0 = 0; q0 < w->q[0]; q0++)
        for (int64_t q1 = 0; q1 < w->q[1]; q1++, g += n) {
            const T *x = planes + q0 * w->step[0] + q1 * w->step[1];
            int64_t  i = 0;
            for (; i + LANES <= n; i += LANES) {
                const V v = F(load)(g + i);
                EACH_CHAIN(t, CONV_CHAINS) s[t] += v * F(load)(x + i + from[t]);
            }
            if (i == n) continue;
            const V v = F(load_n)(g + i, n - i);
            EACH_CHAIN(t, CONV_CHAINS) s[t] += v * F(load_n)(x + i + from[t], n - i);
        }
    EACH_CHAIN(t, CONV_CHAINS) if (t < taps) sums[t] += F(sum_v)(s[t]);
}

/* Job: units are the elements of dw, (groups m, k). */
static void F(conv_direct_weight_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const conv_product *w = context;
    (void)thread;
    for (int64_t u = begin, n; u < end; u += n) {
        int64_t  channel = u / w->k, q = u % w->k;
        double   sums[CONV_CHAINS] = {0};
        const T *planes = (const T *)w->planes + channel / w->m * w->group;
        const T *g = (const T *)w->a + channel * w->a_row;
        n = w->k - q < end - u ? w->k - q : end - u;
        n = n < CONV_CHAINS ? n : CONV_CHAINS;
        for (int64_t t = 0; w->accumulate && t < n; t++) sums[t] = ((T *)w->c)[u + t];
        for (int64_t image = 0; image < w->images; image++)
            F(conv_correlate)(w, g + image * w->a_image, planes + image * w->image, w->tap + q, n, sums);
        for (int64_t t = 0; t < n; t++) ((T *)w->c)[u + t] = (T)sums[t];
    }
}

/* Rows of a of one phase, for channels u .. u + count of those that are made, all of one group. */
static void F(conv_phase_weights)(const conv_phase *p, int64_t u, int64_t count)
{
    const T *from = (const T *)p->w + (u / p->outputs * p->channels * p->outputs + u % p->outputs) * p->places;
    for (int64_t c = 0; c < p->channels; c++, from += p->outputs * p->places)
        for (int64_t o = 0; o < count; o++) {
            T *to = (T *)p->a + ((u + o) * p->channels + c) * p->n;
            for (int64_t k = 0; k < p->n; k++) to[k] = from[o * p->places + p->place[k]];
        }
}

/* Job: units are channels of x of a transposed convolution's w, of all groups: rows of a for all phases. Some channels
 * go together, because their weights lie in the same lines of memory. */
static void F(conv_weights_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const conv_phases *all = context;
    int64_t            outputs = all->phase->outputs;
    (void)thread;
    for (int64_t u = begin, n; u < end; u += n) {
        n = outputs - u % outputs < end - u ? outputs - u % outputs : end - u;
        n = n < CONV_CHANNELS ? n : CONV_CHANNELS;
        for (int64_t i = 0; i < all->n; i++) F(conv_phase_weights)(&all->phase[i], u, n);
    }
}

/* n elements from the phases of a row by turns: `from` of each, or `value` where it is NULL. */
static void F(conv_mix_two)(int64_t n, const T *const from[2], T value, T *to)
{
    VI      front, back;
    int64_t i = 0;
    for (int j = 0; j < LANES; j++) {
        front[j] = j / 2 + j % 2 * LANES;
        back[j] = LANES / 2 + front[j];
    }
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        V a = from[0] ? F(load)(from[0] + i / 2) : F(splat)(value),
          b = from[1] ? F(load)(from[1] + i / 2) : F(splat)(value);
        F(store)(to + i, __builtin_shuffle(a, b, front));
        F(store)(to + i + LANES, __builtin_shuffle(a, b, back));
    }
    for (; i < n; i++) to[i] = from[i % 2] ? from[i % 2][i / 2] : value;
}

/* Job: units are planes of the result: what the phases along the last dimension gave goes to its places. */
static void F(conv_spread_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const conv_phases *all = context;
    const conv_phase  *p = all->phase;
    const int64_t     *size = p->size;
    (void)thread;
    for (int64_t u = begin; u < end; u++) {
        T value = all->bias ? ((const T *)all->bias)[u % all->made] : 0;
        for (int64_t r0 = 0; r0 < p->q[0]; r0++)
            for (int64_t r1 = 0; r1 < p->q[1]; r1++) {
                int64_t r = (u * p->q[0] + r0) * p->q[1] + r1, s0 = p->first[0] + r0 * p->stride[0];
                T      *to = (T *)all->to + ((u * size[0] + s0) * size[1] + p->first[1] + r1 * p->stride[1]) * size[2];
                if (all->n == 2) {
                    const T *from[2];
                    for (int f = 0; f < 2; f++) from[f] = p[f].part ? (const T *)p[f].part + r * p[f].q[2] : NULL;
                    F(conv_mix_two)(size[2], from, value, to);
                    continue;
                }
                for (int64_t f = 0; f < all->n; f++)
                    for (int64_t i = 0; i < p[f].q[2]; i++)
                        to[f + i * p[f].stride[2]] = p[f].part ? ((const T *)p[f].part)[r * p[f].q[2] + i] : value;
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
#undef EACH_CHAIN
