/* bpe.h - byte-pair encoding: neighbours that the training joined are joined again, in the order of the training. */
#ifndef GM_TEXT_BPE_H
#define GM_TEXT_BPE_H

#include "model.h"

typedef struct gm_bpe_pair {
    uint64_t key; /* left << 32 | right; UINT64_MAX: empty */
    uint32_t rank, id;
} gm_bpe_pair;

typedef struct gm_bpe {
    gm_model     base;
    gm_bpe_pair *pairs; /* open addressing */
    size_t       n_pairs, n_slots;
    char        *prefix, *suffix; /* of all characters but the first; of the last; NULL: none */
    uint32_t     unknown;         /* GM_NO_ID: there is none */
    bool         has_unknown, fuse_unknown, byte_fallback, ignore_merges;
    uint32_t     bytes[256]; /* of byte_fallback */
    uint32_t     ascii[128]; /* tokens of single characters, a short way to the vocabulary */
} gm_bpe;

/* Adds: left and right become id, before all pairs of a higher rank. A pair that is there gets the new rank. */
gm_status gm_bpe_join(gm_bpe *m, uint32_t left, uint32_t right, uint32_t rank, uint32_t id);

#endif
