/* directions.cuh - the directions of optimizers.def for one element: from the gradient and the moments m, which they
 * advance. ref/optimizer.c has the references. */
#ifndef GM_CUDA_DIRECTIONS_CUH
#define GM_CUDA_DIRECTIONS_CUH

/* The step's constants in the type of arithmetic; see gm_update_step. */
template <class R> struct gm_update_numbers {
    R        scale, l2, before, outside, after, decay, b1, c1, b2, c2, root, first, eps, keep, fresh;
    int      nesterov, amsgrad;
    unsigned there; /* bit k: moment k */
};

template <class R> GM_DEVICE R gm_sgd(const gm_update_numbers<R> *c, R g, R *m)
{
    if (!c->there) return g;
    m[0] = (c->keep == 0 ? 0 : c->keep * m[0]) + c->fresh * g;
    return c->nesterov ? g + c->b1 * m[0] : m[0];
}

template <class R> GM_DEVICE R gm_adam(const gm_update_numbers<R> *c, R g, R *m)
{
    m[0] = c->b1 * m[0] + c->c1 * g;
    m[1] = c->b2 * m[1] + c->c2 * g * g;
    if (c->amsgrad && !(m[2] >= m[1])) m[2] = m[1];
    return c->first * m[0] / (c->root * sqrt(c->amsgrad ? m[2] : m[1]) + c->eps);
}

template <class R> GM_DEVICE R gm_lion(const gm_update_numbers<R> *c, R g, R *m)
{
    const R d = c->b1 * m[0] + c->c1 * g;
    m[0] = c->b2 * m[0] + c->c2 * g;
    return d > 0 ? 1 : d < 0 ? -1 : d;
}

template <class R> GM_DEVICE R gm_rmsprop(const gm_update_numbers<R> *c, R g, R *m)
{
    m[0] = c->b2 * m[0] + c->c2 * g * g;
    R v = m[0];
    if (c->there & 4) {
        m[2] = c->b2 * m[2] + c->c2 * g;
        v = v - m[2] * m[2];
        if (v < 0) v = 0;
    }
    const R d = g / (sqrt(v) + c->eps);
    if (!(c->there & 2)) return d;
    m[1] = c->b1 * m[1] + d;
    return m[1];
}

template <class R> GM_DEVICE R gm_adagrad(const gm_update_numbers<R> *c, R g, R *m)
{
    m[0] += g * g;
    return g / (sqrt(m[0]) + c->eps);
}

/* That of an op. */
template <int OP, class R> GM_DEVICE R gm_direction(const gm_update_numbers<R> *c, R g, R *m)
{
#define GM_OPTIMIZER(name, ...) \
    if constexpr (OP == (int)GM_OP_##name) return gm_##name(c, g, m);
#include "../../../optimizers.def"
#undef GM_OPTIMIZER
}

template <class... Names> GM_DEVICE constexpr int gm_count(Names...) { return (int)sizeof...(Names); }

/* The number of moments it may have. */
template <int OP> GM_DEVICE constexpr int gm_moments()
{
#define GM_OPTIMIZER(name, moments, there, positive, momentum, attributes, flops, ...) \
    if constexpr (OP == (int)GM_OP_##name) return gm_count(__VA_ARGS__);
#include "../../../optimizers.def"
#undef GM_OPTIMIZER
}

#endif
