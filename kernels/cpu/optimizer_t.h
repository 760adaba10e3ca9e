/* optimizer_t.h - updates of contiguous elements for one element type (as.h). t: tensors by their roles. */

/* Squares of 4 n elements, n whole vectors. A Zen 3 that reads at four places has a third more of memory's rate. */
static double F(squares_of_four)(int64_t n, const T *x)
{
    vf64 a = {0}, b = {0}, c = {0}, d = {0};
    for (int64_t i = 0; i < n; i += LANES) {
        V v = F(load)(x + i), w = F(load)(x + n + i), u = F(load)(x + 2 * n + i), z = F(load)(x + 3 * n + i);
        F(mul_wide)(&a, &b, v, v);
        F(mul_wide)(&c, &d, w, w);
        F(mul_wide)(&a, &b, u, u);
        F(mul_wide)(&c, &d, z, z);
    }
    return sum_v_wide((a + b) + (c + d));
}

static void F(sum_squares_row)(const optimizer_job *j, const optimizer_part *part, int64_t n, void *const *t)
{
    bool whole = CPU_DIRECT && n == OPTIMIZER_PIECE;
    j->partial[part->piece] += whole ? F(squares_of_four)(n / 4, t[ROLE_G]) : F(dot_row)(n, t[ROLE_G], t[ROLE_G]);
}

/* The step's constants. */
typedef struct F(constants) {
    T        scale, l2, before, outside, after, decay; /* see optimizer_job */
    T        b1, c1, b2, c2, root, first, eps, fresh;
    bool     buffer, nesterov, amsgrad;
    unsigned there; /* bit k: moment k */
} F(constants);

typedef V F(direction)(const F(constants) * c, V g, V *m);

static F(constants) F(constants_of)(const optimizer_job *j, const optimizer_part *part, void *const *t)
{
    F(constants)
    c = {(T)j->scale,
         (T)j->l2,
         (T)part->before,
         (T)j->outside,
         (T)(j->lr * part->after),
         (T)j->decay,
         (T)j->b1,
         (T)(1 - j->b1),
         (T)j->b2,
         (T)(1 - j->b2),
         (T)j->root,
         (T)j->first,
         (T)j->eps,
         (T)j->fresh,
         j->buffer,
         j->nesterov,
         j->amsgrad,
         0};
    for (int k = 0; k < OPTIMIZER_MOMENTS; k++) c.there |= t[ROLE_MOMENT + k] ? 1u << k : 0;
    return c;
}

/* ---- directions: from the gradient and the moments m, which they advance ---- */

CPU_INLINE V F(sgd_direction)(const F(constants) * c, V g, V *m)
{
    if (!c->there) return g;
    V b = g * c->fresh;
    if (c->buffer) b += m[0] * c->b1;
    m[0] = b;
    return c->nesterov ? g + b * c->b1 : b;
}

CPU_INLINE V F(adam_direction)(const F(constants) * c, V g, V *m)
{
    m[0] = m[0] * c->b1 + g * c->c1;
    m[1] = m[1] * c->b2 + g * g * c->c2;
    V v = m[1];
    if (c->amsgrad) v = m[2] = F(max_v)(m[2], v); /* NaN passes: it is the second operand */
    return m[0] * c->first / (F(sqrt_v)(v) * c->root + c->eps);
}

CPU_INLINE V F(lion_direction)(const F(constants) * c, V g, V *m)
{
    V d = m[0] * c->b1 + g * c->c1, one = F(splat)(1);
    m[0] = m[0] * c->b2 + g * c->c2;
    return F(select)(d > 0, one, F(select)(d < 0, -one, d));
}

CPU_INLINE V F(rmsprop_direction)(const F(constants) * c, V g, V *m)
{
    V v = m[0] = m[0] * c->b2 + g * g * c->c2;
    if (c->there & 4) {
        m[2] = m[2] * c->b2 + g * c->c2;
        v = F(max_v)(F(splat)(0), v - m[2] * m[2]);
    }
    V d = g / (F(sqrt_v)(v) + c->eps);
    if (c->there & 2) d = m[1] = m[1] * c->b1 + d;
    return d;
}

CPU_INLINE V F(adagrad_direction)(const F(constants) * c, V g, V *m)
{
    m[0] += g * g;
    return g / (F(sqrt_v)(m[0]) + c->eps);
}

/* ---- elements ---- */

/* The weight, gradient and moments of a vector of elements from i on, of n. */
CPU_INLINE V F(load_elements)(const F(constants) * c, int64_t i, int64_t n, void *const *t, V *w, V *m)
{
    *w = F(at)(t[ROLE_P], i, n - i);
    for (int k = 0; k < OPTIMIZER_MOMENTS; k++)
        if (c->there >> k & 1) m[k] = F(at)(t[ROLE_MOMENT + k], i, n - i);
    return F(at)(t[ROLE_G], i, n - i) * c->scale;
}

CPU_INLINE void F(apply_row)(const optimizer_job *j, const optimizer_part *part, int64_t n, void *const *t,
                             F(direction) * take)
{
    const F(constants) c = F(constants_of)(j, part, t);
    for (int64_t i = 0; i < n; i += LANES) {
        V w, m[OPTIMIZER_MOMENTS] = {{0}};
        V g = F(load_elements)(&c, i, n, t, &w, m);
        V step = take(&c, (g + w * c.l2) * c.before, m) + w * c.outside;
        F(put)(t[ROLE_P], i, n - i, w * c.decay - step * c.after);
        for (int k = 0; k < OPTIMIZER_MOMENTS; k++)
            if (c.there >> k & 1) F(put)(t[ROLE_MOMENT + k], i, n - i, m[k]);
    }
}

/* Adds the squares of weights, and of updates or, before there is a direction, of gradients. */
CPU_INLINE void F(measure_row)(const optimizer_job *j, const optimizer_part *part, int64_t n, void *const *t,
                               F(direction) * take)
{
    const F(constants) c = F(constants_of)(j, part, t);
    double *sums = j->partial + 2 * part->piece;
    T       weights[OPTIMIZER_CHUNK], others[OPTIMIZER_CHUNK];
    for (int64_t first = 0; first < n; first += OPTIMIZER_CHUNK) {
        int64_t end = n - first < OPTIMIZER_CHUNK ? n : first + OPTIMIZER_CHUNK;
        for (int64_t i = first; i < end; i += LANES) {
            V w, m[OPTIMIZER_MOMENTS] = {{0}};
            V g = F(load_elements)(&c, i, end, t, &w, m);
            F(put)(weights + i - first, 0, end - i, w);
            F(put)(others + i - first, 0, end - i, j->of_update ? take(&c, g + w * c.l2, m) + w * c.outside : g);
        }
        sums[0] += F(dot_row)(end - first, weights, weights);
        sums[1] += F(dot_row)(end - first, others, others);
    }
}

#define GM_OPTIMIZER(name, ...)                                                                                  \
    static void F(name##_apply)(const optimizer_job *j, const optimizer_part *part, int64_t n, void *const *t)   \
    {                                                                                                            \
        F(apply_row)(j, part, n, t, F(name##_direction));                                                        \
    }                                                                                                            \
    static void F(name##_measure)(const optimizer_job *j, const optimizer_part *part, int64_t n, void *const *t) \
    {                                                                                                            \
        F(measure_row)(j, part, n, t, F(name##_direction));                                                      \
    }
#include "../optimizers.def"
#undef GM_OPTIMIZER
