/* form.c - see form.h. */
#include "form.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static gm_status new_form(int n, const char *text, size_t length, gm_form **out)
{
    gm_form *f = calloc(1, sizeof *f + (size_t)n * sizeof *f->v);
    char    *copy = malloc(length + 1);
    if (!f || !copy) {
        free(f);
        free(copy);
        return GM_FAIL(GM_ENOMEM, "no memory for what crosses a border of the pipeline");
    }
    if (length) memcpy(copy, text, length);
    copy[length] = 0;
    f->refs = 1;
    f->n = n;
    f->text = copy;
    *out = f;
    return GM_OK;
}

gm_status gm_form_new(int n, gm_value *const *v, const char *text, gm_form **out)
{
    GM_TRY(new_form(n, text, text ? strlen(text) : 0, out));
    for (int i = 0; i < n; i++) {
        gm_form_value *to = &(*out)->v[i];
        to->dtype = v[i]->local->dtype;
        to->ndim = v[i]->ndim;
        to->requires_grad = v[i]->requires_grad;
        to->layout = v[i]->layout;
        memcpy(to->shape, v[i]->shape, (size_t)to->ndim * sizeof *to->shape);
    }
    return GM_OK;
}

gm_status gm_form_gradients(const gm_form *f, gm_form **out)
{
    int n = 0;
    GM_TRY(new_form(f->n, "", 0, out));
    for (int i = 0; i < f->n; i++) {
        if (!f->v[i].requires_grad) continue;
        (*out)->v[n] = f->v[i];
        (*out)->v[n].requires_grad = false;
        (*out)->v[n++].layout.partial = 0;
    }
    (*out)->n = n;
    return GM_OK;
}

void gm_form_retain(gm_form *f) { f->refs++; }

void gm_form_release(gm_form *f)
{
    if (!f || --f->refs) return;
    free(f->text);
    free(f);
}

static bool same_value(const gm_form_value *a, const gm_form_value *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim && a->requires_grad == b->requires_grad &&
           !memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) && gm_layout_equal(&a->layout, &b->layout);
}

bool gm_form_equal(const gm_form *a, const gm_form *b)
{
    if (a->n != b->n || strcmp(a->text, b->text)) return false;
    for (int i = 0; i < a->n; i++)
        if (!same_value(&a->v[i], &b->v[i])) return false;
    return true;
}

char *gm_form_describe(const gm_mesh *mesh, const gm_form *f, char *buf, size_t size)
{
    size_t at = 0;
    char   shape[96], layout[160];
    buf[0] = 0;
    for (int i = 0; i < f->n && at < size; i++) {
        const gm_form_value *v = &f->v[i];
        bool                 whole = gm_layout_is_replicated(&v->layout);
        at += (size_t)snprintf(buf + at, size - at, "%s%s %s%s%s%s", i ? ", " : "", gm_dtype_name(v->dtype),
                               gm_shape_describe(v->ndim, v->shape, shape, sizeof shape), whole ? "" : " cut ",
                               whole ? "" : gm_layout_describe(mesh, &v->layout, v->ndim, layout, sizeof layout),
                               v->requires_grad ? "" : " without gradient");
    }
    if (*f->text && at < size) snprintf(buf + at, size - at, ", text '%s'", f->text);
    return buf;
}

/* ---- as bytes ---- */

/* In front of the values, so that other bytes are told from a header. */
typedef struct wire {
    uint32_t magic, n;
    uint64_t text; /* bytes of it, without an end */
} wire;

#define MAGIC 0x66726f6du

gm_status gm_form_pack(const gm_form *f, char **bytes, size_t *size)
{
    wire   w = {MAGIC, (uint32_t)f->n, strlen(f->text)};
    size_t values = (size_t)f->n * sizeof *f->v;
    *size = sizeof w + values + w.text;
    *bytes = malloc(*size);
    if (!*bytes) return GM_FAIL(GM_ENOMEM, "no memory for a header of %zu bytes", *size);
    memcpy(*bytes, &w, sizeof w);
    memcpy(*bytes + sizeof w, f->v, values);
    memcpy(*bytes + sizeof w + values, f->text, w.text);
    return GM_OK;
}

static bool is_sound(const gm_mesh *mesh, const gm_form_value *v)
{
    if ((int)v->dtype < 0 || v->dtype >= GM_DTYPE_COUNT || v->ndim < 0 || v->ndim > GM_MAX_DIMS) return false;
    for (int d = 0; d < v->ndim; d++)
        if (v->shape[d] < 0) return false;
    for (int d = 0; d < GM_MAX_DIMS; d++)
        if (v->layout.n_cuts[d] > GM_MAX_AXES) return false;
    return gm_layout_check(mesh, &v->layout, v->ndim) == GM_OK;
}

gm_status gm_form_unpack(const gm_mesh *mesh, const char *bytes, size_t size, gm_form **out)
{
    wire w = {0};
    bool sound = size >= sizeof w;
    if (sound) memcpy(&w, bytes, sizeof w);
    size_t values = (size_t)w.n * sizeof(gm_form_value);
    sound = sound && w.magic == MAGIC && w.n <= GM_BORDER_MAX && w.text <= size && size == sizeof w + values + w.text;
    if (!sound) return GM_FAIL(GM_ECOMM, "what came before a message between two stages is no header of one");
    GM_TRY(new_form((int)w.n, bytes + sizeof w + values, w.text, out));
    memcpy((*out)->v, bytes + sizeof w, values);
    for (int i = 0; i < (*out)->n; i++) sound = sound && is_sound(mesh, &(*out)->v[i]);
    if (sound) return GM_OK;
    gm_form_release(*out);
    *out = NULL;
    return GM_FAIL(GM_ECOMM, "a header between two stages describes values that this mesh cannot hold");
}

/* ---- agreements ---- */

typedef struct agreement {
    int      border;
    bool     forward_only;
    char    *signature;
    gm_form *form;
} agreement;

struct gm_agreed {
    int        n, room;
    agreement *list;
};

gm_agreed *gm_agreed_new(void) { return calloc(1, sizeof(gm_agreed)); }

static void release_agreement(agreement *g)
{
    free(g->signature);
    gm_form_release(g->form);
}

void gm_agreed_forget(gm_agreed *a)
{
    for (int i = 0; i < a->n; i++) release_agreement(&a->list[i]);
    a->n = 0;
}

void gm_agreed_free(gm_agreed *a)
{
    if (!a) return;
    gm_agreed_forget(a);
    free(a->list);
    free(a);
}

gm_form *gm_agreed_find(const gm_agreed *a, int border, bool forward_only, const char *signature)
{
    for (int i = 0; i < a->n; i++) {
        const agreement *g = &a->list[i];
        if (g->border == border && g->forward_only == forward_only && !strcmp(g->signature, signature)) return g->form;
    }
    return NULL;
}

/* Lets a border that is full forget: both ends count alike. */
static void make_room(gm_agreed *a, int border)
{
    int count = 0, kept = 0;
    for (int i = 0; i < a->n; i++) count += a->list[i].border == border;
    if (count < GM_AGREED_MAX) return;
    for (int i = 0; i < a->n; i++) {
        if (a->list[i].border == border) release_agreement(&a->list[i]);
        else a->list[kept++] = a->list[i];
    }
    a->n = kept;
}

gm_status gm_agreed_add(gm_agreed *a, int border, bool forward_only, const char *signature, gm_form *f)
{
    make_room(a, border);
    if (a->n == a->room) {
        int        room = a->room ? 2 * a->room : 8;
        agreement *list = realloc(a->list, (size_t)room * sizeof *list);
        if (!list) return GM_FAIL(GM_ENOMEM, "no memory for what the stages have agreed on");
        a->list = list;
        a->room = room;
    }
    char *copy = strdup(signature);
    if (!copy) return GM_FAIL(GM_ENOMEM, "no memory for what the stages have agreed on");
    gm_form_retain(f);
    a->list[a->n++] = (agreement){border, forward_only, copy, f};
    return GM_OK;
}
