/* pretokenizer.c - runs the steps of a pre-tokenizer; pretokenizer_read.c reads them. */
#include "pretokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "unicode.h"

void gm_cut_work_free(gm_cut_work *w)
{
    gm_regex_match_free(w->match);
    for (int i = 0; i < GM_CUT_DEPTH; i++) gm_text_free(&w->text[i]);
    *w = (gm_cut_work){0};
}

typedef struct run {
    const gm_pretokenizer *p;
    gm_cut_work           *w;
    gm_piece_to            to;
    void                  *context;
} run;

static gm_status step(run *r, int at, const char *text, size_t n, bool first);

/* ---- what becomes of matches ---- */

typedef struct joiner {
    run        *r;
    int         next; /* the step that takes the pieces */
    gm_behavior behavior;
    bool        invert, first;
    const char *text;
    size_t      begin, end;    /* a piece that waits for its neighbour */
    bool        waits, before; /* before: was the span before this one a match? */
} joiner;

static gm_status give(joiner *j, size_t begin, size_t end)
{
    if (begin == end) return GM_OK;
    return step(j->r, j->next, j->text + begin, end - begin, j->first && begin == 0);
}

/* Gives the piece that waits, and lets this one wait. */
static gm_status follow(joiner *j, size_t begin, size_t end)
{
    size_t b = j->begin, e = j->end;
    bool   had = j->waits;
    j->begin = begin, j->end = end, j->waits = true;
    return had ? give(j, b, e) : GM_OK;
}

/* Spans come in order, and cover the text. */
static gm_status span(joiner *j, size_t begin, size_t end, bool match)
{
    bool before = j->before;
    if (j->invert) match = !match;
    j->before = match;
    switch (j->behavior) {
    case GM_REMOVED: return match ? GM_OK : give(j, begin, end);
    case GM_ISOLATED: return give(j, begin, end);
    case GM_MERGED_WITH_PREVIOUS:
        if (match && !before && j->waits) return j->end = end, GM_OK;
        return follow(j, begin, end);
    case GM_MERGED_WITH_NEXT:
        if (!match && before && j->waits) return j->end = end, GM_OK;
        return follow(j, begin, end);
    case GM_CONTIGUOUS:
        if (match == before && j->waits) return j->end = end, GM_OK;
        return follow(j, begin, end);
    }
    return GM_OK;
}

/* ---- what matches ---- */

static gm_status by_regex(joiner *j, const gm_regex *pattern, size_t n)
{
    size_t at = 0, last = SIZE_MAX, begin, end;
    for (;;) {
        bool found;
        GM_TRY(gm_regex_find(pattern, j->r->w->match, j->text, n, at, last, &found, &begin, &end));
        if (!found) break;
        if (at != begin) GM_TRY(span(j, at, begin, false));
        GM_TRY(span(j, begin, end, true));
        at = last = end;
    }
    return at < n ? span(j, at, n, false) : GM_OK;
}

static gm_status by_literal(joiner *j, const char *literal, size_t size, size_t n)
{
    size_t at = 0;
    for (const char *p; (p = memmem(j->text + at, n - at, literal, size)); at = (size_t)(p - j->text) + size) {
        size_t begin = (size_t)(p - j->text);
        if (at != begin) GM_TRY(span(j, at, begin, false));
        GM_TRY(span(j, begin, begin + size, true));
    }
    return at < n ? span(j, at, n, false) : GM_OK;
}

static gm_status by_char(joiner *j, bool (*match)(uint32_t c), size_t n)
{
    size_t at = 0;
    for (size_t i = 0; i < n;) {
        uint32_t c;
        size_t   k = (size_t)gm_char_read(j->text + i, &c);
        if (match(c)) {
            if (at != i) GM_TRY(span(j, at, i, false));
            GM_TRY(span(j, i, i + k, true));
            at = i + k;
        }
        i += k;
    }
    return at < n ? span(j, at, n, false) : GM_OK;
}

/* \w+|[^\w\s]+ and nothing between */
static gm_status by_words(joiner *j, size_t n)
{
    size_t begin = 0;
    int    kind = 0; /* 0 space, 1 word, 2 other */
    for (size_t i = 0; i < n;) {
        uint32_t c;
        size_t   k = (size_t)gm_char_read(j->text + i, &c);
        int      now = gm_char_word(c) ? 1 : gm_char_space(c) ? 0 : 2;
        if (now != kind) {
            if (kind) GM_TRY(give(j, begin, i));
            begin = i, kind = now;
        }
        i += k;
    }
    return kind ? give(j, begin, n) : GM_OK;
}

/* ---- the steps ---- */

static gm_status changed(run *r, int at, const char *front, size_t n_front, const char *text, size_t n)
{
    gm_text_bytes *b = &r->w->text[at];
    b->n = 0;
    GM_TRY(gm_text_add(b, front, n_front));
    return gm_text_add(b, text, n);
}

/* The characters for the bytes of a piece, for a step after this one. */
static gm_status map_bytes(void *context, const char *text, size_t n)
{
    joiner        *j = context;
    gm_text_bytes *b = &j->r->w->text[j->next];
    b->n = 0;
    for (size_t i = 0; i < n; i++) GM_TRY(gm_text_add_char(b, gm_byte_char((unsigned char)text[i])));
    return step(j->r, j->next + 1, b->data, b->n, j->first);
}

static gm_status byte_level(run *r, int at, const gm_cut *c, joiner *j, size_t n)
{
    if (c->maps) return map_bytes(&(joiner){.r = r, .next = at, .first = j->first}, j->text, n);
    if (c->prefix && *j->text != ' ') {
        GM_TRY(changed(r, at, " ", 1, j->text, n));
        j->text = r->w->text[at].data, n = r->w->text[at].n;
    }
    return c->pattern ? by_regex(j, c->pattern, n) : step(r, at + 1, j->text, n, j->first);
}

static gm_status metaspace(run *r, int at, const gm_cut *c, joiner *j, size_t n)
{
    gm_text_bytes *b = &r->w->text[at];
    b->n = 0;
    bool there = (n >= c->n_literal && !memcmp(j->text, c->literal, c->n_literal)) || *j->text == ' ';
    if (!there && (c->prepend == 2 || (c->prepend == 1 && j->first))) GM_TRY(gm_text_add(b, c->literal, c->n_literal));
    for (size_t i = 0, k; i < n; i += k) {
        const char *space = memchr(j->text + i, ' ', n - i);
        k = space ? (size_t)(space - j->text) - i : n - i;
        GM_TRY(gm_text_add(b, j->text + i, k));
        if (space) GM_TRY(gm_text_add(b, c->literal, c->n_literal));
        k += space != NULL;
    }
    j->text = b->data;
    return c->split ? by_literal(j, c->literal, c->n_literal, b->n) : step(r, at + 1, b->data, b->n, j->first);
}

static gm_status step(run *r, int at, const char *text, size_t n, bool first)
{
    if (at == r->p->n) return r->to(r->context, text, n);
    const gm_cut *c = &r->p->steps[at];
    gm_status     st = GM_OK;
    joiner        j = {r, at + 1, c->behavior, c->invert, first, text, 0, 0, false, false};
    switch (c->kind) {
    case GM_CUT_BYTE_LEVEL: st = byte_level(r, at, c, &j, n); break;
    case GM_CUT_PATTERN:
        st = c->literal ? by_literal(&j, c->literal, c->n_literal, n) : by_regex(&j, c->pattern, n);
        break;
    case GM_CUT_CHARS: st = by_char(&j, c->match, n); break;
    case GM_CUT_WORDS: st = by_words(&j, n); break;
    case GM_CUT_METASPACE: st = metaspace(r, at, c, &j, n); break;
    }
    if (st == GM_OK && j.waits) st = give(&j, j.begin, j.end);
    return st;
}

gm_status gm_pretokenize(const gm_pretokenizer *p, gm_cut_work *w, const char *text, size_t n, bool first,
                         gm_piece_to to, void *context)
{
    run r = {p, w, to, context};
    for (int i = 0; i < p->n; i++) w->text[i].most = GM_TEXT_MOST(n);
    return n ? step(&r, 0, text, n, first) : GM_OK;
}
