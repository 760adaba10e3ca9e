/* sentencepiece.h - reads SentencePiece's own files (tokenizer.model): unigram and bpe.
 *
 * Numbers are those that Python's `sentencepiece` gives. Nothing is put around a text: the file does not say what a
 * model wants there. */
#ifndef GM_TEXT_SENTENCEPIECE_H
#define GM_TEXT_SENTENCEPIECE_H

#include "tokenizer.h"

/* GM_ECORRUPT: the bytes are no such file. GM_EINVAL: a kind of model that is not known here. path is for messages. */
gm_status gm_sentencepiece_parse(const char *path, const char *bytes, size_t n, gm_tokenizer **out);

typedef enum gm_piece_type {
    GM_PIECE_NORMAL = 1,
    GM_PIECE_UNKNOWN,
    GM_PIECE_CONTROL,
    GM_PIECE_USER,
    GM_PIECE_UNUSED,
    GM_PIECE_BYTE
} gm_piece_type;

typedef struct gm_piece {
    const char *text; /* in the file's bytes */
    size_t      n;
    float       score;
    int         type;
} gm_piece;

/* What a file says, checked. */
typedef struct gm_pieces {
    gm_piece   *list;
    size_t      n;
    int         model; /* 1 unigram, 2 bpe */
    bool        byte_fallback, suffix, dummy_prefix, single_spaces, escape;
    const char *map;
    size_t      n_map;
    const char *unknown_surface;
    size_t      n_unknown_surface;
} gm_pieces;

gm_status gm_pieces_read(const char *path, const char *bytes, size_t n,
                         gm_pieces *out); /* the caller frees out->list */

/* A model of SentencePiece's pieces, which does as that library does. */
gm_status gm_piece_model_new(const gm_pieces *p, gm_model **out);

#endif
