/* trie.h - texts by their bytes, to find all that begin a text: a hash of (node, byte). */
#ifndef GM_TEXT_TRIE_H
#define GM_TEXT_TRIE_H

#include "vocab.h"

typedef struct gm_trie_edge {
    uint32_t from, to; /* from GM_NO_ID: empty */
    uint32_t byte;
} gm_trie_edge;

typedef struct gm_trie {
    gm_trie_edge *edges;
    size_t        n_edges, n_slots;
    uint32_t     *values; /* of nodes: what gm_trie_add gave, or GM_NO_ID */
    size_t        n_nodes, room;
    uint32_t      first[256]; /* node of a first byte, or GM_NO_ID */
} gm_trie;

/* Adds a text; of equal texts the last value holds. An empty text is left out. */
gm_status gm_trie_add(gm_trie *t, const char *text, size_t n, uint32_t value);
/* The node after one byte more, or GM_NO_ID. `from` GM_NO_ID: the root. */
uint32_t gm_trie_next(const gm_trie *t, uint32_t from, unsigned char byte);
void     gm_trie_free(gm_trie *t);

#endif
