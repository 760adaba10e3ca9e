/* regex.c - see regex.h. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "regex.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "unicode.h"

struct gm_regex {
    pcre2_code *code;
};

struct gm_regex_match {
    pcre2_match_data    *data;
    pcre2_match_context *context;
    pcre2_jit_stack     *stack;
};

/* ---- translation ---- */

#define SPACES \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define NOT_SPACES                                                                                  \
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}" \
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"
#define WORDS                                                                                                       \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{" \
    "1f189}"

#define LATIN_NUMBERS "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}" /* are \w for Oniguruma, where it is in no class */

typedef struct reader {
    const char    *p, *end;
    gm_text_bytes *to;
    bool           in_class;
} reader;

static gm_status put(reader *r, const char *text) { return gm_text_add(r->to, text, strlen(text)); }

/* \p{Name}: one- and two-letter categories, and scripts. PCRE2 reads a script's name as Script_Extensions. */
static gm_status property(reader *r)
{
    char        name[40];
    const char *open = r->p + 1, *close = r->p[0] ? memchr(open, '}', (size_t)(r->end - open)) : NULL;
    if (open >= r->end || *open != '{' || !close || close - open - 1 > 30)
        return GM_FAIL(GM_EINVAL, "a regular expression has \\p without {name}");
    bool   caret = open[1] == '^';
    size_t n = (size_t)(close - open) - 1 - caret;
    memcpy(name, open + 1 + caret, n);
    name[n] = 0;
    GM_TRY(put(r, (*r->p == 'P') != caret ? "\\P{" : "\\p{"));
    if (n > 2 && strcmp(name, "Any") && strcmp(name, "L&")) GM_TRY(put(r, "sc:"));
    GM_TRY(put(r, name));
    r->p = close + 1;
    return put(r, "}");
}

static gm_status escape(reader *r)
{
    if (r->p == r->end) return GM_FAIL(GM_EINVAL, "a regular expression ends with \\");
    char c = *r->p;
    if (c == 'p' || c == 'P') return property(r);
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) || strchr("dDbBrntfvaAzx", c)) {
        if (strchr("bBAz", c) && r->in_class) return GM_FAIL(GM_EINVAL, "a regular expression has \\%c in a class", c);
        if (c >= '1' && c <= '9') return GM_FAIL(GM_EINVAL, "a regular expression has \\%c, which is not read here", c);
        if (c == 'v') return r->p++, put(r, "\\x{b}");
        char two[2] = {'\\', c};
        r->p++;
        return gm_text_add(r->to, two, 2);
    }
    r->p++;
    switch (c) {
    case 's': return put(r, r->in_class ? SPACES : "[" SPACES "]");
    case 'S': return put(r, r->in_class ? NOT_SPACES : "[^" SPACES "]");
    case 'w': return put(r, r->in_class ? WORDS : "[" WORDS LATIN_NUMBERS "]");
    case 'W':
        if (!r->in_class) return put(r, "[^" WORDS LATIN_NUMBERS "]");
        break;
    case 'u':
        if (r->end - r->p >= 4) {
            GM_TRY(put(r, "\\x{"));
            GM_TRY(gm_text_add(r->to, r->p, 4));
            r->p += 4;
            return put(r, "}");
        }
        break;
    default: break;
    }
    return GM_FAIL(GM_EINVAL, "a regular expression has \\%c, which is not read here", c);
}

/* [:alpha:] and others, by Unicode's properties; PCRE2 means categories by them. */
static gm_status named_class(reader *r, size_t left)
{
    static const char *const known[][2] = {{"[:alpha:]", "\\p{Alphabetic}"},
                                           {"[:alnum:]", "\\p{Alphabetic}\\p{Nd}"},
                                           {"[:digit:]", "\\p{Nd}"},
                                           {"[:upper:]", "\\p{Uppercase}"},
                                           {"[:lower:]", "\\p{Lowercase}"},
                                           {"[:space:]", SPACES},
                                           {"[:cntrl:]", "\\p{Cc}"},
                                           {"[:xdigit:]", "0-9a-fA-F"},
                                           {"[:word:]", WORDS},
                                           {"[:ascii:]", "\\x{0}-\\x{7f}"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t n = strlen(known[i][0]);
        if (left < n || memcmp(r->p, known[i][0], n) != 0) continue;
        r->p += n;
        return put(r, known[i][1]);
    }
    return GM_FAIL(GM_EINVAL, "a regular expression has '%.*s', which is not read here", left < 12 ? (int)left : 12,
                   r->p);
}

static gm_status translate(reader *r)
{
    while (r->p < r->end) {
        char   c = *r->p;
        size_t left = (size_t)(r->end - r->p);
        if (c == '\\') {
            r->p++;
            GM_TRY(escape(r));
            continue;
        }
        if (r->in_class) {
            if (c == '[' && !(left > 1 && r->p[1] == ':'))
                return GM_FAIL(GM_EINVAL, "a regular expression has a class in a class, which is not read here");
            if (c == '[') {
                GM_TRY(named_class(r, left));
                continue;
            }
            if (c == '&' && left > 1 && r->p[1] == '&')
                return GM_FAIL(GM_EINVAL, "a regular expression has && in a class, which is not read here");
            if (c == ']') r->in_class = false;
        } else if (c == '[') {
            size_t head = left > 1 && r->p[1] == '^' ? 2 : 1;
            r->in_class = true;
            GM_TRY(gm_text_add(r->to, r->p, head));
            r->p += head;
            if (r->p < r->end && *r->p == ']') GM_TRY(put(r, "\\")); /* a first ] means itself */
            if (r->p < r->end && *r->p == ']') GM_TRY(gm_text_add(r->to, r->p++, 1));
            continue;
        } else if (c == '(' && left > 2 && r->p[1] == '?' && (r->p[2] == 'm' || r->p[2] == 'P' || r->p[2] == '&'))
            return GM_FAIL(GM_EINVAL, "a regular expression has (?%c, which is not read here", r->p[2]);
        GM_TRY(gm_text_add(r->to, r->p++, 1));
    }
    return GM_OK;
}

/* ---- compiling and matching ---- */

gm_status gm_regex_new(const char *pattern, size_t n, bool literal, gm_regex **out)
{
    PCRE2_UCHAR8  why[120];
    int           error;
    size_t        where;
    gm_text_bytes to = {0};
    reader        r = {pattern, pattern + n, &to, false};
    gm_regex     *x = calloc(1, sizeof *x);
    gm_status     st = x ? GM_OK : GM_FAIL(GM_ENOMEM, "no memory for a regular expression");
    if (st == GM_OK) st = literal ? gm_text_add(&to, pattern, n) : translate(&r);
    if (st == GM_OK) {
        uint32_t flags = PCRE2_UTF | PCRE2_UCP | (literal ? PCRE2_LITERAL : PCRE2_MULTILINE);
        if (literal) flags &= ~(uint32_t)PCRE2_UCP;
        x->code = pcre2_compile((PCRE2_SPTR)to.data, to.n, flags, &error, &where, NULL);
        if (!x->code) {
            pcre2_get_error_message(error, why, sizeof why);
            st = GM_FAIL(GM_EINVAL, "the regular expression '%.*s': %s, at byte %zu", to.n < 200 ? (int)to.n : 200,
                         to.data ? to.data : "", (char *)why, where);
        } else pcre2_jit_compile(x->code, PCRE2_JIT_COMPLETE); /* where there is none, pcre2_match interprets */
    }
    gm_text_free(&to);
    if (st == GM_OK) *out = x;
    else gm_regex_free(x);
    return st;
}

void gm_regex_free(gm_regex *r)
{
    if (r) pcre2_code_free(r->code);
    free(r);
}

gm_status gm_regex_match_new(gm_regex_match **out)
{
    gm_regex_match *m = calloc(1, sizeof *m);
    if (m) {
        m->data = pcre2_match_data_create(1, NULL);
        m->context = pcre2_match_context_create(NULL);
        m->stack = pcre2_jit_stack_create(1 << 15, 1 << 24, NULL);
    }
    if (!m || !m->data || !m->context || !m->stack) {
        gm_regex_match_free(m);
        return GM_FAIL(GM_ENOMEM, "no memory to match regular expressions");
    }
    pcre2_jit_stack_assign(m->context, NULL, m->stack);
    *out = m;
    return GM_OK;
}

void gm_regex_match_free(gm_regex_match *m)
{
    if (!m) return;
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->context);
    pcre2_jit_stack_free(m->stack);
    free(m);
}

gm_status gm_regex_find(const gm_regex *r, gm_regex_match *m, const char *text, size_t n, size_t from, size_t last_end,
                        bool *found, size_t *begin, size_t *end)
{
    for (;;) {
        PCRE2_UCHAR8 why[120];
        int          rc = pcre2_match(r->code, (PCRE2_SPTR)text, n, from, PCRE2_NO_UTF_CHECK, m->data, m->context);
        *found = rc >= 0;
        if (rc == PCRE2_ERROR_NOMATCH) return GM_OK;
        if (rc < 0) {
            pcre2_get_error_message(rc, why, sizeof why);
            return GM_FAIL(GM_EINVAL, "a regular expression cannot be matched at byte %zu: %s", from, (char *)why);
        }
        const PCRE2_SIZE *o = pcre2_get_ovector_pointer(m->data);
        *begin = o[0], *end = o[1];
        if (*begin != *end || *end != last_end) return GM_OK;
        *found = false;
        if (from >= n) return GM_OK;
        from += (size_t)gm_char_bytes((unsigned char)text[from]);
    }
}

gm_status gm_pattern_read(const gm_fields *f, gm_regex **pattern, char **literal, size_t *n)
{
    gm_fields   inner;
    const char *text;
    GM_TRY(gm_fields_of(f, "pattern", json_object_get(f->object, "pattern"), &inner));
    GM_TRY(gm_fields_only(&inner, "String Regex"));
    GM_TRY(gm_fields_text(&inner, "String", false, &text, n));
    if (text) {
        if (!*n) return GM_FAIL(GM_EINVAL, "%s: is empty", inner.where);
        *literal = malloc(*n);
        if (!*literal) return GM_FAIL(GM_ENOMEM, "no memory for a tokenizer");
        memcpy(*literal, text, *n);
        return GM_OK;
    }
    GM_TRY(gm_fields_text(&inner, "Regex", true, &text, n));
    gm_status st = gm_regex_new(text, *n, false, pattern);
    return st == GM_OK ? st : gm_fields_wrong(&inner, st);
}
