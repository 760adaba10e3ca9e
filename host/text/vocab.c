/* vocab.c - see vocab.h. */
#include "vocab.h"

#include <stdlib.h>
#include <string.h>

static uint64_t mix(uint64_t a, uint64_t b)
{
    unsigned __int128 p = (unsigned __int128)a * b;
    return (uint64_t)p ^ (uint64_t)(p >> 64);
}

uint64_t gm_text_hash(const char *text, size_t n)
{
    uint64_t h = 0x9e3779b97f4a7c15u ^ n, w;
    for (; n >= 8; text += 8, n -= 8) {
        memcpy(&w, text, 8);
        h = mix(h ^ w, 0xd6e8feb86659fd93u);
    }
    w = 0;
    if (n >= 4) {
        uint32_t low, high;
        memcpy(&low, text, 4);
        memcpy(&high, text + n - 4, 4);
        w = (uint64_t)high << 32 | low;
    } else if (n)
        w = (uint64_t)(unsigned char)text[0] | (uint64_t)(unsigned char)text[n / 2] << 8 |
            (uint64_t)(unsigned char)text[n - 1] << 16;
    return mix(h ^ w ^ n << 56, 0xa0761d6478bd642fu);
}

static size_t slot_of(const gm_vocab *v, const char *text, size_t n)
{
    size_t at = gm_text_hash(text, n) & (v->n_slots - 1);
    for (; v->slots[at] != GM_NO_ID; at = (at + 1) & (v->n_slots - 1)) {
        const gm_vocab_entry *e = &v->entries[v->slots[at]];
        if (e->n == n && !memcmp(v->block.data + e->at, text, n)) break;
    }
    return at;
}

static gm_status more_slots(gm_vocab *v)
{
    size_t    wanted = v->n_slots ? 2 * v->n_slots : 64;
    uint32_t *slots = malloc(wanted * sizeof *slots);
    if (!slots) return GM_FAIL(GM_ENOMEM, "no memory for a vocabulary");
    memset(slots, 0xff, wanted * sizeof *slots);
    free(v->slots);
    v->slots = slots, v->n_slots = wanted;
    for (size_t i = 0; i < v->n_entries; i++) {
        const gm_vocab_entry *e = &v->entries[i];
        slots[slot_of(v, v->block.data + e->at, e->n)] = (uint32_t)i;
    }
    return GM_OK;
}

gm_status gm_vocab_add(gm_vocab *v, const char *text, size_t n, uint32_t id)
{
    if (n >= UINT32_MAX || v->n_entries >= UINT32_MAX / 4) return GM_FAIL(GM_ENOMEM, "a vocabulary is too large");
    if (2 * (v->n_entries + 1) > v->n_slots) GM_TRY(more_slots(v));
    size_t at = slot_of(v, text, n);
    if (v->slots[at] != GM_NO_ID) {
        v->entries[v->slots[at]].id = id;
        return GM_OK;
    }
    if (v->n_entries == v->room_entries) {
        size_t          room = v->room_entries ? 2 * v->room_entries : 64;
        gm_vocab_entry *p = realloc(v->entries, room * sizeof *p);
        if (!p) return GM_FAIL(GM_ENOMEM, "no memory for a vocabulary");
        v->entries = p, v->room_entries = room;
    }
    size_t begin = v->block.n;
    GM_TRY(gm_text_add(&v->block, text, n));
    v->entries[v->n_entries] = (gm_vocab_entry){begin, (uint32_t)n, id};
    v->slots[at] = (uint32_t)v->n_entries++;
    return GM_OK;
}

uint32_t gm_vocab_find(const gm_vocab *v, const char *text, size_t n)
{
    if (!v->n_slots) return GM_NO_ID;
    uint32_t e = v->slots[slot_of(v, text, n)];
    return e == GM_NO_ID ? GM_NO_ID : v->entries[e].id;
}

gm_status gm_vocab_index(gm_vocab *v)
{
    size_t highest = 0;
    for (size_t i = 0; i < v->n_entries; i++)
        if (v->entries[i].id >= highest) highest = (size_t)v->entries[i].id + 1;
    if (highest > 4 * v->n_entries + (1u << 20))
        return GM_FAIL(GM_EINVAL, "the number %zu, in a vocabulary of %zu tokens, is too high", highest - 1,
                       v->n_entries);
    free(v->by_id);
    v->by_id = malloc((highest + 1) * sizeof *v->by_id);
    if (!v->by_id) return GM_FAIL(GM_ENOMEM, "no memory for a vocabulary");
    memset(v->by_id, 0xff, (highest + 1) * sizeof *v->by_id);
    for (size_t i = 0; i < v->n_entries; i++) v->by_id[v->entries[i].id] = (uint32_t)i;
    v->n_ids = highest;
    return GM_OK;
}

const char *gm_vocab_text(const gm_vocab *v, uint32_t id, size_t *n)
{
    if (id >= v->n_ids || v->by_id[id] == GM_NO_ID) return NULL;
    const gm_vocab_entry *e = &v->entries[v->by_id[id]];
    *n = e->n;
    return v->block.data + e->at;
}

void gm_vocab_free(gm_vocab *v)
{
    gm_text_free(&v->block);
    free(v->entries);
    free(v->slots);
    free(v->by_id);
    *v = (gm_vocab){0};
}
