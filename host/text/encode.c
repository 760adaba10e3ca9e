/* encode.c - texts to tokens (tokenizer.h), with a memory of pieces that came before. */
#include <stdlib.h>
#include <string.h>

#include "tokenizer.h"
#include "unicode.h"

#define SLOTS       (1u << 16) /* of the memory of pieces */
#define LONGEST     48         /* bytes of a piece that is kept */
#define MOST_TOKENS 14

/* One cache line and a half: a piece and its tokens. */
typedef struct kept {
    char     text[LONGEST];
    uint8_t  n, count; /* n 0: empty */
    uint32_t ids[MOST_TOKENS];
} kept;

struct gm_encoder {
    const gm_tokenizer *t;
    gm_cut_work         cut;
    gm_model_work       work;
    gm_text_bytes       one, two, mapped;
    gm_text_ids        *ids; /* of the call that runs */
    kept               *kept;
};

gm_status gm_encoder_new(const gm_tokenizer *t, gm_encoder **out)
{
    gm_encoder *e = calloc(1, sizeof *e);
    if (!e) return GM_FAIL(GM_ENOMEM, "no memory to encode");
    e->t = t;
    e->kept = calloc(SLOTS, sizeof *e->kept);
    gm_status st = e->kept ? gm_regex_match_new(&e->cut.match) : GM_FAIL(GM_ENOMEM, "no memory to encode");
    if (st == GM_OK) *out = e;
    else gm_encoder_free(e);
    return st;
}

void gm_encoder_free(gm_encoder *e)
{
    if (!e) return;
    gm_cut_work_free(&e->cut);
    gm_model_work_free(&e->work);
    gm_text_free(&e->one);
    gm_text_free(&e->two);
    gm_text_free(&e->mapped);
    free(e->kept);
    free(e);
}

static gm_status ask_model(gm_encoder *e, const char *text, size_t n)
{
    const gm_model *m = e->t->model;
    if (!e->t->pretokenizer.bytes) return m->cut(m, &e->work, text, n, e->ids);
    e->mapped.n = 0;
    GM_TRY(gm_text_room(&e->mapped, 2 * n));
    for (size_t i = 0; i < n; i++)
        e->mapped.n += (size_t)gm_char_write(gm_byte_char((unsigned char)text[i]), e->mapped.data + e->mapped.n);
    return m->cut(m, &e->work, e->mapped.data, e->mapped.n, e->ids);
}

static gm_status piece(void *context, const char *text, size_t n)
{
    gm_encoder  *e = context;
    gm_text_ids *ids = e->ids;
    if (n > LONGEST) return ask_model(e, text, n);
    kept *k = &e->kept[gm_text_hash(text, n) & (SLOTS - 1)];
    if (k->n == n && !memcmp(k->text, text, n)) {
        GM_TRY(gm_ids_room(ids, MOST_TOKENS));
        memcpy(ids->data + ids->n, k->ids, k->count * sizeof *k->ids);
        ids->n += k->count;
        return GM_OK;
    }
    size_t before = ids->n;
    GM_TRY(ask_model(e, text, n));
    if (ids->n - before > MOST_TOKENS) return GM_OK;
    memcpy(k->text, text, n);
    k->n = (uint8_t)n, k->count = (uint8_t)(ids->n - before);
    if (k->count) memcpy(k->ids, ids->data + before, k->count * sizeof *k->ids);
    return GM_OK;
}

static gm_status normal_part(void *context, const char *text, size_t n, bool first, const gm_added_token *token)
{
    gm_encoder *e = context;
    if (token) return n ? gm_ids_add(e->ids, token->id) : GM_OK;
    return gm_pretokenize(&e->t->pretokenizer, &e->cut, text, n, first, piece, e);
}

static gm_status plain_part(void *context, const char *text, size_t n, bool first, const gm_added_token *token)
{
    gm_encoder         *e = context;
    const gm_tokenizer *t = e->t;
    bool                leading = true;
    if (token) return n ? gm_ids_add(e->ids, token->id) : GM_OK;
    if (t->normalizer.n) {
        GM_TRY(gm_normalize(&t->normalizer, e->cut.match, text, n, &e->one, &e->two, &leading));
        text = e->two.data, n = e->two.n;
    }
    return gm_added_cut(&t->added, &t->added.normal, text, n, first && leading, normal_part, e);
}

static gm_status add_text(gm_encoder *e, const char *text, size_t n)
{
    size_t good = gm_utf8_valid(text, n);
    if (good < n)
        return GM_FAIL(GM_EINVAL, "the text is no UTF-8: byte %zu of %zu is 0x%02x", good, n,
                       (unsigned char)text[good]);
    return gm_added_cut(&e->t->added, &e->t->added.plain, text, n, true, plain_part, e);
}

gm_status gm_encode_pair(gm_encoder *e, const char *a, size_t n_a, const char *b, size_t n_b, bool special,
                         gm_text_ids *ids)
{
    const gm_text_ids *shape = b ? &e->t->processor.two : &e->t->processor.one;
    size_t             before = ids->n;
    gm_status          st = GM_OK;
    e->ids = ids;
    if (!special) {
        st = add_text(e, a, n_a);
        if (st == GM_OK && b) st = add_text(e, b, n_b);
    }
    for (size_t i = 0; special && st == GM_OK && i < shape->n; i++) {
        if (shape->data[i] == GM_SEQUENCE_A) st = add_text(e, a, n_a);
        else if (shape->data[i] != GM_SEQUENCE_B) st = gm_ids_add(ids, shape->data[i]);
        else if (b) st = add_text(e, b, n_b);
    }
    if (st != GM_OK) ids->n = before;
    return st;
}

gm_status gm_encode(gm_encoder *e, const char *text, size_t n, bool special, gm_text_ids *ids)
{
    return gm_encode_pair(e, text, n, NULL, 0, special, ids);
}
