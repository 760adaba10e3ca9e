/* machine.c - see machine.h. */
#include "machine.h"

#include <math.h>
#include <string.h>

/* The rate of a size: linear in log size between two points. */
static double at_size(const gm_rate *r, double size)
{
    if (size <= r->point[0].size) return r->point[0].rate;
    for (int i = 1; i < r->n; i++) {
        double low = r->point[i - 1].size, high = r->point[i].size;
        if (size >= high) continue;
        double part = log(size / low) / log(high / low);
        return r->point[i - 1].rate + part * (r->point[i].rate - r->point[i - 1].rate);
    }
    return r->point[r->n - 1].rate;
}

/* The rate that names the op and the dtype most exactly: an op of its own counts for more than a dtype. */
static const gm_rate *find(const gm_rate *list, int n, const char *op, const char *dtype)
{
    const gm_rate *best = NULL;
    int            most = -1;
    for (int i = 0; i < n; i++) {
        bool own = !strcmp(list[i].op, op), typed = !strcmp(list[i].dtype, dtype);
        int  fit = 2 * own + typed;
        if ((!own && strcmp(list[i].op, "*") != 0) || (!typed && strcmp(list[i].dtype, "*") != 0)) continue;
        if (fit > most) {
            most = fit;
            best = &list[i];
        }
    }
    return best;
}

static gm_status part(const gm_rate *list, int n, const char *what, const char *op, const char *dtype, double amount,
                      double size, double bytes, double *seconds)
{
    const gm_rate *r = find(list, n, op, dtype);
    *seconds = 0;
    if (amount <= 0) return GM_OK;
    if (!r)
        return GM_FAIL(GM_EINVAL, "the machine has no rate of %s for %s of %s: add one, or one for every op (\"*\")",
                       what, op, *dtype ? dtype : "no dtype");
    *seconds = amount / at_size(r, size) + r->start + (r->bandwidth > 0 ? bytes / r->bandwidth : 0);
    return GM_OK;
}

gm_status gm_machine_op(const gm_machine *m, const gm_journal *r, const gm_event *e, double *seconds)
{
    const char *op = gm_journal_text_of(r, e->name), *dtype = gm_journal_text_of(r, e->dtype);
    double      computing, moving;
    GM_TRY(part(m->products, m->n_products, "products", op, dtype, e->products, (double)e->size, e->bytes, &computing));
    GM_TRY(part(m->moves, m->n_moves, "moves", op, dtype, e->bytes, e->bytes, 0, &moving));
    *seconds = m->launch + (computing > moving ? computing : moving);
    return GM_OK;
}

double gm_machine_efficiency(const gm_machine *m, const char *op)
{
    for (int i = 0; i < m->n_efficiencies; i++)
        if (!strcmp(m->efficiency[i].op, op)) return m->efficiency[i].factor;
    return 1;
}

bool gm_cores_are_shared(const gm_machine *m)
{
    return m->cores > 0 && (double)m->ranks_per_node * m->cores_per_rank > m->cores;
}
