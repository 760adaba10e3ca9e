/* attention_amx.c - attention of bf16 in tiles of AMX (amx_tiles.h), by the algorithm of attention.c, whose helpers it
 * takes. attention_amx_grad.c has the gradient, attention_amx.h what both share.
 *
 * For a panel of 32 queries and a block of keys, scores' = k q' are tiles with the keys as rows; weights are rounded to
 * bf16 and become pairs of keys where the scores lay; o' += v' weights'. Keys and turned values of a head are packed
 * once for each thread. A panel's o' stays in memory as f32 from block to block, and comes into tiles to be added to.
 * It is multiplied only where a maximum has grown.
 *
 * All calls of bf16 without a bias come here that tiled_pays; narrow.c converts the others to f32. Scores, maxima,
 * sums and o are f32. Numbers and sums below 2^-126 count as zeros in products (gemm_pairs.c). Bits differ from those
 * of other tables; they depend on the shape alone.
 *
 * Measured on a Sapphire Rapids core, 12 heads of 64 numbers, 1024 keys, 5.6 ms: blocks of 128 keys are as fast as
 * those of 256, and so was a way in which the products of one panel stood between parts of another's weights, up to
 * 2 x 2 tiles of 32 numbers at a time. In a loop apart, weights of 16 scores take 2.3 ns, products of scores 0.9, both
 * in turns 3.5, and 2.8 where one tile's product stands behind each four vectors of weights. Part of attention.c. */

#define TILED_KEYS   256 /* of a block */
#define TILED_PANELS 4   /* that share it */

/* Is the call quicker in tiles than in f32? 16 queries and 16 keys of small heads fill few tiles. */
static bool tiled_pays(const gm_call *call)
{
    const int64_t most = call->op == GM_OP_attention ? 16 : 32; /* numbers of a head, measured */
    return call->in[0]->shape[1] > 16 || call->in[1]->shape[1] > 16 || call->in[0]->shape[3] > most;
}

/* Pieces of a thread's scratch. */
typedef struct tiled_room {
    float   *k, *v;       /* all keys as tiles of rows, all values as tiles of columns */
    float   *q, *o;       /* for each panel: pairs; sums, [number of the head][query] */
    float   *scores;      /* of a block; then weights */
    float   *most, *sum;  /* for each panel: the running maximum times the factor of exp, and the sum of exp */
    float   *rows;        /* for the end of a panel */
    int32_t *from, *seen; /* for each panel: tiled_sight */
    uint8_t *hide;

    attention_soon *soon;
} tiled_room;

static int64_t tiled_layout(const attention_job *w, char *base, tiled_room *room)
{
    const int64_t keys = tiled_up(w->keys, 32), panels = TILED_PANELS * TILED_QUERIES;
    const int64_t deep = 16 * tiled_deep(w), tall = 16 * tiled_tall(w);
    int64_t       at = 0;
#define TAKE(name, count) (room->name = (void *)(base + at * (int64_t)sizeof(float)), at += tiled_up(count, 16))
    TAKE(k, keys * deep);
    TAKE(v, keys * tall / 2);
    TAKE(q, panels * deep);
    TAKE(o, panels * tall);
    TAKE(scores, TILED_KEYS * TILED_QUERIES);
    TAKE(most, panels);
    TAKE(sum, panels);
    TAKE(rows, TILED_QUERIES * w->size);
    TAKE(from, panels);
    TAKE(seen, panels);
    TAKE(hide, w->mask ? (keys + 3) / 4 : 0);
#undef TAKE
    return at;
}

static int64_t tiled_scratch(const attention_job *w)
{
    tiled_room room;
    return tiled_layout(w, NULL, &room);
}

/* Scores of a block are capped, and those of keys that a query does not see become -inf. Queries c of the panel. */
static void tiled_amend(const attention_job *w, const tiled_room *room, const uint8_t *hide, int64_t panel, int64_t j0,
                        int64_t keys)
{
    const int32_t *from = room->from + panel * TILED_QUERIES, *seen = room->seen + panel * TILED_QUERIES;
    const float    cap = (float)w->softcap, by = (float)(w->scale / w->softcap);
    for (int64_t j = j0; j < j0 + keys; j++)
        for (int64_t c = 0; c < TILED_QUERIES; c += 16) {
            float     *at = room->scores + (j - j0) * TILED_QUERIES + c;
            vf32       s = load_f32(at);
            const bool hidden = hide && j < w->keys && hide[j];
            if (w->softcap > 0) s = tanh_v_f32(s * by) * cap;
            s = select_f32(tiled_sees(from + c, seen + c, j), s, splat_f32(-INFINITY));
            store_f32(at, hidden ? splat_f32(-INFINITY) : s);
        }
}

/* Weights of 16 queries from their scores, 2^(factor score - shift): in pairs of keys from the block's beginning on,
 * or, if they are to be dropped out of, as they are. Returns their sums. */
CPU_INLINE vf32 tiled_weights(float *at, int64_t keys, float factor, vf32 shift, const bool in_pairs)
{
    vf32 s0 = splat_f32(0), s1 = s0;
    for (int64_t j = 0; j < keys; j += 2) {
        float *x = at + j * TILED_QUERIES, *y = x + TILED_QUERIES;
        vf32   p0 = tiled_power(load_f32(x) * factor - shift), p1 = tiled_power(load_f32(y) * factor - shift);
        s0 += p0;
        s1 += p1;
        if (in_pairs) {
            store_f32(at + j / 2 * TILED_QUERIES, tiled_pair(p0, p1));
        } else {
            store_f32(x, p0);
            store_f32(y, p1);
        }
    }
    return s0 + s1;
}

/* The largest scores of 16 queries. */
CPU_INLINE vf32 tiled_most(const float *at, int64_t keys)
{
    vf32 m[4];
    for (int i = 0; i < 4; i++) m[i] = load_f32(at + i * TILED_QUERIES);
    for (int64_t j = 4; j < keys; j += 4)
        for (int i = 0; i < 4; i++) m[i] = max_v_f32(m[i], load_f32(at + (j + i) * TILED_QUERIES));
    return max_v_f32(max_v_f32(m[0], m[1]), max_v_f32(m[2], m[3]));
}

/* From scores to weights relative to the running maximum; o and the sum are brought to the new maximum. */
static void tiled_soften(const attention_job *w, const tiled_room *room, int64_t queries, int64_t panel, int64_t keys,
                         bool first)
{
    const float   factor = (float)(w->softcap > 0 ? TILED_LOG2_E : w->scale * TILED_LOG2_E);
    const int64_t tall = 16 * tiled_tall(w);
    float        *o = room->o + panel * tall * TILED_QUERIES;
    for (int64_t c = 0; c < queries; c += 16) {
        float *at = room->scores + c, *most = room->most + panel * TILED_QUERIES + c;
        float *sum = room->sum + panel * TILED_QUERIES + c;
        vf32   old = load_f32(most), m = max_v_f32(old, tiled_most(at, keys) * factor);
        vf32   shift = select_f32(m == -INFINITY, splat_f32(0), m); /* a query that sees nothing yet */
        vf32   less = tiled_power(old - shift), more;
        if (w->drop.threshold) more = tiled_weights(at, keys, factor, shift, false);
        else more = tiled_weights(at, keys, factor, shift, true);
        store_f32(most, m);
        store_f32(sum, load_f32(sum) * less + more);
        if (first || !tiled_any(less != 1)) continue;
        for (int64_t d = 0; d < tall; d++) {
            float *x = o + d * TILED_QUERIES + c;
            store_f32(x, load_f32(x) * less);
        }
    }
}

/* One block of `keys` keys from j0 on, whole tiles, for one panel of queries from i0, which see `span`. first: of those
 * it sees. */
static void tiled_step(const attention_job *w, const tiled_room *room, const uint8_t *hide, int64_t b, int64_t head,
                       int64_t i0, int64_t queries, int64_t panel, int64_t j0, int64_t keys, const attention_span *span,
                       bool first)
{
    const int64_t deep = tiled_deep(w), tall = tiled_tall(w), wide = queries > 16 ? 2 : 1, row = TILED_QUERIES * 4;
    const int64_t here = w->keys - j0 < keys ? w->keys - j0 : keys; /* those that exist */
    tiled_product p = {.a = room->k + j0 / 16 * deep * TILED_WORDS,
                       .b = room->q + panel * 16 * deep * TILED_QUERIES,
                       .c = room->scores,
                       .a_row = 64,
                       .a_side = deep * TILED_TILE,
                       .a_step = TILED_TILE,
                       .b_row = row,
                       .c_row = row,
                       .high = keys / 16,
                       .wide = wide,
                       .steps = deep};
    attention_bring(room->soon, TILED_LINES);
    w->tiles->multiply(&p);
    attention_bring(room->soon, TILED_LINES);
    if (hide || w->softcap > 0 || j0 < span->all_from || j0 + keys > span->all_seen)
        tiled_amend(w, room, hide, panel, j0, keys);
    tiled_soften(w, room, queries, panel, keys, first);
    if (w->drop.threshold) {
        attention_drop_f32(w, &(attention_room_f32){.scores = room->scores}, b, head, i0, queries, j0, here);
        attention_round_f32(room->scores, keys);
    }
    p.a = room->v + j0 / 32 * tall * TILED_WORDS;
    p.b = room->scores;
    p.c = room->o + panel * 16 * tall * TILED_QUERIES;
    p.a_side = TILED_TILE;
    p.a_step = tall * TILED_TILE;
    p.high = tall;
    p.steps = keys / 32;
    p.add = !first;
    attention_bring(room->soon, TILED_LINES);
    w->tiles->multiply(&p);
}

/* attention_finish of one panel. */
static void tiled_finish(const attention_job *w, const tiled_room *room, int64_t b, int64_t head, int64_t i0,
                         int64_t queries, int64_t panel, bool any)
{
    attention_room_f32 r = {.q = room->rows,
                            .o = room->o + panel * 16 * tiled_tall(w) * TILED_QUERIES,
                            .most = room->most + panel * TILED_QUERIES,
                            .sum = room->sum + panel * TILED_QUERIES};
    for (int64_t c = 0; c < TILED_QUERIES; c += 16) store_f32(r.most + c, load_f32(r.most + c) * (float)TILED_LN_2);
    attention_finish_f32(w, &r, b, head, i0, queries, 0, any);
}

/* The panels of queries from i0 on, at most TILED_PANELS of them, against all keys they see. */
static void tiled_group(const attention_job *w, const tiled_room *room, const uint8_t *hide, int64_t b, int64_t head,
                        int64_t i0)
{
    attention_span span[TILED_PANELS];
    int64_t        panels = 0, count[TILED_PANELS], from[TILED_PANELS], least = w->keys, most = 0;
    for (int64_t i = i0; i < w->queries && panels < TILED_PANELS; i += TILED_QUERIES, panels++) {
        const int64_t at = panels * TILED_QUERIES;
        count[panels] = w->queries - i < TILED_QUERIES ? w->queries - i : TILED_QUERIES;
        span[panels] = attention_span_of(w, b, i, count[panels]);
        from[panels] = span[panels].from / TILED_KEYS * TILED_KEYS; /* its first block of keys */
        if (span[panels].seen > most) most = span[panels].seen;
        if (from[panels] < least) least = from[panels];
        tiled_panel(w, room->q + at * 16 * tiled_deep(w), attention_at_f32(w, &w->q, b, i, head), w->q.s,
                    count[panels]);
        tiled_sight(w, b, i, count[panels], room->from + at, room->seen + at);
    }
    for (int64_t c = 0; c < panels * TILED_QUERIES; c++) {
        room->most[c] = -INFINITY;
        room->sum[c] = 0;
    }
    for (int64_t j = least; j < most; j += TILED_KEYS)
        for (int64_t p = 0; p < panels; p++) {
            const int64_t left = span[p].seen - j, keys = left < TILED_KEYS ? tiled_up(left, 32) : TILED_KEYS;
            if (left > 0 && j >= from[p])
                tiled_step(w, room, hide, b, head, i0 + p * TILED_QUERIES, count[p], p, j, keys, &span[p],
                           j == from[p]);
        }
    for (int64_t p = 0; p < panels; p++)
        tiled_finish(w, room, b, head, i0 + p * TILED_QUERIES, count[p], p, span[p].seen > from[p]);
}

static void tiled_part(void *context, int64_t begin, int64_t end, int thread)
{
    const attention_job *w = context;
    const int64_t        group = w->heads / w->key_heads;
    const uint8_t       *hide = NULL;
    int64_t              last = -1;
    tiled_room           room;
    tiled_layout(w, w->scratch + (size_t)thread * w->scratch_step, &room);
    w->tiles->begin();
    for (int64_t u = begin; u < end; u++) {
        const int64_t unit = u / w->chunks, b = unit / w->key_heads, head = unit % w->key_heads;

        attention_soon soon = attention_soon_of(w, u, end, true);
        room.soon = &soon;
        if (unit != last) {
            hide = tiled_hidden(w, room.hide, b);
            tiled_rows(w, room.k, attention_at_f32(w, &w->k, b, 0, head), w->k.s, w->keys, hide);
            tiled_columns(w, room.v, attention_at_f32(w, &w->v, b, 0, head), w->v.s, w->keys, hide);
        }
        last = unit;
        for (int64_t n = 0; n < group; n++)
            for (int64_t i = 0, g = 0; i < w->queries; i += TILED_PANELS * TILED_QUERIES, g++)
                if (attention_owns(g, w->chunks, u % w->chunks)) tiled_group(w, &room, hide, b, head * group + n, i);
    }
    w->tiles->end();
}
