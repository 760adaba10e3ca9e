/* life.c - see life.h. */
#include "life.h"

#include "autograd/scope.h"
#include "autograd/tape.h"
#include "parallel/sharded/sharded.h"

gm_status gm_rank_new(gm_rank **out)
{
    gm_rank *r;
    GM_TRY(gm_rank_make(&r));
    r->sharded = &gm_sharded;
    gm_status st = gm_scope_open(r, NULL);
    if (st == GM_OK) *out = r;
    else gm_rank_end(r);
    return st;
}

void gm_rank_free(gm_rank *r)
{
    if (!r) return;
    gm_tape_drop(r);
    while (r->scope) gm_scope_close(r);
    gm_rank_end(r);
}
