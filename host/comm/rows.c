/* rows.c - all_to_all_rows: an all_to_all of uneven rows, in runs that may lie apart (comm.h, gm_row_run).
 *
 * Each pair of members exchanges one message each way, an empty one, too, so that a pair that disagrees is found. A
 * message whose runs lie one after the other is sent from where they lie, or received there. Any other goes through
 * scratch memory: its runs are packed before the round of messages, or unpacked behind it, which counts as copied. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blocks.h"

/* The runs of one place. */
typedef struct message {
    const gm_row_run *run;
    int               n;
    size_t            bytes;
    bool              apart; /* its runs do not lie one after the other */
} message;

static size_t row_bytes(const gm_tensor *t)
{
    size_t n = gm_dtype_size(t->dtype);
    for (int d = 1; d < t->ndim; d++) n *= (size_t)t->shape[d];
    return n;
}

/* The first run of a place, or where it would stand. */
static int first_of(gm_row_runs l, int place)
{
    int low = 0, high = l.n;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (l.run[middle].place < place) low = middle + 1;
        else high = middle;
    }
    return low;
}

static message message_of(gm_row_runs l, int place, size_t row)
{
    int     first = first_of(l, place);
    message m = {.run = l.n ? &l.run[first] : NULL};
    int64_t end = -1; /* row behind the runs so far */
    for (int i = first; i < l.n && l.run[i].place == place; i++) {
        const gm_row_run *r = &l.run[i];
        m.n++;
        if (!r->n) continue;
        m.apart |= end >= 0 && r->first != end;
        end = r->first + r->n;
        m.bytes += (size_t)r->n * row;
    }
    return m;
}

/* The first row that a message has; its runs lie one after the other. */
static int64_t first_row(const message *m)
{
    for (int i = 0; i < m->n; i++)
        if (m->run[i].n) return m->run[i].first;
    return 0;
}

/* Between the runs of a message in a tensor, which starts at `rows`, and the message in one piece. */
static void move(gm_pending *p, const message *m, size_t row, char *rows, char *packed, bool pack)
{
    if (!gm_moves(p) || !rows || !packed) return;
    for (int i = 0; i < m->n; i++) {
        size_t n = (size_t)m->run[i].n * row;
        char  *there = rows + (size_t)m->run[i].first * row;
        if (n) memcpy(pack ? packed : there, pack ? there : packed, n);
        packed += n;
    }
    p->account->copied += m->bytes;
}

/* ---- the rounds ---- */

/* The k-th other member that this rank sends to; the one that it receives from then. */
static int to_place(const gm_group *g, int k) { return (g->rank + k) % g->size; }
static int from_place(const gm_group *g, int k) { return (g->rank - k + g->size) % g->size; }

/* Where a message lies in one piece: in its tensor, or in scratch memory, of which it then takes its part. */
static char *in_one(const message *m, size_t row, char *rows, char **scratch)
{
    char *at = *scratch;
    if (!m->apart) return gm_at(rows, (size_t)first_row(m) * row);
    *scratch = gm_at(at, m->bytes);
    return at;
}

/* Messages from others, which take the first part of scratch memory; `there`: they have come. */
static void receive_all(gm_pending *p, size_t row, bool there, char **scratch)
{
    for (int k = 1; k < p->group->size; k++) {
        int     from = from_place(p->group, k);
        message m = message_of(p->receives, from, row);
        char   *at = in_one(&m, row, p->to, scratch);
        if (!there) gm_pending_receive(p, from, at, m.bytes, true);
        else if (m.apart) move(p, &m, row, p->to, at, false);
    }
}

static void send_all(gm_pending *p, size_t row, char **scratch)
{
    for (int k = 1; k < p->group->size; k++) {
        int     to = to_place(p->group, k);
        message m = message_of(p->sends, to, row);
        char   *at = in_one(&m, row, p->from, scratch);
        if (m.apart) move(p, &m, row, p->from, at, true);
        gm_pending_send(p, to, at, m.bytes, true);
    }
}

/* Pieces for this rank itself, which are as many on both sides. */
static void keep_own(gm_pending *p, size_t row)
{
    message in = message_of(p->sends, p->group->rank, row), out = message_of(p->receives, p->group->rank, row);
    if (!gm_moves(p) || !p->from || !p->to) return;
    for (int i = 0; i < in.n; i++)
        if (in.run[i].n)
            memcpy(p->to + (size_t)out.run[i].first * row, p->from + (size_t)in.run[i].first * row,
                   (size_t)in.run[i].n * row);
    p->account->copied += in.bytes;
}

static gm_status step_rows(gm_pending *p, int round)
{
    size_t row = row_bytes(p->in);
    char  *scratch = p->scratch;
    receive_all(p, row, round == 1, &scratch);
    if (round) return GM_OK;
    send_all(p, row, &scratch);
    keep_own(p, row);
    return GM_OK;
}

gm_status gm_rows_alone(gm_pending *p, gm_device *dev)
{
    size_t row = row_bytes(p->in);
    char  *from = gm_tensor_data(p->in), *to = gm_tensor_data(p->out);
    for (int i = 0; i < p->sends.n; i++) {
        const gm_row_run *in = &p->sends.run[i], *out = &p->receives.run[i];
        size_t            n = (size_t)in->n * row;
        if (n) GM_TRY(gm_device_copy(dev, to + (size_t)out->first * row, from + (size_t)in->first * row, n));
        p->account->copied += n;
    }
    return GM_OK;
}

/* ---- what fits ---- */

static gm_status misfit(const gm_group *g, const gm_tensor *t, const char *side, const char *why)
{
    char text[200];
    return GM_FAIL(GM_ESHAPE, "all_to_all of group %s: %s; they should cover each row of what is %s once, which is %s",
                   g->name, why, side, gm_tensor_describe(t, text, sizeof text));
}

static int by_row(const void *a, const void *b)
{
    int64_t x = ((const gm_row_run *)a)->first, y = ((const gm_row_run *)b)->first;
    return (x > y) - (x < y);
}

/* Whether runs, not one of them empty, cover rows 0 .. rows - 1 once; puts them in order of rows. */
static bool covers(gm_row_run *run, int n, int64_t rows)
{
    int64_t end = 0;
    qsort(run, (size_t)n, sizeof *run, by_row);
    for (int i = 0; i < n; end += run[i++].n)
        if (run[i].first != end || run[i].n > rows - end) return false;
    return end == rows;
}

/* room: for as many runs. */
static gm_status check_list(const gm_group *g, gm_row_runs l, const gm_tensor *t, const char *side, gm_row_run *room)
{
    int n = 0;
    if (t->ndim < 1) return misfit(g, t, side, "a tensor without dimensions has no rows");
    for (int i = 0; i < l.n; i++) {
        const gm_row_run *r = &l.run[i];
        char              text[120];
        if (r->place < 0 || r->place >= g->size || (i && r->place < r[-1].place)) {
            snprintf(text, sizeof text, "run %d is of place %d; runs should be in order of places, 0 to %d", i + 1,
                     r->place, g->size - 1);
            return misfit(g, t, side, text);
        }
        if (r->n < 0) return misfit(g, t, side, "a run has a negative number of rows");
        if (r->n) room[n++] = *r;
    }
    return covers(room, n, t->shape[0]) ? GM_OK : misfit(g, t, side, "runs overlap, or leave rows out");
}

static gm_status check_own(const gm_group *g, gm_row_runs send, gm_row_runs receive)
{
    message in = message_of(send, g->rank, 1), out = message_of(receive, g->rank, 1);
    bool    same = in.n == out.n;
    for (int i = 0; i < in.n && same; i++) same = in.run[i].n == out.run[i].n;
    if (same) return GM_OK;
    return GM_FAIL(GM_ESHAPE,
                   "all_to_all of group %s: a rank sends itself as many rows as it receives, run by run; here %zu "
                   "rows in %d runs are to become %zu in %d",
                   g->name, in.bytes, in.n, out.bytes, out.n);
}

static gm_status check_fits(const gm_comm *c, const gm_group *g, const gm_tensor *in, const gm_tensor *to)
{
    GM_TRY(gm_call_check_tensor(c, g, "all_to_all", "", in));
    GM_TRY(gm_call_check_tensor(c, g, "all_to_all", "", to));
    bool same = in->dtype == to->dtype && in->ndim == to->ndim;
    for (int d = 1; d < in->ndim && same; d++) same = in->shape[d] == to->shape[d];
    return same ? GM_OK : GM_FAIL(GM_ESHAPE, "all_to_all of group %s: rows of the two tensors differ", g->name);
}

/* ---- the call ---- */

gm_row_runs gm_row_runs_in_order(const int64_t *rows, int members, gm_row_run *run)
{
    int64_t at = 0;
    for (int i = 0; i < members; at += rows[i++]) run[i] = (gm_row_run){i, at, rows[i]};
    return (gm_row_runs){run, members};
}

/* Bytes of the messages whose runs lie apart. */
static size_t scratch_of(const gm_group *g, gm_row_runs l, size_t row)
{
    size_t bytes = 0;
    for (int i = 0; i < g->size; i++) {
        message m = message_of(l, i, row);
        if (i != g->rank && m.apart) bytes += m.bytes;
    }
    return bytes;
}

size_t gm_rows_elsewhere(const gm_pending *p)
{
    size_t rows = 0;
    for (int i = 0; i < p->sends.n; i++)
        if (p->sends.run[i].place != p->group->rank) rows += (size_t)p->sends.run[i].n;
    return rows * row_bytes(p->in);
}

/* The operation with both lists in `rows`, which it takes. */
static gm_status make(gm_comm *c, gm_group *g, gm_tensor *in, gm_tensor *to, gm_row_run *rows, int n_send,
                      int n_receive, gm_pending **p)
{
    gm_row_runs sends = {rows, n_send}, receives = {rows + n_send, n_receive};
    size_t      row = row_bytes(in), scratch = scratch_of(g, sends, row) + scratch_of(g, receives, row);
    gm_status   st = gm_pending_new(c, g, GM_CALL_all_to_all_rows, in, to, scratch, 2 * g->size, p);
    if (st != GM_OK) {
        free(rows);
        return st;
    }
    (*p)->rows = rows;
    (*p)->sends = sends;
    (*p)->receives = receives;
    return GM_OK;
}

static gm_status take_lists(const gm_group *g, gm_tensor *in, gm_row_runs send, gm_tensor *to, gm_row_runs receive,
                            gm_row_run *rows)
{
    GM_TRY(check_list(g, send, in, "sent", rows));
    GM_TRY(check_list(g, receive, to, "received", rows));
    GM_TRY(check_own(g, send, receive));
    if (send.n) memcpy(rows, send.run, (size_t)send.n * sizeof *rows);
    if (receive.n) memcpy(rows + send.n, receive.run, (size_t)receive.n * sizeof *rows);
    return GM_OK;
}

gm_status gm_comm_all_to_all_rows(gm_comm *c, gm_group *g, gm_tensor *in, gm_row_runs send, gm_tensor *to,
                                  gm_row_runs receive, gm_pending **out)
{
    gm_pending *p;
    GM_TRY(gm_call_check_group(c, g, "all_to_all"));
    GM_TRY(check_fits(c, g, in, to));
    gm_row_run *rows = malloc(((size_t)send.n + (size_t)receive.n + 1) * sizeof *rows);
    if (!rows) return GM_FAIL(GM_ENOMEM, "no memory for an operation");
    gm_status st = take_lists(g, in, send, to, receive, rows);
    if (st != GM_OK) {
        free(rows);
        return st;
    }
    GM_TRY(make(c, g, in, to, rows, send.n, receive.n, &p));
    p->step = step_rows;
    p->rounds = 1;
    p->record.dtype = (int32_t)in->dtype;
    p->record.ndim = in->ndim; /* the number of rows is each rank's own */
    for (int d = 1; d < in->ndim; d++) p->record.shape[d] = in->shape[d];
    to->storage->version++;
    return gm_pending_start(p, out);
}
