/* attention_tile_t.cuh - the kernels for one type (attention_t.cuh) and one width of heads:
 *   GM_EACH  queries, and keys, of a thread    GM_COLUMNS  numbers of a head that a thread has
 *   GM_NAME(base)  a name of its own for each inclusion
 * Thread (r, c) of a tile has rows r GM_EACH and the next ones, and keys and numbers c, c + 16, ... Tiles in shared
 * memory have rows of `pitch` numbers, an odd number of them, so that threads which read down a column do not
 * collide. */

#define GM_SIDE  (GM_ATTENTION_THREADS * GM_EACH)
#define GM_CROSS (GM_SIDE + 1) /* numbers of a row of a tile of queries by keys */

/* Rows from `first` on of a head; zeros behind the last one, and for keys that are masked, which may be NaN. */
GM_DEVICE void GM_NAME(gm_attention_load)(GM_R *tile, const gm_attention_args *a, const gm_attention_view *x,
                                          int64_t batch, int64_t head, int64_t first, int64_t rows, bool keys)
{
    const GM_T *from = (const GM_T *)x->data + batch * x->stride[0] + head * x->stride[2];
    int         pitch = a->size | 1, warps = GM_ATTENTION_THREADS * GM_ATTENTION_THREADS / GM_WARP;
    for (int r = gm_thread / GM_WARP; r < GM_SIDE; r += warps) {
        int64_t row = first + r;
        bool    there = row < rows && (!keys || gm_attention_unmasked(a, batch, row));
        for (int l = gm_thread % GM_WARP; l < a->size; l += GM_WARP)
            tile[r * pitch + l] = there ? GM_PASTE(gm_get, GM_D)(from[row * x->stride[1] + l]) : 0;
    }
}

/* s[i][j] = row i of x times row j of y */
GM_DEVICE void GM_NAME(gm_attention_products)(GM_R s[GM_EACH][GM_EACH], const GM_R *x, const GM_R *y, int size)
{
    int pitch = size | 1;
    GM_UNROLL
    for (int i = 0; i < GM_EACH; i++) {
        GM_UNROLL
        for (int j = 0; j < GM_EACH; j++) s[i][j] = 0;
    }
    for (int l = 0; l < size; l++) {
        GM_R u[GM_EACH], v[GM_EACH];
        GM_UNROLL
        for (int i = 0; i < GM_EACH; i++) {
            u[i] = x[(GM_ROW * GM_EACH + i) * pitch + l];
            v[i] = y[(GM_COL + GM_ATTENTION_THREADS * i) * pitch + l];
        }
        GM_UNROLL
        for (int i = 0; i < GM_EACH; i++) {
            GM_UNROLL
            for (int j = 0; j < GM_EACH; j++) s[i][j] += u[i] * v[j];
        }
    }
}

/* sum[i] += the rows of x by the weights w[i][..], or w[..][i] where turned. What has no weight is left out: it may be
 * NaN. */
GM_DEVICE void GM_NAME(gm_attention_weigh)(GM_R sum[GM_EACH][GM_COLUMNS], const GM_R *w, bool is_turned, const GM_R *x,
                                           int size)
{
    int pitch = size | 1, row_step = is_turned ? 1 : GM_CROSS, step = is_turned ? GM_CROSS : 1;
    for (int k = 0; k < GM_SIDE; k++) {
        GM_R v[GM_COLUMNS];
        GM_UNROLL
        for (int c = 0; c < GM_COLUMNS; c++) {
            int l = GM_COL + GM_ATTENTION_THREADS * c;
            v[c] = l < size ? x[k * pitch + l] : 0;
        }
        GM_UNROLL
        for (int i = 0; i < GM_EACH; i++) {
            GM_R weight = w[(GM_ROW * GM_EACH + i) * row_step + k * step];
            if (weight == 0) continue;
            GM_UNROLL
            for (int c = 0; c < GM_COLUMNS; c++) sum[i][c] += weight * v[c];
        }
    }
}

/* y = old times what is there (where old is not 0) + by sum, for row `row` of a head. */
GM_DEVICE void GM_NAME(gm_attention_store)(const gm_attention_args *a, const gm_attention_view *y, int64_t batch,
                                           int64_t head, int64_t row, const GM_R *sum, GM_R old, GM_R by)
{
    GM_T *to = (GM_T *)y->data + batch * y->stride[0] + row * y->stride[1] + head * y->stride[2];
    GM_UNROLL
    for (int c = 0; c < GM_COLUMNS; c++) {
        int l = GM_COL + GM_ATTENTION_THREADS * c;
        if (l >= a->size) continue;
        GM_T *at = to + l * y->stride[3];
        GM_R  v = by * sum[c];
        if (old != 0) v += old * GM_PASTE(gm_get, GM_D)(*at);
        *at = GM_PASTE(gm_put, GM_D)(v);
    }
}

/* ---- forward ---- */

/* What a row of queries knows so far. */
typedef struct GM_NAME(gm_attention_row) {
    GM_R largest, total;
} GM_NAME(gm_attention_row);

/* The scores of query i become weights in w; what was summed up is scaled to the new largest score. */
GM_DEVICE void GM_NAME(gm_attention_soften)(const gm_attention_args *a, const gm_attention_place *p, int64_t i,
                                            int64_t key, GM_R s[GM_EACH], GM_NAME(gm_attention_row) * row,
                                            GM_R sum[GM_COLUMNS], GM_R *w)
{
    GM_R most = -INFINITY, total = 0;
    GM_UNROLL
    for (int j = 0; j < GM_EACH; j++) {
        bool seen = gm_attention_visible(a, p->batch, i, key + GM_COL + GM_ATTENTION_THREADS * j);
        s[j] = seen ? (GM_R)a->scale * s[j] : -INFINITY;
        most = s[j] > most ? s[j] : most;
    }
    most = GM_PASTE(gm_row_max, GM_S)(most);
    most = row->largest > most ? row->largest : most;
    GM_R before = most == -INFINITY ? 1 : GM_M(exp)(row->largest - most);
    GM_UNROLL
    for (int j = 0; j < GM_EACH; j++) {
        int  column = GM_COL + GM_ATTENTION_THREADS * j;
        GM_R weight = s[j] == -INFINITY ? 0 : GM_M(exp)(s[j] - most);
        total += weight;
        w[column] = weight != 0 ? weight * (GM_R)gm_attention_kept(a, p->batch, p->head, i, key + column) : 0;
    }
    row->largest = most;
    row->total = before * row->total + GM_PASTE(gm_row_sum, GM_S)(total);
    GM_UNROLL
    for (int c = 0; c < GM_COLUMNS; c++) sum[c] *= before;
}

/* o and lse of query i; lse_before: what lse held, where that counts. */
GM_DEVICE void GM_NAME(gm_attention_end_row)(const gm_attention_args *a, const gm_attention_place *p, int64_t i,
                                             const GM_NAME(gm_attention_row) * row, const GM_R *sum, GM_R lse_before)
{
    GM_R lse = row->total == 0 ? -INFINITY : row->largest + GM_M(log)(row->total), both = lse, old = 0;
    GM_R by = row->total == 0 ? 0 : 1 / row->total;
    if (a->accumulate) {
        GM_R most = lse > lse_before ? lse : lse_before;
        old = 1;
        if (most != -INFINITY) {
            both = most + GM_M(log)(GM_M(exp)(lse_before - most) + GM_M(exp)(lse - most));
            old = GM_M(exp)(lse_before - both);
            by *= GM_M(exp)(lse - both);
        }
    }
    GM_NAME(gm_attention_store)(a, &a->o, p->batch, p->head, i, sum, old, by);
    if (GM_COL == 0) ((GM_R *)a->lse)[gm_attention_lse_at(a, p->batch, p->head, i)] = both;
}

GM_KERNEL_BOUND(GM_NAME(gm_attention), gm_attention_args, GM_ATTENTION_THREADS * GM_ATTENTION_THREADS, GM_BLOCKS)
{
    GM_SHARED(GM_R, qs);
    GM_R                    *ks = qs + GM_SIDE * (a.size | 1), *ws = ks + GM_SIDE * (a.size | 1);
    const gm_attention_place p = gm_attention_place_of(a.queries, a.heads, GM_SIDE);
    const int64_t key_head = p.head / (a.heads / a.key_heads), end = gm_attention_end(&a, p.first + GM_SIDE - 1);
    GM_NAME(gm_attention_row) row[GM_EACH];
    GM_R sum[GM_EACH][GM_COLUMNS] = {{0}}, s[GM_EACH][GM_EACH], before[GM_EACH];
    GM_UNROLL
    for (int i = 0; i < GM_EACH; i++) {
        int64_t at = p.first + GM_ROW * GM_EACH + i;
        row[i].largest = -INFINITY;
        row[i].total = before[i] = 0;
        if (a.accumulate && at < a.queries)
            before[i] = ((const GM_R *)a.lse)[gm_attention_lse_at(&a, p.batch, p.head, at)];
    }
    GM_NAME(gm_attention_load)(qs, &a, &a.q, p.batch, p.head, p.first, a.queries, false);
    for (int64_t key = 0; key < end; key += GM_SIDE) {
        GM_NAME(gm_attention_load)(ks, &a, &a.k, p.batch, key_head, key, a.keys, true);
        GM_SYNC();
        GM_NAME(gm_attention_products)(s, qs, ks, a.size);
        GM_SYNC();
        GM_NAME(gm_attention_load)(ks, &a, &a.v, p.batch, key_head, key, a.keys, true);
        GM_UNROLL
        for (int i = 0; i < GM_EACH; i++) {
            int r = GM_ROW * GM_EACH + i;
            GM_NAME(gm_attention_soften)(&a, &p, p.first + r, key, s[i], &row[i], sum[i], ws + r * GM_CROSS);
        }
        GM_SYNC();
        GM_NAME(gm_attention_weigh)(sum, ws, false, ks, a.size);
        GM_SYNC();
    }
    GM_SYNC(); /* all have read lse */
    GM_UNROLL
    for (int i = 0; i < GM_EACH; i++) {
        int64_t at = p.first + GM_ROW * GM_EACH + i;
        if (at < a.queries) GM_NAME(gm_attention_end_row)(&a, &p, at, &row[i], sum[i], before[i]);
    }
}

/* ---- backward ---- */

/* The gradient of a pair's score q k from its probability before dropout. */
GM_DEVICE GM_R GM_NAME(gm_attention_slope)(const gm_attention_args *a, GM_R probability, GM_R dp, GM_R delta, GM_R keep)
{
    return probability * (keep * dp - delta) * (GM_R)a->scale;
}

/* The sum of g o of a query: its 16 threads get it. */
GM_DEVICE GM_R GM_NAME(gm_attention_delta)(const gm_attention_args *a, const gm_attention_place *p, int64_t i)
{
    GM_R sum = 0;
    if (i < a->queries) {
        const gm_attention_view *o = &a->o, *g = &a->g;
        const GM_T *os = (const GM_T *)o->data + p->batch * o->stride[0] + i * o->stride[1] + p->head * o->stride[2];
        const GM_T *gs = (const GM_T *)g->data + p->batch * g->stride[0] + i * g->stride[1] + p->head * g->stride[2];
        for (int l = GM_COL; l < a->size; l += GM_ATTENTION_THREADS)
            sum += GM_PASTE(gm_get, GM_D)(os[l]) * GM_PASTE(gm_get, GM_D)(gs[l]);
    }
    return GM_PASTE(gm_row_sum, GM_S)(sum);
}

GM_KERNEL_BOUND(GM_NAME(gm_attention_dq), gm_attention_args, GM_ATTENTION_THREADS * GM_ATTENTION_THREADS, GM_BLOCKS)
{
    GM_SHARED(GM_R, qs);
    const int                tile = GM_SIDE * (a.size | 1);
    GM_R                    *gs = qs + tile, *ks = gs + tile, *vs = ks + tile, *ws = vs + tile;
    const gm_attention_place p = gm_attention_place_of(a.queries, a.heads, GM_SIDE);
    const int64_t key_head = p.head / (a.heads / a.key_heads), end = gm_attention_end(&a, p.first + GM_SIDE - 1);
    GM_R          sum[GM_EACH][GM_COLUMNS] = {{0}}, s[GM_EACH][GM_EACH], dp[GM_EACH][GM_EACH];
    GM_R          lse[GM_EACH], delta[GM_EACH];
    GM_UNROLL
    for (int i = 0; i < GM_EACH; i++) {
        int64_t at = p.first + GM_ROW * GM_EACH + i;
        delta[i] = GM_NAME(gm_attention_delta)(&a, &p, at);
        lse[i] = 0;
        if (at >= a.queries) continue;
        lse[i] = ((const GM_R *)a.lse)[gm_attention_lse_at(&a, p.batch, p.head, at)];
        if (GM_COL == 0) ((GM_R *)a.delta)[(p.batch * a.heads + p.head) * a.queries + at] = delta[i];
    }
    GM_NAME(gm_attention_load)(qs, &a, &a.q, p.batch, p.head, p.first, a.queries, false);
    GM_NAME(gm_attention_load)(gs, &a, &a.g, p.batch, p.head, p.first, a.queries, false);
    for (int64_t key = 0; key < end; key += GM_SIDE) {
        GM_NAME(gm_attention_load)(ks, &a, &a.k, p.batch, key_head, key, a.keys, true);
        GM_NAME(gm_attention_load)(vs, &a, &a.v, p.batch, key_head, key, a.keys, true);
        GM_SYNC();
        GM_NAME(gm_attention_products)(s, qs, ks, a.size);
        GM_NAME(gm_attention_products)(dp, gs, vs, a.size);
        GM_UNROLL
        for (int i = 0; i < GM_EACH; i++) {
            int64_t at = p.first + GM_ROW * GM_EACH + i;
            GM_UNROLL
            for (int j = 0; j < GM_EACH; j++) {
                int     column = GM_COL + GM_ATTENTION_THREADS * j;
                int64_t k = key + column;
                GM_R    ds = 0;
                if (gm_attention_visible(&a, p.batch, at, k))
                    ds = GM_NAME(gm_attention_slope)(&a, GM_M(exp)((GM_R)a.scale * s[i][j] - lse[i]), dp[i][j],
                                                     delta[i], (GM_R)gm_attention_kept(&a, p.batch, p.head, at, k));
                ws[(GM_ROW * GM_EACH + i) * GM_CROSS + column] = ds;
            }
        }
        GM_SYNC();
        GM_NAME(gm_attention_weigh)(sum, ws, false, ks, a.size);
        GM_SYNC();
    }
    GM_UNROLL
    for (int i = 0; i < GM_EACH; i++) {
        int64_t at = p.first + GM_ROW * GM_EACH + i;
        if (at < a.queries)
            GM_NAME(gm_attention_store)(&a, &a.dq, p.batch, p.head, at, sum[i], a.accumulate ? 1 : 0, 1);
    }
}

/* The weights of a tile of queries for a tile of keys: ws of g for dv, ds of q for dk; both as queries by keys. */
GM_DEVICE void GM_NAME(gm_attention_weights)(const gm_attention_args *a, const gm_attention_place *p, int64_t head,
                                             int64_t query, GM_R s[GM_EACH][GM_EACH], GM_R dp[GM_EACH][GM_EACH],
                                             GM_R *ws, GM_R *ds)
{
    GM_UNROLL
    for (int i = 0; i < GM_EACH; i++) {
        int     r = GM_ROW * GM_EACH + i;
        int64_t at = query + r;
        GM_R    lse = 0, delta = 0;
        if (at < a->queries) {
            lse = ((const GM_R *)a->lse)[gm_attention_lse_at(a, p->batch, head, at)];
            delta = ((const GM_R *)a->delta)[(p->batch * a->heads + head) * a->queries + at];
        }
        GM_UNROLL
        for (int j = 0; j < GM_EACH; j++) {
            int     column = GM_COL + GM_ATTENTION_THREADS * j;
            int64_t key = p->first + column;
            GM_R    weight = 0, slope = 0;
            if (gm_attention_visible(a, p->batch, at, key)) {
                GM_R keep = (GM_R)gm_attention_kept(a, p->batch, head, at, key);
                weight = GM_M(exp)((GM_R)a->scale * s[i][j] - lse);
                slope = GM_NAME(gm_attention_slope)(a, weight, dp[i][j], delta, keep);
                weight *= keep;
            }
            ws[r * GM_CROSS + column] = weight;
            ds[r * GM_CROSS + column] = slope;
        }
    }
}

GM_KERNEL_BOUND(GM_NAME(gm_attention_dkv), gm_attention_args, GM_ATTENTION_THREADS * GM_ATTENTION_THREADS, GM_BLOCKS)
{
    GM_SHARED(GM_R, ks);
    const int tile = GM_SIDE * (a.size | 1);
    GM_R     *vs = ks + tile, *qs = vs + tile, *gs = qs + tile, *ws = gs + tile, *ds = ws + GM_SIDE * GM_CROSS;
    const gm_attention_place p = gm_attention_place_of(a.keys, a.key_heads, GM_SIDE);
    const int64_t            group = a.heads / a.key_heads, seen_from = p.first - (a.keys - a.queries);
    const int64_t            start = a.causal && seen_from > 0 ? seen_from / GM_SIDE * GM_SIDE : 0;
    GM_R                     dk[GM_EACH][GM_COLUMNS] = {{0}}, dv[GM_EACH][GM_COLUMNS] = {{0}};
    GM_R                     s[GM_EACH][GM_EACH], dp[GM_EACH][GM_EACH];
    GM_NAME(gm_attention_load)(ks, &a, &a.k, p.batch, p.head, p.first, a.keys, true);
    GM_NAME(gm_attention_load)(vs, &a, &a.v, p.batch, p.head, p.first, a.keys, true);
    for (int64_t head = p.head * group; head < (p.head + 1) * group; head++)
        for (int64_t query = start; query < a.queries; query += GM_SIDE) {
            GM_NAME(gm_attention_load)(qs, &a, &a.q, p.batch, head, query, a.queries, false);
            GM_NAME(gm_attention_load)(gs, &a, &a.g, p.batch, head, query, a.queries, false);
            GM_SYNC();
            GM_NAME(gm_attention_products)(s, qs, ks, a.size);
            GM_NAME(gm_attention_products)(dp, gs, vs, a.size);
            GM_NAME(gm_attention_weights)(&a, &p, head, query, s, dp, ws, ds);
            GM_SYNC();
            GM_NAME(gm_attention_weigh)(dv, ws, true, gs, a.size);
            GM_NAME(gm_attention_weigh)(dk, ds, true, qs, a.size);
            GM_SYNC();
        }
    GM_UNROLL
    for (int i = 0; i < GM_EACH; i++) {
        int64_t at = p.first + GM_ROW * GM_EACH + i;
        if (at >= a.keys) continue;
        GM_NAME(gm_attention_store)(&a, &a.dk, p.batch, p.head, at, dk[i], a.accumulate ? 1 : 0, 1);
        GM_NAME(gm_attention_store)(&a, &a.dv, p.batch, p.head, at, dv[i], a.accumulate ? 1 : 0, 1);
    }
}

#undef GM_SIDE
#undef GM_CROSS
