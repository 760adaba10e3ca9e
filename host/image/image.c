/* image.c - what all formats share; see image.h. */
#include "image.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "../../kernels/each_cpu.h"

#define FILE_MOST ((size_t)1 << 30) /* bytes of a file */

gm_status gm_image_shape(gm_image *im, int64_t channels, int64_t height, int64_t width)
{
    size_t n = (size_t)channels * (size_t)height * (size_t)width;
    if (n + 16 > im->room) { /* 16: loops over rows may read past the last */
        uint8_t *more = malloc(n + 16);
        if (!more) return GM_FAIL(GM_ENOMEM, "no memory for a picture of %zu bytes", n);
        free(im->pixels);
        im->pixels = more, im->room = n + 16;
    }
    im->channels = channels, im->height = height, im->width = width;
    return GM_OK;
}

void gm_image_free(gm_image *im)
{
    free(im->pixels);
    free(im->file);
    *im = (gm_image){0};
}

gm_status gm_image_check_size(const char *name, int64_t height, int64_t width)
{
    if (height > 0 && width > 0 && height <= GM_IMAGE_PIXELS_MAX / width) return GM_OK;
    return GM_FAIL(GM_ECORRUPT, "%s: claims to have %lld x %lld pixels; from 1 to %lld are read", name,
                   (long long)height, (long long)width, (long long)GM_IMAGE_PIXELS_MAX);
}

gm_status gm_image_choose(const gm_window_rule *rule, int64_t height, int64_t width, gm_window *part)
{
    *part = (gm_window){0, 0, height, width};
    if (!rule) return GM_OK;
    GM_TRY(rule->choose(rule->context, height, width, part));
    if (part->top < 0 || part->left < 0 || part->height < 1 || part->width < 1 || part->top > height - part->height ||
        part->left > width - part->width)
        return GM_FAIL(GM_EINVAL, "a part of %lld x %lld at (%lld, %lld) is not inside of a picture of %lld x %lld",
                       (long long)part->height, (long long)part->width, (long long)part->top, (long long)part->left,
                       (long long)height, (long long)width);
    return GM_OK;
}

GM_FOR_EACH_CPU static void grey_of_rgb(const uint8_t *restrict row, int64_t w, uint8_t *restrict to)
{
    for (int64_t x = 0; x < w; x++)
        to[x] = (uint8_t)((19595u * row[3 * x] + 38470u * row[3 * x + 1] + 7471u * row[3 * x + 2] + 32768u) >> 16);
}

GM_FOR_EACH_CPU static void split_rgb(const uint8_t *restrict row, int64_t w, uint8_t *restrict red,
                                      uint8_t *restrict green, uint8_t *restrict blue)
{
    for (int64_t x = 0; x < w; x++) red[x] = row[3 * x], green[x] = row[3 * x + 1], blue[x] = row[3 * x + 2];
}

void gm_image_put_row(gm_image *im, int64_t y, const uint8_t *row, int64_t stored)
{
    int64_t  w = im->width, plane = im->height * w;
    uint8_t *to = im->pixels + y * w;
    if (im->channels == 1 && stored == 3) grey_of_rgb(row, w, to);
    else if (im->channels == 3 && stored == 3) split_rgb(row, w, to, to + plane, to + 2 * plane);
    else
        for (int64_t c = 0; c < im->channels; c++) memcpy(to + c * plane, row, (size_t)w);
}

/* ---- files ---- */

/* Reads to the end; a file that grows meanwhile is read as far as it was. */
static gm_status read_all(int file, const char *path, gm_image *im)
{
    size_t got = 0;
    while (got < im->file_size) {
        ssize_t n = read(file, im->file + got, im->file_size - got);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return GM_FAIL(GM_EIO, "%s: cannot be read: %s", path, strerror(errno));
        if (n == 0) return GM_FAIL(GM_ECORRUPT, "%s: became shorter while it was read", path);
        got += (size_t)n;
    }
    return GM_OK;
}

gm_status gm_image_file_room(gm_image *im, const char *path, size_t n)
{
    if (n > im->file_room) {
        unsigned char *more = malloc(n);
        if (!more) return GM_FAIL(GM_ENOMEM, "%s: no memory for its %zu bytes", path, n);
        free(im->file);
        im->file = more, im->file_room = n;
    }
    im->file_size = n;
    return GM_OK;
}

gm_status gm_image_load(const char *path, gm_image *im)
{
    struct stat s;
    int         file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a fifo must not make us wait */
    gm_status   st = GM_OK;
    if (file < 0) return GM_FAIL(GM_EIO, "%s: cannot be opened: %s", path, strerror(errno));
    if (fstat(file, &s) || !S_ISREG(s.st_mode)) st = GM_FAIL(GM_EIO, "%s: is not a regular file", path);
    else if (s.st_size < 1) st = GM_FAIL(GM_ECORRUPT, "%s: is empty", path);
    else if ((size_t)s.st_size > FILE_MOST)
        st = GM_FAIL(GM_ECORRUPT, "%s: has %lld bytes, more than a picture has", path, (long long)s.st_size);
    else st = gm_image_file_room(im, path, (size_t)s.st_size);
    if (st == GM_OK) st = read_all(file, path, im);
    close(file);
    return st;
}

/* ---- formats ---- */

static bool is_png(const gm_encoded *e) { return e->size >= 8 && !memcmp(e->bytes, "\x89PNG\r\n\x1a\n", 8); }
static bool is_jpeg(const gm_encoded *e) { return e->size >= 3 && !memcmp(e->bytes, "\xff\xd8\xff", 3); }

static gm_status unknown(const gm_encoded *e)
{
    return GM_FAIL(GM_ECORRUPT, "%s: is neither a PNG nor a JPEG: its first bytes say neither", e->name);
}

gm_status gm_image_header_read(const gm_encoded *e, gm_image_header *out)
{
    return is_png(e) ? gm_png_header(e, out) : is_jpeg(e) ? gm_jpeg_header(e, out) : unknown(e);
}

gm_status gm_image_decode(const gm_encoded *e, int64_t channels, const gm_window_rule *rule, gm_image *out)
{
    if (channels != 1 && channels != 3)
        return GM_FAIL(GM_EINVAL, "pictures have 1 or 3 channels, not %lld", (long long)channels);
    snprintf(out->name, sizeof out->name, "%s", e->name);
    return is_png(e)    ? gm_png_decode(e, channels, rule, out)
           : is_jpeg(e) ? gm_jpeg_decode(e, channels, rule, out)
                        : unknown(e);
}
