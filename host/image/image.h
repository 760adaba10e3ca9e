/* image.h - pictures in memory: bytes (channels, height, width), read from PNG and JPEG, resampled, recoloured.
 *
 * A gm_image holds its pixels and keeps its room from one picture to the next, so that a thread that decodes many of
 * them seldom asks the system for memory. A zeroed one is empty. Only one thread at a time may use it.
 *
 * Pictures are decoded as they are stored: an orientation, a colour profile or a gamma in a file is not applied. What
 * is transparent loses its transparency, 16 bits become 8, and CMYK becomes RGB. With one channel, a coloured PNG
 * becomes (19595 R + 38470 G + 7471 B + 32768) / 65536, and a JPEG its luminance. */
#ifndef GM_IMAGE_H
#define GM_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "../../kernels/status.h"

#define GM_IMAGE_PIXELS_MAX ((int64_t)1 << 27) /* height x width of a picture; more is refused as damaged */

typedef struct gm_image {
    int64_t        channels, height, width;
    uint8_t       *pixels; /* (channels, height, width) */
    size_t         room;
    unsigned char *file; /* the bytes of the file that it comes from */
    size_t         file_size, file_room;
    char           name[512]; /* what messages call the picture that was decoded last, or its beginning */
} gm_image;

/* Gives it this shape; the pixels are undefined. GM_ENOMEM. */
gm_status gm_image_shape(gm_image *im, int64_t channels, int64_t height, int64_t width);
void      gm_image_free(gm_image *im); /* a zeroed one is allowed */

/* ---- files ---- */

/* A part of a picture, inside of it. */
typedef struct gm_window {
    int64_t top, left, height, width;
} gm_window;

/* Chooses the part that is wanted of a picture once its size is known. */
typedef struct gm_window_rule {
    gm_status (*choose)(void *context, int64_t height, int64_t width, gm_window *part);
    void *context;
} gm_window_rule;

/* The bytes of a file; name: what messages call it. They are recognised by their first bytes. */
typedef struct gm_encoded {
    const unsigned char *bytes;
    size_t               size;
    const char          *name;
} gm_encoded;

typedef struct gm_image_header {
    const char *format; /* "PNG" or "JPEG" */
    int64_t     height, width;
    int         channels, bits; /* as stored */
} gm_image_header;

/* Reads the size alone. GM_ECORRUPT: it is no PNG or JPEG, or damaged. GM_EINVAL: this program was built without the
 * library that reads it; the message names the package. */
gm_status gm_image_header_read(const gm_encoded *e, gm_image_header *out);

/* Decodes the part that the rule chooses (NULL: all) to 1 or 3 channels. The result is the same as that part of the
 * whole picture. Rows below it are not looked at, so that damage there is not found. Errors as above. */
gm_status gm_image_decode(const gm_encoded *e, int64_t channels, const gm_window_rule *rule, gm_image *out);

/* Reads a file into im->file. GM_EIO: it cannot be read. GM_ECORRUPT: it is empty, or larger than a picture is. */
gm_status gm_image_load(const char *path, gm_image *im);

/* Room for n bytes of a file of this name in im->file. GM_ENOMEM. */
gm_status gm_image_file_room(gm_image *im, const char *path, size_t n);

/* Writes (channels, height, width), 1 or 3 channels, as a PNG; the file appears whole or not at all. */
gm_status gm_image_write_png(const char *path, const gm_image *im);

/* ---- for the readers of formats (png.c, jpeg.c) ---- */

gm_status gm_png_decode(const gm_encoded *e, int64_t channels, const gm_window_rule *rule, gm_image *out);
gm_status gm_jpeg_decode(const gm_encoded *e, int64_t channels, const gm_window_rule *rule, gm_image *out);
gm_status gm_png_header(const gm_encoded *e, gm_image_header *out);
gm_status gm_jpeg_header(const gm_encoded *e, gm_image_header *out);
/* Refuses sizes below 1 and above GM_IMAGE_PIXELS_MAX. */
gm_status gm_image_check_size(const char *name, int64_t height, int64_t width);
/* Asks the rule, and refuses what is not inside. */
gm_status gm_image_choose(const gm_window_rule *rule, int64_t height, int64_t width, gm_window *part);
/* Row y of the image from `pixels` interleaved values of `stored` channels: 1 or 3 of each pixel, to 1 or 3. */
void gm_image_put_row(gm_image *im, int64_t y, const uint8_t *row, int64_t stored);

#endif
