/* scope.c - see scope.h. */
#include "scope.h"

#include <stdlib.h>

static void unlink_handle(gm_handle *h)
{
    if (!h->next) return;
    h->prev->next = h->next;
    h->next->prev = h->prev;
    h->prev = h->next = NULL;
}

static void link_handle(gm_handle *h, gm_scope *s)
{
    h->next = &s->list;
    h->scope = s;
    h->prev = s->list.prev;
    s->list.prev->next = h;
    s->list.prev = h;
}

gm_status gm_scope_open(gm_rank *r, const void *owner)
{
    gm_scope *s = malloc(sizeof *s);
    if (!s) return GM_FAIL(GM_ENOMEM, "no memory for a scope");
    *s = (gm_scope){.outer = r->scope, .owner = owner};
    s->list.prev = s->list.next = &s->list;
    r->scope = s;
    return GM_OK;
}

void gm_scope_close(gm_rank *r)
{
    gm_scope *s = r->scope;
    r->scope = s->outer;
    while (s->list.next != &s->list) gm_handle_release(s->list.next);
    free(s);
}

void gm_handle_fill(gm_rank *r, gm_handle *h, gm_value *value, const char *born)
{
    h->value = value;
    h->born = born;
    link_handle(h, r->scope);
}

void gm_handle_release(gm_handle *h)
{
    unlink_handle(h);
    gm_value_release(h->value);
    h->value = NULL;
}

void gm_handle_keep(gm_handle *h) { unlink_handle(h); }

void gm_handle_move(gm_handle *h, gm_scope *to)
{
    if (!h->next || h->scope->outer != to) return;
    unlink_handle(h);
    link_handle(h, to);
}
