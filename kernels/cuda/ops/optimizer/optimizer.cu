/* optimizer.cu - sum_squares and the optimizers over many tensors of any dtypes in one launch. Learning rate, clip,
 * loss scale and step number are read from the step block on the device. Arithmetic is in f32 (f64 for f64),
 * constants of the step are worked out in f64; squares are summed in f64, a sum for each chunk, then all in order. */
#include "optimizer.cuh"

/* Packs of the type of arithmetic that V elements take. */
template <class T> constexpr int WIDE = gm_lanes<T> / gm_lanes<gm_real<T>>;

/* A pack of every role. Loads come first, all of them, so that they are under way together. */
template <class T> struct gm_entry_packs {
    gm_vector g, p, wide[GM_ROLES][WIDE<T>]; /* wide: of the roles that have the type of arithmetic */
};

template <class T, class R = gm_real<T>>
GM_DEVICE void gm_entry_load_wide(const gm_entry_held *t, int role, int64_t i, gm_entry_packs<T> *x)
{
    const R *p = (const R *)t->data[role] + i;
    if (!t->data[role]) return;
    GM_UNROLL for (int k = 0; k < WIDE<T>; k++) x->wide[role][k] = gm_load_vector(p + k * gm_lanes<R>);
}

template <class T, class R = gm_real<T>>
GM_DEVICE void gm_entry_store_wide(const gm_entry_held *t, int role, int64_t i, const gm_entry_packs<T> *x)
{
    R *p = (R *)t->data[role] + i;
    if (!t->data[role]) return;
    GM_UNROLL for (int k = 0; k < WIDE<T>; k++) gm_store_vector(p + k * gm_lanes<R>, x->wide[role][k]);
}

/* The same where a pack is not whole or has gaps, element by element; zeros behind the end. */
template <class T, int V = gm_lanes<T>> GM_DEVICE gm_vector gm_entry_gather(const gm_entry_held *t, int role, int64_t i)
{
    const T      *p = (const T *)t->data[role];
    gm_pack_of<T> u = {{{0}}};
    GM_ROLLED for (int j = 0; j < V; j++)
        gm_push<V>(u.x, i + j < t->n ? p[gm_entry_place(t->entry, role, i + j)] : gm_put<T>(0));
    return u.v;
}

template <class T, int V = gm_lanes<T>>
GM_DEVICE void gm_entry_scatter(const gm_entry_held *t, int role, int64_t i, gm_vector v)
{
    T            *p = (T *)t->data[role];
    gm_pack_of<T> u;
    u.v = v;
    GM_ROLLED for (int j = 0; j < V; j++)
    {
        if (i + j < t->n) p[gm_entry_place(t->entry, role, i + j)] = u.x[0];
        gm_push<V>(u.x, u.x[0]);
    }
}

template <class T> union gm_wide_of {
    gm_vector  v[WIDE<T>];
    gm_real<T> x[gm_lanes<T>];
};

template <class T, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_entry_gather_wide(const gm_entry_held *t, int role, int64_t i, gm_entry_packs<T> *x)
{
    const R      *p = (const R *)t->data[role];
    gm_wide_of<T> u = {{{{0}}}};
    if (!p) return;
    GM_ROLLED for (int j = 0; j < V; j++) gm_push<V>(u.x, i + j < t->n ? p[gm_entry_place(t->entry, role, i + j)] : 0);
    GM_UNROLL for (int k = 0; k < WIDE<T>; k++) x->wide[role][k] = u.v[k];
}

template <class T, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_entry_scatter_wide(const gm_entry_held *t, int role, int64_t i, const gm_entry_packs<T> *x)
{
    R            *p = (R *)t->data[role];
    gm_wide_of<T> u;
    if (!p) return;
    GM_UNROLL for (int k = 0; k < WIDE<T>; k++) u.v[k] = x->wide[role][k];
    GM_ROLLED for (int j = 0; j < V; j++)
    {
        if (i + j < t->n) p[gm_entry_place(t->entry, role, i + j)] = u.x[0];
        gm_push<V>(u.x, u.x[0]);
    }
}

/* ROLES: those before it are there. */
template <class T, int ROLES>
GM_DEVICE void gm_entry_load(const gm_entry_held *t, int whole, int64_t i, gm_entry_packs<T> *x)
{
    const int narrow = !t->data[GM_ROLE_MASTER]; /* p is read from itself */
    if (whole) {
        x->g = gm_load_vector((const T *)t->data[GM_ROLE_G] + i);
        if (narrow) x->p = gm_load_vector((const T *)t->data[GM_ROLE_P] + i);
        GM_UNROLL for (int role = GM_ROLE_MASTER; role < ROLES; role++) gm_entry_load_wide<T>(t, role, i, x);
    } else {
        x->g = gm_entry_gather<T>(t, GM_ROLE_G, i);
        if (narrow) x->p = gm_entry_gather<T>(t, GM_ROLE_P, i);
        GM_UNROLL for (int role = GM_ROLE_MASTER; role < ROLES; role++) gm_entry_gather_wide<T>(t, role, i, x);
    }
}

template <class T, int ROLES>
GM_DEVICE void gm_entry_store(const gm_entry_held *t, int whole, int64_t i, const gm_entry_packs<T> *x)
{
    if (whole) {
        gm_store_vector((T *)t->data[GM_ROLE_P] + i, x->p);
        GM_UNROLL for (int role = GM_ROLE_MASTER; role < ROLES; role++) gm_entry_store_wide<T>(t, role, i, x);
    } else {
        gm_entry_scatter<T>(t, GM_ROLE_P, i, x->p);
        GM_UNROLL for (int role = GM_ROLE_MASTER; role < ROLES; role++) gm_entry_scatter_wide<T>(t, role, i, x);
    }
}

template <class T, class R = gm_real<T>> GM_DEVICE void gm_wide_unpack(const gm_vector *v, R *x)
{
    GM_UNROLL for (int k = 0; k < WIDE<T>; k++) gm_unpack<R>(v[k], x + k * gm_lanes<R>);
}

template <class T, class R = gm_real<T>> GM_DEVICE void gm_wide_pack(gm_vector *v, const R *x)
{
    GM_UNROLL for (int k = 0; k < WIDE<T>; k++) v[k] = gm_pack<R>(x + k * gm_lanes<R>);
}

/* Elements i .. i + V of p, rounded to the nearest, or by chance with the words of these elements. */
template <class T, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE gm_vector gm_rounded(const gm_update_args *a, const gm_entry_held *t, int64_t i, const R *x, uint64_t step)
{
    gm_pack_of<T> u;
    gm_philox     words = {{0, 0, 0, 0}};
    if (a->stochastic && a->boxed) { /* elements that follow one another here may not do so there */
        GM_UNROLL for (int j = 0; j < V; j++)
            u.x[j] = gm_chance<T>(x[j], gm_philox_word(a->key, gm_entry_index(a, t->entry, i + j), step));
        return u.v;
    }
    GM_UNROLL for (int j = 0; j < V; j++)
    {
        if (a->stochastic && j % 4 == 0) words = gm_philox_at(a->key, (uint64_t)(i + j) / 4, step);
        u.x[j] = a->stochastic ? gm_chance<T>(x[j], words.v[j % 4]) : gm_put<T>(x[j]);
    }
    return u.v;
}

/* A pack's gradients, weights and moments in the type of arithmetic: m[k] of element j is m[j][k]. */
template <class T, class R = gm_real<T>, int V = gm_lanes<T>> struct gm_elements {
    R g[V], p[V], m[V][GM_UPDATE_MOMENTS];
};

template <class T, int MOMENTS, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_elements_load(const gm_entry_held *t, const gm_update_numbers<R> *c, int whole, int64_t i,
                                gm_entry_packs<T> *packs, gm_elements<T> *x)
{
    R m[V];
    gm_entry_load<T, GM_ROLE_MOMENT + MOMENTS>(t, whole, i, packs);
    gm_unpack<T>(packs->g, x->g);
    if (t->data[GM_ROLE_MASTER]) gm_wide_unpack<T>(packs->wide[GM_ROLE_MASTER], x->p);
    else gm_unpack<T>(packs->p, x->p);
    GM_UNROLL for (int k = 0; k < MOMENTS; k++)
    {
        if (!t->data[GM_ROLE_MOMENT + k]) continue;
        gm_wide_unpack<T>(packs->wide[GM_ROLE_MOMENT + k], m);
        GM_UNROLL for (int j = 0; j < V; j++) x->m[j][k] = m[j];
    }
    GM_UNROLL for (int j = 0; j < V; j++) x->g[j] *= c->scale;
}

template <class T, int MOMENTS, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_moments_store(const gm_entry_held *t, const gm_elements<T> *x, gm_entry_packs<T> *packs)
{
    R m[V];
    GM_UNROLL for (int k = 0; k < MOMENTS; k++)
    {
        if (!t->data[GM_ROLE_MOMENT + k]) continue;
        GM_UNROLL for (int j = 0; j < V; j++) m[j] = x->m[j][k];
        gm_wide_pack<T>(packs->wide[GM_ROLE_MOMENT + k], m);
    }
}

/* One chunk of a tensor. Where sums are asked for (a->part), nothing is written: the squares of weights are added to
 * sums[0], those of updates or, before there is a direction, of gradients to sums[1]. Both are one loop, because the
 * loads and the direction of each dtype are most of what is to compile. */
template <class T, int OP, class R = gm_real<T>, int V = gm_lanes<T>>
GM_DEVICE void gm_update_chunk(const gm_update_args *a, const gm_entry_held *t, const gm_update_step *s, double *sums)
{
    constexpr int              MOMENTS = gm_moments<OP>();
    const gm_update_numbers<R> c = gm_numbers_of<R>(a, s);
    const int                  plain = a->part && a->trust.kind != GM_TRUST_LAMB;
    const int64_t              end = t->first + GM_UPDATE_CHUNK < t->n ? t->first + GM_UPDATE_CHUNK : t->n;
    for (int64_t i = t->first + gm_thread * V; i < end; i += (int64_t)gm_block_size * V) {
        const int         whole = t->vectors && i + V <= t->n;
        gm_entry_packs<T> packs;
        gm_elements<T>    x;
        gm_elements_load<T, MOMENTS>(t, &c, whole, i, &packs, &x);
        GM_UNROLL for (int j = 0; j < V; j++)
        {
            const R g = (x.g[j] + c.l2 * x.p[j]) * c.before;
            const R u = plain ? x.g[j] : gm_direction<OP>(&c, g, x.m[j]) + c.outside * x.p[j];
            if (!a->part) {
                x.p[j] = x.p[j] * c.decay - c.after * u;
            } else if (i + j < t->n) {
                sums[0] += (double)x.p[j] * (double)x.p[j];
                sums[1] += (double)u * (double)u;
            }
        }
        if (a->part) continue;
        gm_moments_store<T, MOMENTS>(t, &x, &packs);
        if (t->data[GM_ROLE_MASTER]) gm_wide_pack<T>(packs.wide[GM_ROLE_MASTER], x.p);
        packs.p = gm_rounded<T>(a, t, i, x.p, s->step);
        gm_entry_store<T, GM_ROLE_MOMENT + MOMENTS>(t, whole, i, &packs);
    }
}

template <class T, class R = gm_real<T>, int V = gm_lanes<T>> GM_DEVICE void gm_square_pack(gm_vector v, double *sum)
{
    R g[V];
    gm_unpack<T>(v, g);
    GM_UNROLL for (int j = 0; j < V; j++) *sum += (double)g[j] * (double)g[j];
}

constexpr int HELD = 4;

template <class T, int V = gm_lanes<T>> GM_DEVICE void gm_square_chunk(const gm_entry_held *t, double *sum)
{
    const T      *g = (const T *)t->data[GM_ROLE_G];
    const int64_t end = t->first + GM_UPDATE_CHUNK < t->n ? t->first + GM_UPDATE_CHUNK : t->n;
    const int64_t step = (int64_t)gm_block_size * V;
    int64_t       i = t->first + gm_thread * V;
    if (!t->vectors || end % V) {
        for (; i < end; i += step) gm_square_pack<T>(gm_entry_gather<T>(t, GM_ROLE_G, i), sum);
        return;
    }
    for (; i < end; i += HELD * step) {
        gm_vector held[HELD];
        GM_UNROLL for (int k = 0; k < HELD; k++) if (i + k * step < end) held[k] = gm_load_vector(g + i + k * step);
        GM_UNROLL for (int k = 0; k < HELD; k++) if (i + k * step < end) gm_square_pack<T>(held[k], sum);
    }
}

template <int OP> GM_DEVICE void gm_update_block(const gm_update_args *a)
{
    GM_SHARED(double, scratch);
    double          sums[2] = {0, 0};
    gm_update_step *step = (gm_update_step *)(scratch + GM_SUM_WORDS);
    const gm_entry *t = gm_entry_here(a);
    gm_update_prepare(a, t, step);
    if (!a->part && !step->go) return;
    const gm_entry_held held = gm_entry_hold(t);
#define GM_UPDATE(T) gm_update_chunk<T, OP>(a, &held, step, sums)
    GM_FOR_DTYPE(t->dtype, GM_UPDATE);
#undef GM_UPDATE
    if (a->part) gm_update_sums(a, sums, scratch);
}

#define GM_OPTIMIZER(name, ...) \
    GM_KERNEL(gm_update_##name, gm_update_args) { gm_update_block<(int)GM_OP_##name>(&a); }
#include "../../../optimizers.def"
#undef GM_OPTIMIZER

/* The sums of an entry's chunks, in order: two threads of a block for each entry. */
GM_KERNEL(gm_measure_join, gm_update_args)
{
    const gm_entry *t = &a.entries[gm_block_x];
    double          sum = 0;
    if (gm_thread > 1) return;
    const int64_t end = gm_block_x + 1 < a.count ? t[1].chunk : a.chunks;
    for (int64_t k = t->chunk; k < end; k++) sum += a.part[2 * k + gm_thread];
    t->trust[gm_thread * t->trust_stride] = sum;
}

GM_KERNEL(gm_sum_squares, gm_update_args)
{
    GM_SHARED(double, scratch);
    double              sum = 0;
    const gm_entry     *t = gm_entry_here(&a);
    const gm_entry_held held = gm_entry_hold(t);
#define GM_SQUARES(T) gm_square_chunk<T>(&held, &sum)
    GM_FOR_DTYPE(t->dtype, GM_SQUARES);
#undef GM_SQUARES
    sum = gm_block_sum(sum, scratch);
    if (gm_thread == 0) a.part[gm_block_x] = sum;
}

/* y = the sum of part: one block */
GM_KERNEL(gm_sum_squares_join, gm_join_args)
{
    GM_SHARED(double, scratch);
    double sum = 0;
    for (int64_t i = gm_thread; i < a.n; i += gm_block_size) sum += a.part[i];
    sum = gm_block_sum(sum, scratch);
    if (gm_thread == 0) *a.y = sum;
}

/* One thread: a few numbers, added up in order. */
GM_KERNEL(gm_step_control, gm_control_args)
{
    double c[GM_CONTROL_SIZE], total = 0;
    if (gm_thread != 0) return;
    for (int64_t k = 0; k < a.count; k++) {
        double sum = 0;
        for (int64_t i = 0; i < a.squares[k].n; i++) sum += a.squares[k].data[i * a.squares[k].stride];
        total += sum;
    }
    GM_UNROLL for (int i = 0; i < GM_CONTROL_SIZE; i++) c[i] = a.control[i * a.stride];
    gm_control_apply(c, &a.rule, a.loss[0], a.loss[a.loss_stride], a.loss[2 * a.loss_stride],
                     a.norm ? *a.norm : sqrt(total), a.refusal && a.refusal->count != 0);
    for (int i = 0; i < GM_CONTROL_SIZE; i++) a.control[i * a.stride] = c[i];
}
