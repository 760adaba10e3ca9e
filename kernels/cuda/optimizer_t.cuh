/* optimizer_t.cuh - device functions of optimizer.cu for one dtype. Elements pass by GM_V at a time. */
#include "rows_t.cuh"

#define GM_WIDE_LANES GM_PASTE(GM_LANES, GM_S)
#define GM_WIDE_PACKS (GM_V / GM_WIDE_LANES)

/* Elements i .. i + GM_V of a role that has the entry's dtype; zeros behind its end. */
GM_DEVICE void GM_E(gm_entry_take)(const gm_entry *t, int role, int64_t i, GM_R *x)
{
    const GM_T        *p = (const GM_T *)t->data[role];
    GM_E(gm_pack_of) u;
    if (t->vectors && i + GM_V <= t->n) {
        u.v = gm_load_vector(p + i);
    } else {
        GM_ROLLED for (int j = 0; j < GM_V; j++)
            u.x[j] = i + j < t->n ? p[gm_entry_place(t, role, i + j)] : GM_E(gm_put)(0);
    }
    GM_E(gm_unpack)(u.v, x);
}

typedef union GM_E(gm_wide_of) {
    gm_vector v[GM_WIDE_PACKS];
    GM_R      x[GM_V];
} GM_E(gm_wide_of);

/* The same of a role in the type of arithmetic. */
GM_DEVICE void GM_E(gm_entry_take_wide)(const gm_entry *t, int role, int64_t i, GM_R *x)
{
    const GM_R        *p = (const GM_R *)t->data[role];
    GM_E(gm_wide_of) u;
    if (t->vectors && i + GM_V <= t->n) {
        GM_UNROLL for (int k = 0; k < GM_WIDE_PACKS; k++) u.v[k] = gm_load_vector(p + i + k * GM_WIDE_LANES);
    } else {
        GM_ROLLED for (int j = 0; j < GM_V; j++) u.x[j] = i + j < t->n ? p[gm_entry_place(t, role, i + j)] : 0;
    }
    GM_UNROLL for (int k = 0; k < GM_WIDE_PACKS; k++) GM_N(gm_unpack)(u.v[k], x + k * GM_WIDE_LANES);
}

GM_DEVICE void GM_E(gm_entry_give_wide)(const gm_entry *t, int role, int64_t i, const GM_R *x)
{
    GM_R              *p = (GM_R *)t->data[role];
    GM_E(gm_wide_of) u;
    GM_UNROLL for (int k = 0; k < GM_WIDE_PACKS; k++) u.v[k] = GM_N(gm_pack)(x + k * GM_WIDE_LANES);
    if (t->vectors && i + GM_V <= t->n) {
        GM_UNROLL for (int k = 0; k < GM_WIDE_PACKS; k++) gm_store_vector(p + i + k * GM_WIDE_LANES, u.v[k]);
    } else {
        GM_ROLLED for (int j = 0; j < GM_V; j++) if (i + j < t->n) p[gm_entry_place(t, role, i + j)] = u.x[j];
    }
}

/* p, rounded to the nearest, or by chance with the words of these elements. */
GM_DEVICE void GM_E(gm_entry_give)(const gm_update_args *a, const gm_entry *t, int64_t i, const GM_R *x, uint64_t step)
{
    GM_T              *p = (GM_T *)t->data[GM_ROLE_P];
    GM_E(gm_pack_of) u;
    gm_philox          words = {{0, 0, 0, 0}};
    GM_UNROLL for (int j = 0; j < GM_V; j++)
    {
        if (a->stochastic && j % 4 == 0) words = gm_philox_at(a->key, (uint64_t)(i + j) / 4, step);
        u.x[j] = a->stochastic ? GM_E(gm_chance)(x[j], words.v[j % 4]) : GM_E(gm_put)(x[j]);
    }
    if (t->vectors && i + GM_V <= t->n) {
        gm_store_vector(p + i, u.v);
    } else {
        GM_ROLLED for (int j = 0; j < GM_V; j++) if (i + j < t->n) p[gm_entry_place(t, GM_ROLE_P, i + j)] = u.x[j];
    }
}

/* Kingma and Ba 2015; decoupled: Loshchilov and Hutter 2019 */
GM_DEVICE void GM_E(gm_adam)(const gm_update_args *a, const gm_entry *t, const gm_update_step *s, int64_t i, GM_R *p,
                             GM_R *g)
{
    const GM_R b1 = (GM_R)s->beta1, b2 = (GM_R)a->beta2, c1 = (GM_R)(1 - s->beta1), c2 = (GM_R)(1 - a->beta2);
    const GM_R root = (GM_R)s->root, rate = (GM_R)s->rate, eps = (GM_R)a->eps, decay = (GM_R)s->decay;
    GM_R       m[GM_V], v[GM_V];
    GM_E(gm_entry_take_wide)(t, GM_ROLE_M, i, m);
    GM_E(gm_entry_take_wide)(t, GM_ROLE_V, i, v);
    GM_UNROLL for (int j = 0; j < GM_V; j++)
    {
        m[j] = b1 * m[j] + c1 * g[j];
        v[j] = b2 * v[j] + c2 * g[j] * g[j];
        p[j] = p[j] * decay - rate * m[j] / (root * GM_M(sqrt)(v[j]) + eps);
    }
    GM_E(gm_entry_give_wide)(t, GM_ROLE_M, i, m);
    GM_E(gm_entry_give_wide)(t, GM_ROLE_V, i, v);
}

/* As torch.optim.SGD */
GM_DEVICE void GM_E(gm_sgd)(const gm_update_args *a, const gm_entry *t, const gm_update_step *s, int64_t i, GM_R *p,
                            GM_R *g)
{
    const GM_R momentum = (GM_R)s->momentum, fresh = (GM_R)s->fresh, lr = (GM_R)s->lr, ahead = (GM_R)s->ahead;
    GM_R       b[GM_V];
    if (t->data[GM_ROLE_M]) {
        GM_E(gm_entry_take_wide)(t, GM_ROLE_M, i, b);
        GM_UNROLL for (int j = 0; j < GM_V; j++)
        {
            b[j] = (momentum == 0 ? 0 : momentum * b[j]) + fresh * g[j];
            g[j] = a->nesterov ? g[j] + ahead * b[j] : b[j];
        }
        GM_E(gm_entry_give_wide)(t, GM_ROLE_M, i, b);
    }
    GM_UNROLL for (int j = 0; j < GM_V; j++) p[j] -= lr * g[j];
}

GM_DEVICE void GM_E(gm_update_chunk)(const gm_update_args *a, const gm_entry *t, const gm_update_step *s, int64_t first)
{
    const int64_t end = first + GM_UPDATE_CHUNK < t->n ? first + GM_UPDATE_CHUNK : t->n;
    const GM_R    scale = (GM_R)s->scale, decay = (GM_R)s->weight_decay;
    for (int64_t i = first + gm_thread * GM_V; i < end; i += (int64_t)gm_block_size * GM_V) {
        GM_R p[GM_V], g[GM_V];
        GM_E(gm_entry_take)(t, GM_ROLE_G, i, g);
        if (t->data[GM_ROLE_MASTER]) GM_E(gm_entry_take_wide)(t, GM_ROLE_MASTER, i, p);
        else GM_E(gm_entry_take)(t, GM_ROLE_P, i, p);
        GM_UNROLL for (int j = 0; j < GM_V; j++) g[j] = g[j] * scale + decay * p[j];
        if (a->adam) GM_E(gm_adam)(a, t, s, i, p, g);
        else GM_E(gm_sgd)(a, t, s, i, p, g);
        if (t->data[GM_ROLE_MASTER]) GM_E(gm_entry_give_wide)(t, GM_ROLE_MASTER, i, p);
        GM_E(gm_entry_give)(a, t, i, p, s->step);
    }
}

GM_DEVICE void GM_E(gm_square_chunk)(const gm_entry *t, int64_t first, double *sum)
{
    const int64_t end = first + GM_UPDATE_CHUNK < t->n ? first + GM_UPDATE_CHUNK : t->n;
    for (int64_t i = first + gm_thread * GM_V; i < end; i += (int64_t)gm_block_size * GM_V) {
        GM_R g[GM_V];
        GM_E(gm_entry_take)(t, GM_ROLE_G, i, g);
        GM_UNROLL for (int j = 0; j < GM_V; j++) *sum += (double)g[j] * (double)g[j];
    }
}

#undef GM_WIDE_LANES
#undef GM_WIDE_PACKS

#include "rows_t_end.cuh"
