/* blend.c - see blend.h. Of the numbers of a sample, number k is word k mod 4 of block k / 4 of its stream. */
#include "blend.h"

#include <math.h>
#include <string.h>

#include "../../kernels/philox.h"

enum { SITE = 77 }; /* beside those of transforms, which count from 0 */

typedef struct stream {
    uint64_t key, sample, epoch, used;
} stream;

/* Even in (0, 1). */
static double even(stream *s)
{
    uint64_t k = s->used++;
    return ((double)gm_philox_at(s->key, s->sample | (k / 4) << 48, s->epoch).v[k % 4] + 0.5) * 0x1p-32;
}

static double normal(stream *s)
{
    double r = sqrt(-2 * log(even(s)));
    return r * cos(6.283185307179586477 * even(s));
}

/* The logarithm of a number of the gamma distribution (Marsaglia and Tsang 2000); of small alpha it would be 0. */
static double log_gamma_draw(stream *s, double alpha)
{
    if (alpha < 1) return log_gamma_draw(s, alpha + 1) + log(even(s)) / alpha;
    double d = alpha - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double z = normal(s), v = 1 + c * z;
        if (v <= 0) continue;
        v = v * v * v;
        if (log(even(s)) < 0.5 * z * z + d - d * v + d * log(v)) return log(d) + log(v);
    }
}

/* Beta(alpha, alpha): a / (a + b). */
static double beta_draw(stream *s, double alpha)
{
    double a = log_gamma_draw(s, alpha), b = log_gamma_draw(s, alpha);
    return 1 / (1 + exp(b - a));
}

static int64_t within(double at, int64_t end) { return at < 0 ? 0 : at > (double)end ? end : (int64_t)at; }

static void choose_part(stream *s, const int64_t *shape, gm_blend_choice *c)
{
    double size = sqrt(1 - c->share), h = (double)shape[1], w = (double)shape[2];
    double tall = floor(h * size), wide = floor(w * size);
    double y = floor(h * even(s)), x = floor(w * even(s));
    c->top = within(y - floor(tall / 2), shape[1]), c->bottom = within(y - floor(tall / 2) + tall, shape[1]);
    c->left = within(x - floor(wide / 2), shape[2]), c->right = within(x - floor(wide / 2) + wide, shape[2]);
    c->share = 1 - (double)(c->bottom - c->top) * (double)(c->right - c->left) / (h * w);
}

gm_blend_choice gm_blend_choose(const gm_blend *list, int n, uint64_t seed, uint64_t epoch, int64_t sample,
                                int64_t samples, int ndim, const int64_t *shape)
{
    stream          s = {gm_stream_key(seed, GM_PURPOSE_AUGMENT, SITE), (uint64_t)sample, epoch, 0};
    gm_blend_choice c = {.share = 1, .partner = sample};
    for (int i = 0; i < n && !c.blended; i++) {
        c.blended = even(&s) < list[i].probability;
        if (!c.blended) continue;
        c.kind = list[i].kind;
        c.partner = (int64_t)((double)samples * even(&s));
        c.share = beta_draw(&s, list[i].alpha);
        if (c.kind == GM_CUTMIX && ndim == 3) choose_part(&s, shape, &c);
    }
    return c;
}

#define BLEND(T)                                                                                                    \
    static void blend_##T(const gm_blend_choice *c, int64_t n, const int64_t *shape, T *x, const T *other)          \
    {                                                                                                               \
        if (c->kind == GM_MIXUP) {                                                                                  \
            for (int64_t i = 0; i < n; i++) x[i] = (T)(c->share * x[i] + (1 - c->share) * other[i]);                \
            return;                                                                                                 \
        }                                                                                                           \
        for (int64_t row = 0; row < shape[0] * shape[1]; row++) {                                                   \
            int64_t y = row % shape[1], at = row * shape[2] + c->left;                                              \
            if (y >= c->top && y < c->bottom) memcpy(x + at, other + at, (size_t)(c->right - c->left) * sizeof *x); \
        }                                                                                                           \
    }
BLEND(float)
BLEND(double)

void gm_blend_samples(const gm_blend_choice *c, gm_dtype dtype, int64_t n, const int64_t *shape, void *x,
                      const void *other)
{
    if (dtype == GM_F32) blend_float(c, n, shape, x, other);
    else blend_double(c, n, shape, x, other);
}

void gm_blend_labels(const gm_blend_choice *c, gm_dtype dtype, int64_t classes, int64_t label, int64_t other, void *y)
{
    for (int64_t k = 0; k < classes; k++) {
        double share = (k == label ? c->share : 0) + (k == other ? 1 - c->share : 0);
        if (dtype == GM_F32) ((float *)y)[k] = (float)share;
        else ((double *)y)[k] = share;
    }
}
