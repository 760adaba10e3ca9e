/* optimizer_t.cuh - device functions of optimizer.cu for one dtype. Elements pass by GM_V at a time. */
#include "rows_t.cuh"

#define GM_WIDE_LANES GM_PASTE(GM_LANES, GM_S)
#define GM_WIDE_PACKS (GM_V / GM_WIDE_LANES)

/* A pack of every role. Loads come first, all of them, so that they are under way together. */
typedef struct GM_E(gm_entry_packs) {
    gm_vector g, p, wide[GM_ROLES][GM_WIDE_PACKS]; /* wide: of the roles that have the type of arithmetic */
} GM_E(gm_entry_packs);

GM_DEVICE void GM_E(gm_entry_load_wide)(const gm_entry_held *t, int role, int64_t i, GM_E(gm_entry_packs) *x)
{
    const GM_R *p = (const GM_R *)t->data[role] + i;
    if (!t->data[role]) return;
    GM_UNROLL for (int k = 0; k < GM_WIDE_PACKS; k++) x->wide[role][k] = gm_load_vector(p + k * GM_WIDE_LANES);
}

GM_DEVICE void GM_E(gm_entry_store_wide)(const gm_entry_held *t, int role, int64_t i, const GM_E(gm_entry_packs) *x)
{
    GM_R *p = (GM_R *)t->data[role] + i;
    if (!t->data[role]) return;
    GM_UNROLL for (int k = 0; k < GM_WIDE_PACKS; k++) gm_store_vector(p + k * GM_WIDE_LANES, x->wide[role][k]);
}

/* The same where a pack is not whole or has gaps, element by element; zeros behind the end. */
GM_DEVICE gm_vector GM_E(gm_entry_gather)(const gm_entry_held *t, int role, int64_t i)
{
    const GM_T        *p = (const GM_T *)t->data[role];
    GM_E(gm_pack_of) u = {{{0}}};
    GM_ROLLED for (int j = 0; j < GM_V; j++)
        GM_TURN(u.x, GM_V, i + j < t->n ? p[gm_entry_place(t->entry, role, i + j)] : GM_E(gm_put)(0));
    return u.v;
}

GM_DEVICE void GM_E(gm_entry_scatter)(const gm_entry_held *t, int role, int64_t i, gm_vector v)
{
    GM_T              *p = (GM_T *)t->data[role];
    GM_E(gm_pack_of) u;
    u.v = v;
    GM_ROLLED for (int j = 0; j < GM_V; j++)
    {
        if (i + j < t->n) p[gm_entry_place(t->entry, role, i + j)] = u.x[0];
        GM_TURN(u.x, GM_V, u.x[0]);
    }
}

typedef union GM_E(gm_wide_of) {
    gm_vector v[GM_WIDE_PACKS];
    GM_R      x[GM_V];
} GM_E(gm_wide_of);

GM_DEVICE void GM_E(gm_entry_gather_wide)(const gm_entry_held *t, int role, int64_t i, GM_E(gm_entry_packs) *x)
{
    const GM_R        *p = (const GM_R *)t->data[role];
    GM_E(gm_wide_of) u = {{{{0}}}};
    if (!p) return;
    GM_ROLLED for (int j = 0; j < GM_V; j++)
        GM_TURN(u.x, GM_V, i + j < t->n ? p[gm_entry_place(t->entry, role, i + j)] : 0);
    GM_UNROLL for (int k = 0; k < GM_WIDE_PACKS; k++) x->wide[role][k] = u.v[k];
}

GM_DEVICE void GM_E(gm_entry_scatter_wide)(const gm_entry_held *t, int role, int64_t i,
                                           const GM_E(gm_entry_packs) *x)
{
    GM_R              *p = (GM_R *)t->data[role];
    GM_E(gm_wide_of) u;
    if (!p) return;
    GM_UNROLL for (int k = 0; k < GM_WIDE_PACKS; k++) u.v[k] = x->wide[role][k];
    GM_ROLLED for (int j = 0; j < GM_V; j++)
    {
        if (i + j < t->n) p[gm_entry_place(t->entry, role, i + j)] = u.x[0];
        GM_TURN(u.x, GM_V, u.x[0]);
    }
}

GM_DEVICE void GM_E(gm_entry_load)(const gm_entry_held *t, int whole, int64_t i, GM_E(gm_entry_packs) *x)
{
    const int narrow = !t->data[GM_ROLE_MASTER]; /* p is read from itself */
    if (whole) {
        x->g = gm_load_vector((const GM_T *)t->data[GM_ROLE_G] + i);
        if (narrow) x->p = gm_load_vector((const GM_T *)t->data[GM_ROLE_P] + i);
        GM_UNROLL for (int role = GM_ROLE_M; role < GM_ROLES; role++) GM_E(gm_entry_load_wide)(t, role, i, x);
    } else {
        x->g = GM_E(gm_entry_gather)(t, GM_ROLE_G, i);
        if (narrow) x->p = GM_E(gm_entry_gather)(t, GM_ROLE_P, i);
        GM_UNROLL for (int role = GM_ROLE_M; role < GM_ROLES; role++) GM_E(gm_entry_gather_wide)(t, role, i, x);
    }
}

GM_DEVICE void GM_E(gm_entry_store)(const gm_entry_held *t, int whole, int64_t i, const GM_E(gm_entry_packs) *x)
{
    if (whole) {
        gm_store_vector((GM_T *)t->data[GM_ROLE_P] + i, x->p);
        GM_UNROLL for (int role = GM_ROLE_M; role < GM_ROLES; role++) GM_E(gm_entry_store_wide)(t, role, i, x);
    } else {
        GM_E(gm_entry_scatter)(t, GM_ROLE_P, i, x->p);
        GM_UNROLL for (int role = GM_ROLE_M; role < GM_ROLES; role++) GM_E(gm_entry_scatter_wide)(t, role, i, x);
    }
}

GM_DEVICE void GM_E(gm_wide_unpack)(const gm_vector *v, GM_R *x)
{
    GM_UNROLL for (int k = 0; k < GM_WIDE_PACKS; k++) GM_N(gm_unpack)(v[k], x + k * GM_WIDE_LANES);
}

GM_DEVICE void GM_E(gm_wide_pack)(gm_vector *v, const GM_R *x)
{
    GM_UNROLL for (int k = 0; k < GM_WIDE_PACKS; k++) v[k] = GM_N(gm_pack)(x + k * GM_WIDE_LANES);
}

/* Elements i .. i + GM_V of p, rounded to the nearest, or by chance with the words of these elements. */
GM_DEVICE gm_vector GM_E(gm_rounded)(const gm_update_args *a, int64_t i, const GM_R *x, uint64_t step)
{
    GM_E(gm_pack_of) u;
    gm_philox          words = {{0, 0, 0, 0}};
    GM_UNROLL for (int j = 0; j < GM_V; j++)
    {
        if (a->stochastic && j % 4 == 0) words = gm_philox_at(a->key, (uint64_t)(i + j) / 4, step);
        u.x[j] = a->stochastic ? GM_E(gm_chance)(x[j], words.v[j % 4]) : GM_E(gm_put)(x[j]);
    }
    return u.v;
}

/* Kingma and Ba 2015; decoupled: Loshchilov and Hutter 2019 */
GM_DEVICE void GM_E(gm_adam)(const gm_update_args *a, const gm_update_step *s, const gm_entry_held *t,
                             GM_E(gm_entry_packs) *packs, GM_R *p, GM_R *g)
{
    const GM_R b1 = (GM_R)s->beta1, b2 = (GM_R)a->beta2, c1 = (GM_R)(1 - s->beta1), c2 = (GM_R)(1 - a->beta2);
    const GM_R root = (GM_R)s->root, rate = (GM_R)s->rate, eps = (GM_R)a->eps, decay = (GM_R)s->decay;
    GM_R       m[GM_V], v[GM_V];
    (void)t;
    GM_E(gm_wide_unpack)(packs->wide[GM_ROLE_M], m);
    GM_E(gm_wide_unpack)(packs->wide[GM_ROLE_V], v);
    GM_UNROLL for (int j = 0; j < GM_V; j++)
    {
        m[j] = b1 * m[j] + c1 * g[j];
        v[j] = b2 * v[j] + c2 * g[j] * g[j];
        p[j] = p[j] * decay - rate * m[j] / (root * GM_M(sqrt)(v[j]) + eps);
    }
    GM_E(gm_wide_pack)(packs->wide[GM_ROLE_M], m);
    GM_E(gm_wide_pack)(packs->wide[GM_ROLE_V], v);
}

/* As torch.optim.SGD; with a buffer where there is momentum */
GM_DEVICE void GM_E(gm_sgd)(const gm_update_args *a, const gm_update_step *s, const gm_entry_held *t,
                            GM_E(gm_entry_packs) *packs, GM_R *p, GM_R *g)
{
    const GM_R momentum = (GM_R)s->momentum, fresh = (GM_R)s->fresh, lr = (GM_R)s->lr, ahead = (GM_R)s->ahead;
    GM_R       b[GM_V];
    if (t->data[GM_ROLE_M]) {
        GM_E(gm_wide_unpack)(packs->wide[GM_ROLE_M], b);
        GM_UNROLL for (int j = 0; j < GM_V; j++)
        {
            b[j] = (momentum == 0 ? 0 : momentum * b[j]) + fresh * g[j];
            g[j] = a->nesterov ? g[j] + ahead * b[j] : b[j];
        }
        GM_E(gm_wide_pack)(packs->wide[GM_ROLE_M], b);
    }
    GM_UNROLL for (int j = 0; j < GM_V; j++) p[j] -= lr * g[j];
}

GM_DEVICE void GM_E(gm_update_chunk)(const gm_update_args *a, const gm_entry_held *t, const gm_update_step *s)
{
    const int64_t end = t->first + GM_UPDATE_CHUNK < t->n ? t->first + GM_UPDATE_CHUNK : t->n;
    const GM_R    scale = (GM_R)s->scale, decay = (GM_R)s->weight_decay;
    for (int64_t i = t->first + gm_thread * GM_V; i < end; i += (int64_t)gm_block_size * GM_V) {
        const int                whole = t->vectors && i + GM_V <= t->n;
        GM_E(gm_entry_packs) packs;
        GM_R                     p[GM_V], g[GM_V];
        GM_E(gm_entry_load)(t, whole, i, &packs);
        GM_E(gm_unpack)(packs.g, g);
        if (t->data[GM_ROLE_MASTER]) GM_E(gm_wide_unpack)(packs.wide[GM_ROLE_MASTER], p);
        else GM_E(gm_unpack)(packs.p, p);
        GM_UNROLL for (int j = 0; j < GM_V; j++) g[j] = g[j] * scale + decay * p[j];
#define GM_OPTIMIZER(name, ...) \
        if (a->op == (int)GM_OP_##name) GM_E(gm_##name)(a, s, t, &packs, p, g);
#include "../optimizers.def"
#undef GM_OPTIMIZER
        if (t->data[GM_ROLE_MASTER]) GM_E(gm_wide_pack)(packs.wide[GM_ROLE_MASTER], p);
        packs.p = GM_E(gm_rounded)(a, i, p, s->step);
        GM_E(gm_entry_store)(t, whole, i, &packs);
    }
}

GM_DEVICE void GM_E(gm_square_pack)(gm_vector v, double *sum)
{
    GM_R g[GM_V];
    GM_E(gm_unpack)(v, g);
    GM_UNROLL for (int j = 0; j < GM_V; j++) *sum += (double)g[j] * (double)g[j];
}

#define GM_HELD 4

GM_DEVICE void GM_E(gm_square_chunk)(const gm_entry_held *t, double *sum)
{
    const GM_T   *g = (const GM_T *)t->data[GM_ROLE_G];
    const int64_t end = t->first + GM_UPDATE_CHUNK < t->n ? t->first + GM_UPDATE_CHUNK : t->n;
    const int64_t step = (int64_t)gm_block_size * GM_V;
    int64_t       i = t->first + gm_thread * GM_V;
    if (!t->vectors || end % GM_V) {
        for (; i < end; i += step) GM_E(gm_square_pack)(GM_E(gm_entry_gather)(t, GM_ROLE_G, i), sum);
        return;
    }
    for (; i < end; i += GM_HELD * step) {
        gm_vector held[GM_HELD];
        GM_UNROLL for (int k = 0; k < GM_HELD; k++) if (i + k * step < end) held[k] = gm_load_vector(g + i + k * step);
        GM_UNROLL for (int k = 0; k < GM_HELD; k++) if (i + k * step < end) GM_E(gm_square_pack)(held[k], sum);
    }
}

#undef GM_HELD
#undef GM_WIDE_LANES
#undef GM_WIDE_PACKS

#include "rows_t_end.cuh"
