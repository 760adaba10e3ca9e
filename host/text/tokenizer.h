/* tokenizer.h - texts to numbers of tokens and back, as Python's `tokenizers` does it for the same tokenizer.json.
 *
 *     gm_tokenizer_open("model", &t);                 // a folder, a tokenizer.json
 *     gm_encoder_new(t, &e);                          // one for each thread
 *     gm_encode(e, text, n, true, &ids);              // adds to ids
 *     gm_decode_ids(t, ids.data, ids.n, true, &bytes);
 *
 * A text goes through these steps: added tokens that stand in it as they are, normalization, added tokens in normal
 * form, cutting into pieces, the model, special tokens around it. What a file asks for and this program does not
 * have is refused when it is opened, with its name and place. An open tokenizer does not change; threads share it. */
#ifndef GM_TEXT_TOKENIZER_H
#define GM_TEXT_TOKENIZER_H

#include "added.h"
#include "decoder.h"
#include "model.h"
#include "normalizer.h"
#include "pretokenizer.h"
#include "processor.h"

typedef struct gm_tokenizer {
    char           *path;
    gm_model       *model;
    gm_normalizer   normalizer;
    gm_added        added;
    gm_pretokenizer pretokenizer;
    gm_processor    processor;
    gm_decoder      decoder;
    size_t          size; /* all numbers are below it */
} gm_tokenizer;

typedef struct gm_encoder gm_encoder;

/* GM_EIO: a file cannot be read. GM_ECORRUPT: it is no JSON. GM_EINVAL: it has what is wrong or not known here. */
gm_status gm_tokenizer_open(const char *path, gm_tokenizer **out);
/* The same from the bytes of a tokenizer.json; path is for messages. */
gm_status gm_tokenizer_parse(const char *path, const char *text, size_t n, gm_tokenizer **out);
void      gm_tokenizer_free(gm_tokenizer *t); /* NULL is allowed */

/* The text of a token, NULL: there is none with this number; and the number of a text, or GM_NO_ID. */
const char *gm_tokenizer_text(const gm_tokenizer *t, uint32_t id, size_t *n);
uint32_t    gm_tokenizer_id(const gm_tokenizer *t, const char *text, size_t n);
bool        gm_tokenizer_special(const gm_tokenizer *t, uint32_t id);

/* What one thread needs to encode; the tokenizer must outlive it. */
gm_status gm_encoder_new(const gm_tokenizer *t, gm_encoder **out);
void      gm_encoder_free(gm_encoder *e); /* NULL is allowed */

/* Adds the tokens of a text to ids. special: also those that the tokenizer puts around it. GM_EINVAL: the text is no
 * UTF-8, or a part of it has no token; ids is then as before. */
gm_status gm_encode(gm_encoder *e, const char *text, size_t n, bool special, gm_text_ids *ids);
gm_status gm_encode_pair(gm_encoder *e, const char *a, size_t n_a, const char *b, size_t n_b, bool special,
                         gm_text_ids *ids);
/* Adds the text of tokens. special: special tokens as well. GM_EINVAL: a number is that of no token. */
gm_status gm_decode_ids(const gm_tokenizer *t, const uint32_t *ids, size_t n, bool special, gm_text_bytes *out);

#endif
