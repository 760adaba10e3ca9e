/* elementwise_t.h - rows of the elementwise ops for one element type (as.h). All rows are contiguous. */

/* f(x) over n elements. A piece of less than a vector comes first, up to an address that vectors divide, where rows
 * stream themselves (base.c), and at the end; its missing lanes read 0. The loops over whole vectors between have no
 * branch of their own: one takes some 10 cycles. Where rows stream, what will be read is asked for ahead: the processor
 * does not look beyond 4 KiB. */
#define PAST     (CPU_DIRECT && past)
#define AHEAD(p) __builtin_prefetch((const char *)(p) + CPU_AHEAD)
#define MAP(part, whole, ahead, expression)                                \
    for (int64_t i = 0, m = M(first_step)(y, n, PAST); i < n; m = n - i) { \
        if (m < LANES) {                                                   \
            part;                                                          \
            M(store_n)(y + i, m, (expression));                            \
            i += m;                                                        \
        }                                                                  \
        for (; PAST && i + LANES <= n; i += LANES) {                       \
            whole;                                                         \
            ahead;                                                         \
            M(store_past)(y + i, (expression));                            \
        }                                                                  \
        for (; i + LANES <= n; i += LANES) {                               \
            whole;                                                         \
            M(store)(y + i, (expression));                                 \
        }                                                                  \
    }
#define MAP1(expression) MAP(V a = M(load_n)(x + i, m), V a = M(load)(x + i), AHEAD(x + i), expression)
#define PAIR(a_, b_)     V a = a_, b = b_
#define MAP2(expression)                                                                      \
    MAP(PAIR(M(load_n)(x + i, m), M(load_n)(z + i, m)), PAIR(M(load)(x + i), M(load)(z + i)), \
        (AHEAD(x + i), AHEAD(z + i)), expression)
#define EACH(expression) \
    cpu_clean();         \
    for (int64_t i = 0; i < n; i++) M(set)(y + i, (T)(expression))

/* What wide.c has for floats is libm's for doubles. */
#undef WIDE
#if T_BITS == 32
#define WIDE(vectors, numbers) vectors
#else
#define WIDE(vectors, numbers) numbers
#endif

/* y = x^value; exponents that products, quotients and roots make are taken apart. */
static void M(power_row)(double value, int64_t n, const E *x, E *y, bool past)
{
    if (value == 2) {
        MAP1(a * a);
    } else if (value == 3) {
        MAP1(a * a * a);
    } else if (value == 0.5) {
        MAP1(F(root_v)(a));
    } else if (value == -1) {
        MAP1(1 / a);
    } else {
#if T_BITS == 32
        const wide_power p = wide_power_of(value, 1);
#endif
        WIDE(MAP1(power_v_f32(a, &p)), EACH(pow((double)M(get)(x + i), value)));
    }
}

static void M(clamp_row)(T low, T high, int64_t n, const E *x, E *y, bool past)
{
    const V from = F(splat)(low), to = F(splat)(high);
    MAP1(F(if_most)(a, from, from, F(if_most)(to, a, to, a)));
}

static void M(clamp_grad_row)(T low, T high, int64_t n, const E *x, const E *z, E *y, bool past)
{
    const V from = F(splat)(low), to = F(splat)(high), zero = F(splat)(0), one = F(splat)(1);
    MAP2(F(if_most)(a, from, zero, F(if_most)(to, a, zero, one)) * b);
}

static void M(unary_dense)(const void *context, int64_t n, char *const *p, bool past)
{
    const gm_attrs *at = context;
    E              *y = (E *)p[0];
    const E        *x = (const E *)p[1];
    switch (at->function) {
    case GM_FN_neg: MAP1(-a); break;
    case GM_FN_exp: MAP1(F(exp_v)(a)); break;
    case GM_FN_log: MAP1(F(log_v)(a)); break;
    case GM_FN_softplus: MAP1(F(softplus_v)(a)); break;
    case GM_FN_sqrt: MAP1(F(sqrt_v)(a)); break;
    case GM_FN_rsqrt: MAP1(1 / F(sqrt_v)(a)); break;
    case GM_FN_square: MAP1(a * a); break;
    case GM_FN_reciprocal: MAP1(1 / a); break;
    case GM_FN_abs: MAP1(F(abs_v)(a)); break;
    case GM_FN_sin: WIDE(MAP1(sin_v_f32(a)), EACH(sin((double)M(get)(x + i)))); break;
    case GM_FN_cos: WIDE(MAP1(cos_v_f32(a)), EACH(cos((double)M(get)(x + i)))); break;
    case GM_FN_power: M(power_row)(at->value, n, x, y, past); break;
    case GM_FN_clamp: M(clamp_row)((T)at->low, (T)at->high, n, x, y, past); break;
    case GM_FN_relu: MAP1(F(relu_v)(a)); break;
    case GM_FN_gelu: MAP1(F(gelu_v)(a)); break;
    case GM_FN_gelu_tanh: MAP1(F(gelu_tanh_v)(a)); break;
    case GM_FN_silu: MAP1(F(silu_v)(a)); break;
    case GM_FN_sigmoid: MAP1(F(sigmoid_v)(a)); break;
    default: MAP1(F(tanh_v)(a)); break; /* tanh */
    }
}

/* y = z value x^(value - 1), z the gradient; x may be negative, value any. */
static void M(power_grad_row)(double value, int64_t n, const E *x, const E *z, E *y, bool past)
{
    if (value == 0) {
        MAP2(((void)a, b * 0));
    } else if (value == 2) {
        MAP2(b * 2 * a);
    } else if (value == 3) {
        MAP2(b * 3 * (a * a));
    } else if (value == 0.5) {
        MAP2(b * (T)0.5 / F(root_v)(a));
    } else if (value == -1) {
        MAP2(-b / (a * a));
    } else {
#if T_BITS == 32
        const wide_power p = wide_power_of(value - 1, value);
#endif
        WIDE(MAP2(b * power_v_f32(a, &p)),
             EACH((double)M(get)(z + i) * (value * pow((double)M(get)(x + i), value - 1))));
    }
}

static void M(unary_grad_dense)(const void *context, int64_t n, char *const *p, bool past)
{
    const gm_attrs *at = context;
    E              *y = (E *)p[0];
    const E        *x = (const E *)p[1], *z = (const E *)p[2]; /* z: the gradient */
    const V         zero = F(splat)(0);
    switch (at->function) {
    case GM_FN_neg: MAP2(((void)a, -b)); break;
    case GM_FN_exp: MAP2(b * F(exp_v)(a)); break;
    case GM_FN_log: MAP2(b / a); break;
    case GM_FN_softplus: MAP2(b * F(sigmoid_v)(a)); break;
    case GM_FN_sqrt: MAP2(b * (T)0.5 / F(sqrt_v)(a)); break;
    case GM_FN_rsqrt: MAP2(b * (T)-0.5 / (a * F(sqrt_v)(a))); break;
    case GM_FN_square: MAP2(b * 2 * a); break;
    case GM_FN_reciprocal: MAP2(-b / (a * a)); break;
    case GM_FN_abs: MAP2(F(select)(a > 0, b, F(select)(a < 0, -b, zero))); break;
    case GM_FN_sin: WIDE(MAP2(b * cos_v_f32(a)), EACH((double)M(get)(z + i) * cos((double)M(get)(x + i)))); break;
    case GM_FN_cos: WIDE(MAP2(-b * sin_v_f32(a)), EACH(-(double)M(get)(z + i) * sin((double)M(get)(x + i)))); break;
    case GM_FN_power: M(power_grad_row)(at->value, n, x, z, y, past); break;
    case GM_FN_clamp: M(clamp_grad_row)((T)at->low, (T)at->high, n, x, z, y, past); break;
    case GM_FN_relu: MAP2(b * F(relu_grad_v)(a)); break;
    case GM_FN_gelu: MAP2(b * F(gelu_grad_v)(a)); break;
    case GM_FN_gelu_tanh: MAP2(b * F(gelu_tanh_grad_v)(a)); break;
    case GM_FN_silu: MAP2(b * F(silu_grad_v)(a)); break;
    case GM_FN_sigmoid: MAP2(b * F(sigmoid_grad_v)(a)); break;
    default: MAP2(b * F(tanh_grad_v)(a)); break; /* tanh */
    }
}

static void M(binary_dense)(const void *context, int64_t n, char *const *p, bool past)
{
    const gm_attrs *at = context;
    E              *y = (E *)p[0];
    const E        *x = (const E *)p[1], *z = (const E *)p[2];
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
    default: WIDE(MAP2(pow_v_f32(a, b)), EACH(pow((double)M(get)(x + i), (double)M(get)(z + i)))); break; /* pow */
    }
}

/* y = f(x, z) for rows of n elements, to each of which one element of z belongs. step: elements from row to row. */
#define ACROSS(expression)                                                               \
    for (int64_t r = 0; r < rows; r++, y += step[0], x += step[3 - k], z += step[k]) {   \
        const V b = F(splat)(M(get)(z));                                                 \
        MAP(V a = M(load_n)(x + i, m), V a = M(load)(x + i), AHEAD(x + i), (expression)) \
    }

static void M(binary_across)(const void *context, int64_t rows, int64_t n, char *const *p, const int64_t *step, int k,
                             bool past)
{
    const gm_attrs *at = context;
    const bool      first = k == 1; /* it is the first operand that repeats */
    E              *y = (E *)p[0];
    const E        *x = (const E *)p[3 - k], *z = (const E *)p[k];
    switch (at->function) {
    case GM_FN_add: ACROSS(a + b); break;
    case GM_FN_mul: ACROSS(a * b); break;
    case GM_FN_sub:
        if (first) ACROSS(b - a) else ACROSS(a - b) break;
    default: /* div */
        if (first) ACROSS(b / a) else ACROSS(a / b) break;
    }
}

#define COMPARED 128 /* numbers at a time: whole vectors */
#if E_BITS == T_BITS
#define COMPARE(operator) \
    for (int64_t i = 0; i < n; i++) y[i] = (uint8_t)(x[i] operator z[i])

static void F(compare_row)(gm_function f, int64_t n, const T *x, const T *z, uint8_t *y)
{
    switch (f) {
    case GM_FN_eq: COMPARE(==); break;
    case GM_FN_ne: COMPARE(!=); break;
    case GM_FN_lt: COMPARE(<); break;
    case GM_FN_le: COMPARE(<=); break;
    case GM_FN_gt: COMPARE(>); break;
    default: COMPARE(>=); break; /* ge */
    }
}
#undef COMPARE
#endif

/* n <= COMPARED elements as numbers: in room, where they are narrower in memory. */
CPU_INLINE const T *M(compared)(const E *p, int64_t n, T *room)
{
#if E_BITS == T_BITS
    (void)n, (void)room;
    return p;
#else
    for (int64_t i = 0; i < n; i += LANES) F(store)(room + i, M(at)(p, i, n - i));
    return room;
#endif
}

static void M(compare_dense)(const void *context, int64_t n, char *const *p, bool past)
{
    const gm_attrs *at = context;
    const E        *x = (const E *)p[1], *z = (const E *)p[2];
    uint8_t        *y = (uint8_t *)p[0];
    T               a[COMPARED], b[COMPARED];
    (void)past;
    for (int64_t i = 0; i < n; i += COMPARED) {
        int64_t m = n - i < COMPARED ? n - i : COMPARED;
        F(compare_row)(at->function, m, M(compared)(x + i, m, a), M(compared)(z + i, m, b), y + i);
    }
}
#undef COMPARED

static void M(where_dense)(const void *context, int64_t n, char *const *p, bool past)
{
    E *restrict y = (E *)p[0];
    const uint8_t *restrict c = (const uint8_t *)p[1];
    const E *restrict a = (const E *)p[2], *restrict b = (const E *)p[3];
    (void)context;
    (void)past;
    for (int64_t i = 0; i < n; i++) {
        E yes = a[i], no = b[i];
        y[i] = c[i] ? yes : no;
    }
}

static void M(axpy_dense)(const void *context, int64_t n, char *const *p, bool past)
{
    const gm_attrs *at = context;
    (void)past;
    M(axpy_row)(n, (T)at->alpha, (const E *)p[1], (E *)p[0]);
}

static void M(affine_dense)(const void *context, int64_t n, char *const *p, bool past)
{
    const gm_attrs *at = context;
    E              *y = (E *)p[0];
    T               alpha = (T)at->alpha, beta = (T)at->beta;
    const E        *x = (const E *)p[1];
    MAP1(a * alpha + beta);
}
