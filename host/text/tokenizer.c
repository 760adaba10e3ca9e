/* tokenizer.c - opens a tokenizer.json, and decodes; encode.c encodes. */
#include "tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../files/bytes.h"
#include "around.h"
#include "sentencepiece.h"
#include "unicode.h"

void gm_tokenizer_free(gm_tokenizer *t)
{
    if (!t) return;
    gm_model_free(t->model);
    gm_normalizer_free(&t->normalizer);
    gm_added_free(&t->added);
    gm_pretokenizer_free(&t->pretokenizer);
    gm_processor_free(&t->processor);
    gm_decoder_free(&t->decoder);
    free(t->path);
    free(t);
}

/* ---- tokens ---- */

const char *gm_tokenizer_text(const gm_tokenizer *t, uint32_t id, size_t *n)
{
    const gm_added_token *added = gm_added_of(&t->added, id);
    if (added && added->shown) return *n = added->n_shown, added->shown;
    if (added) return *n = added->n, added->text;
    return gm_vocab_text(&t->model->vocab, id, n);
}

uint32_t gm_tokenizer_id(const gm_tokenizer *t, const char *text, size_t n)
{
    for (size_t i = 0; i < t->added.n; i++)
        if (t->added.tokens[i].n == n && !memcmp(t->added.tokens[i].text, text, n)) return t->added.tokens[i].id;
    return gm_vocab_find(&t->model->vocab, text, n);
}

bool gm_tokenizer_special(const gm_tokenizer *t, uint32_t id)
{
    const gm_added_token *added = gm_added_of(&t->added, id);
    return added && added->special;
}

/* Python's reader knows special tokens by their text: one whose normal form is another is shown in any case. */
static bool is_left_out(const gm_tokenizer *t, uint32_t id)
{
    const gm_added_token *added = gm_added_of(&t->added, id);
    if (!added || !added->special) return false;
    return !added->shown || (added->n == added->n_shown && !memcmp(added->text, added->shown, added->n));
}

gm_status gm_decode_ids(const gm_tokenizer *t, const uint32_t *ids, size_t n, bool special, gm_text_bytes *out)
{
    gm_text_list list = {0};
    gm_status    st = GM_OK;
    for (size_t i = 0; st == GM_OK && i < n; i++) {
        size_t      size;
        const char *text = gm_tokenizer_text(t, ids[i], &size);
        if (!text) st = GM_FAIL(GM_EINVAL, "%s: has no token %u (number %zu of %zu)", t->path, ids[i], i + 1, n);
        else if (special || !is_left_out(t, ids[i])) {
            st = gm_text_add(&list.bytes, text, size);
            if (st == GM_OK) st = gm_text_list_end(&list);
        }
    }
    if (st == GM_OK) st = gm_decoder_run(&t->decoder, &list, out);
    gm_text_list_free(&list);
    return st;
}

/* ---- reading ---- */

/* Encoding gives all tokens of one text: what would cut or fill them is refused, unless it changes nothing then. */
static gm_status check_shape(const gm_fields *f)
{
    json_t *cut = json_object_get(f->object, "truncation"), *fill = json_object_get(f->object, "padding");
    if (cut && !json_is_null(cut))
        return GM_FAIL(GM_EINVAL, "%s: 'truncation' would cut texts short; set it to null", f->where);
    if (!fill || json_is_null(fill)) return GM_OK;
    const json_t *strategy = json_object_get(fill, "strategy"), *multiple = json_object_get(fill, "pad_to_multiple_of");
    bool          longest = json_is_string(strategy) && !strcmp(json_string_value(strategy), "BatchLongest");
    if (longest && (!multiple || json_is_null(multiple))) return GM_OK;
    return GM_FAIL(GM_EINVAL, "%s: 'padding' would lengthen texts; set it to null", f->where);
}

/* The object of that name, or *there false: it is missing or null. */
static gm_status part(const gm_fields *f, const char *name, gm_fields *out, bool *there)
{
    json_t *v = json_object_get(f->object, name);
    *there = v && !json_is_null(v);
    return *there ? gm_fields_of(f, name, v, out) : GM_OK;
}

static gm_status read_parts(const gm_fields *f, gm_tokenizer *t)
{
    gm_fields   inner;
    bool        there;
    const char *version;
    size_t      n;
    json_t     *added = json_object_get(f->object, "added_tokens"), *none = NULL;
    GM_TRY(gm_fields_only(
        f, "version truncation padding added_tokens normalizer pre_tokenizer post_processor decoder model"));
    GM_TRY(gm_fields_text(f, "version", false, &version, &n));
    if (version && strcmp(version, "1.0"))
        return GM_FAIL(GM_EINVAL, "%s.version: '%.20s' is not read here", f->where, version);
    GM_TRY(check_shape(f));
    GM_TRY(gm_fields_of(f, "model", json_object_get(f->object, "model"), &inner));
    GM_TRY(gm_model_read(&inner, &t->model));
    GM_TRY(part(f, "normalizer", &inner, &there));
    if (there) GM_TRY(gm_normalizer_read(&inner, &t->normalizer));
    if (added && !json_is_null(added) && !json_is_array(added))
        return GM_FAIL(GM_EINVAL, "%s.added_tokens: is no list", f->where);
    if (!json_is_array(added)) added = none = json_array();
    gm_status st = gm_added_read(f, added, t->model, &t->normalizer, &t->added);
    json_decref(none);
    if (st != GM_OK) return st;
    GM_TRY(part(f, "pre_tokenizer", &inner, &there));
    if (there) GM_TRY(gm_pretokenizer_read(&inner, &t->pretokenizer));
    GM_TRY(part(f, "post_processor", &inner, &there));
    GM_TRY(there ? gm_processor_read(&inner, &t->processor) : gm_processor_plain(&t->processor));
    GM_TRY(part(f, "decoder", &inner, &there));
    if (there) GM_TRY(gm_decoder_read(&inner, &t->decoder));
    t->size = t->model->vocab.n_ids;
    for (size_t i = 0; i < t->added.n; i++)
        if (t->added.tokens[i].id >= t->size) t->size = (size_t)t->added.tokens[i].id + 1;
    return GM_OK;
}

gm_status gm_tokenizer_parse(const char *path, const char *text, size_t n, gm_tokenizer **out)
{
    json_error_t e;
    gm_fields    f = {0};
    /* A vocabulary may have the character U+0000. Names that come twice count once, as in Python: the last holds. */
    json_t *root = json_loadb(text, n, JSON_ALLOW_NUL, &e);
    if (!root) return GM_FAIL(GM_ECORRUPT, "%s: line %d, column %d: %s", path, e.line, e.column, e.text);
    snprintf(f.where, sizeof f.where, "%s", strlen(path) < 150 ? path : "tokenizer.json");
    for (char *p = f.where; *p; p++)
        if (*p == ' ') *p = '_';
    f.object = root;
    gm_tokenizer *t = calloc(1, sizeof *t);
    gm_status     st = t && (t->path = strdup(path)) ? GM_OK : GM_FAIL(GM_ENOMEM, "no memory for a tokenizer");
    if (st == GM_OK && !json_is_object(root)) st = GM_FAIL(GM_EINVAL, "%s: is no object", path);
    if (st == GM_OK) st = read_parts(&f, t);
    json_decref(root);
    if (st == GM_OK) *out = t;
    else gm_tokenizer_free(t);
    return st;
}

static bool is_model(const char *path)
{
    size_t n = strlen(path);
    return n > 6 && !strcmp(path + n - 6, ".model");
}

/* A folder has a tokenizer.json, or else a tokenizer.model. */
static gm_status find(const char *path, char *file, size_t room)
{
    struct stat about;
    bool        folder = !stat(path, &about) && S_ISDIR(about.st_mode);
    const char *name = folder ? "/tokenizer.json" : "";
    for (int i = 0; i < 2; i++, name = "/tokenizer.model") {
        int n = snprintf(file, room, "%s%s", path, name);
        if (n < 0 || (size_t)n >= room) return GM_FAIL(GM_EINVAL, "%s: the name is too long", path);
        if (!folder || !stat(file, &about)) return GM_OK;
    }
    return GM_FAIL(GM_EIO, "%s: has neither tokenizer.json nor tokenizer.model", path);
}

/* A file of SentencePiece, with what its neighbour puts around a text. */
static gm_status open_model(const char *file, const char *bytes, size_t n, gm_tokenizer **out)
{
    gm_tokenizer *t = NULL;
    GM_TRY(gm_sentencepiece_parse(file, bytes, n, &t));
    gm_status st = gm_text_around(file, t);
    if (st == GM_OK) *out = t;
    else gm_tokenizer_free(t);
    return st;
}

gm_status gm_tokenizer_open(const char *path, gm_tokenizer **out)
{
    char     file[4096];
    gm_bytes bytes = {0};
    GM_TRY(find(path, file, sizeof file));
    GM_TRY(gm_bytes_map(file, GM_ACCESS_SEQUENTIAL, &bytes));
    char     *copy = malloc(bytes.size + 1);
    gm_status st = copy ? gm_bytes_copy(&bytes, 0, bytes.size, copy) : GM_FAIL(GM_ENOMEM, "%s: no memory for it", file);
    if (st == GM_OK)
        st = is_model(file) ? open_model(file, copy, bytes.size, out) : gm_tokenizer_parse(file, copy, bytes.size, out);
    free(copy);
    gm_bytes_close(&bytes);
    return st;
}
