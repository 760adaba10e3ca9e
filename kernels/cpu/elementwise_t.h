/* elementwise_t.h - rows of the elementwise ops for one element type (as.h). All rows are contiguous. */

/* f(x) over n elements. A piece of less than a vector comes first, up to an address that vectors divide, where rows
 * stream themselves (base.c), and at the end; its missing lanes read 0. The loops over whole vectors between have no
 * branch of their own: one takes some 10 cycles. Where rows stream, what will be read is asked for ahead: the processor
 * does not look beyond 4 KiB. */
#define PAST     (CPU_DIRECT && past)
#define AHEAD(p) __builtin_prefetch((const char *)(p) + CPU_AHEAD)
#define MAP(part, whole, ahead, expression)                                \
    for (int64_t i = 0, m = F(first_step)(y, n, PAST); i < n; m = n - i) { \
        if (m < LANES) {                                                   \
            part;                                                          \
            F(store_n)(y + i, m, (expression));                            \
            i += m;                                                        \
        }                                                                  \
        for (; PAST && i + LANES <= n; i += LANES) {                       \
            whole;                                                         \
            ahead;                                                         \
            F(store_past)(y + i, (expression));                            \
        }                                                                  \
        for (; i + LANES <= n; i += LANES) {                               \
            whole;                                                         \
            F(store)(y + i, (expression));                                 \
        }                                                                  \
    }
#define MAP1(expression) MAP(V a = F(load_n)(x + i, m), V a = F(load)(x + i), AHEAD(x + i), expression)
#define PAIR(a_, b_)     V a = a_, b = b_
#define MAP2(expression)                                                                      \
    MAP(PAIR(F(load_n)(x + i, m), F(load_n)(z + i, m)), PAIR(F(load)(x + i), F(load)(z + i)), \
        (AHEAD(x + i), AHEAD(z + i)), expression)
#define EACH(expression) \
    for (int64_t i = 0; i < n; i++) y[i] = (T)(expression)

static void F(unary_dense)(const void *context, int64_t n, char *const *p, bool past)
{
    const gm_attrs *at = context;
    T              *y = (T *)p[0];
    const T        *x = (const T *)p[1];
    switch (at->function) {
    case GM_FN_neg: MAP1(-a); break;
    case GM_FN_exp: MAP1(F(exp_v)(a)); break;
    case GM_FN_log: MAP1(F(log_v)(a)); break;
    case GM_FN_sqrt: MAP1(F(sqrt_v)(a)); break;
    case GM_FN_rsqrt: MAP1(1 / F(sqrt_v)(a)); break;
    case GM_FN_square: MAP1(a * a); break;
    case GM_FN_reciprocal: MAP1(1 / a); break;
    case GM_FN_abs: MAP1(F(abs_v)(a)); break;
    case GM_FN_sin: EACH(sin((double)x[i])); break;
    case GM_FN_cos: EACH(cos((double)x[i])); break;
    case GM_FN_power:
        if (at->value == 2) {
            MAP1(a * a);
        } else {
            EACH(pow((double)x[i], at->value));
        }
        break;
    case GM_FN_relu: MAP1(F(relu_v)(a)); break;
    case GM_FN_gelu: MAP1(F(gelu_v)(a)); break;
    case GM_FN_gelu_tanh: MAP1(F(gelu_tanh_v)(a)); break;
    case GM_FN_silu: MAP1(F(silu_v)(a)); break;
    case GM_FN_sigmoid: MAP1(F(sigmoid_v)(a)); break;
    default: MAP1(F(tanh_v)(a)); break; /* tanh */
    }
}

/* x^value' = value x^(value - 1), in double: x may be negative, value any */
static void F(power_grad_row)(double value, int64_t n, const T *x, const T *g, T *y)
{
    for (int64_t i = 0; i < n; i++) y[i] = (T)((double)g[i] * (value == 0 ? 0 : value * pow((double)x[i], value - 1)));
}

static void F(unary_grad_dense)(const void *context, int64_t n, char *const *p, bool past)
{
    const gm_attrs *at = context;
    T              *y = (T *)p[0];
    const T        *x = (const T *)p[1], *z = (const T *)p[2]; /* z: the gradient */
    const V         zero = F(splat)(0);
    switch (at->function) {
    case GM_FN_neg: MAP2(((void)a, -b)); break;
    case GM_FN_exp: MAP2(b * F(exp_v)(a)); break;
    case GM_FN_log: MAP2(b / a); break;
    case GM_FN_sqrt: MAP2(b * (T)0.5 / F(sqrt_v)(a)); break;
    case GM_FN_rsqrt: MAP2(b * (T)-0.5 / (a * F(sqrt_v)(a))); break;
    case GM_FN_square: MAP2(b * 2 * a); break;
    case GM_FN_reciprocal: MAP2(-b / (a * a)); break;
    case GM_FN_abs: MAP2(F(select)(a > 0, b, F(select)(a < 0, -b, zero))); break;
    case GM_FN_sin: EACH((double)z[i] * cos((double)x[i])); break;
    case GM_FN_cos: EACH(-(double)z[i] * sin((double)x[i])); break;
    case GM_FN_power: F(power_grad_row)(at->value, n, x, z, y); break;
    case GM_FN_relu: MAP2(b * F(relu_grad_v)(a)); break;
    case GM_FN_gelu: MAP2(b * F(gelu_grad_v)(a)); break;
    case GM_FN_gelu_tanh: MAP2(b * F(gelu_tanh_grad_v)(a)); break;
    case GM_FN_silu: MAP2(b * F(silu_grad_v)(a)); break;
    case GM_FN_sigmoid: MAP2(b * F(sigmoid_grad_v)(a)); break;
    default: MAP2(b * F(tanh_grad_v)(a)); break; /* tanh */
    }
}

static void F(binary_dense)(const void *context, int64_t n, char *const *p, bool past)
{
    const gm_attrs *at = context;
    T              *y = (T *)p[0];
    const T        *x = (const T *)p[1], *z = (const T *)p[2];
    switch (at->function) {
    case GM_FN_add: MAP2(a + b); break;
    case GM_FN_sub: MAP2(a - b); break;
    case GM_FN_mul: MAP2(a * b); break;
    case GM_FN_div: MAP2(a / b); break;
    case GM_FN_maximum: MAP2(F(select)(a != a, a, F(max_v)(a, b))); break; /* max_v gives b where either is NaN */
    case GM_FN_minimum: MAP2(F(select)(a != a, a, F(min_v)(a, b))); break;
    case GM_FN_reglu: MAP2(F(relu_v)(a) * b); break;
    case GM_FN_geglu: MAP2(F(gelu_v)(a) * b); break;
    case GM_FN_geglu_tanh: MAP2(F(gelu_tanh_v)(a) * b); break;
    case GM_FN_swiglu: MAP2(F(silu_v)(a) * b); break;
    default: EACH(pow((double)x[i], (double)z[i])); break; /* pow */
    }
}

#define COMPARE(operator) \
    for (int64_t i = 0; i < n; i++) y[i] = (uint8_t)(x[i] operator z[i])

static void F(compare_dense)(const void *context, int64_t n, char *const *p, bool past)
{
    const gm_attrs *at = context;
    uint8_t        *y = (uint8_t *)p[0];
    const T        *x = (const T *)p[1], *z = (const T *)p[2];
    (void)past;
    switch (at->function) {
    case GM_FN_eq: COMPARE(==); break;
    case GM_FN_ne: COMPARE(!=); break;
    case GM_FN_lt: COMPARE(<); break;
    case GM_FN_le: COMPARE(<=); break;
    case GM_FN_gt: COMPARE(>); break;
    default: COMPARE(>=); break; /* ge */
    }
}

static void F(where_dense)(const void *context, int64_t n, char *const *p, bool past)
{
    T *restrict y = (T *)p[0];
    const uint8_t *restrict c = (const uint8_t *)p[1];
    const T *restrict a = (const T *)p[2], *restrict b = (const T *)p[3];
    (void)context;
    (void)past;
    for (int64_t i = 0; i < n; i++) {
        T yes = a[i], no = b[i];
        y[i] = c[i] ? yes : no;
    }
}

static void F(axpy_dense)(const void *context, int64_t n, char *const *p, bool past)
{
    const gm_attrs *at = context;
    (void)past;
    F(axpy_row)(n, (T)at->alpha, (const T *)p[1], (T *)p[0]);
}

static void F(affine_dense)(const void *context, int64_t n, char *const *p, bool past)
{
    const gm_attrs *at = context;
    T              *y = (T *)p[0], alpha = (T)at->alpha, beta = (T)at->beta;
    const T        *x = (const T *)p[1];
    MAP1(a * alpha + beta);
}
