/* optimizer_t.h - updates of contiguous elements for one element type (as.h). t: g, then the outputs. */

static void F(sum_squares_span)(const optimizer_job *j, int64_t n, void *const *t, int thread)
{
    j->partial[thread] += F(dot_row)(n, t[0], t[0]);
}

static void F(sgd_span)(const optimizer_job *j, int64_t n, void *const *t, int thread)
{
    const T *gradient = t[0];
    T       *p = t[1], *buffer = t[2];
    T        scale = (T)j->scale, decay = (T)j->weight_decay, lr = (T)j->lr;
    T        momentum = (T)j->momentum, fresh = (T)j->fresh;
    (void)thread;
    for (int64_t i = 0; i < n; i += LANES) {
        V w = F(at)(p, i, n - i), g = F(at)(gradient, i, n - i) * scale + w * decay;
        if (buffer) {
            V b = g * fresh;
            if (j->buffer) b += F(at)(buffer, i, n - i) * momentum;
            F(put)(buffer, i, n - i, b);
            g = j->nesterov ? g + b * momentum : b;
        }
        F(put)(p, i, n - i, w - g * lr);
    }
}

static void F(adam_span)(const optimizer_job *j, int64_t n, void *const *t, int thread)
{
    const T *gradient = t[0];
    T       *p = t[1], *first = t[2], *second = t[3];
    T        scale = (T)j->scale, l2 = (T)j->weight_decay, decay = (T)j->decay, rate = (T)j->rate, root = (T)j->root;
    T        eps = (T)j->eps, b1 = (T)j->beta1, c1 = (T)(1 - j->beta1), b2 = (T)j->beta2, c2 = (T)(1 - j->beta2);
    (void)thread;
    for (int64_t i = 0; i < n; i += LANES) {
        V w = F(at)(p, i, n - i) * decay, g = F(at)(gradient, i, n - i) * scale + w * l2;
        V m = F(at)(first, i, n - i) * b1 + g * c1, v = F(at)(second, i, n - i) * b2 + g * g * c2;
        F(put)(first, i, n - i, m);
        F(put)(second, i, n - i, v);
        F(put)(p, i, n - i, w - m * rate / (F(sqrt_v)(v) * root + eps));
    }
}
