/* pretokenizer.h - what cuts a text into the pieces that a model sees: the `pre_tokenizer` of a tokenizer.json.
 *
 * A list of steps. Each cuts the pieces of the one before; a piece goes through all steps before the next begins, so
 * that a long text needs no list of pieces. */
#ifndef GM_TEXT_PRETOKENIZER_H
#define GM_TEXT_PRETOKENIZER_H

#include "fields.h"
#include "regex.h"

typedef enum gm_cut_kind {
    GM_CUT_BYTE_LEVEL,
    GM_CUT_PATTERN,
    GM_CUT_CHARS,
    GM_CUT_WORDS,
    GM_CUT_METASPACE
} gm_cut_kind;

/* What becomes of the places where a pattern matches. */
typedef enum gm_behavior {
    GM_REMOVED,
    GM_ISOLATED,
    GM_MERGED_WITH_PREVIOUS,
    GM_MERGED_WITH_NEXT,
    GM_CONTIGUOUS
} gm_behavior;

typedef struct gm_cut {
    gm_cut_kind kind;
    gm_behavior behavior;
    bool        invert, split; /* split: METASPACE */
    bool (*match)(uint32_t c); /* CHARS: characters that match, each by itself */
    bool      prefix;          /* BYTE_LEVEL: a space goes in front */
    bool      maps;            /* BYTE_LEVEL: bytes become characters */
    int       prepend;         /* METASPACE: 0 never, 1 the first piece of a text, 2 always */
    gm_regex *pattern;         /* PATTERN, BYTE_LEVEL (NULL: does not cut) */
    char     *literal;         /* PATTERN; METASPACE: what stands for a space */
    size_t    n_literal;
} gm_cut;

typedef struct gm_pretokenizer {
    gm_cut *steps;
    int     n, room;
    bool    bytes; /* the last step would map bytes to characters; pieces come with their bytes as they are */
} gm_pretokenizer;

#define GM_CUT_DEPTH 16

/* What the cutting of one thread needs; zeroed but for `match`. */
typedef struct gm_cut_work {
    gm_regex_match *match;
    gm_text_bytes   text[GM_CUT_DEPTH]; /* what a step has changed */
} gm_cut_work;

/* Takes a piece; what it returns ends the cutting unless it is GM_OK. */
typedef gm_status (*gm_piece_to)(void *context, const char *text, size_t n);

/* Reads the object `pre_tokenizer`. GM_EINVAL: it has what is not known here; the message names it and its place. */
gm_status gm_pretokenizer_read(const gm_fields *f, gm_pretokenizer *p);
gm_status gm_pretokenizer_step(gm_pretokenizer *p, gm_cut **out); /* adds a zeroed step */
void      gm_pretokenizer_free(gm_pretokenizer *p);
void      gm_cut_work_free(gm_cut_work *w);

/* Gives `to` the pieces of n bytes of valid UTF-8, in order, none empty. first: the text begins
 * where its whole does. */
gm_status gm_pretokenize(const gm_pretokenizer *p, gm_cut_work *w, const char *text, size_t n, bool first,
                         gm_piece_to to, void *context);

#endif
