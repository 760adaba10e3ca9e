/* window.c - see window.h. The distributions and the roundings are those of torchvision's transforms. */
#include "window.h"

#include <math.h>
#include <string.h>

static int64_t below(uint32_t word, int64_t n) { return (int64_t)(((uint64_t)word * (uint64_t)n) >> 32); }

static double between(uint32_t word, double least, double most)
{
    return least + (most - least) * (double)gm_uniform_of(word);
}

static gm_status random_crop(const gm_transform *t, gm_philox choice, int64_t h, int64_t w, gm_window *out)
{
    int64_t rows = h + 2 * t->padding - t->height, columns = w + 2 * t->padding - t->width;
    if (rows < 0 || columns < 0)
        return GM_FAIL(GM_ESHAPE, "random crop: %lld x %lld out of %lld x %lld with %lld zeros on each side",
                       (long long)t->height, (long long)t->width, (long long)h, (long long)w, (long long)t->padding);
    *out = (gm_window){below(choice.v[0], rows + 1) - t->padding, below(choice.v[1], columns + 1) - t->padding,
                       t->height, t->width};
    return GM_OK;
}

/* Half of what is too much, halves to even; of what is missing, the smaller half stands before. */
static int64_t middle(int64_t all, int64_t kept)
{
    return all >= kept ? (int64_t)nearbyint((double)(all - kept) / 2) : -((kept - all) / 2);
}

/* The largest window in the middle whose ratio is allowed. */
static gm_window largest(const gm_transform *t, int64_t h, int64_t w)
{
    double    ratio = (double)w / (double)h;
    gm_window o = {0, 0, h, w};
    if (ratio < t->ratio[0]) o.height = (int64_t)nearbyint((double)w / t->ratio[0]);
    else if (ratio > t->ratio[1]) o.width = (int64_t)nearbyint((double)h * t->ratio[1]);
    if (o.height < 1) o.height = 1;
    if (o.width < 1) o.width = 1;
    o.top = (h - o.height) / 2, o.left = (w - o.width) / 2;
    return o;
}

/* Draws an area and a ratio ten times at most; the first that fits is taken. */
static gm_window resized_crop(const gm_transform *t, uint64_t key, uint64_t epoch, int64_t sample, int64_t h, int64_t w)
{
    for (uint64_t attempt = 0; attempt < 10; attempt++) {
        gm_philox c = gm_philox_at(key, (uint64_t)sample | attempt << 56, epoch);
        double    area = (double)h * (double)w * between(c.v[0], t->scale[0], t->scale[1]);
        double    ratio = exp(between(c.v[1], log(t->ratio[0]), log(t->ratio[1])));
        int64_t   ow = (int64_t)nearbyint(sqrt(area * ratio)), oh = (int64_t)nearbyint(sqrt(area / ratio));
        if (ow > 0 && ow <= w && oh > 0 && oh <= h)
            return (gm_window){below(c.v[2], h - oh + 1), below(c.v[3], w - ow + 1), oh, ow};
    }
    return largest(t, h, w);
}

gm_status gm_window_of(const gm_transform *t, uint64_t key, uint64_t epoch, int64_t sample, int64_t height,
                       int64_t width, gm_window *w)
{
    if (t->kind == GM_RANDOM_CROP) return random_crop(t, gm_philox_at(key, (uint64_t)sample, epoch), height, width, w);
    if (t->kind == GM_CENTER_CROP)
        *w = (gm_window){middle(height, t->height), middle(width, t->width), t->height, t->width};
    else *w = resized_crop(t, key, epoch, sample, height, width);
    return GM_OK;
}

void gm_resized(const gm_transform *t, int64_t height, int64_t width, int64_t *to_height, int64_t *to_width)
{
    int64_t shorter = height < width ? height : width;
    if (t->width) {
        *to_height = t->height, *to_width = t->width;
        return;
    }
    *to_height = height == shorter ? t->height : t->height * height / shorter;
    *to_width = width == shorter ? t->height : t->height * width / shorter;
}

void gm_window_cut(const gm_window *w, const char *in, int64_t channels, int64_t height, int64_t width, size_t size,
                   char *out)
{
    int64_t from = w->left < 0 ? 0 : w->left, to = w->left + w->width < width ? w->left + w->width : width;
    bool    inside = w->left >= 0 && w->top >= 0 && w->left + w->width <= width && w->top + w->height <= height;
    if (!inside) memset(out, 0, (size_t)(channels * w->height * w->width) * size);
    for (int64_t c = 0; c < channels; c++)
        for (int64_t y = 0; y < w->height; y++) {
            if (w->top + y < 0 || w->top + y >= height || from >= to) continue;
            memcpy(out + (size_t)((c * w->height + y) * w->width + from - w->left) * size,
                   in + (size_t)((c * height + w->top + y) * width + from) * size, (size_t)(to - from) * size);
        }
}
