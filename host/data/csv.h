/* csv.h - rows of a file of separated values, as RFC 4180 has them.
 *
 * A field may stand in quotes; then it may hold the delimiter, line ends, and quotes that are written twice. Lines end
 * with \n or \r\n. Empty lines are no rows. Bytes are taken as they are; a byte 0 is refused. */
#ifndef GM_CSV_H
#define GM_CSV_H

#include <stdbool.h>
#include "../files/stream.h"
#include "names.h"

#define GM_CSV_FIELDS_MAX 100000 /* of a row */

typedef struct gm_csv {
    gm_stream *file;
    int64_t    line;     /* that is read now, from 1 */
    int64_t    row_line; /* on which the last row began */
    char       delimiter;
    gm_names   fields; /* of the last row */
    char      *text;   /* of the field that is read */
    size_t     used, room;
} gm_csv;

/* Opens a file, which may be gzipped (files/stream.h); the caller closes it. GM_EIO. */
gm_status gm_csv_open(const char *path, char delimiter, gm_csv **out);
/* Reads a row into c->fields; *end: there was none. GM_ECORRUPT names file and line: a quote that is not closed, text
 * behind a closing quote, a byte 0, too many fields; or what is wrong with gzip. */
gm_status gm_csv_next(gm_csv *c, bool *end);
void      gm_csv_close(gm_csv *c); /* NULL is allowed */

#endif
