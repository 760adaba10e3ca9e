/* attention_t.h - attention forward for one element type.
 *
 * Scores are stored transposed, as [key][query]. A panel of queries fills the lanes of vectors, so the running maximum
 * and sum are vectors. The block of probabilities is already the packed right-hand operand of o' = v' p'. */

#define GEMM_COLUMNS (2 * LANES)

/* Pieces of a thread's scratch, in elements. */
typedef struct F(attention_room) {
    T *k, *v;      /* all keys: rows of k, of attention_depth numbers; rows of v, or its pairs along keys */
    T *rows;       /* of pairs: rows of v of which hidden ones are zeros */
    T *q, *o;      /* ATTENTION_PANELS panels: (size, columns) each */
    T *scores;     /* a block of keys x columns */
    T *bias;       /* what is added to them */
    T *most, *sum; /* a panel each: running maximum and sum of exp */

    attention_soon *soon;
} F(attention_room);

/* Numbers of T that a row of q, k, v or g has as a factor: those of pairs hold two, the last one perhaps a zero. */
CPU_INLINE int64_t F(attention_depth)(const attention_job *w) { return w->pairs ? (w->size + 1) / 2 : w->size; }

static int64_t F(attention_layout)(const attention_job *w, char *base, F(attention_room) * room)
{
    int64_t at = 0, panels = ATTENTION_PANELS * GEMM_COLUMNS;
#define TAKE(name, count) (room->name = (void *)(base + at * (int64_t)sizeof(T)), at += ((count) + 15) / 16 * 16)
    TAKE(k, w->keys * w->size);
    TAKE(v, w->keys * w->size + LANES);
    TAKE(rows, w->mask && w->pairs ? w->keys * F(attention_depth)(w) : 0);
    TAKE(q, panels * w->size);
    TAKE(o, panels * w->size);
    TAKE(scores, ATTENTION_KEYS * GEMM_COLUMNS);
    TAKE(bias, w->bias ? ATTENTION_KEYS * GEMM_COLUMNS : 0);
    TAKE(most, panels);
    TAKE(sum, panels);
#undef TAKE
    return at;
}

static int64_t F(attention_scratch)(const attention_job *w)
{
    F(attention_room) room;
    return F(attention_layout)(w, NULL, &room);
}

/* Row s of head h of sample b. */
CPU_INLINE char *F(attention_at)(const attention_job *w, const attention_view *t, int64_t b, int64_t s, int64_t h)
{
    return t->data + (b * t->b + s * t->s + h * t->h) * w->bytes;
}

/* y = x: a call of memcpy costs more than rows of a small head. */
CPU_INLINE void F(attention_copy)(int64_t n, const T *x, T *y)
{
    for (int64_t i = 0; i < n; i += LANES) F(put)(y, i, n - i, F(at)(x, i, n - i));
}

/* The row of a head that is some rows further on comes near: rows lie far apart, and no prefetcher finds them. */
CPU_INLINE void F(attention_ahead)(const attention_job *w, const char *row, int64_t step)
{
    if (!w->ahead) return;
    const char *at = row + ATTENTION_AHEAD * step * w->bytes;
    for (int64_t i = 0; i < w->ahead; i += 64) __builtin_prefetch(at + i, 0, 3);
}

/* dst (count, attention_depth) = rows of t; hidden keys (b >= 0) are zero. */
static void F(attention_rows)(const attention_job *w, T *dst, const char *src, int64_t step, int64_t count, int64_t b,
                              int64_t first)
{
    const int64_t depth = F(attention_depth)(w);
    for (int64_t j = 0; j < count; j++, dst += depth, src += step * w->bytes) {
        const bool hidden = b >= 0 && attention_hidden(w, b, first + j);
        F(attention_ahead)(w, src, step);
        if (w->pairs && depth > 0) dst[depth - 1] = 0;
        if (hidden) memset(dst, 0, (size_t)depth * sizeof(T));
        else if (w->pairs) memcpy(dst, src, (size_t)(w->size * w->bytes));
        else F(attention_copy)(depth, (const T *)src, dst);
    }
}

/* As F(pack), of numbers of q, k, v or g; they become pairs where these are multiplied (gemm_pairs.c). */
static void F(attention_pack)(const attention_job *w, T *dst, int64_t width, const void *src, int64_t side,
                              int64_t along, int64_t count, int64_t k)
{
#if T_BITS == 32 && GEMM_PAIRS
    if (w->pairs) {
        pairs_pack(dst, width, src, side, along, count, k);
        return;
    }
#endif
    (void)w;
    F(pack)(dst, width, src, side, along, count, k);
}

/* Scores of the keys that limits hide from the panel's queries become -inf. */
static void F(attention_limit_hide)(const attention_job *w, T *s, int64_t b, int64_t j0, int64_t keys, int64_t i0,
                                    int64_t queries)
{
    for (int64_t c = 0; c < queries; c++) {
        int64_t from = attention_from(w, b, i0 + c) - j0, seen = attention_seen(w, b, i0 + c) - j0;
        for (int64_t j = 0; j < from && j < keys; j++) s[j * GEMM_COLUMNS + c] = (T)-INFINITY;
        for (int64_t j = seen < 0 ? 0 : seen; j < keys; j++) s[j * GEMM_COLUMNS + c] = (T)-INFINITY;
    }
}

/* Scores of hidden (key, query) pairs become -inf. Keys j0.., queries i0... of the panel. */
static void F(attention_hide)(const attention_job *w, T *s, int64_t b, int64_t j0, int64_t keys, int64_t i0,
                              int64_t queries)
{
    const T lowest = (T)-INFINITY;
    if (w->limits) F(attention_limit_hide)(w, s, b, j0, keys, i0, queries);
    for (int64_t j = j0; j < j0 + keys; j++, s += GEMM_COLUMNS) {
        int64_t own = j - w->shift - i0; /* the query at the key's place: those before it are blind */
        int64_t blind = attention_hidden(w, b, j) ? GEMM_COLUMNS : w->causal ? own : 0;
        int64_t past = w->window ? own + w->window : GEMM_COLUMNS; /* from here on queries have the key behind them */
        for (int64_t c = 0; c < blind && c < GEMM_COLUMNS; c++) s[c] = lowest;
        for (int64_t c = past < 0 ? 0 : past; c < GEMM_COLUMNS; c++) s[c] = lowest;
    }
}

/* Scores become softcap tanh(score / softcap). */
static void F(attention_cap)(const attention_job *w, T *s, int64_t count)
{
    T cap = (T)w->softcap, by = (T)(1 / w->softcap);
    for (int64_t e = 0; e < count; e += LANES) F(store)(s + e, F(tanh_v)(F(load)(s + e) * by) * cap);
}

/* The bias is added to the scores of a block. Keys j0.., queries i0... of the panel. */
static void F(attention_bias)(const attention_job *w, const F(attention_room) * room, int64_t b, int64_t head,
                              int64_t i0, int64_t queries, int64_t j0, int64_t keys)
{
    const int64_t *step = w->bias->stride;
    const T       *from = (const T *)gm_tensor_data(w->bias) + attention_bias_at(w, w->bias, b, head, i0, j0);
    T             *s = room->scores;
    F(pack)(room->bias, GEMM_COLUMNS, from, step[2], step[3], queries, keys);
    for (int64_t e = 0; e < keys * GEMM_COLUMNS; e += LANES) F(store)(s + e, F(load)(s + e) + F(load)(room->bias + e));
}

/* Dropout on the weights of keys j and j + 1 for a vector of queries, if these keys are among the block's: zero, or
 * times keep. numbers: the low halves are those of key j. */
CPU_INLINE void F(attention_drop_two)(const attention_job *w, T *s, int64_t j, int64_t keys, VI numbers)
{
    const TI threshold = (TI)w->drop.threshold;
    const V  keep = F(splat)((T)w->keep), none = F(splat)(0);
    for (int i = 0; i < 2; i++, j++, numbers >>= 16) {
        if (j < 0 || j >= keys) continue;
        T *at = s + j * GEMM_COLUMNS;
        F(store)(at, F(select)((numbers & 0xffff) < threshold, none, F(load)(at) * keep));
    }
}

/* Dropout on the weights [key][query] that a turn of attention_drop has drawn, from key j on, which may be negative. */
CPU_INLINE void F(attention_drop_turn)(const attention_job *w, T *s, int64_t j, int64_t keys, const philox_lanes *c)
{
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
#pragma GCC unroll 2
        for (int n = 0; n < CHAINS; n += 2) {
            const vu64 *x = &c->w[i][n];
            T          *at = s + n / 2 * LANES;
#if T_BITS == 32
            F(attention_drop_two)(w, at, j + 2 * i, keys, (VI)both_low(x[0], x[1]));
#else
            F(attention_drop_two)(w, at, j + 2 * i, keys, (VI)x[0]);
            F(attention_drop_two)(w, at, j + GM_DROP_EACH + 2 * i, keys, (VI)x[1]);
#endif
        }
}

/* Dropout on a block of weights [key][query]. A lane draws for one query, so nothing need be turned. Of two vectors of
 * blocks, f32 has one for the even and one for the odd queries, f64 one for each of two blocks of keys. */
static void F(attention_drop)(const attention_job *w, const F(attention_room) * room, int64_t b, int64_t head,
                              int64_t i0, int64_t queries, int64_t j0, int64_t keys)
{
    const uint64_t index = attention_index(w, b, head, i0, j0), row = attention_row_blocks(w);
    const int64_t  skip = (int64_t)(index % GM_DROP_EACH), blocks = (skip + keys + GM_DROP_EACH - 1) / GM_DROP_EACH;
    vu64           round_keys[2 * GM_DROP_ROUNDS], lanes = attention_draw(w, T_BITS == 32 ? 2 * row : row, round_keys);
    for (int64_t c = 0; c < queries; c += CHAINS / 2 * LANES)
        for (int64_t k = 0; k < blocks; k += T_BITS == 32 ? 1 : 2) {
            philox_lanes p;
#pragma GCC unroll 2
            for (int n = 0; n < CHAINS; n += 2) {
                p.w[0][n] = lanes + (index / GM_DROP_EACH + (uint64_t)k + (uint64_t)(c + n / 2 * LANES) * row);
                p.w[0][n + 1] = p.w[0][n] + (T_BITS == 32 ? row : 1);
            }
            philox_vectors(round_keys, GM_DROP_ROUNDS, w->step, &p);
            F(attention_drop_turn)(w, room->scores + c, k * GM_DROP_EACH - skip, keys, &p);
        }
}

/* Columns of a panel that are worked on: one vector is enough for few queries. */
CPU_INLINE int64_t F(attention_wide)(int64_t queries) { return queries > LANES ? GEMM_COLUMNS : LANES; }

/* From scores to probabilities relative to the running maximum; o and the sum are brought to the new maximum. */
static void F(attention_soften)(const attention_job *w, const F(attention_room) * room, int64_t queries, int64_t panel,
                                int64_t keys, bool first)
{
    T *s = room->scores, *o = room->o + panel * w->size * GEMM_COLUMNS;
    for (int64_t half = 0; half < queries; half += LANES) {
        T      *most = room->most + panel * GEMM_COLUMNS + half, *sum = room->sum + panel * GEMM_COLUMNS + half;
        V       old = F(load)(most), m0 = old, m1 = old;
        int64_t j = 0;
        for (; j + 2 <= keys; j += 2) {
            m0 = F(max_v)(m0, F(load)(s + j * GEMM_COLUMNS + half));
            m1 = F(max_v)(m1, F(load)(s + (j + 1) * GEMM_COLUMNS + half));
        }
        if (j < keys) m0 = F(max_v)(m0, F(load)(s + j * GEMM_COLUMNS + half));
        V m = F(max_v)(m0, m1),
          shift = F(select)(m == (T)-INFINITY, F(splat)(0), m); /* a query that sees nothing yet */
        V less = F(exp_down_v)(old - shift), s0 = F(load)(sum) * less, s1 = F(splat)(0);
        F(store)(most, m);
        for (j = 0; j + 2 <= keys; j += 2) {
            T *at = s + j * GEMM_COLUMNS + half;
            V  p0 = F(exp_down_v)(F(load)(at) - shift), p1 = F(exp_down_v)(F(load)(at + GEMM_COLUMNS) - shift);
            F(store)(at, p0);
            F(store)(at + GEMM_COLUMNS, p1);
            s0 += p0;
            s1 += p1;
        }
        if (j < keys) {
            V p = F(exp_down_v)(F(load)(s + j * GEMM_COLUMNS + half) - shift);
            F(store)(s + j * GEMM_COLUMNS + half, p);
            s0 += p;
        }
        F(store)(sum, s0 + s1);
        if (first) continue;
        for (int64_t d = 0; d < w->size; d++)
            F(store)(o + d * GEMM_COLUMNS + half, F(load)(o + d * GEMM_COLUMNS + half) * less);
    }
}

/* Probabilities become bf16, in pairs along keys, where they lie: row j / 2 has those of keys j and j + 1. */
static void F(attention_round)(T *s, int64_t keys)
{
#if T_BITS == 32 && GEMM_PAIRS
    for (int64_t j = 0; j < keys; j += 2)
        for (int64_t c = 0; c < GEMM_COLUMNS; c += LANES) {
            const T *at = s + j * GEMM_COLUMNS + c;
            store_f32(s + j / 2 * GEMM_COLUMNS + c,
                      pairs_of(load_f32(at), j + 1 < keys ? load_f32(at + GEMM_COLUMNS) : splat_f32(0)));
        }
#endif
    (void)s;
    (void)keys;
}

/* One block of keys [j0, j0 + keys) for one panel of queries from i0, which see `span`; first: of those it sees. */
static void F(attention_block)(const attention_job *w, const F(attention_room) * room, int64_t b, int64_t head,
                               int64_t i0, int64_t queries, int64_t panel, int64_t j0, int64_t keys,
                               const attention_span *span, bool first)
{
    bool    is_cut = j0 < span->all_from || j0 + keys > span->all_seen;
    int64_t d = w->size, slivers = F(gemm_slivers)(d), depth = F(attention_depth)(w);
    T      *q = room->q + panel * d * GEMM_COLUMNS, *o = room->o + panel * d * GEMM_COLUMNS;
    F(tile)
    t = {.b = q,
         .a_step = 1,
         .a_side = depth,
         .b_step = GEMM_COLUMNS,
         .k = depth,
         .c_row = GEMM_COLUMNS,
         .columns = F(attention_wide)(queries),
         .alpha = (T)w->scale,
         .pairs = w->pairs,
         .fetch = (const char *)q};
    for (int64_t j = 0; j < keys; j += GEMM_ROWS) {
        t.a = room->k + (j0 + j) * depth;
        t.c = room->scores + j * GEMM_COLUMNS;
        attention_bring(room->soon, ATTENTION_LINES);
        F(tile_run)(&t, keys - j < GEMM_ROWS ? keys - j : GEMM_ROWS);
    }
    if (w->softcap > 0) F(attention_cap)(w, room->scores, keys * GEMM_COLUMNS);
    if (w->bias) F(attention_bias)(w, room, b, head, i0, queries, j0, keys);
    if (w->mask || is_cut) F(attention_hide)(w, room->scores, b, j0, keys, i0, queries);
    F(attention_soften)(w, room, queries, panel, keys, first);
    if (w->drop.threshold) F(attention_drop)(w, room, b, head, i0, queries, j0, keys);
    if (w->pairs) F(attention_round)(room->scores, keys);
    t = (F(tile)){.b = room->scores,
                  .a_side = 1,
                  .b_step = GEMM_COLUMNS,
                  .k = w->pairs ? (keys + 1) / 2 : keys,
                  .a_step = d,
                  .c_row = GEMM_COLUMNS,
                  .columns = F(attention_wide)(queries),
                  .init_row = GEMM_COLUMNS,
                  .alpha = 1,
                  .pairs = w->pairs,
                  .fetch = (const char *)o};
    for (int64_t s = 0; s < slivers; s++) {
        int64_t i = F(cut)(d, slivers, s);
        t.a = room->v + (w->pairs ? j0 / 2 : j0) * d + i; /* blocks begin at even keys */
        t.c = o + i * GEMM_COLUMNS;
        t.init = first ? NULL : t.c;
        attention_bring(room->soon, ATTENTION_LINES);
        F(tile_run)(&t, F(cut)(d, slivers, s + 1) - i);
    }
}

/* The log of a sum of exp becomes that of both sums; what each sum is of it. */
CPU_INLINE void F(attention_shares)(T *lse, T more, T *before, T *here)
{
    double old = (double)*lse, own = (double)more, largest = old > own ? old : own;
    *before = 1;
    *here = 0;
    if (largest == -INFINITY) return;
    double both = largest + log(exp(old - largest) + exp(own - largest));
    *before = (T)exp(old - both);
    *here = (T)exp(own - both);
    *lse = (T)both;
}

#if T_BITS == 32 && GEMM_PAIRS
/* attention_put in bf16. */
static void attention_put_pairs(const attention_job *w, char *to, const float *row, float by)
{
    float room[GEMM_COLUMNS] __attribute__((aligned(64)));
    if (!w->accumulate) {
        cast_f32_bf16(w->size, row, to);
        return;
    }
    for (int64_t i = 0, m; i < w->size; i += m) {
        bits2 *narrow = (bits2 *)to + i;
        m = w->size - i < GEMM_COLUMNS ? w->size - i : GEMM_COLUMNS;
        cast_bf16_f32(m, narrow, room);
        for (int64_t d = 0; d < m; d++) room[d] = room[d] * by + row[i + d];
        cast_f32_bf16(m, room, narrow);
    }
}
#endif

/* A finished row of o or of a gradient goes to its place; accumulate: what is there counts `by` times. */
CPU_INLINE void F(attention_put)(const attention_job *w, char *to, const T *row, T by)
{
    const int64_t n = w->size;
    T            *y = (T *)to;
#if T_BITS == 32 && GEMM_PAIRS
    if (w->pairs) {
        attention_put_pairs(w, to, row, by);
        return;
    }
#endif
    if (!w->accumulate) F(attention_copy)(n, row, y);
    for (int64_t i = 0; w->accumulate && i < n; i += LANES)
        F(put)(y, i, n - i, F(at)(y, i, n - i) * by + F(at)(row, i, n - i));
}

/* o = o' / sum, lse = max + log(sum), for the queries of one panel; accumulate: each times its share of both. */
static void F(attention_finish)(const attention_job *w, const F(attention_room) * room, int64_t b, int64_t head,
                                int64_t i0, int64_t queries, int64_t panel, bool any)
{
    T *o = room->o + panel * w->size * GEMM_COLUMNS, *sum = room->sum + panel * GEMM_COLUMNS;
    T *most = room->most + panel * GEMM_COLUMNS, *lse = (T *)w->lse + b * w->lse_stride[0] + head * w->lse_stride[1];
    T  before[GEMM_COLUMNS], here[GEMM_COLUMNS];
    if (w->accumulate && !any) return;
    for (int64_t c = 0; c < GEMM_COLUMNS; c++) here[c] = 1;
    for (int64_t half = 0; half < queries; half += LANES) /* of a query that sees no key: -inf */
        F(store)(most + half, F(load)(most + half) + F(log_v)(F(load)(sum + half)));
    for (int64_t c = 0; c < queries; c++) {
        T *at = lse + (i0 + c) * w->lse_stride[2];
        if (w->accumulate) F(attention_shares)(at, most[c], &before[c], &here[c]);
        else *at = most[c];
    }
    for (int64_t half = 0; half < queries; half += LANES) {
        V total = F(load)(sum + half), part = F(select)(total == 0, F(splat)(0), F(load)(here + half) / total);
        for (int64_t d = 0; d < w->size; d++) {
            T *at = o + d * GEMM_COLUMNS + half;
            F(store)(at, any ? F(load)(at) * part : F(splat)(0));
        }
    }
    char *to = F(attention_at)(w, &w->o, b, i0, head);
    if (!w->accumulate && !w->pairs) {
        F(turn)((T *)to, w->o.s, o, GEMM_COLUMNS, w->size, queries);
        return;
    }
    T *rows = room->q + panel * w->size * GEMM_COLUMNS; /* the panel's queries have been used */
    F(turn)(rows, w->size, o, GEMM_COLUMNS, w->size, queries);
    for (int64_t c = 0; c < queries; c++, to += w->o.s * w->bytes) {
        F(attention_ahead)(w, to, w->o.s);
        F(attention_put)(w, to, rows + c * w->size, before[c]);
    }
}

/* The panels of queries from i0 on, at most ATTENTION_PANELS of them, against all keys they see. */
static void F(attention_group)(const attention_job *w, const F(attention_room) * room, int64_t b, int64_t head,
                               int64_t i0)
{
    attention_span span[ATTENTION_PANELS];
    int64_t        panels = 0, count[ATTENTION_PANELS], from[ATTENTION_PANELS], least = w->keys, most = 0;
    for (int64_t i = i0; i < w->queries && panels < ATTENTION_PANELS; i += GEMM_COLUMNS, panels++) {
        count[panels] = w->queries - i < GEMM_COLUMNS ? w->queries - i : GEMM_COLUMNS;
        span[panels] = attention_span_of(w, b, i, count[panels]);
        from[panels] = span[panels].from / ATTENTION_KEYS * ATTENTION_KEYS; /* its first block of keys */
        if (span[panels].seen > most) most = span[panels].seen;
        if (from[panels] < least) least = from[panels];
        F(attention_pack)
        (w, room->q + panels * w->size * GEMM_COLUMNS, GEMM_COLUMNS, F(attention_at)(w, &w->q, b, i, head), w->q.s, 1,
         count[panels], w->size);
    }
    for (int64_t c = 0; c < panels * GEMM_COLUMNS; c++) {
        room->most[c] = (T)-INFINITY;
        room->sum[c] = 0;
    }
    for (int64_t j = least; j < most; j += ATTENTION_KEYS)
        for (int64_t p = 0; p < panels; p++) {
            int64_t i = i0 + p * GEMM_COLUMNS, left = span[p].seen - j;
            int64_t keys = left < ATTENTION_KEYS ? left : ATTENTION_KEYS;
            if (keys > 0 && j >= from[p])
                F(attention_block)(w, room, b, head, i, count[p], p, j, keys, &span[p], j == from[p]);
        }
    for (int64_t p = 0; p < panels; p++)
        F(attention_finish)(w, room, b, head, i0 + p * GEMM_COLUMNS, count[p], p, span[p].seen > from[p]);
}

/* Keys and values of one head. */
static void F(attention_pack_keys)(const attention_job *w, const F(attention_room) * room, int64_t b, int64_t head)
{
    const int64_t hidden = w->mask ? b : -1, d = w->size;
    const char   *v = F(attention_at)(w, &w->v, b, 0, head);
    F(attention_rows)(w, room->k, F(attention_at)(w, &w->k, b, 0, head), w->k.s, w->keys, hidden, 0);
    if (!w->pairs || w->mask) F(attention_rows)(w, w->pairs ? room->rows : room->v, v, w->v.s, w->keys, hidden, 0);
    if (w->pairs && w->mask) F(attention_pack)(w, room->v, d, room->rows, 1, 2 * F(attention_depth)(w), d, w->keys);
    else if (w->pairs) F(attention_pack)(w, room->v, d, v, 1, w->v.s, d, w->keys);
}

static void F(attention_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const attention_job *w = context;
    int64_t              group = w->heads / w->key_heads, last = -1;
    F(attention_room) room;
    F(attention_layout)(w, w->scratch + (size_t)thread * w->scratch_step, &room);
    for (int64_t u = begin; u < end; u++) {
        int64_t unit = u / w->chunks, b = unit / w->key_heads, head = unit % w->key_heads;

        attention_soon soon = attention_soon_of(w, u, end, true);
        room.soon = &soon;
        if (unit != last) F(attention_pack_keys)(w, &room, b, head);
        last = unit;
        for (int64_t n = 0; n < group; n++)
            for (int64_t i = 0, g = 0; i < w->queries; i += ATTENTION_PANELS * GEMM_COLUMNS, g++)
                if (attention_owns(g, w->chunks, u % w->chunks)) F(attention_group)(w, &room, b, head * group + n, i);
    }
}
