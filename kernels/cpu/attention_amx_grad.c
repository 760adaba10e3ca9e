/* attention_amx_grad.c - the gradient of attention of bf16 in tiles of AMX (attention_amx.c has forward), by the
 * algorithm of attention_grad_t.h: weights are computed again from the stored lse.
 *
 * A block of queries is up to four panels of 32. For each panel and a block of keys, scores' = k q' and slopes of
 * weights dp' = v g' lie as [key][query]. Weights and slopes of scores are rounded to bf16. As rows of keys they are
 * tiles of the products dv += p' g and dk += ds' q, which add up over all panels of a block at once; ds is stored as
 * pairs of keys too, for dq' += k' ds'. dk and dv of all keys of a head stay in f32 until its queries are through.
 *
 * Where each thread has no unit of its own, one pass sums for keys and one for queries (attention.c): both cut sums in
 * the same places. Part of attention.c. */

#define TILED_BLOCK     (TILED_PANELS * TILED_QUERIES) /* queries */
#define TILED_GRAD_KEYS 128                            /* of a block */

/* Pieces of a thread's scratch. */
typedef struct tiled_grad {
    float   *k, *v;             /* all keys and values as tiles of rows */
    float   *columns;           /* keys as tiles of columns */
    float   *dk, *dv;           /* rows of whole tiles, summed over blocks of queries and heads */
    float   *q, *g;             /* for each panel: pairs of the head's numbers */
    float   *q_pairs, *g_pairs; /* of a block: pairs of queries, [pair][number] */
    float   *dq;                /* for each panel: [number][query] */
    float   *s, *dp;            /* of a panel and a block of keys: scores and slopes of weights */
    float   *kept;              /* of dropout: what multiplies weights */
    float   *p, *ds;            /* of both blocks, tiles of rows of keys: weights, slopes of scores */
    float   *ds_pairs;          /* of a panel: pairs of keys */
    float   *rows;              /* for the end of a panel */
    float   *lse, *delta;       /* of the block's queries; lse times log2(e), infinite where nothing is seen */
    int32_t *from, *seen;       /* tiled_sight */
    uint8_t *hide;

    attention_soon *soon;
} tiled_grad;

static int64_t tiled_grad_layout(const attention_job *w, char *base, tiled_grad *room)
{
    const int64_t keys = tiled_up(w->keys, 32), deep = 16 * tiled_deep(w), tall = 16 * tiled_tall(w);
    const int64_t block = TILED_GRAD_KEYS * TILED_QUERIES;
    int64_t       at = 0;
#define TAKE(name, count) (room->name = (void *)(base + at * (int64_t)sizeof(float)), at += tiled_up(count, 16))
    TAKE(k, keys * deep);
    TAKE(v, keys * deep);
    TAKE(columns, w->want_queries ? keys * tall / 2 : 0);
    TAKE(dk, w->want_keys ? keys * tall : 0);
    TAKE(dv, w->want_keys ? keys * tall : 0);
    TAKE(q, TILED_BLOCK * deep);
    TAKE(g, TILED_BLOCK * deep);
    TAKE(q_pairs, TILED_BLOCK / 2 * tall);
    TAKE(g_pairs, TILED_BLOCK / 2 * tall);
    TAKE(dq, TILED_BLOCK * tall);
    TAKE(s, block);
    TAKE(dp, block);
    TAKE(kept, w->drop.threshold ? block : 0);
    TAKE(p, TILED_BLOCK * TILED_GRAD_KEYS / 2);
    TAKE(ds, TILED_BLOCK * TILED_GRAD_KEYS / 2);
    TAKE(ds_pairs, block / 2);
    TAKE(rows, TILED_QUERIES * w->size);
    TAKE(lse, TILED_BLOCK);
    TAKE(delta, TILED_BLOCK);
    TAKE(from, TILED_BLOCK);
    TAKE(seen, TILED_BLOCK);
    TAKE(hide, w->mask ? (keys + 3) / 4 : 0);
#undef TAKE
    return at;
}

static int64_t tiled_grad_scratch(const attention_job *w)
{
    tiled_grad room;
    return tiled_grad_layout(w, NULL, &room);
}

/* A block of queries, whose panels meet a block of keys. */
typedef struct tiled_meeting {
    int64_t        b, head, i0, queries, panels;
    attention_span span[TILED_PANELS];
    bool           any[TILED_PANELS]; /* dq of the panel has a sum */
    const uint8_t *hide;
} tiled_meeting;

static inline int64_t tiled_count(const tiled_meeting *m, int64_t panel)
{
    const int64_t left = m->queries - panel * TILED_QUERIES;
    return left < TILED_QUERIES ? left : TILED_QUERIES;
}

static inline bool tiled_owns(const attention_job *w, bool by, int64_t block, int64_t chunk)
{
    return w->by_key != by || attention_owns(block, w->chunks, chunk);
}

/* Keys and values of one head, and zeros to sum into. */
static void tiled_grad_begin(const attention_job *w, const tiled_grad *room, int64_t b, int64_t head, int64_t chunk,
                             const uint8_t *hide)
{
    const int64_t deep = tiled_deep(w), tall = tiled_tall(w);
    for (int64_t j = 0; j < w->keys; j += TILED_GRAD_KEYS) {
        const int64_t  keys = w->keys - j < TILED_GRAD_KEYS ? w->keys - j : TILED_GRAD_KEYS;
        const uint8_t *hidden = hide ? hide + j : NULL;
        const char    *k = attention_at_f32(w, &w->k, b, j, head), *v = attention_at_f32(w, &w->v, b, j, head);
        if (!tiled_owns(w, true, j / TILED_GRAD_KEYS, chunk)) continue;
        tiled_rows(w, room->k + j / 16 * deep * TILED_WORDS, k, w->k.s, keys, hidden);
        tiled_rows(w, room->v + j / 16 * deep * TILED_WORDS, v, w->v.s, keys, hidden);
        if (w->want_queries) tiled_columns(w, room->columns + j / 32 * tall * TILED_WORDS, k, w->k.s, keys, hidden);
        if (!w->want_keys) continue;
        memset(room->dk + j * 16 * tall, 0, (size_t)(tiled_up(keys, 32) * 16 * tall) * sizeof(float));
        memset(room->dv + j * 16 * tall, 0, (size_t)(tiled_up(keys, 32) * 16 * tall) * sizeof(float));
    }
}

/* Queries as pairs of queries, [pair][number]: query i of a panel and query i + 16, as tiled_grad_put makes them. */
static void tiled_pairs(const attention_job *w, float *to, const char *from, int64_t step, int64_t queries)
{
    for (int64_t p = 0; p < queries; p += 32)
        for (int64_t i = p; i < p + 16; i++)
            for (int64_t d = 0; d < w->size; d += 16, to += 16) {
                const pairs_word *x = (const pairs_word *)(from + i * step * w->bytes) + d;
                const int64_t     have = w->size - d < 16 ? w->size - d : 16;
                store_f32(to,
                          i >= queries ? splat_f32(0) : pairs_join(x, i + 16 < queries ? x + 16 * step : NULL, have));
            }
}

/* What a block of queries needs of q, g, o and lse. */
static void tiled_grad_queries(const attention_job *w, const tiled_grad *room, tiled_meeting *m)
{
    const int64_t deep = 16 * tiled_deep(w);
    const float  *lse = (const float *)w->lse + m->b * w->lse_stride[0] + m->head * w->lse_stride[1];
    const char   *q = attention_at_f32(w, &w->q, m->b, m->i0, m->head);
    const char   *g = attention_at_f32(w, &w->g, m->b, m->i0, m->head);
    const char   *o = attention_at_f32(w, &w->o, m->b, m->i0, m->head);
    for (int64_t i = 0; i < m->panels * TILED_QUERIES; i++) {
        float l = i < m->queries ? lse[(m->i0 + i) * w->lse_stride[2]] : INFINITY;
        room->lse[i] = l == -INFINITY ? INFINITY : l * (float)TILED_LOG2_E;
        room->delta[i] = 0;
        if (i >= m->queries) continue;
        room->delta[i] = (float)dot_row_f32(w->size, gradient_widened_f32(w, g + i * w->g.s * w->bytes, room->rows),
                                            gradient_widened_f32(w, o + i * w->o.s * w->bytes, room->rows + w->size));
    }
    for (int64_t p = 0; p < m->panels; p++) {
        const int64_t at = p * TILED_QUERIES, count = tiled_count(m, p);
        tiled_panel(w, room->q + at * deep, q + at * w->q.s * w->bytes, w->q.s, count);
        tiled_panel(w, room->g + at * deep, g + at * w->g.s * w->bytes, w->g.s, count);
        tiled_sight(w, m->b, m->i0 + at, count, room->from + at, room->seen + at);
        m->span[p] = attention_span_of(w, m->b, m->i0 + at, count);
        m->any[p] = false;
    }
    if (!w->want_keys) return;
    tiled_pairs(w, room->q_pairs, q, w->q.s, m->queries);
    tiled_pairs(w, room->g_pairs, g, w->g.s, m->queries);
}

/* One number of 16 queries that is worked on. */
typedef struct tiled_slope {
    vf32 p, ds;
} tiled_slope;

/* Weights and slopes of scores of 16 queries and a key, in the usual case. */
CPU_INLINE tiled_slope tiled_slope_of(const float *s, const float *dp, float factor, vf32 lse, vf32 delta)
{
    const vf32 p = tiled_power_any(load_f32(s) * factor - lse);
    return (tiled_slope){p, p * (load_f32(dp) - delta)};
}

/* The same with what else there may be: caps, dropout, and keys that are not seen. visible: of each query. */
CPU_INLINE tiled_slope tiled_slope_any(const attention_job *w, const float *s, const float *dp, const float *kept,
                                       vf32 lse, vf32 delta, vi32 visible)
{
    vf32 x = load_f32(s), d = load_f32(dp), slope = splat_f32(1), keep = kept ? load_f32(kept) : slope;
    if (w->softcap > 0) {
        vf32 t = tanh_v_f32(x * (float)(w->scale / w->softcap));
        slope = 1 - t * t;
        x = t * (float)(w->softcap * TILED_LOG2_E);
    } else {
        x *= (float)(w->scale * TILED_LOG2_E);
    }
    const vf32 p = select_f32(visible, tiled_power_any(x - lse), splat_f32(0));
    return (tiled_slope){p * keep, p * (d * keep - delta) * slope};
}

/* Slopes of keys r and r + 1 of the block go to their tiles, x[i][c] being of key r + i and queries 16 c. */
CPU_INLINE void tiled_grad_put(const attention_job *w, const tiled_grad *room, int64_t panel, int64_t r,
                               tiled_slope x[2][2])
{
    const int64_t at = (r / 16 * TILED_PANELS + panel) * TILED_WORDS + r % 16 * 16;
    for (int i = 0; w->want_keys && i < 2; i++) {
        store_f32(room->p + at + 16 * i, tiled_pair(x[i][0].p, x[i][1].p));
        store_f32(room->ds + at + 16 * i, tiled_pair(x[i][0].ds, x[i][1].ds));
    }
    for (int c = 0; w->want_queries && c < 2; c++)
        store_f32(room->ds_pairs + r / 2 * TILED_QUERIES + 16 * c, tiled_pair(x[0][c].ds, x[1][c].ds));
}

/* Weights and slopes of a panel and the keys from j0 on. is_cut: not the usual case. */
CPU_INLINE void tiled_grad_rows(const attention_job *w, const tiled_grad *room, const tiled_meeting *m, int64_t panel,
                                int64_t j0, int64_t keys, const bool is_cut)
{
    const int64_t at = panel * TILED_QUERIES;
    const float   factor = (float)(w->scale * TILED_LOG2_E);
    const vf32    lse[2] = {load_f32(room->lse + at), load_f32(room->lse + at + 16)};
    const vf32    delta[2] = {load_f32(room->delta + at), load_f32(room->delta + at + 16)};
    for (int64_t r = 0; r < keys; r += 2) {
        tiled_slope x[2][2];
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++)
#pragma GCC unroll 2
            for (int c = 0; c < 2; c++) {
                const int64_t e = (r + i) * TILED_QUERIES + 16 * c, j = j0 + r + i;
                const float  *s = room->s + e, *dp = room->dp + e;
                if (!is_cut) {
                    x[i][c] = tiled_slope_of(s, dp, factor, lse[c], delta[c]);
                    continue;
                }
                vi32 visible = tiled_sees(room->from + at + 16 * c, room->seen + at + 16 * c, j);
                if (m->hide && j < w->keys && m->hide[j]) visible = (vi32){0};
                x[i][c] = tiled_slope_any(w, s, dp, w->drop.threshold ? room->kept + e : NULL, lse[c], delta[c],
                                          visible);
            }
        tiled_grad_put(w, room, panel, r, x);
    }
}

/* What dropout multiplies the weights of a panel and the keys from j0 on with. */
static void tiled_grad_drop(const attention_job *w, const tiled_grad *room, const tiled_meeting *m, int64_t panel,
                            int64_t j0, int64_t keys)
{
    const int64_t here = w->keys - j0 < keys ? w->keys - j0 : keys;
    for (int64_t e = 0; e < keys * TILED_QUERIES; e += 16) store_f32(room->kept + e, splat_f32(1));
    attention_drop_f32(w, &(attention_room_f32){.scores = room->kept}, m->b, m->head, m->i0 + panel * TILED_QUERIES,
                       tiled_count(m, panel), j0, here);
}

/* Weights and slopes of rows [from, to) of a panel are zero: no query of it sees these keys. */
static void tiled_grad_clear(const tiled_grad *room, int64_t panel, int64_t from, int64_t to)
{
    for (int64_t r = from; r < to; r += 16) {
        const int64_t at = (r / 16 * TILED_PANELS + panel) * TILED_WORDS;
        memset(room->p + at, 0, TILED_TILE);
        memset(room->ds + at, 0, TILED_TILE);
    }
}

static void tiled_grad_multiply(const attention_job *w, const tiled_grad *room, const tiled_product *p)
{
    attention_bring(room->soon, TILED_LINES);
    w->tiles->multiply(p);
}

/* A panel against `keys` keys from j0 on, whole tiles: weights, slopes, and dq. */
static void tiled_grad_panel(const attention_job *w, const tiled_grad *room, tiled_meeting *m, int64_t panel,
                             int64_t j0, int64_t keys)
{
    const int64_t         deep = tiled_deep(w), tall = tiled_tall(w), row = TILED_QUERIES * 4;
    const attention_span *span = &m->span[panel];
    tiled_product         p = {.a = room->k + j0 / 16 * deep * TILED_WORDS,
                               .b = room->q + panel * 16 * deep * TILED_QUERIES,
                               .c = room->s,
                               .a_row = 64,
                               .a_side = deep * TILED_TILE,
                               .a_step = TILED_TILE,
                               .b_row = row,
                               .c_row = row,
                               .high = keys / 16,
                               .wide = 2,
                               .steps = deep};
    tiled_grad_multiply(w, room, &p);
    p.a = room->v + j0 / 16 * deep * TILED_WORDS;
    p.b = room->g + panel * 16 * deep * TILED_QUERIES;
    p.c = room->dp;
    tiled_grad_multiply(w, room, &p);
    if (w->drop.threshold) tiled_grad_drop(w, room, m, panel, j0, keys);
    attention_bring(room->soon, TILED_LINES);
    if (m->hide || w->drop.threshold || w->softcap > 0 || j0 < span->all_from || j0 + keys > span->all_seen)
        tiled_grad_rows(w, room, m, panel, j0, keys, true);
    else tiled_grad_rows(w, room, m, panel, j0, keys, false);
    if (!w->want_queries) return;
    p.a = room->columns + j0 / 32 * tall * TILED_WORDS;
    p.b = room->ds_pairs;
    p.c = room->dq + panel * 16 * tall * TILED_QUERIES;
    p.a_side = TILED_TILE;
    p.a_step = tall * TILED_TILE;
    p.high = tall;
    p.steps = keys / 32;
    p.add = m->any[panel];
    tiled_grad_multiply(w, room, &p);
    m->any[panel] = true;
}

/* A block of queries against the block of keys from j0 on. */
static void tiled_grad_block(const attention_job *w, const tiled_grad *room, tiled_meeting *m, int64_t j0)
{
    const int64_t tall = 16 * tiled_tall(w);
    int64_t       keys[TILED_PANELS], most = 0, first = m->panels, last = -1;
    for (int64_t p = 0; p < m->panels; p++) {
        const int64_t left = m->span[p].seen - j0;
        keys[p] = left <= 0 || m->span[p].from >= j0 + TILED_GRAD_KEYS ? 0
                  : left < TILED_GRAD_KEYS                             ? tiled_up(left, 32)
                                                                       : TILED_GRAD_KEYS;
        if (keys[p] == 0) continue;
        first = p < first ? p : first;
        last = p;
        most = keys[p] > most ? keys[p] : most;
        tiled_grad_panel(w, room, m, p, j0, keys[p]);
    }
    if (!w->want_keys || last < 0) return;
    for (int64_t p = first; p <= last; p++) tiled_grad_clear(room, p, keys[p], most);
    tiled_product p = {.a = room->p + first * TILED_WORDS,
                       .b = room->g_pairs + first * 16 * tall,
                       .c = room->dv + j0 * tall,
                       .a_row = 64,
                       .a_side = TILED_PANELS * TILED_TILE,
                       .a_step = TILED_TILE,
                       .b_row = tall * 4,
                       .c_row = tall * 4,
                       .high = most / 16,
                       .wide = tall / 16,
                       .steps = last + 1 - first,
                       .add = true};
    tiled_grad_multiply(w, room, &p);
    p.a = room->ds + first * TILED_WORDS;
    p.b = room->q_pairs + first * 16 * tall;
    p.c = room->dk + j0 * tall;
    tiled_grad_multiply(w, room, &p);
}

/* dq of a panel goes to its place. */
static void tiled_grad_finish(const attention_job *w, const tiled_grad *room, const tiled_meeting *m, int64_t panel)
{
    const int64_t tall = 16 * tiled_tall(w), count = tiled_count(m, panel), i0 = m->i0 + panel * TILED_QUERIES;
    float        *dq = room->dq + panel * tall * TILED_QUERIES;
    for (int64_t e = 0; e < tall * TILED_QUERIES; e += 16)
        store_f32(dq + e, m->any[panel] ? load_f32(dq + e) * (float)w->scale : splat_f32(0));
    turn_f32(room->rows, w->size, dq, TILED_QUERIES, w->size, count);
    for (int64_t c = 0; c < count; c++)
        attention_put_pairs(w, attention_at_f32(w, &w->dq, m->b, i0 + c, m->head), room->rows + c * w->size, 1);
}

/* All keys of this chunk for one block of queries. */
static void tiled_grad_row_of_blocks(const attention_job *w, const tiled_grad *room, tiled_meeting *m, int64_t chunk)
{
    int64_t from = w->keys, seen = 0;
    tiled_grad_queries(w, room, m);
    for (int64_t p = 0; p < m->panels; p++) {
        from = m->span[p].from < from ? m->span[p].from : from;
        seen = m->span[p].seen > seen ? m->span[p].seen : seen;
    }
    for (int64_t j = from / TILED_GRAD_KEYS * TILED_GRAD_KEYS; j < seen; j += TILED_GRAD_KEYS)
        if (tiled_owns(w, true, j / TILED_GRAD_KEYS, chunk)) tiled_grad_block(w, room, m, j);
    for (int64_t p = 0; w->want_queries && p < m->panels; p++) tiled_grad_finish(w, room, m, p);
}

/* dk and dv of a head go to their places. */
static void tiled_grad_end(const attention_job *w, const tiled_grad *room, int64_t b, int64_t head, int64_t chunk)
{
    const int64_t tall = 16 * tiled_tall(w);
    for (int64_t j = 0; j < w->keys; j++) {
        if (!tiled_owns(w, true, j / TILED_GRAD_KEYS, chunk)) continue;
        float *dk = room->dk + j * tall;
        for (int64_t i = 0; i < tall; i += 16) store_f32(dk + i, load_f32(dk + i) * (float)w->scale);
        attention_put_pairs(w, attention_at_f32(w, &w->dk, b, j, head), dk, 1);
        attention_put_pairs(w, attention_at_f32(w, &w->dv, b, j, head), room->dv + j * tall, 1);
    }
}

/* All queries of one head that share the keys of a unit. */
static void tiled_grad_head(const attention_job *w, const tiled_grad *room, int64_t b, int64_t head, int64_t chunk,
                            const uint8_t *hide)
{
    for (int64_t i = 0; i < w->queries; i += TILED_BLOCK) {
        tiled_meeting m = {.b = b, .head = head, .i0 = i, .hide = hide};
        if (!tiled_owns(w, false, i / TILED_BLOCK, chunk)) continue;
        m.queries = w->queries - i < TILED_BLOCK ? w->queries - i : TILED_BLOCK;
        m.panels = (m.queries + TILED_QUERIES - 1) / TILED_QUERIES;
        tiled_grad_row_of_blocks(w, room, &m, chunk);
    }
}

static void tiled_grad_part(void *context, int64_t begin, int64_t end, int thread)
{
    const attention_job *w = context;
    const int64_t        group = w->heads / w->key_heads;
    tiled_grad           room;
    tiled_grad_layout(w, w->scratch + (size_t)thread * w->scratch_step, &room);
    w->tiles->begin();
    for (int64_t u = begin; u < end; u++) {
        const int64_t  unit = u / w->chunks, chunk = u % w->chunks, b = unit / w->key_heads, head = unit % w->key_heads;
        const uint8_t *hide = tiled_hidden(w, room.hide, b);
        attention_soon soon = attention_soon_of(w, u, end, false);
        room.soon = &soon;
        tiled_grad_begin(w, &room, b, head, chunk, hide);
        for (int64_t n = 0; n < group; n++) tiled_grad_head(w, &room, b, head * group + n, chunk, hide);
        if (w->want_keys) tiled_grad_end(w, &room, b, head, chunk);
    }
    w->tiles->end();
}
