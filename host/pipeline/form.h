/* form.h - what crosses a border between two parts of a pipeline, without its numbers: for each value dtype, global
 * shape, layout and whether a gradient comes back, and the text that goes along.
 *
 * A receiver must know it before it can post a receive. It travels as bytes (the header) in front of the first message
 * of each signature, and both ends remember it from then on. Sender and receiver of a border look up and remember in
 * the same order, and forget at the same points, so what one knows the other knows. */
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

/* Of n values and their text (NULL: ""). */
gm_status gm_form_new(int n, gm_value *const *v, const char *text, gm_form **out);
/* Of the gradients that come back for values of this form: those that require one, settled. */
gm_status gm_form_gradients(const gm_form *f, gm_form **out);
void      gm_form_retain(gm_form *f);
void      gm_form_release(gm_form *f); /* NULL is allowed */
bool      gm_form_equal(const gm_form *a, const gm_form *b);
/* "f32 (4, 8) cut (data, -), i64 (4), text 'x'"; returns buf. */
char *gm_form_describe(const gm_mesh *mesh, const gm_form *f, char *buf, size_t size);

/* As bytes, to be freed; and back. GM_ECOMM: bytes that say nothing that a form of this mesh can be. */
gm_status gm_form_pack(const gm_form *f, char **bytes, size_t *size);
gm_status gm_form_unpack(const gm_mesh *mesh, const char *bytes, size_t size, gm_form **out);

/* ---- what borders have agreed on ---- */

#define GM_AGREED_MAX 256 /* signatures of a border; at the next one it forgets them all, on both ends */

typedef struct gm_agreed gm_agreed;
gm_agreed               *gm_agreed_new(void); /* NULL: no memory */
void                     gm_agreed_free(gm_agreed *a);
void                     gm_agreed_forget(gm_agreed *a);
/* What the border behind part `border` has agreed on for a signature; borrowed, NULL: nothing yet. */
gm_form  *gm_agreed_find(const gm_agreed *a, int border, bool forward_only, const char *signature);
gm_status gm_agreed_add(gm_agreed *a, int border, bool forward_only, const char *signature, gm_form *f);

#endif
