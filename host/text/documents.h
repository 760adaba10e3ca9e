/* documents.h - reads texts one after the other from files: plain text, JSON lines, either of them gzipped.
 *
 * A file whose name ends with .jsonl, .ndjson or .json (before .gz) has an object with a text in each line; any other
 * file is one text, or one a line. Files are read from their beginning to their end, so that one may be larger than
 * memory. Places count bytes after inflation. */
#ifndef GM_TEXT_DOCUMENTS_H
#define GM_TEXT_DOCUMENTS_H

#include "grow.h"

typedef struct gm_documents gm_documents;

typedef struct gm_document_options {
    const char *field; /* of JSON lines: the name of the text */
    bool        lines; /* of plain text: a line is a text, without its end; empty ones are left out */
} gm_document_options;

/* A text is whole in memory, and no longer than this. */
#define GM_DOCUMENT_MAX ((size_t)1 << 30)

/* Opens a file `from` bytes after its beginning, which is where a text begins and `line` lines end. GM_EIO. */
gm_status gm_documents_open(const char *path, const gm_document_options *o, uint64_t from, uint64_t line,
                            gm_documents **out);
void      gm_documents_close(gm_documents *d); /* NULL is allowed */
/* Adds the next text to `to`; *found false: there is none left. GM_EIO, GM_ECORRUPT: the file is cut or no gzip, a
 * line is no object with the field, or a text is too long; the message names file and line. */
gm_status gm_documents_next(gm_documents *d, gm_text_bytes *to, bool *found);
/* How many bytes and lines were read, all of them of texts that were given. */
void gm_documents_place(const gm_documents *d, uint64_t *bytes, uint64_t *line);

#endif
