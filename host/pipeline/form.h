/* form.h - a form describes the values that cross a border between two parts of a pipeline: for each value its dtype,
 * global shape, layout and whether a gradient comes back; and the text that accompanies them.
 *
 * A receiver needs the form before it can post a receive. The form travels as bytes (the header) before the first
 * message of each signature, and both ends remember it. Sender and receiver look up, remember and forget in the same
 * order, so they always know the same forms. */
#ifndef GM_FORM_H
#define GM_FORM_H

#include "executor.h"

typedef struct gm_form_value {
    gm_dtype  dtype;
    int       ndim;
    bool      requires_grad;
    int64_t   shape[GM_MAX_DIMS]; /* global */
    gm_layout layout;
} gm_form_value;

typedef struct gm_form {
    int           refs, n;
    char         *text; /* never NULL */
    gm_form_value v[];
} gm_form;

/* The form of n values and their text (NULL: ""). The caller owns a reference. */
gm_status gm_form_new(int n, gm_value *const *v, const char *text, gm_form **out);
/* The form of the gradients that come back for values of form f: those that require one, no longer partial. */
gm_status gm_form_gradients(const gm_form *f, gm_form **out);
void      gm_form_retain(gm_form *f);
void      gm_form_release(gm_form *f); /* NULL is allowed */
bool      gm_form_equal(const gm_form *a, const gm_form *b);
/* "f32 (4, 8) cut (data, -), i64 (4), text 'x'"; returns buf. */
char *gm_form_describe(const gm_mesh *mesh, const gm_form *f, char *buf, size_t size);

/* Packs a form into bytes, which the caller frees, and unpacks it. GM_ECOMM: the bytes are no form of this mesh. */
gm_status gm_form_pack(const gm_form *f, char **bytes, size_t *size);
gm_status gm_form_unpack(const gm_mesh *mesh, const char *bytes, size_t size, gm_form **out);

/* ---- what borders have agreed on ---- */

#define GM_AGREED_MAX 256 /* signatures of a border; at the next one it forgets them all, on both ends */

typedef struct gm_agreed gm_agreed;
gm_agreed               *gm_agreed_new(void); /* NULL: no memory */
void                     gm_agreed_free(gm_agreed *a);
void                     gm_agreed_forget(gm_agreed *a);
/* The agreed form of a signature at the border after part `border`; borrowed. NULL: there is none yet. */
gm_form  *gm_agreed_find(const gm_agreed *a, int border, bool forward_only, const char *signature);
gm_status gm_agreed_add(gm_agreed *a, int border, bool forward_only, const char *signature, gm_form *f);

#endif
