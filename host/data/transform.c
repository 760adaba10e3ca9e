/* transform.c - see transform.h. A sample moves between two scratch buffers, one step after another;
 * every step knows the dtype and shape that come to it. */
#include "transform.h"

#include <stdlib.h>
#include <string.h>

#include "../../kernels/philox.h"

typedef struct step {
    gm_transform t;
    gm_dtype     dtype;   /* coming in */
    int64_t      c, h, w; /* coming in; for normalize of other shapes h * w is what a channel holds */
    uint64_t     key;
    double       table[GM_CHANNELS_MAX][256]; /* normalize of bytes: the result of each */
} step;

struct gm_transform_chain {
    gm_dtype raw, out;
    int      ndim, n;
    int64_t  shape[GM_MAX_DIMS]; /* coming out */
    int64_t  numel, largest;     /* coming out; the most in between */
    void    *scratch[2];
    step     steps[GM_TRANSFORMS_MAX + 1];
};

static int64_t product(int n, const int64_t *shape)
{
    int64_t p = 1;
    for (int i = 0; i < n; i++) p *= shape[i];
    return p;
}

/* ---- planning ---- */

static gm_status plan_normalize(gm_transform_chain *p, step *s)
{
    int64_t channels = p->ndim ? p->shape[0] : 1;
    if (s->t.channels != 1 && s->t.channels != channels)
        return GM_FAIL(GM_ESHAPE, "normalize: %d means for %lld channels", s->t.channels, (long long)channels);
    for (int k = 0; k < s->t.channels; k++)
        if (!(s->t.std[k] > 0)) return GM_FAIL(GM_EINVAL, "normalize: std %g must be above 0", s->t.std[k]);
    s->c = s->t.channels, s->h = 1, s->w = product(p->ndim, p->shape) / s->c;
    for (int k = 0; k < s->t.channels; k++)
        for (int v = 0; v < 256; v++) s->table[k][v] = (v / 255.0 - s->t.mean[k]) / s->t.std[k];
    return GM_OK;
}

static gm_status plan_image(gm_transform_chain *p, step *s)
{
    char text[96];
    if (p->ndim != 3)
        return GM_FAIL(GM_ESHAPE, "crop and flip need images (channels, height, width), samples are %s",
                       gm_shape_describe(p->ndim, p->shape, text, sizeof text));
    s->c = p->shape[0], s->h = p->shape[1], s->w = p->shape[2];
    if (s->t.kind != GM_RANDOM_CROP) return GM_OK;
    if (s->t.padding < 0 || s->t.padding > 1 << 20 || s->t.height < 1 || s->t.width < 1 ||
        s->t.height > s->h + 2 * s->t.padding || s->t.width > s->w + 2 * s->t.padding)
        return GM_FAIL(GM_ESHAPE, "random crop: %lld x %lld out of %lld x %lld with %lld zeros on each side",
                       (long long)s->t.height, (long long)s->t.width, (long long)s->h, (long long)s->w,
                       (long long)s->t.padding);
    p->shape[1] = s->t.height, p->shape[2] = s->t.width;
    return GM_OK;
}

static gm_status plan(gm_transform_chain *p, const gm_transform *list, int n, uint64_t seed)
{
    gm_dtype now = p->raw;
    uint64_t site = 0; /* place among the random ones: a normalize in between changes no choice */
    for (int i = 0; i < n; i++) {
        step *s = &p->steps[p->n++];
        bool  random = list[i].kind != GM_NORMALIZE;
        s->t = list[i], s->dtype = now;
        if (random) s->key = gm_stream_key(seed, GM_PURPOSE_AUGMENT, site++);
        GM_TRY(random ? plan_image(p, s) : plan_normalize(p, s));
        if (!random) now = GM_F64;
        int64_t m = product(p->ndim, p->shape);
        if (m > p->largest) p->largest = m;
    }
    if (now == GM_U8) { /* nobody normalized: value / 255 */
        const gm_transform scale = {.kind = GM_NORMALIZE, .channels = 1, .std = {1}};
        step              *s = &p->steps[p->n++];
        s->t = scale, s->dtype = now;
        GM_TRY(plan_normalize(p, s));
    }
    p->numel = product(p->ndim, p->shape);
    return GM_OK;
}

gm_status gm_transform_chain_new(const gm_transform *list, int n, gm_dtype raw, int ndim, const int64_t *shape,
                                 gm_dtype out, uint64_t seed, gm_transform_chain **result)
{
    if (n > GM_TRANSFORMS_MAX)
        return GM_FAIL(GM_EINVAL, "%d transforms; at most %d are possible", n, GM_TRANSFORMS_MAX);
    if (raw == GM_I64 && n) return GM_FAIL(GM_EINVAL, "tokens take no transforms, %d were given", n);
    gm_transform_chain *p = calloc(1, sizeof *p);
    if (!p) return GM_FAIL(GM_ENOMEM, "no memory for transforms");
    p->raw = raw, p->out = raw == GM_I64 ? GM_I64 : out, p->ndim = ndim;
    memcpy(p->shape, shape, (size_t)ndim * sizeof *shape);
    p->largest = product(ndim, shape);
    gm_status st = plan(p, list, n, seed);
    for (int i = 0; st == GM_OK && i < 2; i++)
        if (!(p->scratch[i] = malloc((size_t)p->largest * 8 + 8))) st = GM_FAIL(GM_ENOMEM, "no memory for transforms");
    if (st == GM_OK) *result = p;
    else gm_transform_chain_free(p);
    return st;
}

void gm_transform_chain_free(gm_transform_chain *p)
{
    if (!p) return;
    free(p->scratch[0]);
    free(p->scratch[1]);
    free(p);
}

gm_dtype gm_transform_chain_dtype(const gm_transform_chain *p) { return p->out; }
int64_t  gm_transform_chain_numel(const gm_transform_chain *p) { return p->numel; }

int gm_transform_chain_shape(const gm_transform_chain *p, int64_t *shape)
{
    memcpy(shape, p->shape, (size_t)p->ndim * sizeof *shape);
    return p->ndim;
}

/* ---- running ---- */

/* Channel k of n values, bytes or doubles, to doubles or (the one rounding) to f32. */
static void normalize_bytes(const double *table, const uint8_t *in, int64_t n, gm_dtype to, void *out)
{
    if (to == GM_F32)
        for (int64_t i = 0; i < n; i++) ((float *)out)[i] = (float)table[in[i]];
    else
        for (int64_t i = 0; i < n; i++) ((double *)out)[i] = table[in[i]];
}

static void normalize_doubles(double mean, double std, const double *in, int64_t n, gm_dtype to, void *out)
{
    if (to == GM_F32)
        for (int64_t i = 0; i < n; i++) ((float *)out)[i] = (float)((in[i] - mean) / std);
    else
        for (int64_t i = 0; i < n; i++) ((double *)out)[i] = (in[i] - mean) / std;
}

static void normalize(const step *s, const char *in, gm_dtype to, char *out)
{
    size_t size = gm_dtype_size(s->dtype), wide = gm_dtype_size(to);
    for (int64_t k = 0; k < s->c; k++, in += (size_t)s->w * size, out += (size_t)s->w * wide) {
        if (s->dtype == GM_U8) normalize_bytes(s->table[k], (const uint8_t *)in, s->w, to, out);
        else normalize_doubles(s->t.mean[k], s->t.std[k], (const double *)in, s->w, to, out);
    }
}

static int64_t below(uint32_t word, int64_t n) { return (int64_t)(((uint64_t)word * (uint64_t)n) >> 32); }

/* Cuts a window at (top, left) of the padded image; what lies outside the image is zero. */
static void crop(const step *s, const char *in, char *out, gm_philox choice)
{
    size_t  size = gm_dtype_size(s->dtype);
    int64_t top = below(choice.v[0], s->h + 2 * s->t.padding - s->t.height + 1) - s->t.padding;
    int64_t left = below(choice.v[1], s->w + 2 * s->t.padding - s->t.width + 1) - s->t.padding;
    int64_t from = left < 0 ? 0 : left, to = left + s->t.width < s->w ? left + s->t.width : s->w;
    memset(out, 0, (size_t)(s->c * s->t.height * s->t.width) * size);
    for (int64_t c = 0; c < s->c; c++)
        for (int64_t y = 0; y < s->t.height; y++) {
            if (top + y < 0 || top + y >= s->h || from >= to) continue;
            memcpy(out + (size_t)((c * s->t.height + y) * s->t.width + from - left) * size,
                   in + (size_t)((c * s->h + top + y) * s->w + from) * size, (size_t)(to - from) * size);
        }
}

static void mirror(const step *s, const char *in, char *out, gm_philox choice)
{
    size_t size = gm_dtype_size(s->dtype);
    bool   turn = choice.v[0] < gm_drop_threshold(s->t.probability) || s->t.probability >= 1;
    if (!turn) {
        memcpy(out, in, (size_t)(s->c * s->h * s->w) * size);
        return;
    }
    for (int64_t row = 0; row < s->c * s->h; row++, in += (size_t)s->w * size, out += (size_t)s->w * size) {
        if (size == 1)
            for (int64_t x = 0; x < s->w; x++) out[x] = in[s->w - 1 - x];
        else
            for (int64_t x = 0; x < s->w; x++) ((double *)out)[x] = ((const double *)in)[s->w - 1 - x];
    }
}

void gm_transform_chain_run(gm_transform_chain *p, void *raw, uint64_t epoch, int64_t sample, void *out)
{
    if (p->raw == GM_I64) {
        memcpy(out, raw, (size_t)p->numel * sizeof(int64_t));
        return;
    }
    void *now = raw;
    for (int i = 0; i < p->n; i++) {
        const step *s = &p->steps[i];
        bool        last = i == p->n - 1;
        gm_philox   choice = gm_philox_at(s->key, (uint64_t)sample, epoch);
        if (last && s->t.kind == GM_NORMALIZE) { /* straight to the batch */
            normalize(s, now, p->out, out);
            return;
        }
        void *next = p->scratch[i % 2];
        if (s->t.kind == GM_NORMALIZE) normalize(s, now, GM_F64, next);
        else if (s->t.kind == GM_RANDOM_CROP) crop(s, now, next, choice);
        else mirror(s, now, next, choice);
        now = next;
    }
    if (p->out == GM_F64) memcpy(out, now, (size_t)p->numel * sizeof(double));
    else
        for (int64_t i = 0; i < p->numel; i++) ((float *)out)[i] = (float)((const double *)now)[i];
}
