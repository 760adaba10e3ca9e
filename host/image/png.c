/* png.c - PNG files by libpng; see image.h. Errors of libpng jump back to the one place that calls it. */
#include "image.h"

#ifdef GM_WITHOUT_PNG

static gm_status lacking(const char *name)
{
    return GM_FAIL(GM_EINVAL,
                   "%s: this program was built without libpng; install the Debian package libpng-dev and build again",
                   name);
}

gm_status gm_png_header(const gm_encoded *e, gm_image_header *out)
{
    (void)out;
    return lacking(e->name);
}

gm_status gm_png_decode(const gm_encoded *e, int64_t channels, const gm_window_rule *rule, gm_image *out)
{
    (void)channels, (void)rule, (void)out;
    return lacking(e->name);
}

gm_status gm_image_write_png(const char *path, const gm_image *im)
{
    (void)im;
    return lacking(path);
}

#else

#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../files/files.h"

typedef struct png {
    png_structp       p;
    png_infop         info;
    const gm_encoded *e;
    size_t            at;      /* bytes taken */
    uint8_t          *rows;    /* one row, or all of a picture in passes */
    unsigned char    *written; /* by a writer */
    size_t            size, room;
    char              text[128]; /* of the first error */
} png;

static void on_error(png_structp p, png_const_charp text)
{
    png *g = png_get_error_ptr(p);
    snprintf(g->text, sizeof g->text, "%s", text);
    png_longjmp(p, 1);
}

static void on_warning(png_structp p, png_const_charp text) { (void)p, (void)text; }

static void take(png_structp p, png_bytep to, size_t n)
{
    png *g = png_get_io_ptr(p);
    if (n > g->e->size - g->at) png_error(p, "it is cut off");
    memcpy(to, g->e->bytes + g->at, n);
    g->at += n;
}

/* Reads to the first of the rows; info says what is stored. */
static gm_status begin(png *g, gm_image_header *h)
{
    png_set_read_fn(g->p, g, take);
    png_set_user_limits(g->p, 0x7fffffff, 0x7fffffff); /* gm_image_check_size is stricter, and says why */
    png_set_chunk_malloc_max(g->p, 1 << 24);
    png_read_info(g->p, g->info);
    *h = (gm_image_header){"PNG", png_get_image_height(g->p, g->info), png_get_image_width(g->p, g->info),
                           png_get_channels(g->p, g->info), png_get_bit_depth(g->p, g->info)};
    GM_TRY(gm_image_check_size(g->e->name, h->height, h->width));
    /* Deflate makes at most 1032 bytes of one. */
    if ((size_t)h->height > (1032 * g->e->size) / png_get_rowbytes(g->p, g->info) + 1)
        return GM_FAIL(GM_ECORRUPT, "%s: claims to have %lld x %lld pixels, too many for %zu bytes", g->e->name,
                       (long long)h->height, (long long)h->width, g->e->size);
    return GM_OK;
}

/* Asks for 8 bits of gray or RGB -> channels of the rows. */
static int64_t ask_for_bytes(png *g, int64_t channels)
{
    int  kind = png_get_color_type(g->p, g->info);
    bool sees_through = png_get_valid(g->p, g->info, PNG_INFO_tRNS) != 0; /* libpng makes alpha of it with a palette */
    if (kind == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(g->p);
    if (kind == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(g->p);
    if ((kind & PNG_COLOR_MASK_ALPHA) || sees_through) png_set_strip_alpha(g->p);
    png_set_scale_16(g->p);
    (void)channels; /* gm_image_put_row makes one of three, and three of one */
    return kind & PNG_COLOR_MASK_COLOR ? 3 : 1;
}

static gm_status read_rows(png *g, int64_t channels, const gm_window_rule *rule, gm_image *out)
{
    gm_image_header h;
    gm_window       part;
    GM_TRY(begin(g, &h));
    GM_TRY(gm_image_choose(rule, h.height, h.width, &part));
    int64_t stored = ask_for_bytes(g, channels);
    int     passes = png_set_interlace_handling(g->p);
    png_read_update_info(g->p, g->info);
    size_t row = png_get_rowbytes(g->p, g->info);
    GM_TRY(gm_image_shape(out, channels, part.height, part.width));
    if (row != (size_t)(stored * h.width))
        return GM_FAIL(GM_ECORRUPT, "%s: libpng makes rows of %zu bytes of %lld pixels, not of %lld each", g->e->name,
                       row, (long long)h.width, (long long)stored);
    if (!(g->rows = malloc(row * (size_t)(passes > 1 ? h.height : 1))))
        return GM_FAIL(GM_ENOMEM, "%s: no memory for %zu bytes of a row", g->e->name, row);
    for (int pass = 0; pass < passes; pass++)
        for (int64_t y = 0; y < (pass < passes - 1 ? h.height : part.top + part.height); y++) {
            uint8_t *to = g->rows + (passes > 1 ? row * (size_t)y : 0);
            png_read_row(g->p, to, NULL);
            if (pass == passes - 1 && y >= part.top)
                gm_image_put_row(out, y - part.top, to + part.left * stored, stored);
        }
    if (part.top + part.height == h.height) png_read_end(g->p, NULL);
    return GM_OK;
}

static gm_status damaged(const png *g)
{
    return GM_FAIL(GM_ECORRUPT, "%s: is a damaged PNG: %s", g->e->name, g->text[0] ? g->text : "no memory");
}

static void finish(png *g)
{
    png_destroy_read_struct(&g->p, &g->info, NULL);
    free(g->rows);
}

static bool open_reader(png *g)
{
    g->p = png_create_read_struct(PNG_LIBPNG_VER_STRING, g, on_error, on_warning);
    g->info = g->p ? png_create_info_struct(g->p) : NULL;
    return g->info != NULL;
}

gm_status gm_png_header(const gm_encoded *e, gm_image_header *out)
{
    png       g = {.e = e};
    gm_status st;
    if (!open_reader(&g) || setjmp(png_jmpbuf(g.p))) st = damaged(&g);
    else st = begin(&g, out);
    finish(&g);
    return st;
}

gm_status gm_png_decode(const gm_encoded *e, int64_t channels, const gm_window_rule *rule, gm_image *out)
{
    png       g = {.e = e};
    gm_status st;
    if (!open_reader(&g) || setjmp(png_jmpbuf(g.p))) st = damaged(&g);
    else st = read_rows(&g, channels, rule, out);
    finish(&g);
    return st;
}

/* ---- writing ---- */

static void put(png_structp p, png_bytep from, size_t n)
{
    png *g = png_get_io_ptr(p);
    if (n > g->room - g->size) {
        size_t         room = 2 * g->room + n + 4096;
        unsigned char *more = realloc(g->written, room);
        if (!more) png_error(p, "no memory");
        g->written = more, g->room = room;
    }
    memcpy(g->written + g->size, from, n);
    g->size += n;
}

static void put_rows(png *g, const gm_image *im)
{
    int64_t w = im->width, c = im->channels;
    png_set_write_fn(g->p, g, put, NULL);
    png_set_IHDR(g->p, g->info, (png_uint_32)w, (png_uint_32)im->height, 8,
                 c == 3 ? PNG_COLOR_TYPE_RGB : PNG_COLOR_TYPE_GRAY, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    png_write_info(g->p, g->info);
    for (int64_t y = 0; y < im->height; y++) {
        for (int64_t x = 0; x < w; x++)
            for (int64_t k = 0; k < c; k++) g->rows[x * c + k] = im->pixels[(k * im->height + y) * w + x];
        png_write_row(g->p, g->rows);
    }
    png_write_end(g->p, g->info);
}

gm_status gm_image_write_png(const char *path, const gm_image *im)
{
    png       g = {0};
    gm_status st;
    if (im->channels != 1 && im->channels != 3)
        return GM_FAIL(GM_EINVAL, "pictures have 1 or 3 channels, not %lld", (long long)im->channels);
    g.p = png_create_write_struct(PNG_LIBPNG_VER_STRING, &g, on_error, on_warning);
    g.info = g.p ? png_create_info_struct(g.p) : NULL;
    g.rows = malloc((size_t)(im->width * im->channels) + 1);
    if (!g.info || !g.rows || setjmp(png_jmpbuf(g.p)))
        st = GM_FAIL(GM_ENOMEM, "%s: libpng cannot write it: %s", path, g.text[0] ? g.text : "no memory");
    else {
        put_rows(&g, im);
        st = gm_write_whole(path, g.written, g.size);
    }
    png_destroy_write_struct(&g.p, &g.info);
    free(g.rows);
    free(g.written);
    return st;
}

#endif
