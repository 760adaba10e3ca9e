/* json_lines.h - files with one JSON object a line (JSON Lines), and values in these by names.
 *
 * A name is a key of the object, or keys and places in lists with dots between: "user.age", "pixels.1" (places count
 * from 1). A key that has dots itself comes first. Empty lines are no objects. */
#ifndef GM_JSON_LINES_H
#define GM_JSON_LINES_H

#include <jansson.h>
#include <stdbool.h>
#include "../files/stream.h"

#define GM_JSON_LINE_MAX (64 << 20) /* bytes of a line */

typedef struct gm_json_lines {
    gm_stream *file;
    int64_t    line;   /* of `object`, from 1 */
    json_t    *object; /* the last one; NULL: none yet */
    char      *text;
    size_t     room;
} gm_json_lines;

/* Opens a file, which may be gzipped (files/stream.h); the caller closes it. GM_EIO. */
gm_status gm_json_lines_open(const char *path, gm_json_lines **out);
/* Reads the next object; *end: there is none. GM_ECORRUPT names file and line: no JSON, no object, a key twice, a line
 * that is too long; the next call reads the next line. *end with an error: there is nothing more to read. */
gm_status gm_json_lines_next(gm_json_lines *l, bool *end);
/* The value of a name in the last object; NULL: it has none. It lives as long as the object. */
const json_t *gm_json_lines_find(const gm_json_lines *l, const char *name);
void          gm_json_lines_close(gm_json_lines *l); /* NULL is allowed */

/* A text, a number, true or false as text, into buf (room for 32 bytes) or where the value keeps it; "" for null and
 * for NULL. NULL: it is an object or a list. */
const char *gm_json_text(const json_t *v, char *buf);

#endif
