/* attention_grad_t.h - attention's gradient for one element type.
 *
 * The kernel computes the probabilities again from the stored lse, block by block, as [query][key]. In this form p and
 * ds are already packed left-hand operands of dv += p' g and dk += ds' q. For dq += ds k a block of ds is transposed.
 * With delta = rowsum(g o):  ds = p (g v' keep - delta). */

#define GRADIENT_KEYS (GRADIENT_PANELS * GEMM_COLUMNS)

typedef struct F(gradient_room) {
    T *k_panels, *v_panels;                /* all keys, k-major panels */
    T *k;                                  /* rows */
    T *dk, *dv;                            /* rows, summed over blocks of queries and heads */
    T *hide;                               /* per key: 0 or -inf; -inf behind the last */
    T *q, *g, *q_slivers, *g_slivers, *dq; /* a block of queries */
    T *p, *ds, *turned;                    /* queries x GRADIENT_KEYS; turned: keys x GRADIENT_QUERIES */
    T *lse, *delta;
} F(gradient_room);

static int64_t F(gradient_layout)(const attention_job *w, char *base, F(gradient_room) * room)
{
    int64_t at = 0, d = w->size, padded = F(gemm_panels)(w->keys) * GEMM_COLUMNS, slack = GEMM_COLUMNS;
#define TAKE(name, count) (room->name = (void *)(base + at * (int64_t)sizeof(T)), at += ((count) + 15) / 16 * 16)
    TAKE(k_panels, padded * d);
    TAKE(v_panels, padded * d);
    TAKE(k, w->keys * d + slack);
    TAKE(dk, w->keys * d);
    TAKE(dv, w->keys * d);
    TAKE(hide, padded);
    TAKE(q, GRADIENT_QUERIES * d + slack);
    TAKE(g, GRADIENT_QUERIES * d + slack);
    TAKE(q_slivers, GRADIENT_QUERIES * d);
    TAKE(g_slivers, GRADIENT_QUERIES * d);
    TAKE(dq, GRADIENT_QUERIES * d);
    TAKE(p, GRADIENT_QUERIES * GRADIENT_KEYS);
    TAKE(ds, GRADIENT_QUERIES * GRADIENT_KEYS);
    TAKE(turned, GRADIENT_QUERIES * GRADIENT_KEYS);
    TAKE(lse, GRADIENT_QUERIES);
    TAKE(delta, GRADIENT_QUERIES);
#undef TAKE
    return at;
}

static int64_t F(attention_grad_scratch)(const attention_job *w)
{
    F(gradient_room) room;
    return F(gradient_layout)(w, NULL, &room);
}

/* Does this chunk work on the block of keys from j0, on the block of queries from i0? */
CPU_INLINE bool F(gradient_keys_owned)(const attention_job *w, int64_t j0, int64_t chunk)
{
    return !w->by_key || attention_owns(j0 / GRADIENT_KEYS, w->chunks, chunk);
}

CPU_INLINE bool F(gradient_queries_owned)(const attention_job *w, int64_t i0, int64_t chunk)
{
    return w->by_key || attention_owns(i0 / GRADIENT_QUERIES, w->chunks, chunk);
}

/* Keys and values of one head, and zeros to sum into. */
static void F(gradient_begin)(const attention_job *w, const F(gradient_room) * room, int64_t b, int64_t head,
                              int64_t chunk)
{
    int64_t d = w->size, padded = F(gemm_panels)(w->keys) * GEMM_COLUMNS;
    for (int64_t j = 0; j < padded; j++) room->hide[j] = j >= w->keys || attention_hidden(w, b, j) ? (T)-INFINITY : 0;
    for (int64_t j0 = 0; j0 < w->keys; j0 += GRADIENT_KEYS) {
        if (!F(gradient_keys_owned)(w, j0, chunk)) continue;
        int64_t keys = w->keys - j0 < GRADIENT_KEYS ? w->keys - j0 : GRADIENT_KEYS, hidden = w->mask ? b : -1;
        T      *k = room->k + j0 * d, *v = room->dv + j0 * d; /* dv holds the rows of v until they are packed */
        F(attention_rows)(w, k, F(attention_at)(&w->k, b, j0, head), w->k.s, keys, hidden, j0);
        F(attention_rows)(w, v, F(attention_at)(&w->v, b, j0, head), w->v.s, keys, hidden, j0);
        for (int64_t j = 0; j < keys; j += GEMM_COLUMNS) {
            int64_t count = keys - j < GEMM_COLUMNS ? keys - j : GEMM_COLUMNS;
            F(pack)(room->k_panels + (j0 + j) * d, GEMM_COLUMNS, k + j * d, d, 1, count, d);
            F(pack)(room->v_panels + (j0 + j) * d, GEMM_COLUMNS, v + j * d, d, 1, count, d);
        }
        memset(room->dk + j0 * d, 0, (size_t)(keys * d) * sizeof(T));
        memset(room->dv + j0 * d, 0, (size_t)(keys * d) * sizeof(T));
    }
}

/* A block of queries: rows, slivers, lse (infinite where nothing is seen: p = 0), delta. */
static void F(gradient_queries)(const attention_job *w, const F(gradient_room) * room, int64_t b, int64_t head,
                                int64_t i0, int64_t queries)
{
    int64_t  d = w->size, slivers = F(gemm_slivers)(queries);
    const T *lse = (const T *)w->lse + b * w->lse_stride[0] + head * w->lse_stride[1];
    F(attention_rows)(w, room->q, F(attention_at)(&w->q, b, i0, head), w->q.s, queries, -1, 0);
    F(attention_rows)(w, room->g, F(attention_at)(&w->g, b, i0, head), w->g.s, queries, -1, 0);
    for (int64_t i = 0; i < queries; i++) {
        T l = lse[(i0 + i) * w->lse_stride[2]];
        room->lse[i] = l == (T)-INFINITY ? (T)INFINITY : l;
        room->delta[i] = (T)F(dot_row)(d, room->g + i * d, F(attention_at)(&w->o, b, i0 + i, head));
    }
    for (int64_t s = 0; s < slivers; s++) {
        int64_t i = F(cut)(queries, slivers, s), rows = F(cut)(queries, slivers, s + 1) - i;
        F(pack)(room->q_slivers + i * d, rows, room->q + i * d, d, 1, rows, d);
        F(pack)(room->g_slivers + i * d, rows, room->g + i * d, d, 1, rows, d);
    }
}

/* c (queries x GRADIENT_KEYS) = alpha slivers panels + init */
static void F(gradient_products)(int64_t d, T *c, const T *slivers, int64_t queries, const T *panels, int64_t keys,
                                 T alpha, const T *init)
{
    int64_t count = F(gemm_slivers)(queries);
    F(tile)
    t = {.a_side = 1,
         .b_step = GEMM_COLUMNS,
         .k = d,
         .c_row = GRADIENT_KEYS,
         .columns = GEMM_COLUMNS,
         .alpha = alpha,
         .fetch = (const char *)c};
    for (int64_t j = 0; j < keys; j += GEMM_COLUMNS)
        for (int64_t s = 0; s < count; s++) {
            int64_t i = F(cut)(queries, count, s), rows = F(cut)(queries, count, s + 1) - i;
            t.a = slivers + i * d;
            t.a_step = rows;
            t.b = panels + j * d;
            t.c = c + i * GRADIENT_KEYS + j;
            t.init = init ? init + j : NULL;
            F(tile_run)(&t, rows);
        }
}

/* c (rows, size) (+)= alpha a' b: a (depth, rows) with a_step between depths, b (depth, size) */
static void F(gradient_sum)(int64_t d, T *c, bool add, const T *a, int64_t a_step, int64_t rows, const T *b,
                            int64_t depth, T alpha)
{
    int64_t count = F(gemm_slivers)(rows);
    F(tile)
    t = {.a_step = a_step,
         .a_side = 1,
         .b_step = d,
         .k = depth,
         .c_row = d,
         .init_row = d,
         .alpha = alpha,
         .fetch = (const char *)c};
    for (int64_t j = 0; j < d; j += GEMM_COLUMNS)
        for (int64_t s = 0; s < count; s++) {
            int64_t i = F(cut)(rows, count, s);
            t.columns = d - j < GEMM_COLUMNS ? d - j : GEMM_COLUMNS;
            t.a = a + i;
            t.b = b + j;
            t.c = c + i * d + j;
            t.init = add ? t.c : NULL;
            F(tile_run)(&t, F(cut)(rows, count, s + 1) - i);
        }
}

/* Scores of one row become softcap tanh(score / softcap), and those of hidden keys -inf; slope: of the former. */
CPU_INLINE void F(gradient_row_cap)(const attention_job *w, T *p, T *slope, int64_t width, const T *hide)
{
    T cap = (T)w->softcap, by = (T)(1 / w->softcap);
    for (int64_t c = 0; c < width; c += LANES) {
        V t = F(tanh_v)(F(load)(p + c) * by);
        F(store)(slope + c, 1 - t * t);
        F(store)(p + c, t * cap + F(load)(hide + c));
    }
}

/* The bias of one row of queries is added to its scores against the keys from j0 on. */
CPU_INLINE void F(gradient_row_bias)(const attention_job *w, T *p, int64_t b, int64_t head, int64_t i, int64_t j0,
                                     int64_t keys)
{
    const int64_t step = w->bias->stride[3];
    const T      *from = (const T *)gm_tensor_data(w->bias) + attention_bias_at(w, w->bias, b, head, i, j0);
    for (int64_t c = 0; c < keys; c++) p[c] += from[c * step];
}

/* The slopes of the row's scores are what its bias gets. */
CPU_INLINE void F(gradient_row_dbias)(const attention_job *w, const T *ds, int64_t b, int64_t head, int64_t i,
                                      int64_t j0, int64_t keys)
{
    const int64_t step = w->dbias->stride[3];
    T            *to = (T *)gm_tensor_data(w->dbias) + attention_bias_at(w, w->dbias, b, head, i, j0);
    for (int64_t c = 0; c < keys; c++) to[c * step] += ds[c];
}

/* p from scores, for one row: exp(s - lse), zero before `from` and from `seen` on. width: whole panels. */
CPU_INLINE void F(gradient_row_p)(T *p, int64_t width, int64_t from, int64_t seen, T lse)
{
    for (int64_t c = 0; c < width; c += 2 * LANES) {
        V a = F(exp_v)(F(load)(p + c) - lse), b = F(exp_v)(F(load)(p + c + LANES) - lse);
        F(store)(p + c, a);
        F(store)(p + c + LANES, b);
    }
    for (int64_t c = 0; c < from && c < width; c++) p[c] = 0;
    for (int64_t c = seen < 0 ? 0 : seen; c < width; c++) p[c] = 0;
}

/* ds = p (dp - delta), in place of dp; with dropout dp and then p are masked and scaled. */
CPU_INLINE void F(gradient_row_ds)(const attention_job *w, T *p, T *ds, int64_t width, T delta, const uint32_t *words)
{
    T        keep = (T)w->keep;
    uint32_t threshold = w->threshold;
    if (!words) {
        for (int64_t c = 0; c < width; c += LANES) F(store)(ds + c, F(load)(p + c) * (F(load)(ds + c) - delta));
        return;
    }
    for (int64_t c = 0; c < width; c++) {
        T kept = words[c] < threshold ? 0 : keep;
        ds[c] = p[c] * (ds[c] * kept - delta);
        p[c] *= kept;
    }
}

/* One block of queries against one block of keys [j0, j0 + keys). */
static void F(gradient_block)(const attention_job *w, const F(gradient_room) * room, int64_t b, int64_t head,
                              int64_t i0, int64_t queries, int64_t j0, int64_t keys, bool first)
{
    int64_t  d = w->size, width = F(gemm_panels)(keys) * GEMM_COLUMNS;
    uint32_t words[GRADIENT_KEYS + 8 + 16 * BLOCK_LANES] __attribute__((aligned(64)));
    T        slope[GRADIENT_KEYS] __attribute__((aligned(64)));
    F(gradient_products)
    (d, room->p, room->q_slivers, queries, room->k_panels + j0 * d, keys, (T)w->scale,
     w->softcap == 0 && (w->mask || j0 + width > w->keys) ? room->hide + j0 : NULL);
    F(gradient_products)(d, room->ds, room->g_slivers, queries, room->v_panels + j0 * d, keys, 1, NULL);
    for (int64_t i = 0; i < queries; i++) {
        T *p = room->p + i * GRADIENT_KEYS, *ds = room->ds + i * GRADIENT_KEYS;
        if (w->softcap > 0) F(gradient_row_cap)(w, p, slope, width, room->hide + j0);
        if (w->bias) F(gradient_row_bias)(w, p, b, head, i0 + i, j0, keys);
        F(gradient_row_p)
        (p, width, attention_from(w, b, i0 + i) - j0, attention_seen(w, b, i0 + i) - j0, room->lse[i]);
        F(gradient_row_ds)
        (w, p, ds, width, room->delta[i],
         !w->threshold
             ? NULL
             : philox_words(w->key, w->step, attention_index(w, b, head, i0 + i) + (uint64_t)j0, width, words));
        if (w->dbias && w->want_queries) F(gradient_row_dbias)(w, ds, b, head, i0 + i, j0, keys);
        for (int64_t c = 0; w->softcap > 0 && c < width; c += LANES)
            F(store)(ds + c, F(load)(ds + c) * F(load)(slope + c));
    }
    if (w->want_keys) {
        F(gradient_sum)(d, room->dv + j0 * d, true, room->p, GRADIENT_KEYS, keys, room->g, queries, 1);
        F(gradient_sum)(d, room->dk + j0 * d, true, room->ds, GRADIENT_KEYS, keys, room->q, queries, (T)w->scale);
    }
    if (w->want_queries) {
        F(attention_turn)(room->turned, GRADIENT_QUERIES, room->ds, GRADIENT_KEYS, queries, keys);
        F(gradient_sum)
        (d, room->dq, !first, room->turned, GRADIENT_QUERIES, queries, room->k + j0 * d, keys, (T)w->scale);
    }
}

/* A finished row of dq, dk or dv goes to its place. */
CPU_INLINE void F(gradient_put)(const attention_job *w, T *to, const T *row)
{
    if (!w->accumulate) memcpy(to, row, (size_t)w->size * sizeof(T));
    else
        for (int64_t d = 0; d < w->size; d++) to[d] += row[d];
}

/* All keys of this chunk for one block of queries. */
static void F(gradient_row_of_blocks)(const attention_job *w, const F(gradient_room) * room, int64_t b, int64_t head,
                                      int64_t i0, int64_t chunk)
{
    int64_t        queries = w->queries - i0 < GRADIENT_QUERIES ? w->queries - i0 : GRADIENT_QUERIES;
    attention_span span = attention_span_of(w, b, i0, queries);
    int64_t        seen = span.seen;
    bool           first = true;
    F(gradient_queries)(w, room, b, head, i0, queries);
    for (int64_t j0 = span.from / GRADIENT_KEYS * GRADIENT_KEYS; j0 < seen; j0 += GRADIENT_KEYS) {
        if (!F(gradient_keys_owned)(w, j0, chunk)) continue;
        F(gradient_block)
        (w, room, b, head, i0, queries, j0, seen - j0 < GRADIENT_KEYS ? seen - j0 : GRADIENT_KEYS, first);
        first = false;
    }
    if (!w->want_queries) return;
    if (first) memset(room->dq, 0, (size_t)(queries * w->size) * sizeof(T)); /* nothing seen */
    for (int64_t i = 0; i < queries; i++) F(gradient_put)
    (w, (T *)w->dq.data + b * w->dq.b + (i0 + i) * w->dq.s + head * w->dq.h, room->dq + i * w->size);
}

static void F(gradient_end)(const attention_job *w, const F(gradient_room) * room, int64_t b, int64_t head,
                            int64_t chunk)
{
    for (int64_t j = 0; j < w->keys; j++) {
        if (!F(gradient_keys_owned)(w, j, chunk)) continue;
        F(gradient_put)(w, (T *)w->dk.data + b * w->dk.b + j * w->dk.s + head * w->dk.h, room->dk + j * w->size);
        F(gradient_put)(w, (T *)w->dv.data + b * w->dv.b + j * w->dv.s + head * w->dv.h, room->dv + j * w->size);
    }
}

static void F(attention_grad_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const attention_job *w = context;
    int64_t              group = w->heads / w->key_heads;
    F(gradient_room) room;
    F(gradient_layout)(w, w->scratch + (size_t)thread * w->scratch_step, &room);
    for (int64_t u = begin; u < end; u++) {
        int64_t unit = u / w->chunks, chunk = u % w->chunks, head = unit % w->key_heads;
        for (int64_t b = unit / w->key_heads; b < w->batch; b += w->rows) {
            F(gradient_begin)(w, &room, b, head, chunk);
            for (int64_t n = 0; n < group; n++)
                for (int64_t i = 0; i < w->queries; i += GRADIENT_QUERIES)
                    if (F(gradient_queries_owned)(w, i, chunk))
                        F(gradient_row_of_blocks)(w, &room, b, head * group + n, i, chunk);
            if (w->want_keys) F(gradient_end)(w, &room, b, head, chunk);
        }
    }
}

#undef GRADIENT_KEYS
#undef ATTENTION_WORDS
