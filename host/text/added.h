/* added.h - the tokens that stand in a text as they are: the `added_tokens` of a tokenizer.json.
 *
 * Some are looked for in the text, some after its normalization, in their own normal form. Of those that begin at one
 * place the longest holds; the search goes on behind it. */
#ifndef GM_TEXT_ADDED_H
#define GM_TEXT_ADDED_H

#include "model.h"
#include "normalizer.h"

typedef struct gm_added_token {
    uint32_t id;
    char    *text;
    size_t   n;
    char    *shown; /* what decoding gives: its normal form, if it is looked for there */
    size_t   n_shown;
    bool     single_word, left, right, normalized, special; /* left, right: takes the spaces there */
} gm_added_token;

typedef struct gm_added_set {
    gm_vocab vocab;      /* text to index in gm_added.tokens */
    bool     first[256]; /* does a text begin with this byte? */
    size_t  *lengths;    /* of the texts, each once, longest first */
    size_t   n_lengths;
} gm_added_set;

typedef struct gm_added {
    gm_added_token *tokens;
    size_t          n;
    gm_added_set    plain, normal;
} gm_added;

/* Reads the list. Numbers of tokens that the model does not have follow on each other after it. */
gm_status gm_added_read(const gm_fields *f, json_t *list, const gm_model *model, const gm_normalizer *z, gm_added *out);
/* Makes the sets of a list that is complete. */
gm_status gm_added_finish(gm_added *a, const gm_normalizer *z);
void      gm_added_free(gm_added *a);
/* The token with this number; NULL: none was added. */
const gm_added_token *gm_added_of(const gm_added *a, uint32_t id);

/* A part of a text: token is NULL, or the part stands for it. */
typedef gm_status (*gm_part_to)(void *context, const char *text, size_t n, bool first, const gm_added_token *token);
/* Gives the parts of n bytes, in order; first: the text begins where its whole does. */
gm_status gm_added_cut(const gm_added *a, const gm_added_set *set, const char *text, size_t n, bool first,
                       gm_part_to to, void *context);

#endif
