/* message.c - operations on other things than tensors of one shape: barrier, messages between two members, exchange of
 * byte strings, a few bytes of everybody. Uneven rows: rows.c. */
#include <stdlib.h>
#include <string.h>

#include "state.h"

/* ---- barrier ---- */

/* Dissemination (Hensgen, Finkel, Manber 1988): in round k a member hears from the one 2^k before it. */
static gm_status step_barrier(gm_pending *p, int round)
{
    const gm_group *g = p->group;
    if (round == p->rounds) return GM_OK;
    int distance = 1 << round;
    gm_pending_receive(p, (g->rank - distance % g->size + g->size) % g->size, NULL, 0, true);
    gm_pending_send(p, (g->rank + distance) % g->size, NULL, 0, true);
    return GM_OK;
}

gm_status gm_comm_barrier(gm_comm *c, gm_group *g)
{
    gm_pending *p;
    GM_TRY(gm_call_check_group(c, g, "barrier"));
    GM_TRY(gm_pending_new(c, g, GM_CALL_barrier, NULL, NULL, 0, 64, &p));
    p->step = step_barrier;
    while (1 << p->rounds < g->size) p->rounds++;
    return gm_pending_start(p, NULL);
}

/* ---- messages of two ---- */

static gm_status step_send(gm_pending *p, int round)
{
    const gm_tensor *t = p->in ? p->in : p->out;
    size_t           n = (size_t)gm_tensor_numel(t) * gm_dtype_size(t->dtype);
    (void)round; /* there is one */
    if (p->in) gm_pending_send(p, p->root, p->from, n, true);
    else gm_pending_receive(p, p->root, p->to, n, true);
    return GM_OK;
}

static gm_status start_message(gm_comm *c, gm_group *g, gm_collective call, gm_tensor *t, int other, gm_pending **out)
{
    gm_pending *p;
    const char *op = gm_call_name(call);
    bool        send = call == GM_CALL_send;
    GM_TRY(gm_call_check_group(c, g, op));
    GM_TRY(gm_call_check_tensor(c, g, op, "", t));
    if (other < 0 || other >= g->size)
        return GM_FAIL(GM_EINVAL, "%s in group %s: there is no place %d among %d", op, g->name, other, g->size);
    if (other == g->rank) return GM_FAIL(GM_EINVAL, "%s in group %s: a message to oneself", op, g->name);
    GM_TRY(gm_pending_new(c, g, call, send ? t : NULL, send ? NULL : t, 0, 1, &p));
    p->step = step_send;
    p->root = other;
    p->record.dtype = (int32_t)t->dtype;
    p->record.ndim = t->ndim;
    memcpy(p->record.shape, t->shape, sizeof t->shape);
    if (!send) t->storage->version++;
    return gm_pending_start(p, out);
}

gm_status gm_comm_send(gm_comm *c, gm_group *g, gm_tensor *t, int to, gm_pending **out)
{
    return start_message(c, g, GM_CALL_send, t, to, out);
}

gm_status gm_comm_receive(gm_comm *c, gm_group *g, gm_tensor *t, int from, gm_pending **out)
{
    return start_message(c, g, GM_CALL_receive, t, from, out);
}

/* ---- byte strings ---- */

/* Sizes first, then the strings: p->text holds this rank's, and from step 1 on those of all. */
static gm_status step_exchange(gm_pending *p, int round)
{
    const gm_group *g = p->group;
    size_t          mine = p->sizes[g->rank], total = 0, own = 0;
    for (int k = 1; round == 0 && k < g->size; k++) {
        int from = (g->rank - k + g->size) % g->size, to = (g->rank + k) % g->size;
        p->sizes[from] = mine; /* what the meta transport leaves */
        gm_pending_receive(p, from, &p->sizes[from], sizeof mine, true);
        gm_pending_send(p, to, &p->sizes[g->rank], sizeof mine, true);
    }
    if (round == 2) {
        *p->text_to = p->text;
        p->text = NULL;
        memcpy(p->sizes_to, p->sizes, (size_t)g->size * sizeof *p->sizes);
    }
    if (round != 1) return GM_OK;
    for (int i = 0; i < g->size; i++) {
        if (i == g->rank) own = total;
        total += p->sizes[i];
    }
    char *all = calloc(total + 1, 1);
    if (!all) return GM_FAIL(GM_ECOMM, "no memory for %zu bytes from the members of group %s", total, g->name);
    memcpy(all + own, p->text, mine);
    free(p->text);
    p->text = all;
    size_t start = 0;
    for (int i = 0; i < g->size; start += p->sizes[i], i++) {
        if (i == g->rank) continue;
        gm_pending_receive(p, i, all + start, p->sizes[i], false);
        gm_pending_send(p, i, all + own, mine, false);
    }
    return GM_OK;
}

gm_status gm_comm_exchange(gm_comm *c, gm_group *g, const void *bytes, size_t n, char **all, size_t *sizes)
{
    gm_pending *p;
    GM_TRY(gm_call_check_group(c, g, "exchange"));
    GM_TRY(gm_pending_new(c, g, GM_CALL_exchange, NULL, NULL, 0, 4 * g->size, &p));
    p->text = malloc(n + 1);
    p->sizes = calloc((size_t)g->size, sizeof *p->sizes);
    if (!p->text || !p->sizes) {
        gm_pending_free(p);
        return GM_FAIL(GM_ENOMEM, "no memory for %zu bytes to exchange", n);
    }
    if (n) memcpy(p->text, bytes, n);
    p->sizes[g->rank] = n;
    p->text_to = all;
    p->sizes_to = sizes;
    p->step = step_exchange;
    p->rounds = 2;
    return gm_pending_start(p, NULL);
}

/* ---- a few bytes of everybody ---- */

/* Bruck et al. 1997: before round k p->text has the bytes of 2^k members, from this one on; as many more come from the
 * member 2^k behind it. */
static gm_status step_tell(gm_pending *p, int round)
{
    const gm_group *g = p->group;
    int             size = g->size, have = 1 << round;
    size_t          n = p->sizes[0];
    if (round < p->rounds) {
        size_t more = (size_t)(have < size - have ? have : size - have) * n;
        gm_pending_receive(p, (g->rank + have) % size, p->text + (size_t)have * n, more, true);
        gm_pending_send(p, (g->rank - have + size) % size, p->text, more, true);
        return GM_OK;
    }
    for (int i = 0; i < size; i++) memcpy(p->to + (size_t)((g->rank + i) % size) * n, p->text + (size_t)i * n, n);
    return GM_OK;
}

gm_status gm_comm_tell(gm_comm *c, gm_group *g, const void *bytes, size_t n, void *all)
{
    gm_pending *p;
    GM_TRY(gm_call_check_group(c, g, "tell"));
    if (!n || n > GM_TELL_MOST)
        return GM_FAIL(GM_EINVAL, "%zu bytes of each member of group %s: 1 to %d can be told", n, g->name,
                       GM_TELL_MOST);
    GM_TRY(gm_pending_new(c, g, GM_CALL_exchange, NULL, NULL, 0, 64, &p));
    p->text = malloc((size_t)g->size * n);
    p->sizes = malloc(sizeof *p->sizes);
    if (!p->text || !p->sizes) {
        gm_pending_free(p);
        return GM_FAIL(GM_ENOMEM, "no memory for %zu bytes of each member of group %s", n, g->name);
    }
    for (int i = 0; i < g->size; i++) memcpy(p->text + (size_t)i * n, bytes, n); /* what the meta transport leaves */
    p->sizes[0] = n;
    p->to = all;
    p->step = step_tell;
    p->record.dtype = GM_U8;
    p->record.ndim = 1;
    p->record.shape[0] = (int64_t)n;
    while (1 << p->rounds < g->size) p->rounds++;
    return gm_pending_start(p, NULL);
}
