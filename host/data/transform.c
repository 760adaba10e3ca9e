/* transform.c - see transform.h. A sample moves between two scratch buffers, one step after another;
 * every step knows the dtype that comes to it, and where all samples have one size also the shape. */
#include "transform.h"

#include <stdlib.h>
#include <string.h>

#include "../../kernels/philox.h"
#include "../image/augment.h"
#include "../image/colour.h"
#include "../image/resample.h"
#include "window.h"

typedef struct step {
    gm_transform t;
    gm_dtype     dtype; /* coming in */
    int          ndim;  /* likewise; a kernel is told */
    int64_t      shape[GM_MAX_DIMS];
    uint64_t     key;
    double       table[GM_CHANNELS_MAX][256]; /* normalize of bytes: the result of each */
} step;

/* A sample on its way. (channels, height, width) are those of a picture; of another shape, count alone is known. */
typedef struct state {
    void    *data;
    gm_dtype dtype;
    int64_t  channels, height, width, count;
} state;

struct gm_transform_chain {
    gm_dtype         raw, out;
    int              ndim, n;
    int64_t          shape[GM_MAX_DIMS]; /* coming out */
    int64_t          coming[3];          /* coming in, of pictures */
    int64_t          numel, incoming;    /* coming out, coming in */
    void            *scratch[2];
    size_t           room[2];
    int              turn; /* the scratch that the next step writes */
    step             steps[GM_TRANSFORMS_MAX + 1];
    gm_resampler     resampler;
    uint64_t         epoch; /* of the sample on its way */
    int64_t          sample;
    bool             chosen; /* the first step has chosen its window, and only `part` of the picture was decoded */
    bool             joined; /* the first step resizes and the second crops: of the result, only these spans are made */
    gm_resample_span down, across;
    gm_window        window, part;
};

static int64_t product(int n, const int64_t *shape)
{
    int64_t p = 1;
    for (int i = 0; i < n; i++) p *= shape[i];
    return p;
}

static bool is_crop(const gm_transform *t)
{
    return t->kind == GM_RANDOM_CROP || t->kind == GM_CENTER_CROP || t->kind == GM_RESIZED_CROP;
}

static bool is_random(gm_transform_kind kind)
{
    return kind == GM_RANDOM_CROP || kind == GM_RANDOM_FLIP || kind == GM_RESIZED_CROP || kind == GM_COLOR_JITTER ||
           kind == GM_RAND_AUGMENT || kind == GM_KERNEL;
}

/* ---- planning ---- */

static gm_status plan_normalize(gm_transform_chain *p, step *s)
{
    int64_t channels = p->ndim ? p->shape[0] : 1;
    if (s->t.channels != 1 && s->t.channels != channels)
        return GM_FAIL(GM_ESHAPE, "normalize: %d means for %lld channels", s->t.channels, (long long)channels);
    for (int k = 0; k < s->t.channels; k++)
        if (!(s->t.std[k] > 0)) return GM_FAIL(GM_EINVAL, "normalize: std %g must be above 0", s->t.std[k]);
    for (int k = 0; k < s->t.channels; k++)
        for (int v = 0; v < 256; v++) s->table[k][v] = (v / 255.0 - s->t.mean[k]) / s->t.std[k];
    return GM_OK;
}

static gm_status check_bytes(const gm_transform_chain *p, const step *s)
{
    if (s->dtype == GM_U8) return GM_OK;
    return GM_FAIL(GM_EINVAL,
                   p->raw == GM_U8 ? "%s needs bytes: put it before normalize"
                                   : "%s needs samples of bytes (0 to 255); those of this dataset are numbers",
                   gm_transform_name(s->t.kind));
}

/* The shape behind the step. */
static gm_status plan_image(gm_transform_chain *p, step *s)
{
    char    text[96];
    int64_t h, w;
    bool    any = p->ndim == 3 && p->shape[1] == GM_ANY_SIZE;
    if (p->ndim != 3)
        return GM_FAIL(GM_ESHAPE, "%s needs images (channels, height, width), samples are %s",
                       gm_transform_name(s->t.kind), gm_shape_describe(p->ndim, p->shape, text, sizeof text));
    GM_TRY(gm_transform_check(&s->t));
    bool colours = s->t.kind == GM_COLOR_JITTER || s->t.kind == GM_RAND_AUGMENT;
    if (s->t.kind == GM_RESIZE || s->t.kind == GM_RESIZED_CROP || colours) GM_TRY(check_bytes(p, s));
    if (colours && p->shape[0] != 1 && p->shape[0] != 3)
        return GM_FAIL(GM_ESHAPE, "%s needs 1 or 3 channels, not %lld", gm_transform_name(s->t.kind),
                       (long long)p->shape[0]);
    if (s->t.kind == GM_RESIZE && s->t.width == 0 && any) return GM_OK; /* sizes still differ */
    if (s->t.kind == GM_RESIZE) {
        gm_resized(&s->t, p->shape[1], p->shape[2], &h, &w);
        p->shape[1] = h, p->shape[2] = w;
    } else if (is_crop(&s->t)) {
        gm_window window;
        if (!any) GM_TRY(gm_window_of(&s->t, s->key, 0, 0, p->shape[1], p->shape[2], &window));
        p->shape[1] = s->t.height, p->shape[2] = s->t.width;
    }
    return GM_OK;
}

/* The shape behind a kernel. */
static gm_status plan_kernel(gm_transform_chain *p, const step *s)
{
    const gm_kernel_use *k = &s->t.kernel;
    if (k->dtype == GM_U8) GM_TRY(check_bytes(p, s));
    if (!k->ndim) return GM_OK;
    for (int d = 0; d < k->ndim; d++)
        if (k->shape[d] < 1 || k->shape[d] > 1 << 24 || product(d + 1, k->shape) > (int64_t)1 << 40)
            return GM_FAIL(GM_ESHAPE, "transform '%s': size %d of its shape is %lld, which no sample has", k->name,
                           d + 1, (long long)k->shape[d]);
    p->ndim = k->ndim;
    memcpy(p->shape, k->shape, sizeof p->shape);
    return GM_OK;
}

/* Bytes become numbers from 0 to 1. */
static gm_status plan_scale(gm_transform_chain *p)
{
    const gm_transform scale = {.kind = GM_NORMALIZE, .channels = 1, .std = {1}};
    step              *s = &p->steps[p->n++];
    s->t = scale, s->dtype = GM_U8;
    return plan_normalize(p, s);
}

static gm_status plan_step(gm_transform_chain *p, step *s)
{
    s->ndim = p->ndim;
    memcpy(s->shape, p->shape, sizeof s->shape);
    if (s->t.kind == GM_NORMALIZE) return plan_normalize(p, s);
    return s->t.kind == GM_KERNEL ? plan_kernel(p, s) : plan_image(p, s);
}

static gm_status plan(gm_transform_chain *p, const gm_transform *list, int n, uint64_t seed)
{
    gm_dtype now = p->raw;
    uint64_t site = 0; /* place among the random ones: a normalize in between changes no choice */
    for (int i = 0; i < n; i++) {
        if (list[i].kind == GM_KERNEL && list[i].kernel.dtype == GM_F64 && now == GM_U8) {
            GM_TRY(plan_scale(p));
            now = GM_F64;
        }
        step *s = &p->steps[p->n++];
        s->t = list[i], s->dtype = now;
        if (is_random(list[i].kind)) s->key = gm_stream_key(seed, GM_PURPOSE_AUGMENT, site++);
        GM_TRY(plan_step(p, s));
        if (list[i].kind == GM_NORMALIZE) now = GM_F64;
    }
    if (p->ndim == 3 && p->shape[1] == GM_ANY_SIZE)
        return GM_FAIL(GM_ESHAPE, "the images of this dataset may differ in size, and batches need one: add the "
                                  "transform RandomResizedCrop, RandomCrop, CenterCrop, or Resize with a height and a "
                                  "width");
    if (now == GM_U8) GM_TRY(plan_scale(p)); /* nobody normalized */
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
    if (ndim == 3) memcpy(p->coming, shape, 3 * sizeof *shape);
    p->incoming = product(ndim, shape);
    gm_status st = plan(p, list, n, seed);
    if (st == GM_OK) *result = p;
    else gm_transform_chain_free(p);
    return st;
}

void gm_transform_chain_free(gm_transform_chain *p)
{
    if (!p) return;
    gm_resampler_free(&p->resampler);
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

/* Room for n values of the sample's dtype that are not those it has now. */
static gm_status make_room(gm_transform_chain *p, gm_dtype dtype, int64_t n, void **out)
{
    int    k = p->turn;
    size_t need = (size_t)n * gm_dtype_size(dtype) + 16;
    if (need > p->room[k]) {
        free(p->scratch[k]);
        p->scratch[k] = malloc(need);
        p->room[k] = p->scratch[k] ? need : 0;
        if (!p->scratch[k]) return GM_FAIL(GM_ENOMEM, "no memory for a transform of %lld values", (long long)n);
    }
    *out = p->scratch[k], p->turn = !k;
    return GM_OK;
}

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

static void normalize(const step *s, const state *now, gm_dtype to, char *out)
{
    const char *in = now->data;
    int64_t     each = now->count / s->t.channels;
    size_t      size = gm_dtype_size(now->dtype), wide = gm_dtype_size(to);
    for (int k = 0; k < s->t.channels; k++, in += (size_t)each * size, out += (size_t)each * wide) {
        if (now->dtype == GM_U8) normalize_bytes(s->table[k], (const uint8_t *)in, each, to, out);
        else normalize_doubles(s->t.mean[k], s->t.std[k], (const double *)in, each, to, out);
    }
}

static gm_status to_numbers(gm_transform_chain *p, const step *s, state *now)
{
    void *next = NULL;
    GM_TRY(make_room(p, GM_F64, now->count, &next));
    normalize(s, now, GM_F64, next);
    now->data = next, now->dtype = GM_F64;
    return GM_OK;
}

/* The sample becomes (height, width) with other data. */
static void becomes(state *now, void *data, int64_t height, int64_t width)
{
    now->data = data, now->height = height, now->width = width;
    now->count = now->channels * height * width;
}

static gm_status resize(gm_transform_chain *p, state *now, int64_t height, int64_t width)
{
    void *next = NULL;
    GM_TRY(make_room(p, now->dtype, now->channels * height * width, &next));
    GM_TRY(gm_resample(&p->resampler, now->data, now->channels, now->height, now->width, next, height, width));
    becomes(now, next, height, width);
    return GM_OK;
}

static gm_status crop(gm_transform_chain *p, const step *s, bool first, state *now)
{
    gm_window w = p->window;
    void     *next = NULL;
    if (first && p->chosen) w.top -= p->part.top, w.left -= p->part.left; /* in what was decoded */
    else GM_TRY(gm_window_of(&s->t, s->key, p->epoch, p->sample, now->height, now->width, &w));
    if (w.top || w.left || w.height != now->height || w.width != now->width) {
        GM_TRY(make_room(p, now->dtype, now->channels * w.height * w.width, &next));
        gm_window_cut(&w, now->data, now->channels, now->height, now->width, gm_dtype_size(now->dtype), next);
        becomes(now, next, w.height, w.width);
    }
    return s->t.kind == GM_RESIZED_CROP ? resize(p, now, s->t.height, s->t.width) : GM_OK;
}

static void mirror(const step *s, gm_philox choice, state *now)
{
    bool turned = choice.v[0] < gm_event_threshold(s->t.probability) || s->t.probability >= 1;
    for (int64_t row = 0; turned && row < now->channels * now->height; row++) {
        int64_t  w = now->width;
        uint8_t *b = (uint8_t *)now->data + row * w;
        double  *d = (double *)now->data + row * w;
        for (int64_t x = 0; x < w / 2; x++) {
            if (now->dtype == GM_U8) {
                uint8_t left = b[x];
                b[x] = b[w - 1 - x], b[w - 1 - x] = left;
            } else {
                double left = d[x];
                d[x] = d[w - 1 - x], d[w - 1 - x] = left;
            }
        }
    }
}

/* Four changes in a random order: order is a number below 24. */
static void jitter(const step *s, gm_philox factors, uint32_t order, state *now)
{
    int left[4] = {GM_BRIGHTNESS, GM_CONTRAST, GM_SATURATION, GM_HUE};
    for (int n = 4; n; n--) {
        int k = (int)(order % (uint32_t)n), what = left[k];
        order /= (uint32_t)n;
        left[k] = left[n - 1];
        double a = s->t.amount[what],
               least = what == GM_HUE ? -a
                       : a > 1        ? 0
                                      : 1 - a,
               most = what == GM_HUE ? a : 1 + a;
        double f = least + (most - least) * (double)gm_uniform_of(factors.v[what]);
        if (a > 0) gm_colour_apply((gm_colour_change)what, f, now->data, now->channels, now->height * now->width);
    }
}

/* Some operations one after the other, each any of those that are allowed, with any sign. */
static gm_status rand_augment(gm_transform_chain *p, const step *s, state *now)
{
    int what[GM_AUGMENTS], n = 0;
    for (int k = 0; k < GM_AUGMENTS; k++)
        if (s->t.among >> k & 1) what[n++] = k;
    for (int k = 0; k < s->t.ops; k++) {
        void     *next = NULL;
        gm_philox draw = gm_philox_at(s->key, (uint64_t)p->sample | (uint64_t)k << 50, p->epoch);
        int       op = what[((uint64_t)draw.v[0] * (uint64_t)n) >> 32];
        GM_TRY(make_room(p, GM_U8, now->count, &next));
        gm_augment_apply((gm_augment)op, s->t.strength, draw.v[1] >> 31, now->channels, now->height, now->width,
                         now->data, next);
        now->data = next;
    }
    return GM_OK;
}

/* The part of the resized picture that the crop behind it keeps, from the part that was decoded for it. */
static gm_status resize_part(gm_transform_chain *p, state *now)
{
    void *next = NULL;
    GM_TRY(make_room(p, now->dtype, now->channels * p->down.n * p->across.n, &next));
    GM_TRY(gm_resample_part(&p->resampler, now->data, now->channels, &p->down, &p->across, next));
    becomes(now, next, p->down.n, p->across.n);
    return GM_OK;
}

/* The sample becomes what the user's function makes of it. */
static gm_status run_kernel(gm_transform_chain *p, const step *s, gm_philox draw, state *now)
{
    const gm_kernel_use *k = &s->t.kernel;
    gm_kernel_call       c = {.in = now->data, .ndim = s->ndim, .sample = p->sample, .epoch = p->epoch};
    memcpy(c.shape, s->shape, sizeof c.shape);
    if (s->ndim == 3) c.shape[0] = now->channels, c.shape[1] = now->height, c.shape[2] = now->width;
    c.out_ndim = k->ndim ? k->ndim : s->ndim;
    memcpy(c.out_shape, k->ndim ? k->shape : c.shape, sizeof c.out_shape);
    c.seed = (uint64_t)draw.v[0] << 32 | draw.v[1];
    GM_TRY(make_room(p, now->dtype, product(c.out_ndim, c.out_shape), &c.out));
    GM_TRY(gm_kernel_run(k, &c));
    now->data = c.out, now->count = product(c.out_ndim, c.out_shape);
    if (c.out_ndim == 3) now->channels = c.out_shape[0], now->height = c.out_shape[1], now->width = c.out_shape[2];
    return GM_OK;
}

static gm_status run_step(gm_transform_chain *p, int i, state *now)
{
    const step *s = &p->steps[i];
    gm_philox   choice = gm_philox_at(s->key, (uint64_t)p->sample, p->epoch);
    int64_t     height, width;
    switch (s->t.kind) {
    case GM_NORMALIZE: return to_numbers(p, s, now);
    case GM_RESIZE:
        if (i == 0 && p->joined) return resize_part(p, now);
        gm_resized(&s->t, now->height, now->width, &height, &width);
        return height == now->height && width == now->width ? GM_OK : resize(p, now, height, width);
    case GM_RANDOM_CROP:
    case GM_CENTER_CROP:
    case GM_RESIZED_CROP: return crop(p, s, i == 0, now);
    case GM_RANDOM_FLIP: mirror(s, choice, now); return GM_OK;
    case GM_RAND_AUGMENT: return rand_augment(p, s, now);
    case GM_KERNEL: return run_kernel(p, s, choice, now);
    case GM_COLOR_JITTER:
        jitter(s, choice, gm_philox_at(s->key, (uint64_t)p->sample | (uint64_t)1 << 56, p->epoch).v[0] % 24, now);
        return GM_OK;
    }
    return GM_OK;
}

static gm_status run(gm_transform_chain *p, state now, void *out)
{
    p->turn = 0;
    for (int i = 0; i < p->n; i++) {
        const step *s = &p->steps[i];
        if (i == p->n - 1 && s->t.kind == GM_NORMALIZE) { /* straight to the batch */
            normalize(s, &now, p->out, out);
            return GM_OK;
        }
        GM_TRY(run_step(p, i, &now));
    }
    if (p->out == GM_F64) memcpy(out, now.data, (size_t)p->numel * sizeof(double));
    else
        for (int64_t i = 0; i < p->numel; i++) ((float *)out)[i] = (float)((const double *)now.data)[i];
    return GM_OK;
}

gm_status gm_transform_chain_run(gm_transform_chain *p, void *raw, uint64_t epoch, int64_t sample, void *out)
{
    if (p->raw == GM_I64) {
        memcpy(out, raw, (size_t)p->numel * sizeof(int64_t));
        return GM_OK;
    }
    p->epoch = epoch, p->sample = sample, p->chosen = p->joined = false;
    return run(p, (state){raw, p->raw, p->coming[0], p->coming[1], p->coming[2], p->incoming}, out);
}

/* ---- pictures ---- */

/* Resize with a crop of the middle behind it: what the crop is made of becomes the part, unless zeros surround it. */
static gm_status join(gm_transform_chain *p, int64_t height, int64_t width, gm_window *part)
{
    int64_t   h, w;
    gm_window o;
    gm_resized(&p->steps[0].t, height, width, &h, &w);
    GM_TRY(gm_window_of(&p->steps[1].t, 0, 0, 0, h, w, &o));
    if (o.top < 0 || o.left < 0) return GM_OK;
    p->down = (gm_resample_span){.in = height, .out = h, .from = o.top, .n = o.height};
    p->across = (gm_resample_span){.in = width, .out = w, .from = o.left, .n = o.width};
    gm_resample_needs(&p->down);
    gm_resample_needs(&p->across);
    *part = (gm_window){p->down.first, p->across.first, p->down.held, p->across.held};
    p->joined = true;
    return GM_OK;
}

/* The window of the first crop, and what of it lies inside of the picture. */
static gm_status choose(void *context, int64_t height, int64_t width, gm_window *part)
{
    gm_transform_chain *p = context;
    const step         *s = &p->steps[0];
    p->chosen = p->joined = false;
    if (s->t.kind == GM_RESIZE && p->n > 1 && s[1].t.kind == GM_CENTER_CROP) return join(p, height, width, part);
    if (!is_crop(&s->t)) return GM_OK;
    GM_TRY(gm_window_of(&s->t, s->key, p->epoch, p->sample, height, width, &p->window));
    gm_window in = p->window;
    int64_t   bottom = in.top + in.height < height ? in.top + in.height : height;
    int64_t   right = in.left + in.width < width ? in.left + in.width : width;
    if (in.top < 0) in.top = 0;
    if (in.left < 0) in.left = 0;
    in.height = bottom - in.top, in.width = right - in.left;
    if (in.height < 1 || in.width < 1) in = (gm_window){0, 0, 1, 1}; /* nothing but zeros: any part will do */
    *part = p->part = in, p->chosen = true;
    return GM_OK;
}

gm_window_rule gm_transform_chain_begin(gm_transform_chain *p, uint64_t epoch, int64_t sample)
{
    p->epoch = epoch, p->sample = sample, p->chosen = p->joined = false;
    return (gm_window_rule){choose, p};
}

gm_status gm_transform_chain_image(gm_transform_chain *p, gm_image *image, void *out)
{
    int64_t count = image->channels * image->height * image->width;
    return run(p, (state){image->pixels, GM_U8, image->channels, image->height, image->width, count}, out);
}
