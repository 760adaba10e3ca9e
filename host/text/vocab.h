/* vocab.h - texts and their numbers: the vocabulary of a model.
 *
 * Texts are bytes of any length, kept in one block. Several threads may read a vocabulary that nobody changes. */
#ifndef GM_TEXT_VOCAB_H
#define GM_TEXT_VOCAB_H

#include "grow.h"

#define GM_NO_ID UINT32_MAX

typedef struct gm_vocab_entry {
    size_t   at; /* in the block */
    uint32_t n;
    uint32_t id;
} gm_vocab_entry;

typedef struct gm_vocab {
    gm_text_bytes   block;
    gm_vocab_entry *entries; /* in the order in which they came */
    size_t          n_entries, room_entries;
    uint32_t       *slots; /* open addressing: number of an entry, or GM_NO_ID */
    size_t          n_slots;
    uint32_t       *by_id; /* entry of an id, or GM_NO_ID; made by gm_vocab_index */
    size_t          n_ids; /* the highest id and one */
} gm_vocab;

/* Adds a text. If it is there, its number becomes `id`. GM_ENOMEM. */
gm_status gm_vocab_add(gm_vocab *v, const char *text, size_t n, uint32_t id);
/* The number of a text, or GM_NO_ID. */
uint32_t gm_vocab_find(const gm_vocab *v, const char *text, size_t n);
/* Makes gm_vocab_text possible. GM_EINVAL: a number is out of all proportion to the number of texts. */
gm_status gm_vocab_index(gm_vocab *v);
/* The text of a number; NULL: there is none. Of several texts with one number, the last. */
const char *gm_vocab_text(const gm_vocab *v, uint32_t id, size_t *n);
void        gm_vocab_free(gm_vocab *v);

uint64_t gm_text_hash(const char *text, size_t n);

#endif
