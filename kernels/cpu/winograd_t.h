/* winograd_t.h - the loops of winograd.c for one element type (as.h). Tiles of a row stand in the lanes of vectors. */

/* Vertical and horizontal steps of the three transforms. Each takes the vectors of four (or two, or three) rows. */
#define WINO_INPUT(x, a, b, c, d) \
    ((x) == 0 ? (a) - (c) : (x) == 1 ? (b) + (c) : (x) == 2 ? (c) - (b) : (b) - (d)) /* B' d */

/* Elements 2 (j + i) and 2 (j + i) + 1 of a row with its padding, for i < n <= WINO_BLOCK + 1. x: the row, of `size`
 * elements, or NULL for one of zeros; `low` zeros stand in front of it. */
static void F(wino_halves)(const T *x, int64_t size, int64_t low, int64_t j, int64_t n, T *even, T *odd)
{
    T       row[2 * (WINO_BLOCK + 2 * LANES)];
    int64_t at = 2 * j - low, whole = (n + LANES - 1) / LANES * 2 * LANES;
    VI      first, second;
    for (int l = 0; l < LANES; l++) {
        first[l] = 2 * l;
        second[l] = 2 * l + 1;
    }
    if (x && at >= 0 && at + whole <= size) x += at;
    else {
        int64_t begin = at < 0 ? -at : 0, end = size - at < whole ? size - at : whole;
        if (!x || end < begin) end = begin = 0;
        for (int64_t i = 0; i < whole; i += LANES) F(store)(row + i, F(splat)(0));
        for (int64_t i = begin; i < end; i += LANES) F(put)(row, i, end - i, F(at)(x + at, i, end - i));
        x = row;
    }
    for (int64_t i = 0; i < whole / 2; i += LANES) {
        V a = F(load)(x + 2 * i), b = F(load)(x + 2 * i + LANES);
        F(store)(even + i, __builtin_shuffle(a, b, first));
        F(store)(odd + i, __builtin_shuffle(a, b, second));
    }
}

/* Row r of tiles, n of them from tile j on: v = B' d B. even, odd: of the four rows that they read, row 2 r + q at
 * (2 r + q) % 4. */
static void F(wino_input_row)(const wino *w, int64_t r, int64_t n, T (*even)[WINO_BLOCK + 2 * LANES],
                              T (*odd)[WINO_BLOCK + 2 * LANES], T *v)
{
    const T *e[4], *o[4];
    for (int q = 0; q < 4; q++) {
        e[q] = even[(2 * r + q) & 3];
        o[q] = odd[(2 * r + q) & 3];
    }
    for (int64_t i = 0; i < n; i += LANES)
#pragma GCC unroll 4
        for (int a = 0; a < 4; a++) {
#define WINO_ROWS(half, at) \
    WINO_INPUT(a, F(load)(half[0] + (at)), F(load)(half[1] + (at)), F(load)(half[2] + (at)), F(load)(half[3] + (at)))
            V  d0 = WINO_ROWS(e, i), d1 = WINO_ROWS(o, i), d2 = WINO_ROWS(e, i + 1), d3 = WINO_ROWS(o, i + 1);
            T *to = v + 4 * a * w->v_plane;
#undef WINO_ROWS
#pragma GCC unroll 4
            for (int b = 0; b < 4; b++) F(put)(to + b * w->v_plane, i, n - i, WINO_INPUT(b, d0, d1, d2, d3));
        }
}

/* Job: units are planes of x, of an image and a channel: its tiles of 4 x 4. */
static void F(wino_input_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const wino *w = context;
    T           even[4][WINO_BLOCK + 2 * LANES], odd[4][WINO_BLOCK + 2 * LANES];
    (void)thread;
    for (int64_t u = begin; u < end; u++) {
        const T *x = (const T *)w->x + u * w->s[0] * w->s[1];
        T       *v = (T *)w->v + u % w->channels * w->row + u / w->channels * w->tiles[0] * w->tiles[1];
        for (int64_t j = 0; j < w->tiles[1]; j += WINO_BLOCK) {
            int64_t n = w->tiles[1] - j < WINO_BLOCK ? w->tiles[1] - j : WINO_BLOCK;
            for (int64_t r = 0; r < w->tiles[0]; r++) {
                for (int64_t q = 2 * r + (r ? 2 : 0); q < 2 * r + 4; q++) {
                    int64_t at = q - w->low[0];
                    F(wino_halves)
                    (at >= 0 && at < w->s[0] ? x + at * w->s[1] : NULL, w->s[1], w->low[1], j, n + 1, even[q & 3],
                     odd[q & 3]);
                }
                F(wino_input_row)(w, r, n, even, odd, v + r * w->tiles[1] + j);
            }
        }
    }
}

/* Job: units are planes of the gradient: m = A g A' of each tile of 2 x 2. */
static void F(wino_gradient_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const wino *w = context;
    T           even[2][WINO_BLOCK + 2 * LANES], odd[2][WINO_BLOCK + 2 * LANES];
    (void)thread;
    for (int64_t u = begin; u < end; u++) {
        const T *g = (const T *)w->y + u * w->t[0] * w->t[1];
        T       *m = (T *)w->m + u % w->outputs * w->row + u / w->outputs * w->tiles[0] * w->tiles[1];
        for (int64_t r = 0; r < w->tiles[0]; r++, m += w->tiles[1])
            for (int64_t j = 0; j < w->tiles[1]; j += WINO_BLOCK) {
                int64_t n = w->tiles[1] - j < WINO_BLOCK ? w->tiles[1] - j : WINO_BLOCK;
                for (int q = 0; q < 2; q++) F(wino_halves)
                (2 * r + q < w->t[0] ? g + (2 * r + q) * w->t[1] : NULL, w->t[1], 0, j, n, even[q], odd[q]);
                for (int64_t i = 0; i < n; i += LANES) {
                    V a0 = F(load)(even[0] + i), a1 = F(load)(odd[0] + i);
                    V b0 = F(load)(even[1] + i), b1 = F(load)(odd[1] + i);
                    V rows[4][2] = {{a0, a1}, {a0 + b0, a1 + b1}, {a0 - b0, a1 - b1}, {-b0, -b1}};
#pragma GCC unroll 4
                    for (int a = 0; a < 4; a++) {
                        T *to = m + j + 4 * a * w->m_plane;
                        F(put)(to, i, n - i, rows[a][0]);
                        F(put)(to + w->m_plane, i, n - i, rows[a][0] + rows[a][1]);
                        F(put)(to + 2 * w->m_plane, i, n - i, rows[a][0] - rows[a][1]);
                        F(put)(to + 3 * w->m_plane, i, n - i, -rows[a][1]);
                    }
                }
            }
    }
}

/* The results of a row of tiles: A' m A, two rows of them, with a bias. top, bottom: where the rows begin; bottom is
 * NULL where the image ends. */
static void F(wino_results)(const wino *w, const T *m, T bias, T *top, T *bottom)
{
    int64_t n = w->tiles[1];
    VI      low, high;
    for (int l = 0; l < LANES; l++) {
        low[l] = l / 2 + l % 2 * LANES;
        high[l] = low[l] + LANES / 2;
    }
    for (int64_t i = 0; i < n; i += LANES) {
        V first[4], second[4];
#pragma GCC unroll 4
        for (int b = 0; b < 4; b++) {
            const T *at = m + b * w->m_plane;
            V        m0 = F(at)(at, i, n - i), m1 = F(at)(at + 4 * w->m_plane, i, n - i);
            V        m2 = F(at)(at + 8 * w->m_plane, i, n - i), m3 = F(at)(at + 12 * w->m_plane, i, n - i);
            first[b] = m0 + m1 + m2;
            second[b] = m1 - m2 - m3;
        }
        int64_t to = 2 * i, left = w->t[1] - to;
#define WINO_PUT(y, m)                                                                                         \
    {                                                                                                          \
        V left_ones = m[0] + m[1] + m[2] + bias, right_ones = m[1] - m[2] - m[3] + bias;                       \
        F(put)(y, to, left, __builtin_shuffle(left_ones, right_ones, low));                                    \
        if (left > LANES) F(put)(y, to + LANES, left - LANES, __builtin_shuffle(left_ones, right_ones, high)); \
    }
        WINO_PUT(top, first)
        if (bottom) WINO_PUT(bottom, second)
#undef WINO_PUT
    }
}

/* Job: units are planes of the result, of an image and one of its channels. */
static void F(wino_output_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const wino *w = context;
    int64_t     plane = w->t[0] * w->t[1];
    (void)thread;
    for (int64_t u = begin; u < end; u++) {
        const T *m = (const T *)w->m + u % w->outputs * w->row + u / w->outputs * w->tiles[0] * w->tiles[1];
        T       *c = (T *)w->c + u * plane, bias = w->bias ? ((const T *)w->bias)[u % w->outputs] : 0;
        for (int64_t r = 0; r < w->tiles[0]; r++, m += w->tiles[1]) F(wino_results)
        (w, m, bias, c + 2 * r * w->t[1], 2 * r + 1 < w->t[0] ? c + (2 * r + 1) * w->t[1] : NULL);
        if (w->f != GM_FN_none || w->y != w->c) F(activation_row)(w->f, plane, c, (T *)w->y + u * plane);
    }
}

/* Job: units are rows of w: u = G g G' of each of its kernels; turned: of kernels that are turned by 180 degrees. */
static void F(wino_weights_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const wino *w = context;
    int64_t     columns = w->columns;
    (void)thread;
    for (int64_t o = begin; o < end; o++)
        for (int64_t c = 0; c < columns; c += LANES) {
            const T *from = (const T *)w->w + (o * columns + c) * 9;
            int64_t  n = columns - c < LANES ? columns - c : LANES;
            V        g[9], half[4][3];
            for (int k = 0; k < 9; k++) {
                T each[LANES] = {0};
                for (int64_t l = 0; l < n; l++) each[l] = from[l * 9 + (w->turned ? 8 - k : k)];
                g[k] = F(load)(each);
            }
            for (int k = 0; k < 3; k++) {
                V sum = g[k] + g[6 + k];
                half[0][k] = g[k];
                half[1][k] = (sum + g[3 + k]) * (T)0.5;
                half[2][k] = (sum - g[3 + k]) * (T)0.5;
                half[3][k] = g[6 + k];
            }
#pragma GCC unroll 4
            for (int a = 0; a < 4; a++) {
                T *to = (T *)w->u + 4 * a * w->u_plane + o * columns;
                V  sum = half[a][0] + half[a][2];
                F(put)(to, c, n, half[a][0]);
                F(put)(to + w->u_plane, c, n, (sum + half[a][1]) * (T)0.5);
                F(put)(to + 2 * w->u_plane, c, n, (sum - half[a][1]) * (T)0.5);
                F(put)(to + 3 * w->u_plane, c, n, half[a][2]);
            }
        }
}

/* Job: units are rows of the gradient of w: G' u G of each. */
static void F(wino_weight_grad_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const wino *w = context;
    int64_t     columns = w->columns;
    (void)thread;
    for (int64_t o = begin; o < end; o++)
        for (int64_t c = 0; c < columns; c += LANES) {
            T      *to = (T *)w->c + (o * columns + c) * 9;
            int64_t n = columns - c < LANES ? columns - c : LANES;
            V       half[3][4];
            for (int b = 0; b < 4; b++) {
                const T *at = (const T *)w->u + b * w->u_plane + o * columns + c;
                V        u0 = F(at)(at, 0, n), u1 = F(at)(at + 4 * w->u_plane, 0, n);
                V        u2 = F(at)(at + 8 * w->u_plane, 0, n), u3 = F(at)(at + 12 * w->u_plane, 0, n);
                half[0][b] = u0 + (u1 + u2) * (T)0.5;
                half[1][b] = (u1 - u2) * (T)0.5;
                half[2][b] = u3 + (u1 + u2) * (T)0.5;
            }
            for (int a = 0; a < 3; a++) {
                V *u = half[a], sum = (u[1] + u[2]) * (T)0.5;
                V  three[3] = {u[0] + sum, (u[1] - u[2]) * (T)0.5, sum + u[3]};
                for (int b = 0; b < 3; b++)
                    for (int64_t l = 0; l < n; l++) {
                        T *dw = to + l * 9 + 3 * a + b;
                        *dw = w->accumulate ? *dw + three[b][l] : three[b][l];
                    }
            }
        }
}
#undef WINO_INPUT
