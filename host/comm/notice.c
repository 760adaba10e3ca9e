/* notice.c - the notices between ranks: failures, questions of stalled waits, calls to compare.
 *
 * Every wait and poll reads notices and answers them at once. Only gm_comm_fail and checked mode wait here. A rank that
 * ends early, because of its own failure or of another's, says so to all before its connections close: whoever sees one
 * of them close has heard why, or soon hears it from others (operation.c). */
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../../kernels/clock.h"

typedef enum gm_notice_kind {
    NOTICE_FAIL,       /* this rank is about to end: code, text */
    NOTICE_TOLD,       /* this rank is about to end because `rank` has failed: code, text */
    NOTICE_KNOWN,      /* the answer to the first */
    NOTICE_ASK,        /* what did you do in place of this record? */
    NOTICE_ANSWER,     /* what this rank called there, and what it is doing now */
    NOTICE_CHECK,      /* checked mode: record is about to be called */
    NOTICE_ENDED,      /* section: ok, under_way, text */
    NOTICE_RECOVERING, /* section, sent */
    NOTICE_RECOVERED,  /* section */
    NOTICE_LEAVING,    /* this rank has come to the end of the program */
} gm_notice_kind;

typedef struct gm_notice {
    int32_t        kind, code, rank;
    uint64_t       section, sent;
    bool           ok, under_way, ended;
    bool           found, recorded; /* found: it made that call; recorded: and record is it */
    gm_call_record record;
    char           text[1000];
} gm_notice;

_Static_assert(sizeof(gm_notice) <= GM_NOTICE_MAX, "notices fit the transport");

static void tell(gm_comm *c, int rank, gm_notice *m)
{
    size_t n = offsetof(gm_notice, text) + strlen(m->text) + 1;
    if (c->transport->tell(c->transport, rank, m, n)) c->broken = true;
}

static void tell_all(gm_comm *c, gm_notice *m)
{
    for (int k = 1; k < c->world; k++) tell(c, (c->rank + k) % c->world, m);
}

/* ---- questions ---- */

static void ask(gm_comm *c, int rank, gm_notice *m)
{
    gm_member *to = &c->member[rank];
    if (!to->asked) to->asked = gm_now();
    tell(c, rank, m);
}

void gm_notice_ask(gm_pending *p, bool everybody)
{
    gm_comm        *c = p->comm;
    const gm_group *g = p->group;
    gm_notice       m = {.kind = NOTICE_ASK, .section = c->section, .record = p->record};
    bool            two = p->call == GM_CALL_send || p->call == GM_CALL_receive;
    if (!p->answers) p->answers = calloc((size_t)g->size, sizeof *p->answers);
    if (!p->answers) return; /* the time-out stays */
    for (int i = 0; i < g->size && !everybody; i++)
        if (i != g->rank && (!two || i == p->root)) ask(c, g->member[i], &m);
    for (int rank = 0; rank < c->world && everybody; rank++)
        if (rank != c->rank) ask(c, rank, &m);
}

/* It was asked, half a second ago at least, and has not been heard since. */
bool gm_notice_is_silent(const gm_comm *c, int rank)
{
    double asked = c->member[rank].asked;
    return rank != c->rank && asked > 0 && gm_now() - asked > 0.5;
}

/* Has this rank come to an end where it makes no call that others ask about? One that has heard of a failure only ended
 * because of that: who asks hears of the failure, too, and the calls of this rank differ from nobody's. */
static bool has_ended(const gm_comm *c, uint64_t section)
{
    if (gm_comm_failure(c)) return false;
    return c->leaving || (c->in_section_end && c->section == section);
}

static void answer(gm_comm *c, int from, const gm_notice *question)
{
    const gm_call_record *asked = &question->record;
    gm_notice             m = {.kind = NOTICE_ANSWER, .record = *asked};
    const gm_call_record *mine = gm_flight_find(c->flight, asked->group, asked->epoch, asked->number);
    const gm_group       *g = gm_comm_find_group(c, asked->group);
    char                  call[480];
    m.found = mine || (g && c->epoch == asked->epoch && g->number > asked->number); /* long ago: it fitted */
    m.recorded = mine != NULL;
    if (mine) m.record = *mine;
    m.ended = has_ended(c, question->section);
    if (gm_comm_failure(c)) {
        snprintf(m.text, sizeof m.text, "it has heard that rank %d failed", gm_comm_failure(c)->rank);
    } else if (m.ended) {
        snprintf(m.text, sizeof m.text, "it has come to the end of %s", c->leaving ? "the program" : "its part");
    } else if (c->waiting) {
        gm_record_describe(&c->waiting->record, c->waiting->group->name, call, sizeof call);
        snprintf(m.text, sizeof m.text, "it waits in %s", call);
    } else {
        const char *place = gm_comm_place(c);
        snprintf(m.text, sizeof m.text, "it computes%s%s", *place ? " at " : "", place);
    }
    tell(c, from, &m);
}

static int place_of(const gm_group *g, int rank)
{
    for (int i = 0; i < g->size; i++)
        if (g->member[i] == rank) return i;
    return -1;
}

/* What this rank waits for in the history that r belongs to, at r or later. */
static gm_pending *find_pending(gm_comm *c, const gm_call_record *r)
{
    gm_pending *p = c->under_way;
    while (p && (p->done || p->silent || (p->dropped && !(p->handed_over && p->answers)) ||
                 p->record.group != r->group || p->record.epoch != r->epoch || p->record.number < r->number))
        p = p->next;
    return p;
}

static void set_mismatch(gm_pending *p, const gm_call_record *mine, int rank, const char *what)
{
    char call[480];
    if (p->status != GM_OK) return;
    gm_record_describe(mine, p->group->name, call, sizeof call);
    p->status = GM_EMISMATCH;
    snprintf(p->error, sizeof p->error, "ranks differ: rank %d calls %s; rank %d %s", p->comm->rank, call, rank, what);
    if (p->handed_over) gm_lanes_failed(p->comm, p->status, p->error);
}

/* Both ranks made call `theirs->number`: the same one? If so, but not the calls before it, those are asked about. */
static void compare_records(gm_pending *p, int from, const gm_call_record *theirs)
{
    gm_comm              *c = p->comm;
    char                  call[480], what[500];
    const gm_call_record *mine = gm_flight_find(c->flight, theirs->group, theirs->epoch, theirs->number);
    if (!mine) {
        set_mismatch(p, &p->record, from, "made a different call earlier, which is no longer in the flight recorder");
    } else if (gm_record_fingerprint(theirs) != gm_record_fingerprint(mine)) {
        gm_record_describe(theirs, NULL, call, sizeof call);
        snprintf(what, sizeof what, "calls %s", call);
        set_mismatch(p, mine, from, what);
    } else if (theirs->history != mine->history) {
        gm_notice m = {.kind = NOTICE_ASK, .section = c->section, .record = *mine};
        m.record.number--;
        tell(c, from, &m);
    }
}

static void take_answer(gm_comm *c, int from, const gm_notice *m)
{
    char        what[500];
    gm_pending *p = find_pending(c, &m->record);
    int         place = p ? place_of(p->group, from) : -1;
    if (place < 0 || !p->answers) return; /* it came too late */
    gm_answer *a = &p->answers[place];
    if (m->recorded) compare_records(p, from, &m->record);
    if (m->record.number != p->record.number) return;
    a->answered = true;
    a->came = m->found;
    snprintf(a->text, sizeof a->text, "%.500s", m->text);
    if (m->found || !m->ended) return;
    snprintf(what, sizeof what, "makes no such call: %.400s", m->text);
    set_mismatch(p, &p->record, from, what);
}

/* ---- checked mode ---- */

static void keep_check(gm_comm *c, int from, const gm_call_record *r)
{
    gm_check *k = malloc(sizeof *k);
    if (!k) {
        c->broken = true;
        return;
    }
    *k = (gm_check){c->checks, from, *r};
    c->checks = k;
}

static void compare_one(gm_pending *p, int place, const gm_call_record *theirs)
{
    char call[480], what[500];
    p->answers[place].checked = true;
    if (gm_record_fingerprint(theirs) == gm_record_fingerprint(&p->record) && !strcmp(theirs->place, p->record.place))
        return;
    gm_record_describe(theirs, NULL, call, sizeof call);
    snprintf(what, sizeof what, "calls %s", call);
    set_mismatch(p, &p->record, p->group->member[place], what);
}

/* Takes the checks that belong to p; true when there is one of every member. */
static bool all_compared(gm_pending *p)
{
    gm_comm *c = p->comm;
    for (gm_check **at = &c->checks; *at;) {
        gm_check *k = *at;
        int       place = place_of(p->group, k->rank);
        if (place >= 0 && k->record.group == p->record.group && k->record.epoch == p->record.epoch &&
            k->record.number == p->record.number) {
            compare_one(p, place, &k->record);
            *at = k->next;
            free(k);
        } else {
            at = &k->next;
        }
    }
    for (int i = 0; i < p->group->size; i++)
        if (i != p->group->rank && !p->answers[i].checked) return false;
    return p->status == GM_OK;
}

gm_status gm_notice_compare(gm_pending *p)
{
    gm_comm        *c = p->comm;
    const gm_group *g = p->group;
    gm_notice       m = {.kind = NOTICE_CHECK, .record = p->record};
    if (!p->answers) p->answers = calloc((size_t)g->size, sizeof *p->answers);
    if (!p->answers) return GM_FAIL(GM_ECOMM, "no memory to compare calls");
    for (int i = 0; i < g->size; i++)
        if (i != g->rank) tell(c, g->member[i], &m);
    p->comparing = true;
    gm_status st = gm_pending_wait_until(p, all_compared);
    p->comparing = false;
    return st;
}

/* ---- failures and stages ---- */

static void set_failure(gm_comm *c, int rank, int code, const char *text)
{
    c->failure.rank = rank;
    c->failure.exit_code = code;
    snprintf(c->failure.text, sizeof c->failure.text, "%s", text);
}

static void take_failure(gm_comm *c, int from, int failed, const gm_notice *m)
{
    c->member[from].knows = true;
    if (failed == c->rank) return; /* one that ends because of this rank */
    if (!c->failed) set_failure(c, failed, m->code, m->text);
    c->failed = true;
}

void gm_notice_see_endings(gm_comm *c)
{
    for (int rank = 0; rank < c->world; rank++) {
        const gm_ending *e = &c->member[rank].ending[(c->section + 1) % 2];
        if (e->section != c->section + 1 || e->ok || c->failed || c->failed_section) continue;
        c->failed_section = true;
        set_failure(c, rank, 1, e->text);
    }
}

static void take_ended(gm_comm *c, int from, const gm_notice *m)
{
    gm_ending *e = &c->member[from].ending[m->section % 2];
    *e = (gm_ending){.section = m->section, .ok = m->ok, .under_way = m->under_way};
    snprintf(e->text, sizeof e->text, "%s", m->text);
    gm_notice_see_endings(c);
}

void gm_notice_milestone(gm_comm *c, gm_milestone stage, bool ok, bool under_way, const char *text)
{
    static const gm_notice_kind kinds[] = {NOTICE_ENDED, NOTICE_RECOVERING, NOTICE_RECOVERED, NOTICE_LEAVING};
    gm_notice                   m = {.kind = kinds[stage], .section = c->section + 1, .ok = ok, .under_way = under_way};
    snprintf(m.text, sizeof m.text, "%s", text ? text : "");
    for (int rank = 0; rank < c->world; rank++) {
        m.sent = c->sent[rank];
        if (rank != c->rank) tell(c, rank, &m);
    }
}

/* All that can still be reached. */
static bool all_know(gm_comm *c)
{
    gm_transport *t = c->transport;
    for (int rank = 0; rank < c->world; rank++)
        if (rank != c->rank && !c->member[rank].knows && !(t->lost && t->lost(t, rank))) return false;
    return true;
}

void gm_comm_fail(gm_comm *c, int exit_code, const char *text)
{
    gm_notice m = {.kind = NOTICE_FAIL, .code = exit_code};
    unsigned  turns = 0;
    double    began = gm_now();
    snprintf(m.text, sizeof m.text, "%s", text);
    c->told = true;
    if (c->world == 1 || !c->transport->has_data) return;
    tell_all(c, &m);
    while (!all_know(c) && gm_now() - began < 1)
        if (!gm_notice_read(c)) (void)gm_comm_rest(c, began, &turns);
    (void)gm_notice_read(c); /* of those that are gone already */
}

void gm_notice_pass_on(gm_comm *c)
{
    gm_notice m = {.kind = NOTICE_TOLD, .rank = c->failure.rank, .code = c->failure.exit_code};
    if (!c->failed || c->told || !c->transport->lost) return;
    snprintf(m.text, sizeof m.text, "%s", c->failure.text);
    tell_all(c, &m);
}

const gm_peer_failure *gm_comm_failure(const gm_comm *c) { return c->failed || c->failed_section ? &c->failure : NULL; }

/* ---- reading ---- */

static void take(gm_comm *c, int from, const gm_notice *m)
{
    c->member[from].asked = 0;
    switch ((gm_notice_kind)m->kind) {
    case NOTICE_FAIL:
        take_failure(c, from, from, m);
        tell(c, from, &(gm_notice){.kind = NOTICE_KNOWN});
        break;
    case NOTICE_TOLD: take_failure(c, from, m->rank, m); break;
    case NOTICE_KNOWN: c->member[from].knows = true; break;
    case NOTICE_ASK: answer(c, from, m); break;
    case NOTICE_ANSWER: take_answer(c, from, m); break;
    case NOTICE_CHECK: keep_check(c, from, &m->record); break;
    case NOTICE_ENDED: take_ended(c, from, m); break;
    case NOTICE_RECOVERING:
        c->member[from].recovering = m->section;
        c->member[from].sent = m->sent;
        break;
    case NOTICE_RECOVERED: c->member[from].recovered = m->section; break;
    case NOTICE_LEAVING: c->member[from].left = true; break;
    }
}

bool gm_notice_read(gm_comm *c)
{
    _Alignas(gm_notice) char bytes[GM_NOTICE_MAX];
    gm_transport            *t = c->transport;
    size_t                   n = 0;
    int                      from = 0, heard;
    bool                     any = false;
    if (c->world == 1 || !t->has_data) return false;
    while ((heard = t->hear(t, bytes, &n, &from)) > 0) {
        gm_notice m = {0};
        memcpy(&m, bytes, n < sizeof m ? n : sizeof m);
        m.text[sizeof m.text - 1] = 0;
        take(c, from, &m);
        any = true;
    }
    if (heard < 0) c->broken = true;
    return any;
}
