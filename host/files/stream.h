/* stream.h - the bytes of a file from its begin to its end, inflated where they are gzipped.
 *
 * Whether they are gzipped the first bytes say, not the name. Several gzip streams one after the other are one text. A
 * byte order mark of UTF-8 at the begin is skipped. A file that changes its size while it is read is an error.
 *
 *     for (;;) {
 *         if (s->next == s->held) GM_TRY(gm_stream_fill(s));
 *         if (s->next == s->held) break;                        // the end
 *         use(s->buffer[s->next++]);
 *     } */
#ifndef GM_STREAM_H
#define GM_STREAM_H

#include <stddef.h>
#include "../../kernels/status.h"

typedef struct gm_stream {
    char         *path;
    size_t        next, held; /* of the buffer: what was used, what there is */
    size_t        size;       /* of a regular file when it was opened */
    void         *file;       /* zlib's */
    unsigned char buffer[1 << 16];
} gm_stream;

/* What may be read: files that a run reads again when it starts again, or pipes as well. */
typedef enum gm_stream_kind { GM_STREAM_REGULAR, GM_STREAM_ANY } gm_stream_kind;

/* Opens a file and fills the buffer; the caller closes it. GM_EIO names path and reason. */
gm_status gm_stream_open(const char *path, gm_stream_kind kind, gm_stream **out);
/* Reads more where all that is held was used; held == next afterwards: there is no more. GM_ECORRUPT: the gzip stream
 * is damaged or ends early, or the file has another size than before. */
gm_status gm_stream_fill(gm_stream *s);
void      gm_stream_close(gm_stream *s); /* NULL is allowed */

#endif
