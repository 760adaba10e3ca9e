/* rotary_t.h - rows of rotary for one element type (as.h); see rotary.c. */

/* c[j], s[j]: cosine and sine of a position's angles, times the factor. */
static void F(rotary_angles)(const rotary_job *j, double position, T *c, T *s)
{
    const T *frequency = j->frequency;
    for (int64_t k = 0; k < j->pairs; k++) {
        double sine, cosine;
        sincos(position * (double)frequency[k], &sine, &cosine);
        c[k] = (T)(j->alpha * cosine);
        s[k] = (T)(j->inverse ? -j->alpha * sine : j->alpha * sine);
    }
}

/* Pairs (k, k + n) of x. */
static void F(rotary_halves)(int64_t n, const T *x, const T *c, const T *s, T *y)
{
    for (int64_t k = 0; k < n; k += LANES) {
        V a = F(at)(x, k, n - k), b = F(at)(x + n, k, n - k), cv = F(at)(c, k, n - k), sv = F(at)(s, k, n - k);
        F(put)(y, k, n - k, a * cv - b * sv);
        F(put)(y + n, k, n - k, b * cv + a * sv);
    }
}

/* Pairs (2 k, 2 k + 1) of x. */
static void F(rotary_neighbours)(int64_t n, const T *x, const T *c, const T *s, T *y)
{
    for (int64_t k = 0; k < n; k++) {
        T a = x[2 * k], b = x[2 * k + 1];
        y[2 * k] = a * c[k] - b * s[k];
        y[2 * k + 1] = b * c[k] + a * s[k];
    }
}

static void F(rotary_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const rotary_job *j = context;
    int64_t           d = j->x.width, turned = 2 * j->pairs;
    T                *c = (T *)j->angles + 2 * thread * j->pairs, *s = c + j->pairs;
    for (int64_t r = begin; r < end; r++) {
        F(rotary_angles)(j, rotary_position(j, r), c, s);
        for (int64_t line = r * j->lines; line < (r + 1) * j->lines; line++) {
            const T *x = cpu_row_at(&j->x, line);
            T       *y = cpu_row_at(&j->y, line);
            bool     turns = line % j->entries < j->rotated;
            if (!turns) memcpy(y, x, (size_t)d * sizeof(T));
            else if (j->interleaved) F(rotary_neighbours)(j->pairs, x, c, s, y);
            else F(rotary_halves)(j->pairs, x, c, s, y);
            if (turns && d > turned) memcpy(y + turned, x + turned, (size_t)(d - turned) * sizeof(T));
        }
    }
}
