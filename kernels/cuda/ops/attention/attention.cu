/* attention.cu - attention and its gradient in tiles, for calls that cuDNN does not take (dnn.h): f32 and f64, and
 * heads of 16 bits that are too wide for attention_mma.cu. It follows FlashAttention-2 (Dao 2023). A block has a tile
 * of queries and goes over the keys. It keeps the largest score, the sum of exp and the weighted values so far, so
 * scores are never written to memory. One kernel computes the gradient of q, and another one those of k and v. Each
 * sums in one order, and no two blocks add to the same element. So does a third one with the gradient of a bias.
 *     gm_attention_<narrow or wide>_<dtype>, gm_attention_dq_.., gm_attention_dkv_.., gm_attention_dbias_... */
#include "attention.cuh"

#define GM_ROW (gm_thread / GM_ATTENTION_THREADS)
#define GM_COL (gm_thread % GM_ATTENTION_THREADS)

/* What dropout multiplies a probability with. */
GM_DEVICE double gm_attention_kept(const gm_attention_args *a, int64_t batch, int64_t head, int64_t i, int64_t j)
{
    if (!a->drop.threshold) return 1;
    const gm_attention_drops drops = gm_attention_drops_of(a, gm_attention_step(a), batch, head);
    return gm_attention_dropped(a, &drops, i, j) ? 0 : a->keep;
}

/* Sums and maxima of the 16 threads of a row. */
template <class R> GM_DEVICE R gm_row_sum(R v)
{
    for (int lanes = GM_ATTENTION_THREADS / 2; lanes; lanes /= 2) v += gm_shuffle_xor(v, lanes);
    return v;
}
template <class R> GM_DEVICE R gm_row_max(R v)
{
    for (int lanes = GM_ATTENTION_THREADS / 2; lanes; lanes /= 2) {
        R other = gm_shuffle_xor(v, lanes);
        v = other > v ? other : v;
    }
    return v;
}

/* Templates: T the type of elements, EACH queries, and keys, of a thread, COLUMNS numbers of a head that a thread has.
 * Thread (r, c) of a tile has rows r EACH and the next ones, and keys and numbers c, c + 16, ... Tiles in shared memory
 * have rows of `pitch` numbers, an odd number of them, so that threads which read down a column do not collide. */
template <int EACH> constexpr int  SIDE = (GM_ATTENTION_THREADS * EACH);
template <int EACH> constexpr bool LIMITED = EACH < 4;     /* else attention.c takes the kernel of wide heads */
template <int EACH> constexpr int  CROSS = SIDE<EACH> + 1; /* numbers of a row of a tile of queries by keys */

/* Rows from `first` on of a head; zeros behind the last one, and for keys that are masked, which may be NaN. */
template <class T, int EACH, class R = gm_real<T>>
GM_DEVICE void gm_attention_load(R *tile, const gm_attention_args *a, const gm_attention_view *x, int64_t batch,
                                 int64_t head, int64_t first, int64_t rows, bool keys)
{
    const T *from = (const T *)x->data + batch * x->stride[0] + head * x->stride[2];
    int      pitch = a->size | 1, warps = GM_ATTENTION_THREADS * GM_ATTENTION_THREADS / GM_WARP;
    for (int r = gm_thread / GM_WARP; r < SIDE<EACH>; r += warps) {
        int64_t row = first + r;
        bool    there = row < rows && (!keys || gm_attention_unmasked(a, batch, row));
        for (int l = gm_thread % GM_WARP; l < a->size; l += GM_WARP)
            tile[r * pitch + l] = there ? gm_get(from[row * x->stride[1] + l]) : 0;
    }
}

/* s[i][j] = row i of x times row j of y */
template <int EACH, class R> GM_DEVICE void gm_attention_products(R (&s)[EACH][EACH], const R *x, const R *y, int size)
{
    int pitch = size | 1;
    GM_UNROLL
    for (int i = 0; i < EACH; i++) {
        GM_UNROLL
        for (int j = 0; j < EACH; j++) s[i][j] = 0;
    }
    for (int l = 0; l < size; l++) {
        R u[EACH], v[EACH];
        GM_UNROLL
        for (int i = 0; i < EACH; i++) {
            u[i] = x[(GM_ROW * EACH + i) * pitch + l];
            v[i] = y[(GM_COL + GM_ATTENTION_THREADS * i) * pitch + l];
        }
        GM_UNROLL
        for (int i = 0; i < EACH; i++) {
            GM_UNROLL
            for (int j = 0; j < EACH; j++) s[i][j] += u[i] * v[j];
        }
    }
}

/* sum[i] += the rows of x by the weights w[i][..], or w[..][i] where turned. What has no weight is left out: it may be
 * NaN. */
template <int EACH, int COLUMNS, class R>
GM_DEVICE void gm_attention_weigh(R (&sum)[EACH][COLUMNS], const R *w, bool is_turned, const R *x, int size)
{
    int pitch = size | 1, row_step = is_turned ? 1 : CROSS<EACH>, step = is_turned ? CROSS<EACH> : 1;
    for (int k = 0; k < SIDE<EACH>; k++) {
        R v[COLUMNS];
        GM_UNROLL
        for (int c = 0; c < COLUMNS; c++) {
            int l = GM_COL + GM_ATTENTION_THREADS * c;
            v[c] = l < size ? x[k * pitch + l] : 0;
        }
        GM_UNROLL
        for (int i = 0; i < EACH; i++) {
            R weight = w[(GM_ROW * EACH + i) * row_step + k * step];
            if (weight == 0) continue;
            GM_UNROLL
            for (int c = 0; c < COLUMNS; c++) sum[i][c] += weight * v[c];
        }
    }
}

/* y = old times what is there (where old is not 0) + by sum, for row `row` of a head. */
template <class T, int COLUMNS, class R = gm_real<T>>
GM_DEVICE void gm_attention_store(const gm_attention_args *a, const gm_attention_view *y, int64_t batch, int64_t head,
                                  int64_t row, const R (&sum)[COLUMNS], gm_real<T> old, gm_real<T> by)
{
    T *to = (T *)y->data + batch * y->stride[0] + row * y->stride[1] + head * y->stride[2];
    GM_UNROLL
    for (int c = 0; c < COLUMNS; c++) {
        int l = GM_COL + GM_ATTENTION_THREADS * c;
        if (l >= a->size) continue;
        T *at = to + l * y->stride[3];
        R  v = by * sum[c];
        if (old != 0) v += old * gm_get(*at);
        *at = gm_put<T>(v);
    }
}

/* ---- forward ---- */

/* What a row of queries knows so far. */
template <class R> struct gm_attention_row {
    R largest, total;
};

/* The scores of query i become weights in w; what was summed up is scaled to the new largest score. */
template <class T, int EACH, int COLUMNS, class R>
GM_DEVICE void gm_attention_soften(const gm_attention_args *a, const gm_attention_place *p, int64_t i, int64_t key,
                                   R (&s)[EACH], gm_attention_row<R> *row, R (&sum)[COLUMNS], R *w)
{
    R most = -INFINITY, total = 0;
    GM_UNROLL
    for (int j = 0; j < EACH; j++) {
        bool seen = gm_attention_visible<LIMITED<EACH>>(a, p->batch, i, key + GM_COL + GM_ATTENTION_THREADS * j);
        s[j] = seen ? gm_attention_capped(a, (R)a->scale * s[j]) : -INFINITY;
        if (LIMITED<EACH> && seen)
            s[j] += gm_attention_bias<T>(a, p->batch, p->head, i, key + GM_COL + GM_ATTENTION_THREADS * j);
        most = s[j] > most ? s[j] : most;
    }
    most = gm_row_max(most);
    most = row->largest > most ? row->largest : most;
    R before = most == -INFINITY ? 1 : exp(row->largest - most);
    GM_UNROLL
    for (int j = 0; j < EACH; j++) {
        int column = GM_COL + GM_ATTENTION_THREADS * j;
        R   weight = s[j] == -INFINITY ? 0 : exp(s[j] - most);
        total += weight;
        w[column] = weight != 0 ? weight * (R)gm_attention_kept(a, p->batch, p->head, i, key + column) : 0;
    }
    row->largest = most;
    row->total = before * row->total + gm_row_sum(total);
    GM_UNROLL
    for (int c = 0; c < COLUMNS; c++) sum[c] *= before;
}

/* o and lse of query i; lse_before: what lse held, where that counts. */
template <class T, int COLUMNS, class R = gm_real<T>>
GM_DEVICE void gm_attention_end_row(const gm_attention_args *a, const gm_attention_place *p, int64_t i,
                                    const gm_attention_row<R> *row, const R (&sum)[COLUMNS], R lse_before)
{
    R lse = row->total == 0 ? -INFINITY : row->largest + log(row->total), both = lse, old = 0;
    R by = row->total == 0 ? 0 : 1 / row->total;
    if (a->accumulate) {
        R most = lse > lse_before ? lse : lse_before;
        old = 1;
        if (most != -INFINITY) {
            both = most + log(exp(lse_before - most) + exp(lse - most));
            old = exp(lse_before - both);
            by *= exp(lse - both);
        }
    }
    gm_attention_store<T>(a, &a->o, p->batch, p->head, i, sum, old, by);
    if (GM_COL == 0) ((R *)a->lse)[gm_attention_lse_at(a, p->batch, p->head, i)] = both;
}

template <class T, int EACH, int COLUMNS, class R = gm_real<T>> GM_DEVICE void gm_attention(const gm_attention_args a)
{
    GM_SHARED(R, qs);
    R                       *ks = qs + SIDE<EACH> * (a.size | 1), *ws = ks + SIDE<EACH> * (a.size | 1);
    const gm_attention_place p = gm_attention_place_of(a.queries, a.heads, SIDE<EACH>);
    const int64_t            key_head = p.head / (a.heads / a.key_heads);
    const gm_attention_range keys = gm_attention_range_of<LIMITED<EACH>>(&a, p.batch, p.first, SIDE<EACH>);
    gm_attention_row<R>      row[EACH];
    R                        sum[EACH][COLUMNS] = {{0}}, s[EACH][EACH], before[EACH];
    GM_UNROLL
    for (int i = 0; i < EACH; i++) {
        int64_t at = p.first + GM_ROW * EACH + i;
        row[i].largest = -INFINITY;
        row[i].total = before[i] = 0;
        if (a.accumulate && at < a.queries)
            before[i] = ((const R *)a.lse)[gm_attention_lse_at(&a, p.batch, p.head, at)];
    }
    gm_attention_load<T, EACH>(qs, &a, &a.q, p.batch, p.head, p.first, a.queries, false);
    for (int64_t key = keys.start; key < keys.end; key += SIDE<EACH>) {
        gm_attention_load<T, EACH>(ks, &a, &a.k, p.batch, key_head, key, a.keys, true);
        GM_SYNC();
        gm_attention_products(s, qs, ks, a.size);
        GM_SYNC();
        gm_attention_load<T, EACH>(ks, &a, &a.v, p.batch, key_head, key, a.keys, true);
        GM_UNROLL
        for (int i = 0; i < EACH; i++) {
            int r = GM_ROW * EACH + i;
            gm_attention_soften<T>(&a, &p, p.first + r, key, s[i], &row[i], sum[i], ws + r * CROSS<EACH>);
        }
        GM_SYNC();
        gm_attention_weigh(sum, ws, false, ks, a.size);
        GM_SYNC();
    }
    GM_SYNC(); /* all have read lse */
    GM_UNROLL
    for (int i = 0; i < EACH; i++) {
        int64_t at = p.first + GM_ROW * EACH + i;
        if (at < a.queries) gm_attention_end_row<T>(&a, &p, at, &row[i], sum[i], before[i]);
    }
}

/* ---- backward ---- */

/* The gradient of a pair's product q k from its score and its probability before dropout. */
template <class R>
GM_DEVICE R gm_attention_slope(const gm_attention_args *a, R score, R probability, R dp, R delta, R keep)
{
    return probability * (keep * dp - delta) * gm_attention_cap_slope(a, score) * (R)a->scale;
}

/* The probability, before dropout, of a key that query i sees. */
template <class T, int EACH, class R = gm_real<T>>
GM_DEVICE R gm_attention_probability(const gm_attention_args *a, int64_t batch, int64_t head, int64_t i, int64_t j,
                                     gm_real<T> score, gm_real<T> lse)
{
    if (!LIMITED<EACH>) return exp(score - lse);
    const R bias = gm_attention_bias<T>(a, batch, head, i, j);
    return bias == -INFINITY ? 0 : exp(score + bias - lse);
}

/* The sum of g o of a query: its 16 threads get it. */
template <class T, class R = gm_real<T>>
GM_DEVICE R gm_attention_delta(const gm_attention_args *a, const gm_attention_place *p, int64_t i)
{
    R sum = 0;
    if (i < a->queries) {
        const gm_attention_view *o = &a->o, *g = &a->g;
        const T *os = (const T *)o->data + p->batch * o->stride[0] + i * o->stride[1] + p->head * o->stride[2];
        const T *gs = (const T *)g->data + p->batch * g->stride[0] + i * g->stride[1] + p->head * g->stride[2];
        for (int l = GM_COL; l < a->size; l += GM_ATTENTION_THREADS) sum += gm_get(os[l]) * gm_get(gs[l]);
    }
    return gm_row_sum(sum);
}

template <class T, int EACH, int COLUMNS, class R = gm_real<T>>
GM_DEVICE void gm_attention_dq(const gm_attention_args a)
{
    GM_SHARED(R, qs);
    const int                tile = SIDE<EACH> * (a.size | 1);
    R                       *gs = qs + tile, *ks = gs + tile, *vs = ks + tile, *ws = vs + tile;
    const gm_attention_place p = gm_attention_place_of(a.queries, a.heads, SIDE<EACH>);
    const int64_t            key_head = p.head / (a.heads / a.key_heads);
    const gm_attention_range keys = gm_attention_range_of<LIMITED<EACH>>(&a, p.batch, p.first, SIDE<EACH>);
    R                        sum[EACH][COLUMNS] = {{0}}, s[EACH][EACH], dp[EACH][EACH];
    R                        lse[EACH], delta[EACH];
    GM_UNROLL
    for (int i = 0; i < EACH; i++) {
        int64_t at = p.first + GM_ROW * EACH + i;
        delta[i] = gm_attention_delta<T>(&a, &p, at);
        lse[i] = 0;
        if (at >= a.queries) continue;
        lse[i] = ((const R *)a.lse)[gm_attention_lse_at(&a, p.batch, p.head, at)];
        if (GM_COL == 0) ((R *)a.delta)[(p.batch * a.heads + p.head) * a.queries + at] = delta[i];
    }
    gm_attention_load<T, EACH>(qs, &a, &a.q, p.batch, p.head, p.first, a.queries, false);
    gm_attention_load<T, EACH>(gs, &a, &a.g, p.batch, p.head, p.first, a.queries, false);
    if (LIMITED<EACH>) gm_attention_tell(&a, p.batch, p.head, p.first, SIDE<EACH>);
    for (int64_t key = keys.start; key < keys.end; key += SIDE<EACH>) {
        gm_attention_load<T, EACH>(ks, &a, &a.k, p.batch, key_head, key, a.keys, true);
        gm_attention_load<T, EACH>(vs, &a, &a.v, p.batch, key_head, key, a.keys, true);
        GM_SYNC();
        gm_attention_products(s, qs, ks, a.size);
        gm_attention_products(dp, gs, vs, a.size);
        GM_UNROLL
        for (int i = 0; i < EACH; i++) {
            int64_t at = p.first + GM_ROW * EACH + i;
            GM_UNROLL
            for (int j = 0; j < EACH; j++) {
                int     column = GM_COL + GM_ATTENTION_THREADS * j;
                int64_t k = key + column;
                R       ds = 0;
                if (gm_attention_visible<LIMITED<EACH>>(&a, p.batch, at, k)) {
                    R score = gm_attention_capped(&a, (R)a.scale * s[i][j]);
                    R bias = LIMITED<EACH> ? gm_attention_bias<T>(&a, p.batch, p.head, at, k) : 0;
                    if (!LIMITED<EACH> || bias != -INFINITY)
                        ds = gm_attention_slope(&a, score, exp((LIMITED<EACH> ? score + bias : score) - lse[i]),
                                                dp[i][j], delta[i], (R)gm_attention_kept(&a, p.batch, p.head, at, k));
                }
                ws[(GM_ROW * EACH + i) * CROSS<EACH> + column] = ds;
            }
        }
        GM_SYNC();
        gm_attention_weigh(sum, ws, false, ks, a.size);
        GM_SYNC();
    }
    GM_UNROLL
    for (int i = 0; i < EACH; i++) {
        int64_t at = p.first + GM_ROW * EACH + i;
        if (at < a.queries) gm_attention_store<T>(&a, &a.dq, p.batch, p.head, at, sum[i], a.accumulate ? 1 : 0, 1);
    }
}

/* The weights of a tile of queries for a tile of keys: ws of g for dv, ds of q for dk; both as queries by keys. */
template <class T, int EACH, class R>
GM_DEVICE void gm_attention_weights(const gm_attention_args *a, const gm_attention_place *p, int64_t head,
                                    int64_t query, R (&s)[EACH][EACH], R (&dp)[EACH][EACH], R *ws, R *ds)
{
    GM_UNROLL
    for (int i = 0; i < EACH; i++) {
        int     r = GM_ROW * EACH + i;
        int64_t at = query + r;
        R       lse = 0, delta = 0;
        if (at < a->queries) {
            lse = ((const R *)a->lse)[gm_attention_lse_at(a, p->batch, head, at)];
            delta = ((const R *)a->delta)[(p->batch * a->heads + head) * a->queries + at];
        }
        GM_UNROLL
        for (int j = 0; j < EACH; j++) {
            int     column = GM_COL + GM_ATTENTION_THREADS * j;
            int64_t key = p->first + column;
            R       weight = 0, slope = 0;
            if (gm_attention_visible<LIMITED<EACH>>(a, p->batch, at, key)) {
                R keep = (R)gm_attention_kept(a, p->batch, head, at, key);
                R score = gm_attention_capped(a, (R)a->scale * s[i][j]);
                weight = gm_attention_probability<T, EACH>(a, p->batch, head, at, key, score, lse);
                slope = gm_attention_slope(a, score, weight, dp[i][j], delta, keep);
                weight *= keep;
            }
            ws[r * CROSS<EACH> + column] = weight;
            ds[r * CROSS<EACH> + column] = slope;
        }
    }
}

template <class T, int EACH, int COLUMNS, class R = gm_real<T>>
GM_DEVICE void gm_attention_dkv(const gm_attention_args a)
{
    GM_SHARED(R, ks);
    const int tile = SIDE<EACH> * (a.size | 1);
    R        *vs = ks + tile, *qs = vs + tile, *gs = qs + tile, *ws = gs + tile, *ds = ws + SIDE<EACH> * CROSS<EACH>;
    const gm_attention_place p = gm_attention_place_of(a.keys, a.key_heads, SIDE<EACH>);
    const int64_t            group = a.heads / a.key_heads;
    const gm_attention_range queries = gm_attention_queries_of<LIMITED<EACH>>(&a, p.batch, p.first, SIDE<EACH>,
                                                                              SIDE<EACH>, SIDE<EACH>);
    R                        dk[EACH][COLUMNS] = {{0}}, dv[EACH][COLUMNS] = {{0}};
    R                        s[EACH][EACH], dp[EACH][EACH];
    gm_attention_load<T, EACH>(ks, &a, &a.k, p.batch, p.head, p.first, a.keys, true);
    gm_attention_load<T, EACH>(vs, &a, &a.v, p.batch, p.head, p.first, a.keys, true);
    for (int64_t head = p.head * group; head < (p.head + 1) * group; head++)
        for (int64_t query = queries.start; query < queries.end; query += SIDE<EACH>) {
            gm_attention_load<T, EACH>(qs, &a, &a.q, p.batch, head, query, a.queries, false);
            gm_attention_load<T, EACH>(gs, &a, &a.g, p.batch, head, query, a.queries, false);
            GM_SYNC();
            gm_attention_products(s, qs, ks, a.size);
            gm_attention_products(dp, gs, vs, a.size);
            gm_attention_weights<T>(&a, &p, head, query, s, dp, ws, ds);
            GM_SYNC();
            gm_attention_weigh(dv, ws, true, gs, a.size);
            gm_attention_weigh(dk, ds, true, qs, a.size);
            GM_SYNC();
        }
    GM_UNROLL
    for (int i = 0; i < EACH; i++) {
        int64_t at = p.first + GM_ROW * EACH + i;
        if (at >= a.keys) continue;
        gm_attention_store<T>(&a, &a.dk, p.batch, p.head, at, dk[i], a.accumulate ? 1 : 0, 1);
        gm_attention_store<T>(&a, &a.dv, p.batch, p.head, at, dv[i], a.accumulate ? 1 : 0, 1);
    }
}

/* Adds to the slopes of a tile of queries by keys, which are those of the bias, what one sample gives them. */
template <class T, int EACH, class R>
GM_DEVICE void gm_attention_add_slopes(const gm_attention_args *a, const gm_attention_place *q, int64_t first_key,
                                       const R (&s)[EACH][EACH], const R (&dp)[EACH][EACH], R (&sum)[EACH][EACH])
{
    GM_UNROLL
    for (int i = 0; i < EACH; i++) {
        int64_t at = q->first + GM_ROW * EACH + i;
        if (at >= a->queries) continue;
        R lse = ((const R *)a->lse)[gm_attention_lse_at(a, q->batch, q->head, at)];
        R delta = ((const R *)a->delta)[(q->batch * a->heads + q->head) * a->queries + at];
        GM_UNROLL
        for (int j = 0; j < EACH; j++) {
            int64_t key = first_key + GM_COL + GM_ATTENTION_THREADS * j;
            if (!gm_attention_visible<LIMITED<EACH>>(a, q->batch, at, key)) continue;
            R score = gm_attention_capped(a, (R)a->scale * s[i][j]);
            R weight = gm_attention_probability<T, EACH>(a, q->batch, q->head, at, key, score, lse);
            sum[i][j] += weight * ((R)gm_attention_kept(a, q->batch, q->head, at, key) * dp[i][j] - delta);
        }
    }
}

/* A block has a tile of queries by keys of a head, and goes over the samples that share a bias. It runs behind the
 * kernel of dq, which leaves delta. */
template <class T, int EACH, class R = gm_real<T>> GM_DEVICE void gm_attention_dbias(const gm_attention_args a)
{
    GM_SHARED(R, qs);
    const int          tile = SIDE<EACH> * (a.size | 1);
    R                 *gs = qs + tile, *ks = gs + tile, *vs = ks + tile, s[EACH][EACH], dp[EACH][EACH];
    R                  sum[EACH][EACH] = {{0}};
    const int64_t      tiles = (a.keys + SIDE<EACH> - 1) / SIDE<EACH>, first_key = gm_block_x % tiles * SIDE<EACH>;
    const int64_t      rows = (a.queries + SIDE<EACH> - 1) / SIDE<EACH>, block = gm_block_x / tiles;
    gm_attention_place q = {block / rows / a.heads, block / rows % a.heads, block % rows * SIDE<EACH>};
    const int64_t      first = q.batch, key_head = q.head / (a.heads / a.key_heads);
    for (; q.batch < a.batch; q.batch += a.biases) {
        gm_attention_load<T, EACH>(qs, &a, &a.q, q.batch, q.head, q.first, a.queries, false);
        gm_attention_load<T, EACH>(gs, &a, &a.g, q.batch, q.head, q.first, a.queries, false);
        gm_attention_load<T, EACH>(ks, &a, &a.k, q.batch, key_head, first_key, a.keys, true);
        gm_attention_load<T, EACH>(vs, &a, &a.v, q.batch, key_head, first_key, a.keys, true);
        GM_SYNC();
        gm_attention_products(s, qs, ks, a.size);
        gm_attention_products(dp, gs, vs, a.size);
        gm_attention_add_slopes<T>(&a, &q, first_key, s, dp, sum);
        GM_SYNC();
    }
    GM_UNROLL
    for (int i = 0; i < EACH; i++) {
        int64_t at = q.first + GM_ROW * EACH + i;
        GM_UNROLL
        for (int j = 0; j < EACH; j++) {
            int64_t key = first_key + GM_COL + GM_ATTENTION_THREADS * j;
            if (at >= a.queries || key >= a.keys) continue;
            T *to = (T *)a.dbias + gm_attention_bias_at(&a, a.dbias_stride, first, q.head, at, key);
            *to = gm_put<T>(a.accumulate ? gm_get(*to) + sum[i][j] : sum[i][j]);
        }
    }
}

/* ---- the kernels, `blocks` of which run on a multiprocessor; narrow heads of 16 bits go to attention_mma.cu ---- */

#define GM_THREADS (GM_ATTENTION_THREADS * GM_ATTENTION_THREADS)
#define GM_ATTENTIONS(name, T, each, head, blocks)                                  \
    GM_KERNEL_BOUND(gm_attention_##name, gm_attention_args, GM_THREADS, blocks)     \
    {                                                                               \
        gm_attention<T, each, head / GM_ATTENTION_THREADS>(a);                      \
    }                                                                               \
    GM_KERNEL_BOUND(gm_attention_dq_##name, gm_attention_args, GM_THREADS, blocks)  \
    {                                                                               \
        gm_attention_dq<T, each, head / GM_ATTENTION_THREADS>(a);                   \
    }                                                                               \
    GM_KERNEL_BOUND(gm_attention_dkv_##name, gm_attention_args, GM_THREADS, blocks) \
    {                                                                               \
        gm_attention_dkv<T, each, head / GM_ATTENTION_THREADS>(a);                  \
    }

#define GM_ATTENTION_OF_BIAS(name, T, each) \
    GM_KERNEL_BOUND(gm_attention_dbias_##name, gm_attention_args, GM_THREADS, 1) { gm_attention_dbias<T, each>(a); }

GM_ATTENTIONS(narrow_f32, float, GM_ATTENTION_EACH_narrow_f32, GM_ATTENTION_NARROW, 2)
GM_ATTENTIONS(narrow_f64, double, GM_ATTENTION_EACH_narrow_f64, GM_ATTENTION_NARROW, 1) /* 2 would spill on sm_80 */
GM_ATTENTIONS(wide_f32, float, GM_ATTENTION_EACH_wide_f32, GM_ATTENTION_WIDE, 1)
GM_ATTENTIONS(wide_bf16, gm_bf16, GM_ATTENTION_EACH_wide_f32, GM_ATTENTION_WIDE, 1)
GM_ATTENTIONS(wide_f16, gm_f16, GM_ATTENTION_EACH_wide_f32, GM_ATTENTION_WIDE, 1)
GM_ATTENTIONS(wide_f64, double, GM_ATTENTION_EACH_wide_f64, GM_ATTENTION_WIDE, 1)
GM_ATTENTION_OF_BIAS(narrow_f64, double, GM_ATTENTION_EACH_narrow_f64)
GM_ATTENTION_OF_BIAS(wide_f32, float, GM_ATTENTION_EACH_wide_f32)
GM_ATTENTION_OF_BIAS(wide_bf16, gm_bf16, GM_ATTENTION_EACH_wide_f32)
GM_ATTENTION_OF_BIAS(wide_f16, gm_f16, GM_ATTENTION_EACH_wide_f32)
GM_ATTENTION_OF_BIAS(wide_f64, double, GM_ATTENTION_EACH_wide_f64)
