/* token_file.c - see token_file.h. */
#define _GNU_SOURCE
#include "token_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../files/files.h"

static const char magic[8] = {'G', 'M', 'T', 'O', 'K', 'E', 'N', 'S'};

static uint64_t little(const unsigned char *p, int n)
{
    uint64_t v = 0;
    for (int i = n - 1; i >= 0; i--) v = v << 8 | p[i];
    return v;
}

static void put_little(unsigned char *p, int n, uint64_t v)
{
    for (int i = 0; i < n; i++, v >>= 8) p[i] = (unsigned char)v;
}

static int64_t widest(int width) { return (int64_t)1 << 8 * width; }

static gm_status read_header(gm_token_file *f)
{
    unsigned char h[GM_TOKEN_HEADER];
    const char   *path = f->bytes.path;
    if (f->bytes.size < sizeof h)
        return GM_FAIL(GM_ECORRUPT,
                       "%s: %zu bytes are too few for a token file's header (%zu); for a file without "
                       "header give its dtype",
                       path, f->bytes.size, sizeof h);
    GM_TRY(gm_bytes_copy(&f->bytes, 0, sizeof h, h));
    if (memcmp(h, magic, sizeof magic))
        return GM_FAIL(GM_ECORRUPT,
                       "%s: has no token file header at offset 0; for a file without header give its "
                       "dtype, u16 or u32",
                       path);
    uint64_t version = little(h + 8, 4), width = little(h + 12, 4), count = little(h + 16, 8),
             vocab = little(h + 24, 8);
    if (version != 1)
        return GM_FAIL(GM_ECORRUPT, "%s: version %llu at offset 8; this program reads 1", path,
                       (unsigned long long)version);
    if (width != 1 && width != 2 && width != 4)
        return GM_FAIL(GM_ECORRUPT, "%s: tokens of %llu bytes at offset 12; 1, 2 and 4 exist", path,
                       (unsigned long long)width);
    if (count > (f->bytes.size - sizeof h) / width || count * width != f->bytes.size - sizeof h)
        return GM_FAIL(GM_ECORRUPT, "%s: %zu bytes after the header, which tells %llu tokens of %llu bytes", path,
                       f->bytes.size - sizeof h, (unsigned long long)count, (unsigned long long)width);
    if (vocab < 1 || vocab > (uint64_t)widest((int)width))
        return GM_FAIL(GM_ECORRUPT, "%s: vocabulary size %llu at offset 24", path, (unsigned long long)vocab);
    f->header = sizeof h, f->width = (int)width, f->count = (int64_t)count, f->vocab_size = (int64_t)vocab;
    return GM_OK;
}

static gm_status without_header(gm_token_file *f, int width)
{
    if (width != 1 && width != 2 && width != 4)
        return GM_FAIL(GM_EINVAL, "tokens of %d bytes; 1, 2 and 4 exist", width);
    if (f->bytes.size % (size_t)width)
        return GM_FAIL(GM_ECORRUPT, "%s: %zu bytes are no whole number of %d-byte tokens", f->bytes.path, f->bytes.size,
                       width);
    f->width = width, f->count = (int64_t)(f->bytes.size / (size_t)width), f->vocab_size = widest(width);
    return GM_OK;
}

gm_status gm_token_open(const char *path, int width, int64_t vocab_size, gm_token_file *out)
{
    *out = (gm_token_file){0};
    GM_TRY(gm_bytes_map(path, GM_ACCESS_RANDOM, &out->bytes));
    gm_status st = width ? without_header(out, width) : read_header(out);
    if (st == GM_OK && vocab_size < 0) st = GM_FAIL(GM_EINVAL, "%s: vocabulary size %lld", path, (long long)vocab_size);
    if (st == GM_OK && vocab_size) out->vocab_size = vocab_size;
    if (st != GM_OK) gm_token_close(out);
    return st;
}

void gm_token_close(gm_token_file *f)
{
    gm_bytes_close(&f->bytes);
    *f = (gm_token_file){0};
}

gm_status gm_token_read(const gm_token_file *f, int64_t first, int64_t n, int64_t *to)
{
    unsigned char raw[4096];
    int64_t       step = (int64_t)sizeof raw / f->width;
    if (first < 0 || n < 0 || n > f->count || first > f->count - n)
        return GM_FAIL(GM_EINVAL, "%s: tokens %lld to %lld of %lld", f->bytes.path, (long long)first,
                       (long long)(first + n), (long long)f->count);
    for (int64_t done = 0; done < n; done += step) {
        int64_t m = n - done < step ? n - done : step;
        size_t  at = f->header + (size_t)(first + done) * (size_t)f->width;
        GM_TRY(gm_bytes_copy(&f->bytes, at, (size_t)m * (size_t)f->width, raw));
        for (int64_t i = 0; i < m; i++) {
            int64_t t = (int64_t)little(raw + i * f->width, f->width);
            if (t >= f->vocab_size)
                return GM_FAIL(GM_ECORRUPT,
                               "%s: token %lld at byte %zu (token number %lld) is not below the vocabulary "
                               "size %lld",
                               f->bytes.path, (long long)t, at + (size_t)(i * f->width), (long long)(first + done + i),
                               (long long)f->vocab_size);
            to[done + i] = t;
        }
    }
    return GM_OK;
}

void gm_token_header(unsigned char *to, int width, int64_t vocab_size, int64_t count)
{
    memcpy(to, magic, sizeof magic);
    put_little(to + 8, 4, 1);
    put_little(to + 12, 4, (uint64_t)width);
    put_little(to + 16, 8, (uint64_t)count);
    put_little(to + 24, 8, (uint64_t)vocab_size);
}

static gm_status write_all(FILE *file, const char *path, int width, int64_t vocab_size, const int64_t *tokens,
                           int64_t n)
{
    unsigned char h[GM_TOKEN_HEADER], t[4];
    gm_token_header(h, width, vocab_size, n);
    bool ok = fwrite(h, sizeof h, 1, file) == 1;
    for (int64_t i = 0; ok && i < n; i++) {
        put_little(t, width, (uint64_t)tokens[i]);
        ok = fwrite(t, (size_t)width, 1, file) == 1;
    }
    ok = ok && !fflush(file) && !fsync(fileno(file));
    return ok ? GM_OK : GM_FAIL(GM_EIO, "%s: cannot be written: %s", path, gm_file_error(errno));
}

gm_status gm_token_write(const char *path, int width, int64_t vocab_size, const int64_t *tokens, int64_t n)
{
    char beside[4096];
    if (width != 1 && width != 2 && width != 4)
        return GM_FAIL(GM_EINVAL, "tokens of %d bytes; 1, 2 and 4 exist", width);
    if (vocab_size < 1 || vocab_size > widest(width))
        return GM_FAIL(GM_EINVAL, "vocabulary size %lld does not fit %d-byte tokens", (long long)vocab_size, width);
    for (int64_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= vocab_size)
            return GM_FAIL(GM_EINVAL, "token number %lld is %lld, not below the vocabulary size %lld", (long long)i,
                           (long long)tokens[i], (long long)vocab_size);
    if (snprintf(beside, sizeof beside, "%s.tmp", path) >= (int)sizeof beside)
        return GM_FAIL(GM_EINVAL, "%s: the name is too long", path);
    FILE *file = fopen(beside, "wbe");
    if (!file) return GM_FAIL(GM_EIO, "%s: cannot be written: %s", beside, gm_file_error(errno));
    gm_status st = write_all(file, beside, width, vocab_size, tokens, n);
    if (fclose(file) && st == GM_OK) st = GM_FAIL(GM_EIO, "%s: cannot be written: %s", beside, gm_file_error(errno));
    if (st == GM_OK && rename(beside, path))
        st = GM_FAIL(GM_EIO, "%s: cannot be renamed: %s", beside, gm_file_error(errno));
    if (st != GM_OK) unlink(beside);
    return st;
}
