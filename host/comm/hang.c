/* hang.c - the message of a wait without progress: which ranks are absent, and what they do instead. See state.h. */
#include "state.h"

#include <stdio.h>
#include "../../kernels/clock.h"

/* What a member that did not do its part is doing. */
static size_t absent_member(const gm_pending *p, int place, char *text, size_t size)
{
    const gm_answer *a = p->answers ? &p->answers[place] : NULL;
    int              rank = p->group->member[place];
    if (a && a->answered && !gm_notice_is_silent(p->comm, rank))
        return (size_t)snprintf(text, size, "; rank %d has %s%s", rank,
                                a->came ? "come, but its data has not" : "not come: ", a->came ? "" : a->text);
    const gm_call_record *last = p->record.number ? gm_flight_find(p->comm->flight, p->record.group, p->record.epoch,
                                                                   p->record.number - 1)
                                                  : NULL;
    char                  call[480] = "no call of this group";
    if (last) gm_record_describe(last, NULL, call, sizeof call);
    return (size_t)snprintf(text, size, "; rank %d does not answer; known of it here: %s", rank, call);
}

/* Of an operation between devices nobody's messages are missed: all that can be told is who made the call. */
static bool all_came(const gm_pending *p)
{
    bool two = p->call == GM_CALL_send || p->call == GM_CALL_receive;
    for (int place = 0; place < p->group->size; place++)
        if (place != p->group->rank && (!two || place == p->root) && !p->answers[place].came) return false;
    return true;
}

/* Where terms fold, a message to a member waits until the terms of all have come to that one: it tells nothing. */
static bool lacks(const gm_pending *p, const gm_message *m, int place)
{
    gm_transport *t = p->comm->transport;
    if (m->done || (m->send && p->terms.folded)) return false;
    return m->fold ? m->request && t->lacks(t, m->request, p->group->member[place]) : m->place == place;
}

/* Does p itself miss something of this member? */
static bool is_missed(const gm_pending *p, int place)
{
    bool two = p->call == GM_CALL_send || p->call == GM_CALL_receive;
    bool missed = p->comparing && !p->answers[place].checked;
    if (p->linked && (!two || place == p->root)) missed |= !p->answers || !p->answers[place].came || all_came(p);
    for (int i = p->first; i < p->n_messages; i++) missed |= lacks(p, &p->messages[i], place);
    return missed;
}

void gm_pending_see_gone(gm_pending *p)
{
    gm_transport *t = p->comm->transport;
    for (int place = 0; p->comparing && t->lost && place < p->group->size; place++) {
        if (place == p->group->rank || !is_missed(p, place) || !t->lost(t, p->group->member[place])) continue;
        p->cut = gm_now();
        gm_pending_fail(p, gm_comm_transport_failed(p->comm));
        return;
    }
}

/* Is this member one that others wait for, as far as it is known here? Of those that were asked. */
static bool has_not_come(const gm_pending *p, int place)
{
    const gm_answer *a = p->answers ? &p->answers[place] : NULL;
    bool             two = p->call == GM_CALL_send || p->call == GM_CALL_receive;
    return (!two || place == p->root) && (!a || !a->came || gm_notice_is_silent(p->comm, p->group->member[place]));
}

static bool is_member(const gm_group *g, int rank)
{
    for (int place = 0; place < g->size; place++)
        if (g->member[place] == rank) return true;
    return false;
}

/* Those that have not come first: in a ring, what this rank misses comes from one that itself waits for them. Then
 * silent ranks of other groups, for which a member of this one may wait. */
gm_status gm_pending_hang(gm_pending *p)
{
    char     call[480], text[1600] = "";
    size_t   n = 0;
    gm_comm *c = p->comm;
    gm_record_describe(&p->record, p->group->name, call, sizeof call);
    for (int come = 0; come < 2; come++) {
        for (int place = 0; place < p->group->size; place++) {
            bool late = has_not_come(p, place);
            if (place != p->group->rank && (come ? !late && is_missed(p, place) : late) && n < sizeof text)
                n += absent_member(p, place, text + n, sizeof text - n);
        }
        for (int rank = 0; rank < c->world && !come; rank++)
            if (!is_member(p->group, rank) && gm_notice_is_silent(c, rank) && n < sizeof text)
                n += (size_t)snprintf(text + n, sizeof text - n, "; rank %d does not answer", rank);
    }
    return GM_FAIL(GM_EHANG, "%s: nothing has moved for %g s%s", call, c->timeout, text);
}
