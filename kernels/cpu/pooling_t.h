/* pooling_t.h - pooling for one element type (as.h); see pooling.c. */

/* The first of the largest elements of a window, or the first NaN. */
CPU_INLINE void F(largest_of)(const pool_job *j, const T *x, const gm_pool_window *d, const gm_pool_window *h,
                              const gm_pool_window *w, T *y, int64_t *index)
{
    T       best = (T)-INFINITY;
    int64_t at = -1;
    for (int64_t a = d->begin; a < d->end; a += d->step)
        for (int64_t b = h->begin; b < h->end; b += h->step) {
            int64_t line = (a * j->axis[1].n + b) * j->axis[2].n;
            for (int64_t c = w->begin; c < w->end; c += w->step) {
                T v = x[line + c];
                if (v > best || at < 0 || (v != v && best == best)) {
                    best = v;
                    at = line + c;
                }
            }
        }
    *y = best;
    *index = at;
}

CPU_INLINE T F(sum_of)(const pool_job *j, const T *x, const gm_pool_window *d, const gm_pool_window *h,
                       const gm_pool_window *w)
{
    double sum = 0;
    for (int64_t a = d->begin; a < d->end; a += d->step)
        for (int64_t b = h->begin; b < h->end; b += h->step) {
            const T *line = x + (a * j->axis[1].n + b) * j->axis[2].n;
            if (w->step == 1 && w->end - w->begin >= LANES) sum += F(sum_row)(w->end - w->begin, line + w->begin);
            else
                for (int64_t c = w->begin; c < w->end; c += w->step) sum += (double)line[c];
        }
    return (T)(sum / (double)gm_pool_places(d, h, w, j->with_padding, j->divisor));
}

/* A line of windows of an image: those of d and h, and number o and on of the image. x: or dx; y: or g. */
typedef void (*F(pool_line))(const pool_job *j, const gm_pool_window *d, const gm_pool_window *h, int64_t o, T *x, T *y,
                             int64_t *index);

/* All lines of image r. */
CPU_INLINE void F(pool_lines)(const pool_job *j, int64_t r, F(pool_line) line)
{
    int64_t o = 0, i = r / j->x.c, c = r % j->x.c, *index = j->index.data ? cpu_image_at(&j->index, i, c) : NULL;
    for (int64_t a = 0; a < j->axis[0].out; a++) {
        gm_pool_window d = gm_pool_window_of(&j->axis[0], a);
        for (int64_t b = 0; b < j->axis[1].out; b++, o += j->axis[2].out) {
            gm_pool_window h = gm_pool_window_of(&j->axis[1], b);
            line(j, &d, &h, o, cpu_image_at(&j->x, i, c), cpu_image_at(&j->y, i, c), index);
        }
    }
}

CPU_INLINE void F(max_line)(const pool_job *j, const gm_pool_window *d, const gm_pool_window *h, int64_t o, T *x, T *y,
                            int64_t *index)
{
    for (int64_t k = 0; k < j->axis[2].out; k++) {
        gm_pool_window w = gm_pool_window_of(&j->axis[2], k);
        int64_t        at;
        F(largest_of)(j, x, d, h, &w, &y[o + k], &at);
        if (index) index[o + k] = at;
    }
}

static void F(max_pool_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const pool_job *j = context;
    (void)thread;
    if (pool_block_of(&j->axis[2]).count > 0 && j->x.inner <= INT32_MAX) F(max_images)(j, begin, end);
    else
        for (int64_t r = begin; r < end; r++) F(pool_lines)(j, r, F(max_line));
}

CPU_INLINE void F(avg_line)(const pool_job *j, const gm_pool_window *d, const gm_pool_window *h, int64_t o, T *x, T *y,
                            int64_t *index)
{
    (void)index;
    for (int64_t k = 0; k < j->axis[2].out; k++) {
        gm_pool_window w = gm_pool_window_of(&j->axis[2], k);
        y[o + k] = F(sum_of)(j, x, d, h, &w);
    }
}

static void F(avg_pool_part)(void *context, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    for (int64_t r = begin; r < end; r++) F(pool_lines)(context, r, F(avg_line));
}

/* index is i32 where the index that a user gives is; what max_pool makes is i64, and so is what the tape keeps. */
static void F(max_pool_grad_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const pool_job *j = context;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        T          *dx = cpu_image_at(&j->x, r / j->x.c, r % j->x.c);
        const T    *g = cpu_image_at(&j->y, r / j->x.c, r % j->x.c);
        const char *index = cpu_image_at(&j->index, r / j->x.c, r % j->x.c);
        if (!j->accumulate) memset(dx, 0, (size_t)j->x.inner * sizeof(T));
        for (int64_t o = 0; o < j->y.inner; o++) {
            int64_t at = j->index.size == 8 ? ((const int64_t *)index)[o] : ((const int32_t *)index)[o];
            if (at >= 0 && at < j->x.inner) dx[at] += g[o];
        }
    }
}

CPU_INLINE void F(avg_grad_line)(const pool_job *j, const gm_pool_window *d, const gm_pool_window *h, int64_t o, T *dx,
                                 T *g, int64_t *index)
{
    (void)index;
    for (int64_t k = 0; k < j->axis[2].out; k++) {
        gm_pool_window w = gm_pool_window_of(&j->axis[2], k);
        T              part = g[o + k] / (T)gm_pool_places(d, h, &w, j->with_padding, j->divisor);
        for (int64_t a = d->begin; a < d->end; a += d->step)
            for (int64_t b = h->begin; b < h->end; b += h->step) {
                T *line = dx + (a * j->axis[1].n + b) * j->axis[2].n;
                for (int64_t c = w.begin; c < w.end; c += w.step) line[c] += part;
            }
    }
}

static void F(avg_pool_grad_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const pool_job *j = context;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        if (!j->accumulate) memset(cpu_image_at(&j->x, r / j->x.c, r % j->x.c), 0, (size_t)j->x.inner * sizeof(T));
        F(pool_lines)(j, r, F(avg_grad_line));
    }
}
