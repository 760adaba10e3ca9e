/* model.h - what cuts a piece of text into tokens: BPE, WordPiece, WordLevel, Unigram.
 *
 * A model is read once and then never changes, so several threads use it, each with its own gm_model_work. */
#ifndef GM_TEXT_MODEL_H
#define GM_TEXT_MODEL_H

#include "fields.h"
#include "vocab.h"

typedef struct gm_model_work {
    gm_text_bytes text;    /* a candidate that is being looked up */
    void         *symbols; /* of the model's own kind */
    size_t        room;    /* in bytes */
    void         *queue;
    size_t        queue_room;
} gm_model_work;

typedef struct gm_model gm_model;
struct gm_model {
    const char *name; /* as in tokenizer.json: "BPE" */
    gm_vocab    vocab;
    /* Adds the tokens of a piece, valid UTF-8, not empty. GM_EINVAL: a part has no token,
     * and there is none for what is unknown. */
    gm_status (*cut)(const gm_model *m, gm_model_work *w, const char *text, size_t n, gm_text_ids *out);
    void (*free)(gm_model *m);
};

/* Reads the object `model` of a tokenizer.json. GM_EINVAL: a field is unknown or wrong; the message names it. */
gm_status gm_model_read(const gm_fields *f, gm_model **out);
void      gm_model_free(gm_model *m); /* NULL is allowed */
void      gm_model_work_free(gm_model_work *w);
/* Makes room for `bytes` in w->symbols or in w->queue, what is there is lost. */
gm_status gm_model_symbols(gm_model_work *w, size_t bytes);
gm_status gm_model_queue(gm_model_work *w, size_t bytes);

/* The parts of gm_model_read. */
gm_status gm_bpe_read(const gm_fields *f, gm_model **out);
gm_status gm_wordpiece_read(const gm_fields *f, gm_model **out);
gm_status gm_wordlevel_read(const gm_fields *f, gm_model **out);
gm_status gm_unigram_read(const gm_fields *f, gm_model **out);
/* Reads the object `vocab`: texts to numbers. */
gm_status gm_model_vocab(const gm_fields *f, gm_vocab *v);
/* The numbers of "<0x00>" to "<0xFF>", GM_NO_ID where there is none. */
void gm_byte_tokens(const gm_vocab *v, uint32_t *ids);

#endif
