/* text_test.c - tokenizers: files that are damaged in every way are refused or read, and nothing is read outside of
 * them (under the sanitizers); vocabularies and tries against plain searches. */
#include "../../host/text/sentencepiece.h"
#include "../../host/text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../host/text/trie.h"
#include "unit.h"

static uint32_t state = 1;

static uint32_t draw(uint32_t n)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % n;
}

static char *read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    char *bytes = malloc(1 << 20);
    *n = fread(bytes, 1, 1 << 20, f);
    fclose(f);
    return bytes;
}

/* Opens what is left of the file, and uses it if that works. -> was it opened? */
static bool try_one(const char *bytes, size_t n, bool pieces)
{
    static const char text[] = "Hello  world 123 <|endoftext|> \xc3\xa9\xe6\x97\xa5\n<s>";
    gm_tokenizer     *t = NULL;
    gm_encoder       *e = NULL;
    gm_text_ids       ids = {0};
    gm_text_bytes     out = {0};
    gm_status         st = pieces ? gm_sentencepiece_parse("x.model", bytes, n, &t)
                                  : gm_tokenizer_parse("x.json", bytes, n, &t);
    if (st != GM_OK) {
        assert_true(strlen(gm_last_error()) > 10);
        assert_null(t);
        return false;
    }
    assert_int_equal(gm_encoder_new(t, &e), GM_OK);
    if (gm_encode(e, text, sizeof text - 1, true, &ids) == GM_OK) (void)gm_decode_ids(t, ids.data, ids.n, true, &out);
    for (uint32_t i = 0; i < 40; i++) (void)gm_decode_ids(t, &(uint32_t){draw(3000)}, 1, true, &out);
    gm_ids_free(&ids);
    gm_text_free(&out);
    gm_encoder_free(e);
    gm_tokenizer_free(t);
    return true;
}

static size_t damage(char *b, size_t n)
{
    for (uint32_t k = 1 + draw(4); k && n > 8; k--) {
        size_t at = draw(2) ? draw((uint32_t)n) : draw(n < 1500 ? (uint32_t)n : 1500), m = 1 + draw(8);
        switch (draw(4)) {
        case 0: b[at] = (char)draw(256); break;
        case 1: b[at] = "0123456789{}[]\",:\\n"[draw(19)]; break;
        case 2:
            if (m > n - at) m = n - at;
            memmove(b + at, b + at + m, n - at - m);
            n -= m;
            break;
        default:
            if (draw(4) == 0) n = at;
        }
    }
    return n;
}

void gm_test_text_damage(void **unused)
{
    static const char *const names[] = {"bert.json", "llama2.json", "llama3.json", "unigram.json", "pieces_bpe.model"};
    int                      opened = 0, refused = 0;
    (void)unused;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char   path[100];
        size_t n = 0;
        snprintf(path, sizeof path, "spec/golden/tokenizers/%s", names[i]);
        char *bytes = read_file(path, &n), *copy = malloc(1 << 20);
        if (!bytes) fail_msg("%s: run in the top of the tree", path);
        assert_true(try_one(bytes, n, strstr(path, ".model") != NULL));
        for (int k = 0; k < 300; k++) {
            memcpy(copy, bytes, n);
            size_t left = damage(copy, n);
            char  *exact = malloc(left + 1); /* so that a sanitizer sees the end */
            memcpy(exact, copy, left);
            bool ok = try_one(exact, left, strstr(path, ".model") != NULL);
            opened += ok, refused += !ok;
            free(exact);
        }
        free(bytes);
        free(copy);
    }
    assert_true(opened > 20 && refused > 300);
}

void gm_test_text_deep(void **unused)
{
    size_t n = 100000;
    char  *deep = malloc(n);
    (void)unused;
    memset(deep, '[', n);
    assert_false(try_one(deep, n, false));
    memcpy(deep, "{\"model\":", 9);
    assert_false(try_one(deep, n, false));
    memset(deep, 0xff, n); /* a varint without end */
    assert_false(try_one(deep, n, true));
    memcpy(deep, "\x0a\xff\xff\xff\xff\x0f", 6); /* a piece of 4 GB */
    assert_false(try_one(deep, n, true));
    free(deep);
}

void gm_test_text_trie(void **unused)
{
    enum { COUNT = 500 };
    char     words[COUNT][8];
    gm_trie  t = {0};
    gm_vocab v = {0};
    (void)unused;
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t n = 1 + draw(6);
        for (uint32_t k = 0; k < n; k++) words[i][k] = "abc"[draw(3)];
        words[i][n] = 0;
        assert_int_equal(gm_trie_add(&t, words[i], n, i), GM_OK);
        assert_int_equal(gm_vocab_add(&v, words[i], n, i), GM_OK);
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t last = i, node = GM_NO_ID;
        for (uint32_t j = i; j < COUNT; j++)
            if (!strcmp(words[i], words[j])) last = j; /* the last of equal ones holds */
        for (const char *p = words[i]; *p; p++) node = gm_trie_next(&t, node, (unsigned char)*p);
        assert_int_equal(t.values[node], last);
        assert_int_equal(gm_vocab_find(&v, words[i], strlen(words[i])), last);
    }
    assert_int_equal(gm_vocab_find(&v, "abd", 3), GM_NO_ID);
    assert_int_equal(gm_trie_next(&t, GM_NO_ID, 'd'), GM_NO_ID);
    gm_trie_free(&t);
    gm_vocab_free(&v);
}
