/* pages_t.h - attention to pages for one type of arithmetic (as.h); see pages.c. */

/* Pieces of a thread's scratch, in elements. The queries of a unit are its heads times those of the call. */
typedef struct F(pages_room) {
    T *q, *o;          /* queries, times the scale; sums of values */
    T *most, *sum;     /* of each query: the largest score so far, the sum of exp of the scores less it */
    T *k, *v, *scores; /* a block of keys and values, where they must be widened; the scores of one query */
} F(pages_room);

static int64_t F(pages_layout)(const pages_job *w, char *base, F(pages_room) * room)
{
    int64_t at = 0, rows = w->heads / w->key_heads / w->parts * w->queries, block = w->widen ? PAGES_KEYS * w->size : 0;
#define TAKE(name, count) (room->name = (void *)(base + at * (int64_t)sizeof(T)), at += ((count) + 15) / 16 * 16)
    TAKE(q, rows * w->size);
    TAKE(o, rows * w->size);
    TAKE(most, rows);
    TAKE(sum, rows);
    TAKE(k, block);
    TAKE(v, block);
    TAKE(scores, PAGES_KEYS);
#undef TAKE
    return at;
}

static size_t F(pages_scratch)(const pages_job *w)
{
    F(pages_room) room;
    return (size_t)F(pages_layout)(w, NULL, &room);
}

/* The queries of a unit: head by head, and the positions of each. */
static void F(pages_begin)(const pages_job *w, const F(pages_room) * room, int64_t r, int64_t head, int64_t heads)
{
    const size_t size = gm_dtype_size(w->dtype);
    for (int64_t n = 0, row = 0; n < heads; n++)
        for (int64_t i = 0; i < w->queries; i++, row++) {
            T          *q = room->q + row * w->size;
            const char *from = w->q.data + (r * w->q.b + i * w->q.s + (head + n) * w->q.h) * (int64_t)size;
            if (w->widen) w->widen(w->size, from, q);
            else memcpy(q, from, size * (size_t)w->size);
            F(scale_row)(w->size, (T)w->scale, q, q);
            memset(room->o + row * w->size, 0, (size_t)w->size * sizeof(T));
            room->most[row] = (T)-INFINITY;
            room->sum[row] = 0;
        }
}

/* n rows of a page as T: themselves, or widened. */
static const T *F(pages_rows)(const pages_job *w, const char *pool, const int64_t *stride, const int64_t *at, int64_t n,
                              T *room, int64_t *step)
{
    const int64_t size = (int64_t)gm_dtype_size(w->dtype);
    const char   *from = pool + (at[0] * stride[0] + at[1] * stride[1] + at[2] * stride[2]) * size;
    *step = w->widen ? w->size : stride[2];
    if (!w->widen) return (const T *)(const void *)from;
    for (int64_t j = 0; j < n; j++) w->widen(w->size, from + j * stride[2] * size, room + j * w->size);
    return room;
}

/* scores[j] = q . k_j, four keys at a time; what is behind them up to a whole vector is -inf. */
static void F(pages_scores)(int64_t size, const T *q, const T *k, int64_t step, int64_t n, T *scores)
{
    for (int64_t j = 0; j < n; j += 4) {
        const T *row[4];
        V        sum[4] = {F(splat)(0), F(splat)(0), F(splat)(0), F(splat)(0)};
        int64_t  c = 0;
        for (int i = 0; i < 4; i++) row[i] = k + (j + i < n ? j + i : j) * step;
        for (; c + LANES <= size; c += LANES) {
            V x = F(load)(q + c);
            for (int i = 0; i < 4; i++) sum[i] += x * F(load)(row[i] + c);
        }
        if (c < size) {
            V x = F(load_n)(q + c, size - c);
            for (int i = 0; i < 4; i++) sum[i] += x * F(load_n)(row[i] + c, size - c);
        }
        for (int i = 0; i < 4; i++) scores[j + i] = j + i < n ? F(sum_v)(sum[i]) : (T)-INFINITY;
    }
    for (int64_t j = (n + 3) / 4 * 4; j % LANES; j++) scores[j] = (T)-INFINITY;
}

/* Scores become softcap tanh(score / softcap); those behind the n first stay. */
static void F(pages_cap)(const pages_job *w, T *scores, int64_t n)
{
    T cap = (T)w->softcap, by = (T)(1 / w->softcap);
    for (int64_t j = 0; j < n; j += LANES) {
        V s = F(tanh_v)(F(load)(scores + j) * by) * cap;
        F(put)(scores, j, n - j < LANES ? n - j : LANES, s);
    }
}

/* Scores become exp(score - *most), *most the largest now; gives what earlier sums must be multiplied by. */
static T F(pages_weights)(T *scores, int64_t n, T *most, T *sum)
{
    T before = *most, largest = before;
    V total = F(splat)(0);
    for (int64_t j = 0; j < n; j++) largest = scores[j] > largest ? scores[j] : largest;
    T shift = largest == (T)-INFINITY ? 0 : largest;
    for (int64_t j = 0; j < n; j += LANES) {
        V p = F(exp_v)(F(load)(scores + j) - shift);
        F(store)(scores + j, p);
        total += p;
    }
    T left = before == (T)-INFINITY ? 0 : F(exp_v)(F(splat)(before - shift))[0];
    *most = largest;
    *sum = *sum * left + F(sum_v)(total);
    return left;
}

/* o = left o + the sum of p_j v_j */
static void F(pages_add)(int64_t size, T left, T *o, const T *p, const T *v, int64_t step, int64_t n)
{
    int64_t c = 0;
    for (; c + 4 * LANES <= size; c += 4 * LANES) {
        V s[4];
        for (int i = 0; i < 4; i++) s[i] = F(load)(o + c + i * LANES) * left;
        for (int64_t j = 0; j < n; j++)
            for (int i = 0; i < 4; i++) s[i] += F(load)(v + j * step + c + i * LANES) * p[j];
        for (int i = 0; i < 4; i++) F(store)(o + c + i * LANES, s[i]);
    }
    for (; c < size; c += LANES) {
        int64_t wide = size - c < LANES ? size - c : LANES;
        V       s = F(at)(o, c, wide) * left;
        for (int64_t j = 0; j < n; j++) s += F(at)(v + j * step, c, wide) * p[j];
        F(put)(o, c, wide, s);
    }
}

/* All queries of the unit and the keys first .. first + n of the row, which lie in one page. */
static void F(pages_block)(const pages_job *w, const F(pages_room) * room, int64_t r, int64_t head, int64_t heads,
                           int64_t first, int64_t n, int64_t count)
{
    const int64_t at[3] = {gm_pages_index(&w->g, r, first / w->g.page), head, first % w->g.page};
    int64_t       k_step, v_step;
    const T      *k = F(pages_rows)(w, w->k, w->k_stride, at, n, room->k, &k_step);
    const T      *v = F(pages_rows)(w, w->v, w->v_stride, at, n, room->v, &v_step);
    for (int64_t row = 0; row < heads * w->queries; row++) {
        int64_t end = count - w->queries + row % w->queries + 1 - first; /* of what the query sees */
        int64_t begin = w->window && end > w->window ? end - w->window : 0, seen = (end < n ? end : n) - begin;
        if (seen <= 0) continue;
        F(pages_scores)(w->size, room->q + row * w->size, k + begin * k_step, k_step, seen, room->scores);
        if (w->softcap > 0) F(pages_cap)(w, room->scores, seen);
        T left = F(pages_weights)(room->scores, seen, room->most + row, room->sum + row);
        F(pages_add)(w->size, left, room->o + row * w->size, room->scores, v + begin * v_step, v_step, seen);
    }
}

static void F(pages_end)(const pages_job *w, const F(pages_room) * room, int64_t r, int64_t head, int64_t heads)
{
    const size_t size = gm_dtype_size(w->dtype);
    for (int64_t n = 0, row = 0; n < heads; n++)
        for (int64_t i = 0; i < w->queries; i++, row++) {
            T    *o = room->o + row * w->size;
            char *to = w->o.data + (r * w->o.b + i * w->o.s + (head + n) * w->o.h) * (int64_t)size;
            F(scale_row)(w->size, room->sum[row] > 0 ? 1 / room->sum[row] : 0, o, o);
            if (w->round) w->round(w->size, o, to);
            else memcpy(to, o, size * (size_t)w->size);
        }
}

static void F(pages_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const pages_job *w = context;
    int64_t          group = w->heads / w->key_heads, heads = group / w->parts;
    F(pages_room) room;
    F(pages_layout)(w, w->scratch + (size_t)thread * w->scratch_step, &room);
    for (int64_t u = begin; u < end; u++) {
        int64_t unit = u / w->parts, r = unit / w->key_heads, head = unit % w->key_heads;
        int64_t first = head * group + u % w->parts * heads, count = gm_pages_count(&w->g, r);
        F(pages_begin)(w, &room, r, first, heads);
        for (int64_t j = pages_first(w, count); j < count;) {
            int64_t left = w->g.page - j % w->g.page, n = left < PAGES_KEYS ? left : PAGES_KEYS;
            if (n > count - j) n = count - j;
            F(pages_block)(w, &room, r, head, heads, j, n, count);
            j += n;
        }
        F(pages_end)(w, &room, r, first, heads);
    }
}
