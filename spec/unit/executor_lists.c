/* executor_lists.c - orders of computing played into lists of actions with messages, and chains to run them on; see
 * executor_job.h. */
#include <stdlib.h>

#include "executor_job.h"

static void add(list *l, gm_action_kind kind, int micro_batch, int chunk)
{
    assert_true(l->n < ACTIONS);
    l->action[l->n++] = (gm_action){.kind = kind, .micro_batch = micro_batch, .chunk = chunk, .peer = -1};
}

/* All forward, chunk after chunk, then all back. */
static void order_in_rounds(schedule *s, list *l)
{
    for (int c = 0; c < s->chunks; c++)
        for (int m = 0; m < s->micro; m++) add(l, GM_ACTION_FORWARD, m, c);
    for (int c = s->chunks - 1; c >= 0; c--)
        for (int m = s->micro - 1; m >= 0; m--) add(l, GM_ACTION_BACKWARD, m, c);
}

/* lag < 0: backward in one. */
static void order_one_by_one(const schedule *s, list *l, int stage, int lag)
{
    int ahead = s->stages - stage - 1, done = 0;
    for (int m = 0; m < s->micro + ahead; m++) {
        if (m < s->micro) add(l, GM_ACTION_FORWARD, m, 0);
        if (m < ahead) continue;
        int back = m - ahead;
        add(l, lag < 0 ? GM_ACTION_BACKWARD : GM_ACTION_BACKWARD_INPUT, back, 0);
        if (lag >= 0 && back >= lag) add(l, GM_ACTION_BACKWARD_WEIGHT, done++, 0);
    }
    while (lag >= 0 && done < s->micro) add(l, GM_ACTION_BACKWARD_WEIGHT, done++, 0);
}

bool find_part(const schedule *s, int part, int *stage, int *chunk)
{
    for (*stage = 0; *stage < s->stages; ++*stage)
        for (*chunk = 0; *chunk < s->chunks; ++*chunk)
            if (s->parts[*stage][*chunk] == part) return true;
    return false;
}

typedef struct play {
    bool made[2][PARTS][MICRO]; /* activations, gradients */
    int  next[STAGES];
    list order[STAGES];
} play;

/* Can the next computing of a stage run? */
static bool can_run(const schedule *s, const play *p, const gm_action *a, int part)
{
    if (a->kind == GM_ACTION_FORWARD) return !part || p->made[0][part - 1][a->micro_batch];
    if (a->kind == GM_ACTION_BACKWARD_WEIGHT) return true;
    return part == s->stages * s->chunks - 1 || p->made[1][part + 1][a->micro_batch];
}

/* What it makes goes to the stage that reads it: both lists get their end of the message. */
static void give(schedule *s, int stage, const gm_action *a, bool gradient, int reader)
{
    int to, chunk;
    if (!find_part(s, reader, &to, &chunk) || to == stage) return;
    add(&s->of[stage], GM_ACTION_SEND, a->micro_batch, a->chunk);
    add(&s->of[to], GM_ACTION_RECEIVE, a->micro_batch, chunk);
    gm_action *send = &s->of[stage].action[s->of[stage].n - 1], *receive = &s->of[to].action[s->of[to].n - 1];
    send->gradient = receive->gradient = gradient;
    send->peer = to;
    receive->peer = stage;
}

/* One action of the last stage that has one; false: all are done. */
static bool play_one(schedule *s, play *p)
{
    bool left = false;
    for (int stage = s->stages - 1; stage >= 0; stage--) {
        const list *l = &p->order[stage];
        if (p->next[stage] == l->n) continue;
        left = true;
        const gm_action *a = &l->action[p->next[stage]];
        int              part = s->parts[stage][a->chunk];
        if (!can_run(s, p, a, part)) continue;
        add(&s->of[stage], a->kind, a->micro_batch, a->chunk);
        p->next[stage]++;
        bool gradient = a->kind != GM_ACTION_FORWARD;
        if (a->kind == GM_ACTION_BACKWARD_WEIGHT) return true;
        p->made[gradient][part][a->micro_batch] = true;
        give(s, stage, a, gradient, part + (gradient ? -1 : 1));
        return true;
    }
    assert_true(!left); /* the orders wait for each other */
    return false;
}

schedule make_schedule(kind k, int stages, int micro, int lag)
{
    schedule s = {.stages = stages, .micro = micro, .chunks = k == LOOPED || k == V_SHAPED ? 2 : 1};
    play    *p = calloc(1, sizeof *p);
    assert_true(p && micro <= MICRO && stages <= STAGES);
    for (int r = 0; r < stages; r++) {
        s.parts[r][0] = r;
        s.parts[r][1] = k == V_SHAPED ? 2 * stages - 1 - r : stages + r;
        if (k == ONE_F_ONE_B || k == SPLIT) order_one_by_one(&s, &p->order[r], r, k == SPLIT ? lag : -1);
        else order_in_rounds(&s, &p->order[r]);
    }
    while (play_one(&s, p)) {
    }
    free(p);
    return s;
}

chain make_chain(kind k, int stages, int micro)
{
    chain c = {.s = make_schedule(k, stages, micro, 1),
               .mesh = mesh_of("pipeline", stages, NULL, 1, NULL, 1),
               .width = 5,
               .steps = 1,
               .bad_part = -1,
               .bad_step = -1,
               .bad_micro = micro / 2,
               .twist = -1};
    for (int m = 0; m < MICRO; m++) c.rows[m] = 3;
    return c;
}

chain make_wide_chain(kind k, int stages, int micro)
{
    chain c = make_chain(k, stages, micro);
    c.mesh = mesh_of("pipeline", stages, "tensor", 2, NULL, 1);
    c.scatter = gm_mesh_mask(&c.mesh, "tensor");
    return c;
}
