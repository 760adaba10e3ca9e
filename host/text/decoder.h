/* decoder.h - texts of tokens become a text: the `decoder` of a tokenizer.json. */
#ifndef GM_TEXT_DECODER_H
#define GM_TEXT_DECODER_H

#include "fields.h"
#include "regex.h"

typedef enum gm_decode_kind {
    GM_DECODE_BYTE_LEVEL,
    GM_DECODE_WORDPIECE,
    GM_DECODE_METASPACE,
    GM_DECODE_BPE,
    GM_DECODE_BYTE_FALLBACK,
    GM_DECODE_FUSE,
    GM_DECODE_STRIP,
    GM_DECODE_REPLACE,
    GM_DECODE_SENTENCEPIECE
} gm_decode_kind;

typedef struct gm_decode {
    gm_decode_kind kind;
    char          *text; /* WORDPIECE: prefix; METASPACE: what stands for a space; BPE: suffix; STRIP; REPLACE by */
    size_t         n;
    bool           flag; /* WORDPIECE: cleanup; METASPACE: drops the first; SENTENCEPIECE: drops the first mark */
    long long      start, stop; /* STRIP; SENTENCEPIECE: start 1 drops all marks in front */
    gm_regex      *pattern;     /* REPLACE */
    char          *literal;
    size_t         n_literal;
} gm_decode;

typedef struct gm_decoder {
    gm_decode *steps;
    int        n, room;
    bool       there; /* false: tokens are joined by spaces */
} gm_decoder;

/* Texts, one after the other. */
typedef struct gm_text_list {
    gm_text_bytes bytes;
    size_t       *ends; /* offset of the first byte after each */
    size_t        n, room;
} gm_text_list;

gm_status gm_text_list_end(gm_text_list *l); /* ends the text that was added to bytes */
void      gm_text_list_free(gm_text_list *l);

/* Reads the object `decoder`. GM_EINVAL: it has what is not known here; the message names it and its place. */
gm_status gm_decoder_read(const gm_fields *f, gm_decoder *d);
gm_status gm_decoder_step(gm_decoder *d, gm_decode **out); /* adds a zeroed step */
void      gm_decoder_free(gm_decoder *d);

/* Adds what the tokens say together to out. Changes the list. */
gm_status gm_decoder_run(const gm_decoder *d, gm_text_list *tokens, gm_text_bytes *out);

#endif
