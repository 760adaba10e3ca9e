/* sentencepiece_read.c - a bounded reader of the protobuf message ModelProto (sentencepiece.h).
 *
 * The numbers of fields are those of sentencepiece_model.proto; fields that are not needed to encode are passed over,
 * as protobuf asks. Every length is checked against what is left. */
#include <stdlib.h>
#include <string.h>

#include "sentencepiece.h"
#include "unicode.h"

typedef struct message {
    const unsigned char *p, *end;
    const char          *path;
} message;

typedef struct field {
    uint32_t             number, wire;
    uint64_t             value; /* of a varint; the bits of a fixed number */
    const unsigned char *bytes; /* of a text or message */
    size_t               n;
} field;

static gm_status cut_off(const message *m)
{
    return GM_FAIL(GM_ECORRUPT, "%s: the file is cut, or no SentencePiece model", m->path);
}

static gm_status varint(message *m, uint64_t *out)
{
    *out = 0;
    for (int shift = 0; m->p < m->end && shift < 64; shift += 7) {
        unsigned char b = *m->p++;
        *out |= (uint64_t)(b & 127) << shift;
        if (b < 128) return GM_OK;
    }
    return cut_off(m);
}

static gm_status fixed(message *m, size_t n, field *f)
{
    if ((size_t)(m->end - m->p) < n) return cut_off(m);
    f->value = 0;
    for (size_t i = 0; i < n; i++) f->value |= (uint64_t)m->p[i] << 8 * i;
    m->p += n;
    return GM_OK;
}

static gm_status next(message *m, field *f)
{
    uint64_t key, n;
    GM_TRY(varint(m, &key));
    *f = (field){.number = (uint32_t)(key >> 3), .wire = (uint32_t)(key & 7)};
    switch (f->wire) {
    case 0: return varint(m, &f->value);
    case 1: return fixed(m, 8, f);
    case 5: return fixed(m, 4, f);
    case 2:
        GM_TRY(varint(m, &n));
        if (n > (uint64_t)(m->end - m->p)) return cut_off(m);
        f->bytes = m->p, f->n = (size_t)n, m->p += n;
        return GM_OK;
    default: return cut_off(m);
    }
}

static gm_status read_piece(message m, gm_piece *out)
{
    *out = (gm_piece){.text = "", .type = GM_PIECE_NORMAL};
    while (m.p < m.end) {
        field f;
        GM_TRY(next(&m, &f));
        if (f.number == 1 && f.wire == 2) out->text = (const char *)f.bytes, out->n = f.n;
        if (f.number == 2 && f.wire == 5) memcpy(&out->score, &(uint32_t){(uint32_t)f.value}, 4);
        if (f.number == 3 && f.wire == 0) out->type = (int)f.value;
    }
    if (!out->n || gm_utf8_valid(out->text, out->n) < out->n)
        return GM_FAIL(GM_ECORRUPT, "%s: a piece is no text", m.path);
    if (out->type < GM_PIECE_NORMAL || out->type > GM_PIECE_BYTE)
        return GM_FAIL(GM_ECORRUPT, "%s: a piece of the unknown type %d", m.path, out->type);
    if (!(out->score > -1e30f && out->score < 1e30f)) return GM_FAIL(GM_ECORRUPT, "%s: a score is no number", m.path);
    return GM_OK;
}

static gm_status read_trainer(message m, gm_pieces *out)
{
    while (m.p < m.end) {
        field f;
        GM_TRY(next(&m, &f));
        if (f.number == 3 && f.wire == 0) out->model = (int)f.value;
        if (f.number == 24 && f.wire == 0) out->suffix = f.value != 0;
        if (f.number == 35 && f.wire == 0) out->byte_fallback = f.value != 0;
        if (f.number == 44 && f.wire == 2) out->unknown_surface = (const char *)f.bytes, out->n_unknown_surface = f.n;
    }
    return GM_OK;
}

static gm_status read_normalizer(message m, gm_pieces *out)
{
    while (m.p < m.end) {
        field f;
        GM_TRY(next(&m, &f));
        if (f.number == 2 && f.wire == 2) out->map = (const char *)f.bytes, out->n_map = f.n;
        if (f.number == 3 && f.wire == 0) out->dummy_prefix = f.value != 0;
        if (f.number == 4 && f.wire == 0) out->single_spaces = f.value != 0;
        if (f.number == 5 && f.wire == 0) out->escape = f.value != 0;
    }
    return GM_OK;
}

static gm_status add_piece(gm_pieces *out, message inner, size_t *room)
{
    if (out->n == *room) {
        *room = *room ? 2 * *room : 1024;
        gm_piece *p = realloc(out->list, *room * sizeof *p);
        if (!p) return GM_FAIL(GM_ENOMEM, "%s: no memory for it", inner.path);
        out->list = p;
    }
    return read_piece(inner, &out->list[out->n++]);
}

static gm_status read_all(message m, gm_pieces *out)
{
    size_t room = 0;
    while (m.p < m.end) {
        field f;
        GM_TRY(next(&m, &f));
        message inner = {f.bytes, f.bytes + f.n, m.path};
        if (f.wire != 2) continue;
        if (f.number == 1) GM_TRY(add_piece(out, inner, &room));
        if (f.number == 2) GM_TRY(read_trainer(inner, out));
        if (f.number == 3) GM_TRY(read_normalizer(inner, out));
    }
    if (!out->n) return GM_FAIL(GM_ECORRUPT, "%s: has no pieces, or is no SentencePiece model", m.path);
    if (out->model != 1 && out->model != 2)
        return GM_FAIL(GM_EINVAL, "%s: a model of type %d; 1 (unigram) and 2 (bpe) are read here", m.path, out->model);
    return GM_OK;
}

gm_status gm_pieces_read(const char *path, const char *bytes, size_t n, gm_pieces *out)
{
    message m = {(const unsigned char *)bytes, (const unsigned char *)bytes + n, path};
    *out = (gm_pieces){.model = 1,
                       .dummy_prefix = true,
                       .single_spaces = true,
                       .escape = true,
                       .unknown_surface = " \xe2\x81\x87 ",
                       .n_unknown_surface = 5};
    gm_status st = read_all(m, out);
    if (st != GM_OK) {
        free(out->list);
        *out = (gm_pieces){0};
    }
    return st;
}
