/* trie.c - see trie.h. */
#include "trie.h"

#include <stdlib.h>
#include <string.h>

static size_t slot_of(const gm_trie *t, uint32_t from, uint32_t byte)
{
    uint64_t h = ((uint64_t)from << 8 | byte) * 0x9e3779b97f4a7c15u;
    size_t   at = (size_t)(h ^ h >> 29) & (t->n_slots - 1);
    while (t->edges[at].from != GM_NO_ID && (t->edges[at].from != from || t->edges[at].byte != byte))
        at = (at + 1) & (t->n_slots - 1);
    return at;
}

static gm_status more_edges(gm_trie *t)
{
    size_t        before = t->n_slots, wanted = before ? 2 * before : 256;
    gm_trie_edge *old = t->edges, *p = malloc(wanted * sizeof *p);
    if (!p) return GM_FAIL(GM_ENOMEM, "no memory for a vocabulary");
    memset(p, 0xff, wanted * sizeof *p);
    t->edges = p, t->n_slots = wanted;
    for (size_t i = 0; i < before; i++)
        if (old[i].from != GM_NO_ID) p[slot_of(t, old[i].from, old[i].byte)] = old[i];
    free(old);
    return GM_OK;
}

static gm_status new_node(gm_trie *t, uint32_t *node)
{
    if (t->n_nodes == t->room) {
        size_t    wanted = t->room ? 2 * t->room : 256;
        uint32_t *p = wanted < GM_NO_ID ? realloc(t->values, wanted * sizeof *p) : NULL;
        if (!p) return GM_FAIL(GM_ENOMEM, "no memory for a vocabulary");
        t->values = p, t->room = wanted;
    }
    t->values[t->n_nodes] = GM_NO_ID;
    *node = (uint32_t)t->n_nodes++;
    return GM_OK;
}

uint32_t gm_trie_next(const gm_trie *t, uint32_t from, unsigned char byte)
{
    if (!t->n_nodes) return GM_NO_ID;
    if (from == GM_NO_ID) return t->first[byte];
    const gm_trie_edge *e = t->n_slots ? &t->edges[slot_of(t, from, byte)] : NULL;
    return e && e->from != GM_NO_ID ? e->to : GM_NO_ID;
}

gm_status gm_trie_add(gm_trie *t, const char *text, size_t n, uint32_t value)
{
    uint32_t node = GM_NO_ID;
    if (!t->n_nodes) memset(t->first, 0xff, sizeof t->first);
    for (size_t i = 0; i < n; i++) {
        unsigned char b = (unsigned char)text[i];
        uint32_t      next = gm_trie_next(t, node, b);
        if (next == GM_NO_ID) {
            if (node != GM_NO_ID && 2 * (t->n_edges + 1) > t->n_slots) GM_TRY(more_edges(t));
            GM_TRY(new_node(t, &next));
            if (node == GM_NO_ID) t->first[b] = next;
            else t->edges[slot_of(t, node, b)] = (gm_trie_edge){node, next, b}, t->n_edges++;
        }
        node = next;
    }
    if (n) t->values[node] = value;
    return GM_OK;
}

void gm_trie_free(gm_trie *t)
{
    free(t->edges);
    free(t->values);
    *t = (gm_trie){0};
}
