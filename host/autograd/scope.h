/* scope.h - scopes release the handles made inside them.
 *
 * A handle holds one reference to a value for somebody outside C (a Lua userdata embeds it). Scopes
 * are a stack; each is a circular list threaded through its handles, so that closing one is O(handles)
 * and a handle that goes away on its own leaves no dangling pointer. A scope must be closed by the
 * coroutine that opened it (owner, compared only). */
#ifndef GM_SCOPE_H
#define GM_SCOPE_H

#include "value.h"

typedef struct gm_handle {
    gm_value         *value;       /* NULL once released */
    const char       *born;        /* the op that made it: a string that is never freed */
    struct gm_handle *prev, *next; /* NULL: in no scope (kept) */
    struct gm_scope  *scope;       /* the one whose list it is in */
} gm_handle;

typedef struct gm_scope {
    gm_handle        list;
    struct gm_scope *outer;
    const void      *owner;
} gm_scope;

gm_status gm_scope_open(gm_rank *r, const void *owner);
/* Closes the innermost scope and releases the handles that are left in it. */
void gm_scope_close(gm_rank *r);
/* Fills an empty handle with a value (takes the caller's reference) in the innermost scope. */
void gm_handle_fill(gm_rank *r, gm_handle *h, gm_value *value, const char *born);
void gm_handle_release(gm_handle *h); /* drops the reference and leaves the scope; may be empty */
void gm_handle_keep(gm_handle *h);    /* out of every scope: lives until released or collected */
/* Moves h from the scope just inside `to` into `to`. Does nothing if h is kept or already belongs to an outer scope: a
 * function that returns its argument must not shorten the argument's life. */
void gm_handle_move(gm_handle *h, gm_scope *to);

#endif
