/* section.c - ends of sections and of the program; recovery after a section failed.
 *
 * Recovery removes every message of the failed section. Each rank cancels its receives, tells the others how many data
 * messages it has sent them since the start, and receives and drops stray messages until the numbers agree. Then all
 * groups begin a new epoch. No rank sends data between the end of the section and the last rank's notice that it has
 * recovered. */
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../../kernels/clock.h"

/* GM_ECOMM: one that has not come is gone since *cut, and nobody has said why. */
static gm_status see_gone(gm_comm *c, bool (*there)(gm_comm *c, int rank), double *cut)
{
    gm_transport *t = c->transport;
    bool          gone = false;
    for (int rank = 0; t->lost && !gone && rank < c->world; rank++)
        gone = rank != c->rank && !there(c, rank) && t->lost(t, rank);
    if (!gone) *cut = 0;
    else if (!*cut) *cut = gm_now();
    return gone && gm_now() - *cut > GM_SAY_SECONDS ? gm_comm_transport_failed(c) : GM_OK;
}

/* Reads notices, and moves what is under way, until met(c). */
static gm_status wait_for(gm_comm *c, bool (*met)(gm_comm *c), bool (*there)(gm_comm *c, int rank), const char *what)
{
    double   since = gm_now(), cut = 0;
    unsigned turns = 0;
    while (!met(c)) {
        bool moved = gm_operations_advance(c);
        moved |= gm_notice_read(c);
        if (c->failed || c->broken) return gm_comm_check_failed(c);
        if (moved) {
            turns = 0;
            since = gm_now();
            continue;
        }
        if (gm_comm_rest(c, since, &turns)) GM_TRY(see_gone(c, there, &cut));
        if (gm_comm_quiet(c, since) < c->timeout || c->timeout <= 0) continue;
        char   text[400] = "";
        size_t n = 0;
        for (int rank = 0; rank < c->world && n < sizeof text - 8; rank++)
            if (rank != c->rank && !there(c, rank))
                n += (size_t)snprintf(text + n, sizeof text - n, "%s%d", n ? ", " : "", rank);
        return GM_FAIL(GM_EHANG, "%s: nothing has been heard for %g s from rank %s", what, c->timeout, text);
    }
    return GM_OK;
}

static bool all(gm_comm *c, bool (*there)(gm_comm *c, int rank))
{
    for (int rank = 0; rank < c->world; rank++)
        if (rank != c->rank && !there(c, rank)) return false;
    return true;
}

static const gm_ending *ending_of(const gm_comm *c, int rank) { return &c->member[rank].ending[(c->section + 1) % 2]; }
static bool             ended(gm_comm *c, int rank) { return ending_of(c, rank)->section == c->section + 1; }
static bool             all_ended(gm_comm *c) { return all(c, ended); }
static bool             recovered(gm_comm *c, int rank) { return c->member[rank].recovered > c->section; }
static bool             all_recovered(gm_comm *c) { return all(c, recovered); }
static bool             left(gm_comm *c, int rank) { return c->member[rank].left; }
static bool             all_left(gm_comm *c) { return all(c, left); }

/* Its count has come, and so has all that it sent. */
static bool drained(gm_comm *c, int rank)
{
    return c->member[rank].recovering > c->section && c->taken[rank] == c->member[rank].sent;
}

static bool all_drained(gm_comm *c)
{
    int from, took;
    while ((took = c->transport->drain(c->transport, &from)) > 0) c->taken[from]++;
    if (took < 0) c->broken = true;
    for (gm_pending *p = c->under_way; p; p = p->next)
        if (p->left) return false;
    return all(c, drained);
}

static bool something_under_way(const gm_comm *c)
{
    for (const gm_pending *p = c->under_way; p; p = p->next)
        if (!p->done) return true;
    return false;
}

/* Calls of the epoch that ends. A rank that is through before this one may have announced calls of the next already. */
static void forget_checks(gm_comm *c)
{
    for (gm_check **at = &c->checks; *at;) {
        gm_check *k = *at;
        if (k->record.epoch > c->epoch) {
            at = &k->next;
        } else {
            *at = k->next;
            free(k);
        }
    }
}

static gm_status recover(gm_comm *c)
{
    for (gm_pending *p = c->under_way; p; p = p->next) gm_pending_give_up(p);
    if (c->linked) gm_lanes_close(c, false);
    gm_notice_milestone(c, GM_MILESTONE_RECOVERING, false, false, NULL);
    GM_TRY(wait_for(c, all_drained, drained, "recovery after a failed section"));
    gm_notice_milestone(c, GM_MILESTONE_RECOVERED, false, false, NULL);
    GM_TRY(wait_for(c, all_recovered, recovered, "recovery after a failed section"));
    gm_operations_advance(c); /* frees what nobody waits for */
    forget_checks(c);
    c->epoch++;
    for (gm_group *g = c->groups; g; g = g->next) {
        g->number = 0;
        memset(g->to, 0, (size_t)g->size * sizeof *g->to);
        memset(g->from, 0, (size_t)g->size * sizeof *g->from);
    }
    return GM_OK;
}

static gm_status end_section(gm_comm *c, bool ok, const char *text, int *failed, int *first)
{
    if (ok && gm_lanes_drain(c) != GM_OK) {
        ok = c->failed_section; /* it only heard of another's failure */
        text = gm_last_error();
    }
    bool under_way = something_under_way(c), clean = ok && !under_way;
    gm_notice_milestone(c, GM_MILESTONE_ENDED, ok, under_way, text);
    GM_TRY(wait_for(c, all_ended, ended, "the end of a section"));
    for (int rank = 0; rank < c->world; rank++) {
        const gm_ending *e = ending_of(c, rank);
        bool             well = rank == c->rank ? ok : e->ok;
        if (!well && !(*failed)++) *first = rank;
        clean = clean && (rank == c->rank || (e->ok && !e->under_way));
    }
    if (!clean) GM_TRY(recover(c));
    c->failed_section = false;
    c->section++;
    gm_notice_see_endings(c);
    return GM_OK;
}

gm_status gm_comm_section_end(gm_comm *c, bool ok, const char *text, int *failed, int *first)
{
    *failed = 0;
    *first = -1;
    if (c->world == 1 || !c->transport->has_data) {
        *failed = !ok;
        *first = ok ? -1 : c->rank;
        return GM_OK;
    }
    if (c->end_status != GM_OK) return gm_fail_again(c->end_status, c->end_error);
    c->in_section_end = true;
    gm_status st = end_section(c, ok, text, failed, first);
    c->in_section_end = false;
    if (st != GM_OK) {
        c->end_status = st;
        snprintf(c->end_error, sizeof c->end_error, "%s", gm_last_error());
    }
    return st;
}

gm_status gm_comm_leave(gm_comm *c)
{
    if (c->world == 1 || !c->transport->has_data) return GM_OK;
    GM_TRY(gm_comm_check_failed(c));
    if (c->told) return GM_FAIL(GM_EINVAL, "this rank has failed; the others are not going to part in order");
    GM_TRY(gm_lanes_drain(c));
    c->leaving = true;
    gm_notice_milestone(c, GM_MILESTONE_LEAVING, true, false, NULL);
    return wait_for(c, all_left, left, "the end of the program");
}

static bool nothing_is_under_way(gm_comm *c)
{
    for (const gm_pending *p = c->under_way; p; p = p->next)
        if (!p->done && !p->given_up) return false; /* what was given up never ends */
    return true;
}

static bool nobody(gm_comm *c, int rank) { return (void)c, (void)rank, false; }

gm_status gm_comm_settle(gm_comm *c)
{
    if (c->world == 1 || !c->transport->has_data) return GM_OK;
    GM_TRY(gm_lanes_drain(c));
    return wait_for(c, nothing_is_under_way, nobody, "what was begun before");
}

uint64_t gm_comm_epoch(const gm_comm *c) { return c->epoch; }
