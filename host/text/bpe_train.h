/* bpe_train.h - makes a byte-level BPE tokenizer of texts, as Python's `tokenizers` trains one (BpeTrainer).
 *
 *     gm_bpe_train_new(&t);
 *     gm_bpe_train_text(t, text, n);                    // for each text: its words are counted
 *     gm_bpe_train_run(t, &options, &json);             // a tokenizer.json
 *
 * Texts are cut as GPT-2 cuts them. The pair of neighbours that is most frequent becomes a token; of equally frequent
 * ones, that with the lower numbers. So equal texts give equal merges, in whatever order they come. */
#ifndef GM_TEXT_BPE_TRAIN_H
#define GM_TEXT_BPE_TRAIN_H

#include "documents.h"

typedef struct gm_bpe_train gm_bpe_train;

typedef struct gm_bpe_train_options {
    size_t             size;      /* of the vocabulary: special tokens, 256 bytes, merges */
    uint64_t           frequency; /* the least of a pair */
    const char *const *special;   /* special tokens, which get the first numbers */
    int                n_special;
} gm_bpe_train_options;

gm_status gm_bpe_train_new(gm_bpe_train **out);
void      gm_bpe_train_free(gm_bpe_train *t); /* NULL is allowed */
/* GM_EINVAL: the text is no UTF-8. */
gm_status gm_bpe_train_text(gm_bpe_train *t, const char *text, size_t n);
/* All texts of the files. */
gm_status gm_bpe_train_files(gm_bpe_train *t, const char *const *files, int n, const gm_document_options *o);
/* Adds a tokenizer.json to out; *size: its tokens, fewer than asked for if the texts have no more pairs. Once. */
gm_status gm_bpe_train_run(gm_bpe_train *t, const gm_bpe_train_options *o, gm_text_bytes *out, size_t *size);

#endif
