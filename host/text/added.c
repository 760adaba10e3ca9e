/* added.c - see added.h. */
#include "added.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unicode.h"

static void free_set(gm_added_set *s)
{
    gm_vocab_free(&s->vocab);
    free(s->lengths);
    *s = (gm_added_set){0};
}

void gm_added_free(gm_added *a)
{
    for (size_t i = 0; i < a->n; i++) {
        free(a->tokens[i].text);
        free(a->tokens[i].shown);
    }
    free(a->tokens);
    free_set(&a->plain);
    free_set(&a->normal);
    *a = (gm_added){0};
}

const gm_added_token *gm_added_of(const gm_added *a, uint32_t id)
{
    size_t low = 0, high = a->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (a->tokens[middle].id < id) low = middle + 1;
        else high = middle;
    }
    return low < a->n && a->tokens[low].id == id ? &a->tokens[low] : NULL;
}

/* ---- reading ---- */

static gm_status read_token(const gm_fields *f, const gm_model *model, uint32_t *next, gm_added_token *t)
{
    const char *text;
    long long   id;
    GM_TRY(gm_fields_only(f, "id content single_word lstrip rstrip normalized special"));
    GM_TRY(gm_fields_text(f, "content", true, &text, &t->n));
    GM_TRY(gm_fields_number(f, "id", -1, 0, INT32_MAX - 1, &id));
    GM_TRY(gm_fields_flag(f, "single_word", false, &t->single_word));
    GM_TRY(gm_fields_flag(f, "lstrip", false, &t->left));
    GM_TRY(gm_fields_flag(f, "rstrip", false, &t->right));
    GM_TRY(gm_fields_flag(f, "special", false, &t->special));
    GM_TRY(gm_fields_flag(f, "normalized", !t->special, &t->normalized));
    t->id = gm_vocab_find(&model->vocab, text, t->n);
    if (t->id == GM_NO_ID) t->id = (*next)++;
    if (!t->n || id < 0) return GM_FAIL(GM_EINVAL, "%s: has no %s", f->where, t->n ? "id" : "content");
    if (id != (long long)t->id)
        return GM_FAIL(GM_EINVAL, "%s: the id of '%.60s' is %lld, but its place in the vocabulary is %u", f->where,
                       text, id, t->id);
    return gm_text_copy(text, t->n, &t->text);
}

static int by_id(const void *a, const void *b)
{
    uint32_t x = ((const gm_added_token *)a)->id, y = ((const gm_added_token *)b)->id;
    return x < y ? -1 : x > y;
}

gm_status gm_added_read(const gm_fields *f, json_t *list, const gm_model *model, const gm_normalizer *z, gm_added *out)
{
    char     name[48];
    gm_added a = {.tokens = calloc(json_array_size(list) + 1, sizeof *a.tokens)};
    uint32_t next = (uint32_t)model->vocab.n_entries;
    if (!a.tokens) return GM_FAIL(GM_ENOMEM, "no memory for a tokenizer");
    gm_status st = GM_OK;
    for (size_t i = 0; st == GM_OK && i < json_array_size(list); i++) {
        gm_fields inner;
        snprintf(name, sizeof name, "added_tokens.%zu", i);
        st = gm_fields_of(f, name, json_array_get(list, i), &inner);
        if (st == GM_OK) a.n++, st = read_token(&inner, model, &next, &a.tokens[i]);
    }
    qsort(a.tokens, a.n, sizeof *a.tokens, by_id);
    for (size_t i = 1; st == GM_OK && i < a.n; i++)
        if (a.tokens[i].id == a.tokens[i - 1].id)
            st = GM_FAIL(GM_EINVAL, "%s: added_tokens has '%.60s' twice", f->where, a.tokens[i].text);
    if (st == GM_OK) st = gm_added_finish(&a, z);
    if (st == GM_OK) *out = a;
    else gm_added_free(&a);
    return st;
}

static gm_status add_to(gm_added_set *s, const char *text, size_t n, uint32_t index)
{
    if (gm_vocab_find(&s->vocab, text, n) != GM_NO_ID) return GM_OK; /* the first of equal ones holds */
    GM_TRY(gm_vocab_add(&s->vocab, text, n, index));
    s->first[(unsigned char)*text] = true;
    size_t at = 0;
    while (at < s->n_lengths && s->lengths[at] > n) at++;
    if (at < s->n_lengths && s->lengths[at] == n) return GM_OK;
    size_t *p = realloc(s->lengths, (s->n_lengths + 1) * sizeof *p);
    if (!p) return GM_FAIL(GM_ENOMEM, "no memory for a tokenizer");
    memmove(p + at + 1, p + at, (s->n_lengths++ - at) * sizeof *p);
    p[at] = n, s->lengths = p;
    return GM_OK;
}

static gm_status show(gm_added_token *t, const char *text, size_t n)
{
    if (!(t->shown = malloc(n))) return GM_FAIL(GM_ENOMEM, "no memory for a tokenizer");
    memcpy(t->shown, text, n);
    t->n_shown = n;
    return GM_OK;
}

gm_status gm_added_finish(gm_added *a, const gm_normalizer *z)
{
    gm_text_bytes   one = {0}, two = {0};
    gm_regex_match *m = NULL;
    bool            leading;
    gm_status       st = gm_regex_match_new(&m);
    for (int special = 1; special >= 0; special--) /* in this order, for equal texts */
        for (size_t i = 0; st == GM_OK && i < a->n; i++) {
            gm_added_token *t = &a->tokens[i];
            if (t->special != special) continue;
            if (t->normalized) {
                st = gm_normalize(z, m, t->text, t->n, &one, &two, &leading);
                if (st == GM_OK && !two.n)
                    st = GM_FAIL(GM_EINVAL, "the added token '%.60s' is empty after normalization", t->text);
                if (st == GM_OK) st = add_to(&a->normal, two.data, two.n, (uint32_t)i);
                if (st == GM_OK) st = show(t, two.data, two.n);
            } else st = add_to(&a->plain, t->text, t->n, (uint32_t)i);
        }
    gm_regex_match_free(m);
    gm_text_free(&one);
    gm_text_free(&two);
    return st;
}

/* ---- searching ---- */

static const gm_added_token *token_at(const gm_added *a, const gm_added_set *s, const char *text, size_t n,
                                      size_t *size)
{
    for (size_t i = 0; i < s->n_lengths; i++) {
        if (s->lengths[i] > n) continue;
        uint32_t index = gm_vocab_find(&s->vocab, text, s->lengths[i]);
        if (index != GM_NO_ID) return *size = s->lengths[i], &a->tokens[index];
    }
    return NULL;
}

static bool is_single(const char *text, size_t n, size_t begin, size_t end)
{
    uint32_t before = ' ', after = ' ';
    if (begin) gm_char_before(text, begin, &before);
    if (end < n) gm_char_read(text + end, &after);
    return !gm_char_word(before) && !gm_char_word(after);
}

gm_status gm_added_cut(const gm_added *a, const gm_added_set *s, const char *text, size_t n, bool first, gm_part_to to,
                       void *context)
{
    size_t   done = 0, at = 0, size;
    uint32_t c;
    while (s->n_lengths && at < n) {
        while (at < n && !s->first[(unsigned char)text[at]]) at++;
        const gm_added_token *t = at < n ? token_at(a, s, text + at, n - at, &size) : NULL;
        if (!t) {
            at++;
            continue;
        }
        size_t begin = at, end = at + size;
        at = end;
        if (t->single_word && !is_single(text, n, begin, end)) continue;
        while (t->left && begin > done) {
            int k = gm_char_before(text, begin, &c);
            if (!gm_char_space(c)) break;
            begin -= (size_t)k;
        }
        while (t->right && end < n) {
            int k = gm_char_read(text + end, &c);
            if (!gm_char_space(c)) break;
            end += (size_t)k;
        }
        if (begin < done) begin = done;
        if (done < begin) GM_TRY(to(context, text + done, begin - done, first && !done, NULL));
        GM_TRY(to(context, text + begin, end > begin ? end - begin : 0, false, t));
        done = end;
    }
    return done < n ? to(context, text + done, n - done, first && !done, NULL) : GM_OK;
}
