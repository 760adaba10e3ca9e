/* jpeg.c - JPEG files by libjpeg-turbo; see image.h. Errors of the library jump back to the one place that calls it.
 *
 * Of a part, only the blocks around it are transformed: the library skips what lies before it, and stops behind it. The
 * chroma of a pixel is interpolated from its neighbours, so a margin is decoded too. */
#include "image.h"

#ifdef GM_WITHOUT_JPEG

static gm_status lacking(const char *name)
{
    return GM_FAIL(
        GM_EINVAL,
        "%s: this program was built without libjpeg-turbo; install the Debian package libjpeg62-turbo-dev and "
        "build again",
        name);
}

gm_status gm_jpeg_header(const gm_encoded *e, gm_image_header *out)
{
    (void)out;
    return lacking(e->name);
}

gm_status gm_jpeg_decode(const gm_encoded *e, int64_t channels, const gm_window_rule *rule, gm_image *out)
{
    (void)channels, (void)rule, (void)out;
    return lacking(e->name);
}

#else

#include <setjmp.h>
#include <stdio.h> /* jpeglib.h needs it */
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

#define MARGIN     16  /* pixels around a part: one block of chroma, twice as wide */
#define SCANS_MOST 256 /* of a progressive file; each one goes through the whole picture */

typedef struct jpeg {
    struct jpeg_decompress_struct d;
    struct jpeg_error_mgr         errors;
    struct jpeg_progress_mgr      progress;
    jmp_buf                       back;
    char                          text[JMSG_LENGTH_MAX];
    const gm_encoded             *e;
    uint8_t                      *row;
} jpeg;

static void on_error(j_common_ptr d)
{
    jpeg *g = (jpeg *)d;
    d->err->format_message(d, g->text);
    longjmp(g->back, 1);
}

/* Warnings: those that mean wrong pixels are errors here. */
static void on_message(j_common_ptr d, int level)
{
    static const int wrong[] = {JWRN_HIT_MARKER, JWRN_JPEG_EOF, JWRN_HUFF_BAD_CODE, JWRN_MUST_RESYNC,
                                JWRN_ARITH_BAD_CODE};
    if (level >= 0) return;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (d->err->msg_code == wrong[i]) on_error(d);
}

static void on_progress(j_common_ptr d)
{
    jpeg *g = (jpeg *)d;
    if (g->d.input_scan_number <= SCANS_MOST) return;
    snprintf(g->text, sizeof g->text, "it has more than %d scans", SCANS_MOST);
    longjmp(g->back, 1);
}

static gm_status begin(jpeg *g, gm_image_header *h)
{
    g->d.err = jpeg_std_error(&g->errors);
    g->errors.error_exit = on_error;
    g->errors.emit_message = on_message;
    jpeg_create_decompress(&g->d);
    g->progress.progress_monitor = on_progress;
    g->d.progress = &g->progress;
    jpeg_mem_src(&g->d, g->e->bytes, (unsigned long)g->e->size);
    jpeg_read_header(&g->d, TRUE);
    *h = (gm_image_header){"JPEG", g->d.image_height, g->d.image_width, g->d.num_components, g->d.data_precision};
    return gm_image_check_size(g->e->name, h->height, h->width);
}

static bool is_cmyk(const jpeg *g) { return g->d.jpeg_color_space == JCS_CMYK || g->d.jpeg_color_space == JCS_YCCK; }

/* CMYK to RGB in place; Adobe stores the complement. */
static void to_rgb(uint8_t *row, int64_t n, bool complement)
{
    for (int64_t x = 0; x < n; x++) {
        int k = complement ? row[4 * x + 3] : 255 - row[4 * x + 3];
        for (int c = 0; c < 3; c++) {
            int v = complement ? row[4 * x + c] : 255 - row[4 * x + c];
            row[3 * x + c] = (uint8_t)((v * k + 127) / 255);
        }
    }
}

/* Moves to the part and its margin. left: the column at which rows begin from now on. */
static void go_to(jpeg *g, const gm_window *part, int64_t *top, int64_t *left)
{
    int64_t    right = part->left + part->width + MARGIN, width = g->d.output_width;
    JDIMENSION x = (JDIMENSION)(part->left > MARGIN ? part->left - MARGIN : 0);
    JDIMENSION n = (JDIMENSION)((right < width ? right : width) - x);
    if (n < width) jpeg_crop_scanline(&g->d, &x, &n);
    *left = n < width ? x : 0;
    *top = part->top > MARGIN ? part->top - MARGIN : 0;
    if (*top) jpeg_skip_scanlines(&g->d, (JDIMENSION)*top);
}

static gm_status read_rows(jpeg *g, int64_t channels, const gm_window_rule *rule, gm_image *out)
{
    gm_image_header h;
    gm_window       part;
    int64_t         y, left;
    GM_TRY(begin(g, &h));
    GM_TRY(gm_image_choose(rule, h.height, h.width, &part));
    GM_TRY(gm_image_shape(out, channels, part.height, part.width));
    bool cmyk = is_cmyk(g), complement = g->d.saw_Adobe_marker;
    g->d.out_color_space = cmyk ? JCS_CMYK : channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_start_decompress(&g->d);
    if (!(g->row = malloc((size_t)h.width * 4))) return GM_FAIL(GM_ENOMEM, "%s: no memory for a row", g->e->name);
    go_to(g, &part, &y, &left);
    for (; y < part.top + part.height; y++) {
        JSAMPROW row = g->row;
        if (jpeg_read_scanlines(&g->d, &row, 1) != 1)
            return GM_FAIL(GM_ECORRUPT, "%s: is a damaged JPEG: it has no row %lld", g->e->name, (long long)y);
        if (y < part.top) continue;
        if (cmyk) to_rgb(g->row, g->d.output_width, complement);
        gm_image_put_row(out, y - part.top, g->row + (part.left - left) * (cmyk ? 3 : channels), cmyk ? 3 : channels);
    }
    return GM_OK;
}

static gm_status damaged(const jpeg *g)
{
    return GM_FAIL(GM_ECORRUPT, "%s: is a damaged JPEG: %s", g->e->name, g->text);
}

static void finish(jpeg *g)
{
    jpeg_destroy_decompress(&g->d);
    free(g->row);
}

gm_status gm_jpeg_header(const gm_encoded *e, gm_image_header *out)
{
    jpeg      g = {.e = e};
    gm_status st;
    if (setjmp(g.back)) st = damaged(&g);
    else st = begin(&g, out);
    finish(&g);
    return st;
}

gm_status gm_jpeg_decode(const gm_encoded *e, int64_t channels, const gm_window_rule *rule, gm_image *out)
{
    jpeg      g = {.e = e};
    gm_status st;
    if (setjmp(g.back)) st = damaged(&g);
    else st = read_rows(&g, channels, rule, out);
    finish(&g);
    return st;
}

#endif
