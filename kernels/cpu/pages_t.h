/* pages_t.h - attention to pages for one type of arithmetic (as.h); see pages.c. */

/* Pieces of a thread's scratch, in elements. The queries of a unit are its heads times those of the call. */
typedef struct F(pages_room) {
    T *q, *o;         /* queries, times the scale; sums of values */
    T *most, *sum;    /* of each query: the largest score so far, the sum of exp of the scores less it */
    T *left, *scores; /* of each query and a block: what earlier sums are multiplied by; PAGES_ROW scores */
    T *k, *v;         /* keys and values of a page, where they must be widened */
} F(pages_room);

static int64_t F(pages_layout)(const pages_job *w, char *base, F(pages_room) * room)
{
    int64_t at = 0, rows = w->heads / w->key_heads / w->parts * w->queries, block = w->widen ? PAGES_KEYS * w->size : 0;
#define TAKE(name, count) (room->name = (void *)(base + at * (int64_t)sizeof(T)), at += ((count) + 15) / 16 * 16)
    TAKE(q, rows * w->size);
    TAKE(o, rows * w->size);
    TAKE(most, rows);
    TAKE(sum, rows);
    TAKE(left, rows);
    TAKE(scores, rows * PAGES_ROW);
    TAKE(k, block);
    TAKE(v, block);
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

/* The keys or values of a run as T: themselves, or widened. */
static const T *F(pages_rows)(const pages_job *w, const char *from, const int64_t *stride, int64_t n, T *room,
                              int64_t *step)
{
    const int64_t row = stride[2] * (int64_t)gm_dtype_size(w->dtype);
    *step = w->widen ? w->size : stride[2];
    if (!w->widen) return (const T *)(const void *)from;
    for (int64_t j = 0; j < n; j++) w->widen(w->size, from + j * row, room + j * w->size);
    return room;
}

/* scores[j] = q . k_j, LANES keys at a time: what lies behind them up to a whole vector is written, too. */
static void F(pages_scores)(int64_t size, const T *q, const T *k, int64_t step, int64_t n, T *scores)
{
    for (int64_t j = 0; j < n; j += LANES) {
        const T *row[LANES];
        V        sum[LANES];
        int64_t  c = 0;
        for (int i = 0; i < LANES; i++) row[i] = k + (j + i < n ? j + i : j) * step;
        for (int i = 0; i < LANES; i++) sum[i] = F(splat)(0);
        for (; c + LANES <= size; c += LANES) {
            V x = F(load)(q + c);
            for (int i = 0; i < LANES; i++) sum[i] += x * F(load)(row[i] + c);
        }
        if (c < size) {
            V x = F(load_n)(q + c, size - c);
            for (int i = 0; i < LANES; i++) sum[i] += x * F(load_n)(row[i] + c, size - c);
        }
        F(store)(scores + j, F(sums_v)(sum));
    }
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

/* Scores become exp(score - *most), *most the largest now; gives what earlier sums must be multiplied by. Behind the n
 * scores are lanes of -inf. */
static T F(pages_weights)(T *scores, int64_t n, T *most, T *sum)
{
    T before = *most;
    V total = F(splat)(0), all = F(splat)(before);
    for (int64_t j = 0; j < n; j += LANES) all = F(max_v)(F(load)(scores + j), all);
    T largest = F(max_of)(all), shift = largest == (T)-INFINITY ? 0 : largest;
    for (int64_t j = 0; j < n; j += LANES) {
        V p = F(exp_down_v)(F(load)(scores + j) - shift);
        F(store)(scores + j, p);
        total += p;
    }
    T left = before == (T)-INFINITY ? 0 : F(exp_down_v)(F(splat)(before - shift))[0];
    *most = largest;
    *sum = *sum * left + F(sum_v)(total);
    return left;
}

/* `wide` vectors of o at a time, from c on; gives where it ended. */
CPU_INLINE int64_t F(pages_add_wide)(const int wide, int64_t c, int64_t size, T left, T *o, const T *p, const T *v,
                                     int64_t step, int64_t n)
{
    for (; c + wide * LANES <= size; c += wide * LANES) {
        V s[8];
#pragma GCC unroll 8
        for (int i = 0; i < wide; i++) s[i] = F(load)(o + c + i * LANES) * left;
        for (int64_t j = 0; j < n; j++) {
            V by = F(splat)(p[j]);
#pragma GCC unroll 8
            for (int i = 0; i < wide; i++) s[i] += F(load)(v + j * step + c + i * LANES) * by;
        }
#pragma GCC unroll 8
        for (int i = 0; i < wide; i++) F(store)(o + c + i * LANES, s[i]);
    }
    return c;
}

/* o = left o + the sum of p_j v_j */
static void F(pages_add)(int64_t size, T left, T *o, const T *p, const T *v, int64_t step, int64_t n)
{
    int64_t c = F(pages_add_wide)(8, 0, size, left, o, p, v, step, n);
    c = F(pages_add_wide)(4, c, size, left, o, p, v, step, n);
    c = F(pages_add_wide)(1, c, size, left, o, p, v, step, n);
    if (c == size) return;
    V s = F(load_n)(o + c, size - c) * left;
    for (int64_t j = 0; j < n; j++) s += F(load_n)(v + j * step + c, size - c) * p[j];
    F(store_n)(o + c, size - c, s);
}

/* Scores of the queries of a unit to the keys of a run. */
static void F(pages_score)(const pages_job *w, const F(pages_room) * room, const pages_block *b, const pages_run *run)
{
    int64_t  step;
    const T *k = F(pages_rows)(w, run->k, w->k_stride, run->n, room->k, &step);
    for (int64_t row = 0; row < b->rows; row++) {
        const pages_span s = pages_seen(w, b, row), part = pages_part_of(s, run);
        T               *scores = room->scores + row * PAGES_ROW + part.begin - s.begin;
        pages_fetch(w, b, row, run->v, w->v_stride, run->n);
        if (part.begin >= part.end) continue;
        F(pages_scores)
        (w->size, room->q + row * w->size, k + (part.begin - run->at) * step, step, part.end - part.begin, scores);
    }
}

/* Scores of the queries of a unit to the keys of a block become weights. */
static void F(pages_weigh)(const pages_job *w, const F(pages_room) * room, const pages_block *b)
{
    for (int64_t row = 0; row < b->rows; row++) {
        const pages_span s = pages_seen(w, b, row);
        const int64_t    seen = s.end - s.begin;
        T               *scores = room->scores + row * PAGES_ROW;
        if (seen <= 0) continue;
        if (w->softcap > 0) F(pages_cap)(w, scores, seen);
        F(store)(scores + seen, F(splat)((T)-INFINITY));
        room->left[row] = F(pages_weights)(scores, seen, room->most + row, room->sum + row);
    }
}

/* The values of a run, by their weights. */
static void F(pages_sum)(const pages_job *w, const F(pages_room) * room, const pages_block *b, const pages_run *run)
{
    int64_t  step;
    const T *v = F(pages_rows)(w, run->v, w->v_stride, run->n, room->v, &step);
    for (int64_t row = 0; row < b->rows; row++) {
        const pages_span s = pages_seen(w, b, row), part = pages_part_of(s, run);
        const T         *p = room->scores + row * PAGES_ROW + part.begin - s.begin;
        const T          left = part.begin == s.begin ? room->left[row] : 1;
        pages_fetch(w, b, row, run->next, w->k_stride, run->next_n);
        if (part.begin >= part.end) continue;
        F(pages_add)
        (w->size, left, room->o + row * w->size, p, v + (part.begin - run->at) * step, step, part.end - part.begin);
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
        int64_t     unit = u / w->parts, first = unit % w->key_heads * group + u % w->parts * heads;
        pages_block b = {.r = unit / w->key_heads, .head = unit % w->key_heads, .rows = heads * w->queries};
        pages_run   run = {0};
        b.count = gm_pages_count(&w->g, b.r);
        F(pages_begin)(w, &room, b.r, first, heads);
        for (b.first = pages_first(w, b.count); b.first < b.count; b.first += PAGES_KEYS) {
            for (run.at = 0; pages_next(w, &b, &run); run.at += run.n) F(pages_score)(w, &room, &b, &run);
            F(pages_weigh)(w, &room, &b);
            for (run.at = 0; pages_next(w, &b, &run); run.at += run.n) F(pages_sum)(w, &room, &b, &run);
        }
        F(pages_end)(w, &room, b.r, first, heads);
    }
}
