/* unigram.h - the model of SentencePiece: of all ways to cut a text, the one with the highest sum of scores. */
#ifndef GM_TEXT_UNIGRAM_H
#define GM_TEXT_UNIGRAM_H

#include "model.h"
#include "trie.h"

typedef struct gm_unigram {
    gm_model base;
    gm_trie  trie;
    double  *scores; /* of numbers */
    double   unknown_score;
    uint32_t unknown; /* GM_NO_ID: there is none */
    bool     byte_fallback;
    uint32_t bytes[256];
} gm_unigram;

/* Makes the trie and what follows from vocabulary, scores, unknown and byte_fallback. */
gm_status   gm_unigram_finish(gm_unigram *m, size_t n);
gm_unigram *gm_unigram_new(size_t n); /* NULL: no memory */

#endif
