/* rows_t.h - the functions over rows of vector.c, for one element type (as.h). */

/* y = f(x) and dx = g f'(x) over `rows` rows of n contiguous elements; the tail goes through the same code. */
#define MAP_ROWS(f)                                                                \
    for (int64_t r_ = 0; r_ < rows; r_++, x += x_row, y += y_row) {                \
        int64_t i_ = 0;                                                            \
        for (; i_ + LANES <= n; i_ += LANES) M(store)(y + i_, f(M(load)(x + i_))); \
        if (i_ < n) M(store_n)(y + i_, n - i_, f(M(load_n)(x + i_, n - i_)));      \
    }
#define MAP_GRAD_ROWS(f)                                                                                   \
    for (int64_t r_ = 0; r_ < rows; r_++, x += x_row, g += g_row, dx += dx_row) {                          \
        int64_t i_ = 0;                                                                                    \
        for (; i_ + LANES <= n; i_ += LANES) M(store)(dx + i_, M(load)(g + i_) * f(M(load)(x + i_)));      \
        if (i_ < n) M(store_n)(dx + i_, n - i_, M(load_n)(g + i_, n - i_) * f(M(load_n)(x + i_, n - i_))); \
    }

static inline void M(activation_rows)(gm_function f, int64_t rows, int64_t n, const E *x, int64_t x_row, E *y,
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
        for (; x != y && rows > 0; rows--, x += x_row, y += y_row) memmove(y, x, (size_t)n * sizeof(E));
    }
}

static inline void M(activation_grad_rows)(gm_function f, int64_t rows, int64_t n, const E *x, int64_t x_row,
                                           const E *g, int64_t g_row, E *dx, int64_t dx_row)
{
    switch (f) {
    case GM_FN_relu: MAP_GRAD_ROWS(F(relu_grad_v)) break;
    case GM_FN_gelu: MAP_GRAD_ROWS(F(gelu_grad_v)) break;
    case GM_FN_gelu_tanh: MAP_GRAD_ROWS(F(gelu_tanh_grad_v)) break;
    case GM_FN_silu: MAP_GRAD_ROWS(F(silu_grad_v)) break;
    case GM_FN_sigmoid: MAP_GRAD_ROWS(F(sigmoid_grad_v)) break;
    case GM_FN_tanh: MAP_GRAD_ROWS(F(tanh_grad_v)) break;
    default: /* none */
        for (; dx != g && rows > 0; rows--, g += g_row, dx += dx_row) memmove(dx, g, (size_t)n * sizeof(E));
    }
}

static inline void M(activation_row)(gm_function f, int64_t n, const E *x, E *y)
{
    M(activation_rows)(f, 1, n, x, n, y, n);
}

static inline void M(activation_grad_row)(gm_function f, int64_t n, const E *x, const E *g, E *dx)
{
    M(activation_grad_rows)(f, 1, n, x, n, g, n, dx, n);
}

static inline T M(max_row)(int64_t n, const E *x)
{
    V       m0 = F(splat)((T)-INFINITY), m1 = m0, m2 = m0, m3 = m0; /* a NaN element leaves the other operand */
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        m0 = F(max_v)(M(load)(x + i), m0);
        m1 = F(max_v)(M(load)(x + i + LANES), m1);
        m2 = F(max_v)(M(load)(x + i + 2 * LANES), m2);
        m3 = F(max_v)(M(load)(x + i + 3 * LANES), m3);
    }
    for (; i + LANES <= n; i += LANES) m0 = F(max_v)(M(load)(x + i), m0);
    T m = F(max_of)(F(max_v)(F(max_v)(m0, m1), F(max_v)(m2, m3)));
    for (; i < n; i++) m = M(get)(x + i) > m ? M(get)(x + i) : m;
    return m;
}

static inline double M(sum_row)(int64_t n, const E *x)
{
    vf64    a = {0}, b = {0}, c = {0}, d = {0};
    int64_t i = 0;
    for (; CPU_DIRECT && i + 4 * SUM_PLACE <= n; i += 4 * SUM_PLACE)
        for (int64_t k = i; k < i + SUM_PLACE; k += LANES) {
            M(add_wide_at)(&a, &b, x + k);
            M(add_wide_at)(&c, &d, x + k + SUM_PLACE);
            M(add_wide_at)(&a, &b, x + k + 2 * SUM_PLACE);
            M(add_wide_at)(&c, &d, x + k + 3 * SUM_PLACE);
        }
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        if (CPU_DIRECT) __builtin_prefetch((const char *)(x + i) + 1024);
        M(add_wide_at)(&a, &b, x + i);
        M(add_wide_at)(&c, &d, x + i + LANES);
    }
    for (; i + LANES <= n; i += LANES) M(add_wide_at)(&a, &b, x + i);
    if (i < n) F(add_wide)(&c, &d, M(load_n)(x + i, n - i));
    return sum_v_wide((a + b) + (c + d));
}

/* sum += x, in double. */
static inline void M(add_columns)(int64_t n, const E *x, double *sum)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        vf64 a = *(any_f64 *)(sum + i), b = *(any_f64 *)(sum + i + LANES - CPU_VECTOR / 8); /* b of f64: unused */
        M(add_wide_at)(&a, &b, x + i);
        if (T_BITS == 32) *(any_f64 *)(sum + i + LANES - CPU_VECTOR / 8) = b;
        *(any_f64 *)(sum + i) = a;
    }
    for (; i < n; i++) sum[i] += (double)M(get)(x + i);
}

CPU_INLINE double M(dot_of)(int64_t n, const E *x, const E *y)
{
    vf64    a = {0}, b = {0}, c = {0}, d = {0};
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        M(mul_wide_at)(&a, &b, x + i, y + i);
        M(mul_wide_at)(&c, &d, x + i + LANES, y + i + LANES);
    }
    for (; i + LANES <= n; i += LANES) M(mul_wide_at)(&a, &b, x + i, y + i);
    if (i < n) F(mul_wide)(&c, &d, M(load_n)(x + i, n - i), M(load_n)(y + i, n - i));
    return sum_v_wide((a + b) + (c + d));
}

static inline double M(dot_row)(int64_t n, const E *x, const E *y) { return M(dot_of)(n, x, y); }
static inline double M(square_row)(int64_t n, const E *x)
{
    return M(dot_of)(n, x, x);
} /* x is read and widened once */

/* y = exp(scale x - shift), which is at most 0; returns the sum, added in 4 LANES columns: at worst n eps / (4 LANES).
 * next: read soon */
static inline T M(exp_row)(int64_t n, const E *x, T scale, T shift, T *y, const E *next)
{
    V       s0 = F(splat)(0), s1 = s0, s2 = s0, s3 = s0;
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        V a = F(exp_down_v)(M(load)(x + i) * scale - shift), b = F(exp_down_v)(M(load)(x + i + LANES) * scale - shift);
        V c = F(exp_down_v)(M(load)(x + i + 2 * LANES) * scale - shift);
        V d = F(exp_down_v)(M(load)(x + i + 3 * LANES) * scale - shift);
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
        V a = F(exp_down_v)(M(load)(x + i) * scale - shift);
        F(store)(y + i, a);
        s0 += a;
    }
    T sum = F(sum_v)((s0 + s1) + (s2 + s3));
    if (i < n) {
        V a = F(exp_down_v)(M(load_n)(x + i, n - i) * scale - shift);
        F(store_n)(y + i, n - i, a);
        for (int64_t k = 0; k < n - i; k++) sum += a[k];
    }
    return sum;
}

/* The sum of exp(x - shift), in double over vector sums of 4 LANES elements. */
static inline double M(exp_sum_row)(int64_t n, const E *x, T shift)
{
    vf64    a = {0}, b = {0};
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        if (CPU_DIRECT) __builtin_prefetch((const char *)(x + i) + CPU_AHEAD);
        if (CPU_DIRECT) __builtin_prefetch((const char *)(x + i + 2 * LANES) + CPU_AHEAD);
        V s = F(exp_down_v)(M(load)(x + i) - shift), t = F(exp_down_v)(M(load)(x + i + LANES) - shift);
        s += F(exp_down_v)(M(load)(x + i + 2 * LANES) - shift);
        t += F(exp_down_v)(M(load)(x + i + 3 * LANES) - shift);
        F(add_wide)(&a, &b, s + t);
    }
    for (; i + LANES <= n; i += LANES) F(add_wide)(&a, &b, F(exp_down_v)(M(load)(x + i) - shift));
    double sum = sum_v_wide(a + b);
    if (i < n) {
        V last = F(exp_down_v)(M(load_n)(x + i, n - i) - shift);
        for (int64_t k = 0; k < n - i; k++) sum += last[k];
    }
    return sum;
}

static inline void M(scale_row)(int64_t n, T a, const T *x, E *y)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) M(store)(y + i, F(load)(x + i) * a);
    if (i < n) M(store_n)(y + i, n - i, F(load_n)(x + i, n - i) * a);
}

/* The same past the caches (base.c). */
static inline void M(scale_past)(int64_t n, T a, const T *x, E *y)
{
    for (int64_t i = 0, m = M(first_step)(y, n, true); i < n; i += m < LANES ? m : LANES, m = n - i)
        M(put_past)(y, i, m, F(at)(x, i, m) * a, true);
}

static inline void M(axpy_row)(int64_t n, T a, const E *x, E *y)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) M(store)(y + i, M(load)(y + i) + M(load)(x + i) * a);
    if (i < n) M(store_n)(y + i, n - i, M(load_n)(y + i, n - i) + M(load_n)(x + i, n - i) * a);
}
