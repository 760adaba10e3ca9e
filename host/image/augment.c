/* augment.c - see augment.h. Each formula is Pillow's, with its roundings. */
#include "augment.h"

#include <math.h>
#include <string.h>

typedef struct picture {
    int64_t        channels, height, width, n; /* n: pixels of a plane */
    const uint8_t *in;
    uint8_t       *out;
} picture;

/* ---- places: Pillow's affine transform to the nearest pixel, in fixed point of 16 bits ---- */

static int64_t fixed(double v) { return (int64_t)floor(v * 65536 + 0.5); }

/* The pixel (x, y) of the result is pixel (a x + b y + c, d x + e y + f) of the picture. */
static void affine(const picture *p, const double m[6])
{
    int64_t a = fixed(m[0]), b = fixed(m[1]), d = fixed(m[3]), e = fixed(m[4]);
    int64_t at_x = fixed(m[2] + m[0] * 0.5 + m[1] * 0.5), at_y = fixed(m[5] + m[3] * 0.5 + m[4] * 0.5);
    for (int64_t y = 0; y < p->height; y++, at_x += b, at_y += e)
        for (int64_t x = 0; x < p->width; x++) {
            int64_t from_x = (at_x + x * a) >> 16, from_y = (at_y + x * d) >> 16, to = y * p->width + x;
            int     inside = from_x >= 0 && from_x < p->width && from_y >= 0 && from_y < p->height;
            for (int64_t c = 0; c < p->channels; c++)
                p->out[c * p->n + to] = inside ? p->in[c * p->n + from_y * p->width + from_x] : 0;
        }
}

static double rounded(double v) { return nearbyint(v * 1e15) / 1e15; }

static void rotate(const picture *p, double degrees)
{
    double angle = -degrees * (3.14159265358979323846 / 180), w = (double)p->width / 2, h = (double)p->height / 2;
    double c = rounded(cos(angle)), s = rounded(sin(angle));
    affine(p, (double[6]){c, s, c * -w + s * -h + w, -s, c, -s * -w + c * -h + h});
}

/* ---- values ---- */

/* degenerate + f (v - degenerate), cut off to a byte. */
static uint8_t blend(uint8_t degenerate, uint8_t v, float f)
{
    float mixed = (float)degenerate + f * (float)((int)v - (int)degenerate);
    return (uint8_t)(mixed <= 0 ? 0 : mixed >= 255 ? 255 : mixed);
}

static uint8_t gray_of(const picture *p, int64_t i)
{
    if (p->channels == 1) return p->in[i];
    return (uint8_t)((p->in[i] * 19595 + p->in[p->n + i] * 38470 + p->in[2 * p->n + i] * 7471 + 0x8000) >> 16);
}

static void towards(const picture *p, float f, uint8_t degenerate)
{
    for (int64_t i = 0; i < p->channels * p->n; i++) p->out[i] = blend(degenerate, p->in[i], f);
}

static void contrast(const picture *p, float f)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < p->n; i++) sum += gray_of(p, i);
    towards(p, f, (uint8_t)((double)sum / (double)p->n + 0.5));
}

static void colour(const picture *p, float f)
{
    for (int64_t i = 0; i < p->n; i++)
        for (int64_t c = 0; c < p->channels; c++) p->out[c * p->n + i] = blend(gray_of(p, i), p->in[c * p->n + i], f);
}

/* The mean of a pixel and its neighbours with weights 5 and 1; the border stays. */
static uint8_t smooth(const picture *p, const uint8_t *plane, int64_t y, int64_t x)
{
    int64_t at = y * p->width + x, sum = 4 * plane[at];
    if (y == 0 || x == 0 || y == p->height - 1 || x == p->width - 1) return plane[at];
    for (int64_t dy = -1; dy <= 1; dy++)
        for (int64_t dx = -1; dx <= 1; dx++) sum += plane[at + dy * p->width + dx];
    return (uint8_t)((2 * sum + 13) / 26);
}

static void sharpness(const picture *p, float f)
{
    for (int64_t c = 0; c < p->channels; c++)
        for (int64_t i = 0; i < p->n; i++) {
            const uint8_t *plane = p->in + c * p->n;
            p->out[c * p->n + i] = blend(smooth(p, plane, i / p->width, i % p->width), plane[i], f);
        }
}

static void look_up(const picture *p, int64_t channel, const uint8_t *table)
{
    for (int64_t i = channel * p->n; i < (channel + 1) * p->n; i++) p->out[i] = table[p->in[i]];
}

static void of_value(const picture *p, gm_augment what, double strength)
{
    uint8_t table[256];
    int     bits = 8 - (int)nearbyint(4 * strength);
    for (int v = 0; v < 256; v++)
        table[v] = (uint8_t)(what == GM_AUGMENT_POSTERIZE ? v & ~((1 << (8 - bits)) - 1)
                             : v < 255 * (1 - strength)   ? v
                                                          : 255 - v);
    for (int64_t c = 0; c < p->channels; c++) look_up(p, c, table);
}

static void stretch_table(const int64_t *count, uint8_t *table)
{
    int low = 0, high = 255;
    while (low < 255 && !count[low]) low++;
    while (high > 0 && !count[high]) high--;
    double scale = high > low ? 255.0 / (high - low) : 1, offset = high > low ? -low * scale : 0;
    for (int v = 0; v < 256; v++) {
        int to = (int)(v * scale + offset);
        table[v] = (uint8_t)(to < 0 ? 0 : to > 255 ? 255 : to);
    }
}

static void equalize_table(const int64_t *count, int64_t n, uint8_t *table)
{
    int last = 255, different = 0;
    while (last > 0 && !count[last]) last--;
    for (int v = 0; v < 256; v++) different += count[v] > 0;
    int64_t step = (n - count[last]) / 255, sum = step / 2;
    for (int v = 0; v < 256; sum += count[v++]) {
        int64_t to = different > 1 && step ? sum / step : v;
        table[v] = (uint8_t)(to > 255 ? 255 : to);
    }
}

static void of_histogram(const picture *p, gm_augment what)
{
    uint8_t table[256];
    for (int64_t c = 0; c < p->channels; c++) {
        int64_t count[256] = {0};
        for (int64_t i = c * p->n; i < (c + 1) * p->n; i++) count[p->in[i]]++;
        if (what == GM_AUGMENT_EQUALIZE) equalize_table(count, p->n, table);
        else stretch_table(count, table);
        look_up(p, c, table);
    }
}

void gm_augment_apply(gm_augment what, double strength, int turned, int64_t channels, int64_t height, int64_t width,
                      const uint8_t *in, uint8_t *out)
{
    const picture p = {channels, height, width, height * width, in, out};
    double        sign = turned ? -1 : 1, share = sign * 0.3 * strength, part = 150.0 / 331 * strength;
    float         f = (float)(1 + sign * 0.9 * strength);
    switch (what) {
    case GM_AUGMENT_SHEAR_X: affine(&p, (double[6]){1, share, 0, 0, 1, 0}); break;
    case GM_AUGMENT_SHEAR_Y: affine(&p, (double[6]){1, 0, 0, share, 1, 0}); break;
    case GM_AUGMENT_TRANSLATE_X: affine(&p, (double[6]){1, 0, -sign * trunc(part * (double)width), 0, 1, 0}); break;
    case GM_AUGMENT_TRANSLATE_Y: affine(&p, (double[6]){1, 0, 0, 0, 1, -sign * trunc(part * (double)height)}); break;
    case GM_AUGMENT_ROTATE: rotate(&p, sign * 30 * strength); break;
    case GM_AUGMENT_BRIGHTNESS: towards(&p, f, 0); break;
    case GM_AUGMENT_COLOUR: colour(&p, f); break;
    case GM_AUGMENT_CONTRAST: contrast(&p, f); break;
    case GM_AUGMENT_SHARPNESS: sharpness(&p, f); break;
    case GM_AUGMENT_POSTERIZE:
    case GM_AUGMENT_SOLARIZE: of_value(&p, what, strength); break;
    case GM_AUGMENT_AUTO_CONTRAST:
    case GM_AUGMENT_EQUALIZE: of_histogram(&p, what); break;
    case GM_AUGMENT_IDENTITY:
    case GM_AUGMENTS: memcpy(out, in, (size_t)(channels * p.n)); break;
    }
}
