/* tokenize.h - files of text become one file of tokens (token_file.h), by a tokenizer, on several threads.
 *
 *     gm_tokenize_open(&o, &start, &z);
 *     do gm_tokenize_step(z, &now); while (!now.done);       // some MB of text each
 *     gm_tokenize_close(z, true);                            // the file gets its name
 *
 * Tokens go to PATH.part. What `now` says is enough to go on from there after a stop, with the same files and the same
 * options: gm_tokenize_open cuts PATH.part to that place. The tokens do not depend on threads, steps or stops. */
#ifndef GM_TOKENIZE_H
#define GM_TOKENIZE_H

#include "../../kernels/threads.h"
#include "../text/documents.h"
#include "../text/tokenizer.h"

typedef struct gm_tokenize gm_tokenize;

typedef struct gm_tokenize_options {
    const gm_tokenizer *tokenizer;
    const char *const  *files;
    int                 n_files;
    const char         *path; /* the file of tokens */
    gm_document_options documents;
    bool                special; /* also the tokens that the tokenizer puts around a text */
    int64_t             end;     /* a token after each text, or -1 */
    int                 threads;
} gm_tokenize_options;

typedef struct gm_tokenize_place {
    int      file;                    /* number of the file that is read */
    uint64_t bytes, line;             /* of it */
    uint64_t documents, tokens, text; /* since the beginning; text: bytes of the texts */
    bool     done;
} gm_tokenize_place;

/* start: zeroed, or a place that a step gave. The tokenizer, the names of files and the options must outlive *out. */
gm_status gm_tokenize_open(const gm_tokenize_options *o, const gm_tokenize_place *start, gm_tokenize **out);
/* Reads some texts, encodes them and writes their tokens. */
gm_status gm_tokenize_step(gm_tokenize *z, gm_tokenize_place *now);
/* What was written is on the disk; a place may be kept after that. */
gm_status gm_tokenize_sync(const gm_tokenize *z);
/* finish: writes the header, and gives the file its name. Frees z in any case. */
gm_status gm_tokenize_close(gm_tokenize *z, bool finish);

/* Bytes of a token for a vocabulary of this size: 2 or 4. */
int gm_tokenize_width(const gm_tokenizer *t);

#endif
