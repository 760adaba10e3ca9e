/* attention_grad_t.h - attention's gradient for one element type.
 *
 * The kernel computes the probabilities again from the stored lse, block by block, as [query][key]. In this form p and
 * ds are already packed left-hand operands of dv += p' g and dk += ds' q, and the rows of ds those of dq += ds k.
 * With delta = rowsum(g o):  ds = p (g v' keep - delta). */

#define GRADIENT_KEYS (GRADIENT_PANELS * GEMM_COLUMNS)
#define DROP_PITCH    (GRADIENT_KEYS + DROP_VECTOR) /* GRADIENT_KEYS is a multiple of the latter */

typedef struct F(gradient_room) {
    T        *k_panels, *v_panels; /* all keys, k-major panels */
    T        *k;                   /* rows, or pairs along keys */
    T        *dk, *dv;             /* rows, summed over blocks of queries and heads */
    T        *hide;                /* per key: 0 or -inf; -inf behind the last */
    T        *q, *g, *dq;          /* a block of queries, rows; of q and g attention_depth numbers */
    T        *q_pairs, *g_pairs;   /* of pairs: along queries */
    T        *p, *ds;              /* queries x GRADIENT_KEYS, or half as many rows of pairs along queries */
    T        *ds_pairs;            /* of pairs: ds as queries x GRADIENT_KEYS in bf16, pairs along keys */
    T        *lse, *delta;
    uint16_t *numbers; /* of dropout: a row of DROP_PITCH for each query */

    attention_soon *soon;
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
    TAKE(q_pairs, w->pairs ? GRADIENT_QUERIES / 2 * d + slack : 0);
    TAKE(g_pairs, w->pairs ? GRADIENT_QUERIES / 2 * d + slack : 0);
    TAKE(dq, GRADIENT_QUERIES * d);
    TAKE(p, GRADIENT_QUERIES * GRADIENT_KEYS);
    TAKE(ds, GRADIENT_QUERIES * GRADIENT_KEYS);
    TAKE(ds_pairs, w->pairs ? GRADIENT_QUERIES * GRADIENT_KEYS / 2 : 0);
    TAKE(lse, GRADIENT_QUERIES);
    TAKE(delta, GRADIENT_QUERIES);
    TAKE(numbers, w->drop.threshold ? (GRADIENT_QUERIES + 1) * DROP_PITCH * 2 / (int64_t)sizeof(T) : 0);
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

/* Columns of a panel for so many keys: one vector is enough for few. */
CPU_INLINE int64_t F(gradient_wide)(int64_t keys) { return keys > LANES ? GEMM_COLUMNS : LANES; }

/* Keys and values of one head, and zeros to sum into. */
static void F(gradient_begin)(const attention_job *w, const F(gradient_room) * room, int64_t b, int64_t head,
                              int64_t chunk)
{
    int64_t d = w->size, depth = F(attention_depth)(w), padded = F(gemm_panels)(w->keys) * GEMM_COLUMNS;
    int64_t numbers = w->pairs ? 2 * depth : depth;
    for (int64_t j = 0; j < padded; j++) room->hide[j] = j >= w->keys || attention_hidden(w, b, j) ? (T)-INFINITY : 0;
    for (int64_t j0 = 0; j0 < w->keys; j0 += GRADIENT_KEYS) {
        if (!F(gradient_keys_owned)(w, j0, chunk)) continue;
        int64_t keys = w->keys - j0 < GRADIENT_KEYS ? w->keys - j0 : GRADIENT_KEYS, hidden = w->mask ? b : -1;
        T      *v = room->dv + j0 * d, *k = w->pairs ? room->dk + j0 * d : room->k + j0 * d; /* rows until packed */
        F(attention_rows)(w, k, F(attention_at)(w, &w->k, b, j0, head), w->k.s, keys, hidden, j0);
        F(attention_rows)(w, v, F(attention_at)(w, &w->v, b, j0, head), w->v.s, keys, hidden, j0);
        if (w->pairs) F(attention_pack)(w, room->k + j0 / 2 * d, d, k, 1, numbers, d, keys);
        for (int64_t j = 0; j < keys; j += GEMM_COLUMNS) {
            int64_t count = keys - j < GEMM_COLUMNS ? keys - j : GEMM_COLUMNS, wide = F(gradient_wide)(count);
            F(attention_pack)(w, room->k_panels + (j0 + j) * depth, wide, k + j * depth, numbers, 1, count, d);
            F(attention_pack)(w, room->v_panels + (j0 + j) * depth, wide, v + j * depth, numbers, 1, count, d);
        }
        memset(room->dk + j0 * d, 0, (size_t)(keys * d) * sizeof(T));
        memset(room->dv + j0 * d, 0, (size_t)(keys * d) * sizeof(T));
    }
}

/* A row of o or g in f32; room: for one that is widened. */
CPU_INLINE const T *F(gradient_widened)(const attention_job *w, const char *row, T *room)
{
#if T_BITS == 32 && GEMM_PAIRS
    if (w->pairs) {
        cast_bf16_f32(w->size, row, room);
        return room;
    }
#endif
    (void)w;
    (void)room;
    return (const T *)row;
}

/* A block of queries: rows, pairs, lse (infinite where nothing is seen: p = 0), delta. */
static void F(gradient_queries)(const attention_job *w, const F(gradient_room) * room, int64_t b, int64_t head,
                                int64_t i0, int64_t queries)
{
    int64_t     d = w->size;
    const T    *lse = (const T *)w->lse + b * w->lse_stride[0] + head * w->lse_stride[1];
    const char *q = F(attention_at)(w, &w->q, b, i0, head), *g = F(attention_at)(w, &w->g, b, i0, head);
    const char *o = F(attention_at)(w, &w->o, b, i0, head);
    F(attention_rows)(w, room->q, q, w->q.s, queries, -1, 0);
    F(attention_rows)(w, room->g, g, w->g.s, queries, -1, 0);
    if (w->pairs) F(attention_pack)(w, room->q_pairs, d, q, 1, w->q.s, d, queries);
    if (w->pairs) F(attention_pack)(w, room->g_pairs, d, g, 1, w->g.s, d, queries);
    for (int64_t i = 0; i < queries; i++) {
        T l = lse[(i0 + i) * w->lse_stride[2]];
        room->lse[i] = l == (T)-INFINITY ? (T)INFINITY : l;
        F(attention_ahead)(w, o + i * w->o.s * w->bytes, w->o.s);
        room->delta[i] = (T)F(dot_row)(d, F(gradient_widened)(w, g + i * w->g.s * w->bytes, room->dq),
                                       F(gradient_widened)(w, o + i * w->o.s * w->bytes, room->dq + d));
    }
}

/* c (queries x GRADIENT_KEYS) = alpha rows panels + init, for keys from j0 on; init has a number for each key */
static void F(gradient_products)(const attention_job *w, attention_soon *soon, T *c, const T *rows, int64_t queries,
                                 const T *panels, int64_t j0, int64_t keys, T alpha, const T *init)
{
    int64_t count = F(gemm_slivers)(queries), depth = F(attention_depth)(w);
    F(tile)
    t = {.a_step = 1,
         .a_side = depth,
         .k = depth,
         .c_row = GRADIENT_KEYS,
         .alpha = alpha,
         .pairs = w->pairs,
         .fetch = (const char *)c};
    for (int64_t j = 0; j < keys; j += GEMM_COLUMNS)
        for (int64_t s = 0; s < count; s++) {
            int64_t i = F(cut)(queries, count, s);
            t.columns = F(gradient_wide)(keys - j);
            t.a = rows + i * depth;
            t.b = panels + (j0 + j) * depth;
            t.b_step = F(gradient_wide)(w->keys - j0 - j);
            t.c = c + i * GRADIENT_KEYS + j;
            t.init = init ? init + j0 + j : NULL;
            attention_bring(soon, ATTENTION_LINES);
            F(tile_run)(&t, F(cut)(queries, count, s + 1) - i);
        }
}

/* A left-hand factor: element (i, k) at data[i * side + k * step], k < depth; in pairs, depth counts pairs. */
typedef struct F(gradient_factor) {
    const T *data;
    int64_t  side, step, depth;
} F(gradient_factor);

/* c (rows, size) (+)= alpha a b: b (depth, size) */
static void F(gradient_sum)(const attention_job *w, attention_soon *soon, T *c, bool add, const F(gradient_factor) * a,
                            int64_t rows, const T *b, T alpha)
{
    int64_t count = F(gemm_slivers)(rows), d = w->size;
    F(tile)
    t = {.a_step = a->step,
         .a_side = a->side,
         .b_step = d,
         .k = a->depth,
         .c_row = d,
         .init_row = d,
         .alpha = alpha,
         .pairs = w->pairs,
         .fetch = (const char *)c};
    for (int64_t j = 0; j < d; j += GEMM_COLUMNS)
        for (int64_t s = 0; s < count; s++) {
            int64_t i = F(cut)(rows, count, s);
            t.columns = d - j < GEMM_COLUMNS ? d - j : GEMM_COLUMNS;
            t.a = a->data + i * a->side;
            t.b = b + j;
            t.c = c + i * d + j;
            t.init = add ? t.c : NULL;
            attention_bring(soon, ATTENTION_LINES);
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

/* p from scores, for one row: exp(s - lse), zero before `from` and from `seen` on. width: whole vectors. */
CPU_INLINE void F(gradient_row_p)(T *p, int64_t width, int64_t from, int64_t seen, T lse)
{
    for (int64_t c = 0; c < width; c += LANES) F(store)(p + c, F(exp_down_v)(F(load)(p + c) - lse));
    for (int64_t c = 0; c < from && c < width; c++) p[c] = 0;
    for (int64_t c = seen < 0 ? 0 : seen; c < width; c++) p[c] = 0;
}

/* ds = p (dp - delta), in place of dp; with dropout dp and then p are masked and scaled. */
CPU_INLINE void F(gradient_row_ds)(const attention_job *w, T *p, T *ds, int64_t width, T delta, const uint16_t *numbers)
{
    T        keep = (T)w->keep;
    uint32_t threshold = w->drop.threshold;
    if (!numbers) {
        for (int64_t c = 0; c < width; c += LANES) F(store)(ds + c, F(load)(p + c) * (F(load)(ds + c) - delta));
        return;
    }
    for (int64_t c = 0; c < width; c++) {
        T kept = numbers[c] < threshold ? 0 : keep;
        ds[c] = p[c] * (ds[c] * kept - delta);
        p[c] *= kept;
    }
}

/* p and ds become bf16: pairs along queries where they lie, and rows of ds besides, which are pairs along keys. */
static void F(gradient_round)(const F(gradient_room) * room, int64_t queries, int64_t width)
{
#if T_BITS == 32 && GEMM_PAIRS
    for (int64_t i = 0; i < queries; i += 2)
        for (int64_t c = 0; c < width; c += LANES) {
            const int64_t at = i * GRADIENT_KEYS + c, to = i / 2 * GRADIENT_KEYS + c;
            const bool    two = i + 1 < queries;
            vf32          p = load_f32(room->p + at), ds = load_f32(room->ds + at), none = splat_f32(0);
            vf32          next_p = two ? load_f32(room->p + at + GRADIENT_KEYS) : none;
            vf32          next_ds = two ? load_f32(room->ds + at + GRADIENT_KEYS) : none;
            pairs_store((bits2 *)room->ds_pairs + at, ds);
            if (two) pairs_store((bits2 *)room->ds_pairs + at + GRADIENT_KEYS, next_ds);
            store_f32(room->p + to, pairs_of(p, next_p));
            store_f32(room->ds + to, pairs_of(ds, next_ds));
        }
#endif
    (void)room;
    (void)queries;
    (void)width;
}

/* p and ds of a block from scores and dp, row by row; keys: of whole vectors `width`. */
static void F(gradient_rows)(const attention_job *w, const F(gradient_room) * room, int64_t b, int64_t head, int64_t i0,
                             int64_t queries, int64_t j0, int64_t keys, int64_t width)
{
    T               slope[GRADIENT_KEYS] __attribute__((aligned(64)));
    const uint16_t *numbers = NULL;
    if (w->drop.threshold)
        numbers = attention_numbers(w, attention_index(w, b, head, i0, j0), queries, width, room->numbers, DROP_PITCH);
    for (int64_t i = 0; i < queries; i++) {
        T *p = room->p + i * GRADIENT_KEYS, *ds = room->ds + i * GRADIENT_KEYS;
        if (w->softcap > 0) F(gradient_row_cap)(w, p, slope, width, room->hide + j0);
        if (w->bias) F(gradient_row_bias)(w, p, b, head, i0 + i, j0, keys);
        F(gradient_row_p)
        (p, width, attention_from(w, b, i0 + i) - j0, attention_seen(w, b, i0 + i) - j0, room->lse[i]);
        F(gradient_row_ds)(w, p, ds, width, room->delta[i], numbers ? numbers + i * DROP_PITCH : NULL);
        if (w->dbias && w->want_queries) F(gradient_row_dbias)(w, ds, b, head, i0 + i, j0, keys);
        for (int64_t c = 0; w->softcap > 0 && c < width; c += LANES)
            F(store)(ds + c, F(load)(ds + c) * F(load)(slope + c));
    }
}

/* One block of queries against one block of keys [j0, j0 + keys). */
static void F(gradient_block)(const attention_job *w, const F(gradient_room) * room, int64_t b, int64_t head,
                              int64_t i0, int64_t queries, int64_t j0, int64_t keys, bool first)
{
    int64_t d = w->size, width = (keys + LANES - 1) / LANES * LANES;
    bool    hides = w->softcap == 0 && (w->mask || j0 + width > w->keys);
    F(gradient_products)
    (w, room->soon, room->p, room->q, queries, room->k_panels, j0, keys, (T)w->scale, hides ? room->hide : NULL);
    F(gradient_products)(w, room->soon, room->ds, room->g, queries, room->v_panels, j0, keys, 1, NULL);
    F(gradient_rows)(w, room, b, head, i0, queries, j0, keys, width);
    if (w->pairs) F(gradient_round)(room, queries, width);
    F(gradient_factor) of_keys = {room->p, 1, GRADIENT_KEYS, w->pairs ? (queries + 1) / 2 : queries};
    F(gradient_factor) of_queries = {room->ds, GRADIENT_KEYS, 1, keys};
    const T *q = w->pairs ? room->q_pairs : room->q, *g = w->pairs ? room->g_pairs : room->g, *k = room->k + j0 * d;
    if (w->pairs) {
        of_queries = (F(gradient_factor)){room->ds_pairs, GRADIENT_KEYS / 2, 1, (keys + 1) / 2};
        k = room->k + j0 / 2 * d;
    }
    if (w->want_keys) {
        F(gradient_sum)(w, room->soon, room->dv + j0 * d, true, &of_keys, keys, g, 1);
        of_keys.data = room->ds;
        F(gradient_sum)(w, room->soon, room->dk + j0 * d, true, &of_keys, keys, q, (T)w->scale);
    }
    if (w->want_queries) F(gradient_sum)(w, room->soon, room->dq, !first, &of_queries, queries, k, (T)w->scale);
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
    for (int64_t i = 0; i < queries; i++) {
        char *to = F(attention_at)(w, &w->dq, b, i0 + i, head);
        F(attention_ahead)(w, to, w->dq.s);
        F(attention_put)(w, to, room->dq + i * w->size, 1);
    }
}

static void F(gradient_end)(const attention_job *w, const F(gradient_room) * room, int64_t b, int64_t head,
                            int64_t chunk)
{
    for (int64_t j = 0; j < w->keys; j++) {
        if (!F(gradient_keys_owned)(w, j, chunk)) continue;
        char *dk = F(attention_at)(w, &w->dk, b, j, head), *dv = F(attention_at)(w, &w->dv, b, j, head);
        F(attention_ahead)(w, dk, w->dk.s);
        F(attention_ahead)(w, dv, w->dv.s);
        F(attention_put)(w, dk, room->dk + j * w->size, 1);
        F(attention_put)(w, dv, room->dv + j * w->size, 1);
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

        attention_soon soon = attention_soon_of(w, u, end, false);
        room.soon = &soon;
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
#undef DROP_PITCH
