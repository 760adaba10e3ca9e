/* stream.c - see stream.h. zlib gives files that are not gzipped as they are. */
#include "stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define NO_SIZE SIZE_MAX /* of a pipe */

static gm_status open_file(gm_stream *s, gm_stream_kind kind)
{
    struct stat about;
    int         fd = open(s->path, O_RDONLY | O_CLOEXEC | (kind == GM_STREAM_REGULAR ? O_NONBLOCK : 0));
    if (fd < 0) return GM_FAIL(GM_EIO, "%s: cannot be opened: %s", s->path, strerror(errno));
    bool regular = !fstat(fd, &about) && S_ISREG(about.st_mode);
    if (!regular && (kind == GM_STREAM_REGULAR || S_ISDIR(about.st_mode))) {
        close(fd);
        return GM_FAIL(GM_EIO, "%s: is not a regular file", s->path);
    }
    s->size = regular ? (size_t)about.st_size : NO_SIZE;
    s->file = gzdopen(fd, "rb");
    if (s->file) return GM_OK;
    close(fd);
    return GM_FAIL(GM_ENOMEM, "%s: no memory to read it", s->path);
}

/* Why zlib gave less than it was asked for; GM_OK: the file ends here. */
static gm_status at_the_end(gm_stream *s)
{
    int         code = Z_OK;
    const char *why = gzerror(s->file, &code);
    size_t      bytes = (size_t)gztell(s->file);
    if (code == Z_ERRNO) return GM_FAIL(GM_EIO, "%s: cannot be read: %s", s->path, strerror(errno));
    if (code == Z_MEM_ERROR) return GM_FAIL(GM_ENOMEM, "%s: no memory to inflate it", s->path);
    if (code == Z_BUF_ERROR)
        return GM_FAIL(GM_ECORRUPT, "%s: the gzip stream ends early, after %zu inflated bytes; fetch it again", s->path,
                       bytes);
    if (code != Z_OK && code != Z_STREAM_END)
        return GM_FAIL(GM_ECORRUPT, "%s: damaged gzip data near inflated byte %zu: %s; fetch it again", s->path, bytes,
                       why);
    if (s->size != NO_SIZE && gzdirect(s->file) && bytes != s->size)
        return GM_FAIL(GM_ECORRUPT, "%s: became %s while in use: it had %zu bytes, and %zu were read", s->path,
                       bytes < s->size ? "shorter" : "longer", s->size, bytes);
    return GM_OK;
}

gm_status gm_stream_fill(gm_stream *s)
{
    s->next = s->held = 0;
    int got = gzread(s->file, s->buffer, sizeof s->buffer);
    if (got < (int)sizeof s->buffer) GM_TRY(at_the_end(s));
    s->held = got < 0 ? 0 : (size_t)got;
    return GM_OK;
}

gm_status gm_stream_open(const char *path, gm_stream_kind kind, gm_stream **out)
{
    gm_stream *s = calloc(1, sizeof *s);
    if (!s) return GM_FAIL(GM_ENOMEM, "%s: no memory to read it", path);
    s->path = strdup(path);
    gm_status st = s->path ? open_file(s, kind) : GM_FAIL(GM_ENOMEM, "%s: no memory for its name", path);
    if (st == GM_OK) st = gm_stream_fill(s);
    if (st != GM_OK) {
        gm_stream_close(s);
        return st;
    }
    if (s->held >= 3 && !memcmp(s->buffer, "\xef\xbb\xbf", 3)) s->next = 3;
    *out = s;
    return GM_OK;
}

void gm_stream_close(gm_stream *s)
{
    if (!s) return;
    if (s->file) gzclose(s->file);
    free(s->path);
    free(s);
}
