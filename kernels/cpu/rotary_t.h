/* rotary_t.h - rows of rotary for one element type (as.h), bf16 included; see rotary.c. */

#if E_BITS == T_BITS
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
#endif

/* Pairs (k, k + n) of x. */
static void M(rotary_halves)(int64_t n, const E *x, const T *c, const T *s, E *y)
{
    for (int64_t k = 0; k < n; k += LANES) {
        V a = M(at)(x, k, n - k), b = M(at)(x + n, k, n - k), cv = F(at)(c, k, n - k), sv = F(at)(s, k, n - k);
        M(put)(y, k, n - k, a * cv - b * sv);
        M(put)(y + n, k, n - k, b * cv + a * sv);
    }
}

/* Pairs (2 k, 2 k + 1) of x. */
static void M(rotary_neighbours)(int64_t n, const E *x, const T *c, const T *s, E *y)
{
    for (int64_t k = 0; k < n; k++) {
        T a = M(get)(x + 2 * k), b = M(get)(x + 2 * k + 1);
        M(set)(y + 2 * k, a * c[k] - b * s[k]);
        M(set)(y + 2 * k + 1, b * c[k] + a * s[k]);
    }
}

/* The lines of row r, whose angles are known. */
static void M(rotary_row)(const rotary_job *j, int64_t r, const T *c, const T *s)
{
    int64_t d = j->x.width, turned = 2 * j->pairs;
    for (int64_t line = r * j->lines; line < (r + 1) * j->lines; line++) {
        const E *x = cpu_row_at(&j->x, line);
        E       *y = cpu_row_at(&j->y, line);
        bool     turns = line % j->entries < j->rotated;
        if (!turns) memcpy(y, x, (size_t)d * sizeof(E));
        else if (j->interleaved) M(rotary_neighbours)(j->pairs, x, c, s, y);
        else M(rotary_halves)(j->pairs, x, c, s, y);
        if (turns && d > turned) memcpy(y + turned, x + turned, (size_t)(d - turned) * sizeof(E));
    }
}

/* Places [begin, end), each with the rows that have its position: `sequence` apart. */
static void M(rotary_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const rotary_job *j = context;
    T                *c = (T *)j->angles + 2 * thread * j->pairs, *s = c + j->pairs;
    for (int64_t i = begin; i < end; i++) {
        F(rotary_angles)(j, rotary_position(j, i), c, s);
        for (int64_t r = i; r < j->rows; r += j->places) M(rotary_row)(j, r, c, s);
    }
}
