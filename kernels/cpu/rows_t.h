/* rows_t.h - sums across lanes, and the functions over rows of vector.c, for one element type (as.h). */

CPU_INLINE T F(sum_v)(V v)
{
    T s = 0;
    for (int i = 0; i < LANES / 2; i++) s += v[i] + v[i + LANES / 2];
    return s;
}

/* Lane j: the sum across lanes of r[j]. r is used up. */
CPU_INLINE V F(sums_v)(V r[LANES])
{
    VI lane;
    for (int j = 0; j < LANES; j++) lane[j] = j;
#pragma GCC unroll 4
    for (int d = LANES / 2; d > 0; d /= 2) {
        VI odd = (lane & d) != 0, low = lane + (odd & (LANES - d)), high = low + d;
#pragma GCC unroll 8
        for (int i = 0; i < d; i++)
            r[i] = __builtin_shuffle(r[i], r[i + d], low) + __builtin_shuffle(r[i], r[i + d], high);
    }
    return r[0];
}

CPU_INLINE T F(max_of)(V v)
{
    T m = v[0];
    for (int i = 1; i < LANES; i++) m = v[i] > m ? v[i] : m;
    return m;
}

/* y = f(x) and dx = g f'(x) over `rows` rows of n contiguous elements; the tail goes through the same code. */
#define MAP_ROWS(f)                                                                \
    for (int64_t r_ = 0; r_ < rows; r_++, x += x_row, y += y_row) {                \
        int64_t i_ = 0;                                                            \
        for (; i_ + LANES <= n; i_ += LANES) F(store)(y + i_, f(F(load)(x + i_))); \
        if (i_ < n) F(store_n)(y + i_, n - i_, f(F(load_n)(x + i_, n - i_)));      \
    }
#define MAP_GRAD_ROWS(f)                                                                                   \
    for (int64_t r_ = 0; r_ < rows; r_++, x += x_row, g += g_row, dx += dx_row) {                          \
        int64_t i_ = 0;                                                                                    \
        for (; i_ + LANES <= n; i_ += LANES) F(store)(dx + i_, F(load)(g + i_) * f(F(load)(x + i_)));      \
        if (i_ < n) F(store_n)(dx + i_, n - i_, F(load_n)(g + i_, n - i_) * f(F(load_n)(x + i_, n - i_))); \
    }

static inline void F(activation_rows)(gm_function f, int64_t rows, int64_t n, const T *x, int64_t x_row, T *y,
                                      int64_t y_row)
{
    switch (f) {
    case GM_FN_relu: MAP_ROWS(F(relu_v)) break;
    case GM_FN_gelu: MAP_ROWS(F(gelu_v)) break;
    case GM_FN_gelu_tanh: MAP_ROWS(F(gelu_tanh_v)) break;
    case GM_FN_silu: MAP_ROWS(F(silu_v)) break;
    case GM_FN_sigmoid: MAP_ROWS(F(sigmoid_v)) break;
    case GM_FN_tanh: MAP_ROWS(F(tanh_v)) break;
    default: /* none */
        for (; x != y && rows > 0; rows--, x += x_row, y += y_row) memmove(y, x, (size_t)n * sizeof(T));
    }
}

static inline void F(activation_grad_rows)(gm_function f, int64_t rows, int64_t n, const T *x, int64_t x_row,
                                           const T *g, int64_t g_row, T *dx, int64_t dx_row)
{
    switch (f) {
    case GM_FN_relu: MAP_GRAD_ROWS(F(relu_grad_v)) break;
    case GM_FN_gelu: MAP_GRAD_ROWS(F(gelu_grad_v)) break;
    case GM_FN_gelu_tanh: MAP_GRAD_ROWS(F(gelu_tanh_grad_v)) break;
    case GM_FN_silu: MAP_GRAD_ROWS(F(silu_grad_v)) break;
    case GM_FN_sigmoid: MAP_GRAD_ROWS(F(sigmoid_grad_v)) break;
    case GM_FN_tanh: MAP_GRAD_ROWS(F(tanh_grad_v)) break;
    default: /* none */
        for (; dx != g && rows > 0; rows--, g += g_row, dx += dx_row) memmove(dx, g, (size_t)n * sizeof(T));
    }
}

static inline void F(activation_row)(gm_function f, int64_t n, const T *x, T *y)
{
    F(activation_rows)(f, 1, n, x, n, y, n);
}

static inline void F(activation_grad_row)(gm_function f, int64_t n, const T *x, const T *g, T *dx)
{
    F(activation_grad_rows)(f, 1, n, x, n, g, n, dx, n);
}

static inline T F(max_row)(int64_t n, const T *x)
{
    V       m0 = F(splat)((T)-INFINITY), m1 = m0, m2 = m0, m3 = m0; /* a NaN element leaves the other operand */
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        m0 = F(max_v)(F(load)(x + i), m0);
        m1 = F(max_v)(F(load)(x + i + LANES), m1);
        m2 = F(max_v)(F(load)(x + i + 2 * LANES), m2);
        m3 = F(max_v)(F(load)(x + i + 3 * LANES), m3);
    }
    for (; i + LANES <= n; i += LANES) m0 = F(max_v)(F(load)(x + i), m0);
    T m = F(max_of)(F(max_v)(F(max_v)(m0, m1), F(max_v)(m2, m3)));
    for (; i < n; i++) m = x[i] > m ? x[i] : m;
    return m;
}

/* What a vector adds to two accumulators in double. */
CPU_INLINE void F(add_wide)(vf64 *a, vf64 *b, V v)
{
#if T_BITS == 32
    *a += widen(low_half(v));
    *b += widen(high_half(v));
#else
    (void)b;
    *a += v;
#endif
}

static inline double F(sum_row)(int64_t n, const T *x)
{
    vf64    a = {0}, b = {0}, c = {0}, d = {0};
    int64_t i = 0;
    for (; CPU_DIRECT && i + 4 * SUM_PLACE <= n; i += 4 * SUM_PLACE)
        for (int64_t k = i; k < i + SUM_PLACE; k += LANES) {
            F(add_wide)(&a, &b, F(load)(x + k));
            F(add_wide)(&c, &d, F(load)(x + k + SUM_PLACE));
            F(add_wide)(&a, &b, F(load)(x + k + 2 * SUM_PLACE));
            F(add_wide)(&c, &d, F(load)(x + k + 3 * SUM_PLACE));
        }
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        if (CPU_DIRECT) __builtin_prefetch((const char *)(x + i) + 1024);
        F(add_wide)(&a, &b, F(load)(x + i));
        F(add_wide)(&c, &d, F(load)(x + i + LANES));
    }
    for (; i + LANES <= n; i += LANES) F(add_wide)(&a, &b, F(load)(x + i));
    if (i < n) F(add_wide)(&c, &d, F(load_n)(x + i, n - i));
    return sum_v_wide((a + b) + (c + d));
}

CPU_INLINE void F(mul_wide)(vf64 *a, vf64 *b, V v, V w)
{
#if T_BITS == 32
    *a += widen(low_half(v)) * widen(low_half(w));
    *b += widen(high_half(v)) * widen(high_half(w));
#else
    (void)b;
    *a += v * w;
#endif
}

static inline double F(dot_row)(int64_t n, const T *x, const T *y)
{
    vf64    a = {0}, b = {0}, c = {0}, d = {0};
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        F(mul_wide)(&a, &b, F(load)(x + i), F(load)(y + i));
        F(mul_wide)(&c, &d, F(load)(x + i + LANES), F(load)(y + i + LANES));
    }
    for (; i + LANES <= n; i += LANES) F(mul_wide)(&a, &b, F(load)(x + i), F(load)(y + i));
    if (i < n) F(mul_wide)(&c, &d, F(load_n)(x + i, n - i), F(load_n)(y + i, n - i));
    return sum_v_wide((a + b) + (c + d));
}

/* y = exp(scale x - shift), which is at most 0; returns the sum, added in 4 LANES columns: at worst n eps / (4 LANES).
 * next: read soon */
static inline T F(exp_row)(int64_t n, const T *x, T scale, T shift, T *y, const T *next)
{
    V       s0 = F(splat)(0), s1 = s0, s2 = s0, s3 = s0;
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        V a = F(exp_down_v)(F(load)(x + i) * scale - shift), b = F(exp_down_v)(F(load)(x + i + LANES) * scale - shift);
        V c = F(exp_down_v)(F(load)(x + i + 2 * LANES) * scale - shift);
        V d = F(exp_down_v)(F(load)(x + i + 3 * LANES) * scale - shift);
        for (int k = 0; k < 4; k++) __builtin_prefetch(next + i + k * LANES);
        F(store)(y + i, a);
        F(store)(y + i + LANES, b);
        F(store)(y + i + 2 * LANES, c);
        F(store)(y + i + 3 * LANES, d);
        s0 += a;
        s1 += b;
        s2 += c;
        s3 += d;
    }
    for (; i + LANES <= n; i += LANES) {
        V a = F(exp_down_v)(F(load)(x + i) * scale - shift);
        F(store)(y + i, a);
        s0 += a;
    }
    T sum = F(sum_v)((s0 + s1) + (s2 + s3));
    if (i < n) {
        V a = F(exp_down_v)(F(load_n)(x + i, n - i) * scale - shift);
        F(store_n)(y + i, n - i, a);
        for (int64_t k = 0; k < n - i; k++) sum += a[k];
    }
    return sum;
}

static inline void F(scale_row)(int64_t n, T a, const T *x, T *y)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) F(store)(y + i, F(load)(x + i) * a);
    if (i < n) F(store_n)(y + i, n - i, F(load_n)(x + i, n - i) * a);
}

/* The same past the caches (base.c). */
static inline void F(scale_past)(int64_t n, T a, const T *x, T *y)
{
    for (int64_t i = 0, m = F(first_step)(y, n, true); i < n; i += m < LANES ? m : LANES, m = n - i)
        F(put_past)(y, i, m, F(at)(x, i, m) * a, true);
}

static inline void F(axpy_row)(int64_t n, T a, const T *x, T *y)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) F(store)(y + i, F(load)(y + i) + F(load)(x + i) * a);
    if (i < n) F(store_n)(y + i, n - i, F(load_n)(y + i, n - i) + F(load_n)(x + i, n - i) * a);
}
