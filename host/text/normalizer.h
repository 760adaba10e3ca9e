/* normalizer.h - what changes a text before it is cut: the `normalizer` of a tokenizer.json.
 *
 * A list of steps, each from text to text. Sequences are made flat when they are read. */
#ifndef GM_TEXT_NORMALIZER_H
#define GM_TEXT_NORMALIZER_H

#include "charsmap.h"
#include "fields.h"
#include "regex.h"
#include "trie.h"

typedef enum gm_normal_kind {
    GM_NORMAL_NFC,
    GM_NORMAL_NFD,
    GM_NORMAL_NFKC,
    GM_NORMAL_NFKD,
    GM_NORMAL_LOWERCASE,
    GM_NORMAL_STRIP,
    GM_NORMAL_STRIP_ACCENTS,
    GM_NORMAL_BERT,
    GM_NORMAL_PREPEND,
    GM_NORMAL_REPLACE,
    GM_NORMAL_NMT,
    GM_NORMAL_CHARSMAP,
    GM_NORMAL_BYTE_LEVEL,
    GM_NORMAL_SENTENCEPIECE
} gm_normal_kind;

typedef struct gm_normal {
    gm_normal_kind kind;
    bool           left, right;                                 /* STRIP */
    bool           clean, chinese, accents, lower;              /* BERT */
    bool           dummy_prefix, single_spaces, escape, suffix; /* SENTENCEPIECE */
    char          *text;                                        /* PREPEND, REPLACE by */
    size_t         n;
    gm_regex      *pattern; /* REPLACE, unless it is a literal */
    char          *literal;
    size_t         n_literal;
    gm_charsmap    map;  /* CHARSMAP, SENTENCEPIECE */
    gm_trie        user; /* SENTENCEPIECE: texts that stay as they are */
} gm_normal;

typedef struct gm_normalizer {
    gm_normal *steps;
    int        n, room;
} gm_normalizer;

/* Reads the object `normalizer`. GM_EINVAL: it has what is not known here; the message names it and its place. */
gm_status gm_normalizer_read(const gm_fields *f, gm_normalizer *n);
gm_status gm_normalizer_step(gm_normalizer *n, gm_normal **out); /* adds a zeroed step */
void      gm_normalizer_free(gm_normalizer *n);

/* Makes `text` (n bytes, valid UTF-8) into two->data, using one as well; *leading: is the first character of the result
 * that of the text? Neither buffer may hold the text. */
gm_status gm_normalize(const gm_normalizer *z, gm_regex_match *m, const char *text, size_t n, gm_text_bytes *one,
                       gm_text_bytes *two, bool *leading);
/* SentencePiece's own step: its table of characters by longest entries, then its spaces. */
gm_status gm_sentencepiece_normalize(const gm_normal *s, const char *text, size_t n, gm_text_bytes *out);
/* One step. */
gm_status gm_normal_apply(const gm_normal *s, gm_regex_match *m, const char *text, size_t n, gm_text_bytes *out,
                          bool *leading);

#endif
