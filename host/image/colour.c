/* colour.c - see colour.h. */
#include "colour.h"

#include <math.h>

static uint8_t nearest(double v) { return (uint8_t)(v <= 0 ? 0 : v >= 255 ? 255 : v + 0.5); }

/* m + f (v - m) of every byte. */
static void spread(double m, double f, uint8_t *v, int64_t n)
{
    uint8_t table[256];
    for (int i = 0; i < 256; i++) table[i] = nearest(m + f * (i - m));
    for (int64_t i = 0; i < n; i++) v[i] = table[v[i]];
}

static int64_t sum(const uint8_t *v, int64_t n)
{
    int64_t s = 0;
    for (int64_t i = 0; i < n; i++) s += v[i];
    return s;
}

static double mean_gray(const uint8_t *v, int64_t channels, int64_t n)
{
    if (channels == 1) return (double)sum(v, n) / (double)n;
    return (0.299 * (double)sum(v, n) + 0.587 * (double)sum(v + n, n) + 0.114 * (double)sum(v + 2 * n, n)) / (double)n;
}

static void saturate(double f, uint8_t *r, uint8_t *g, uint8_t *b, int64_t n)
{
    float by = (float)f;
    for (int64_t i = 0; i < n; i++) {
        float gray = (0.299f * r[i] + 0.587f * g[i] + 0.114f * b[i]) * (1 - by) + 0.5f;
        float v[3] = {gray + by * r[i], gray + by * g[i], gray + by * b[i]};
        for (int k = 0; k < 3; k++) v[k] = v[k] < 0 ? 0 : v[k] > 255 ? 255 : v[k];
        r[i] = (uint8_t)v[0], g[i] = (uint8_t)v[1], b[i] = (uint8_t)v[2];
    }
}

/* The channel of HSV: n is 5 for red, 3 for green, 1 for blue; hue in sixths of a turn. */
static double channel(double n, double hue, double value, double chroma)
{
    double k = fmod(n + hue, 6), t = k < 4 - k ? k : 4 - k;
    return value - chroma * (t < 0 ? 0 : t > 1 ? 1 : t);
}

static void turn(double by, uint8_t *r, uint8_t *g, uint8_t *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int most = r[i] > g[i] ? r[i] : g[i], least = r[i] < g[i] ? r[i] : g[i];
        if (b[i] > most) most = b[i];
        if (b[i] < least) least = b[i];
        if (most == least) continue; /* gray has no hue */
        double chroma = most - least, hue;
        if (most == r[i]) hue = (g[i] - b[i]) / chroma;
        else if (most == g[i]) hue = 2 + (b[i] - r[i]) / chroma;
        else hue = 4 + (r[i] - g[i]) / chroma;
        hue = fmod(hue + 6 * by + 12, 6);
        r[i] = nearest(channel(5, hue, most, chroma));
        g[i] = nearest(channel(3, hue, most, chroma));
        b[i] = nearest(channel(1, hue, most, chroma));
    }
}

void gm_colour_apply(gm_colour_change what, double f, uint8_t *pixels, int64_t channels, int64_t n)
{
    uint8_t *g = pixels + n, *b = pixels + 2 * n;
    switch (what) {
    case GM_BRIGHTNESS: spread(0, f, pixels, channels * n); break;
    case GM_CONTRAST: spread(mean_gray(pixels, channels, n), f, pixels, channels * n); break;
    case GM_SATURATION:
        if (channels == 3) saturate(f, pixels, g, b, n);
        break;
    case GM_HUE:
        if (channels == 3) turn(f, pixels, g, b, n);
        break;
    case GM_COLOUR_CHANGES: break;
    }
}
