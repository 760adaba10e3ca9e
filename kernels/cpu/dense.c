/* dense.c - rows made dense: kernels that only know contiguous rows see any strides, and short rows as long ones.
 *
 * What does not lie so is copied to a small buffer (a room) before the row function, and back from there behind it. */

/* n contiguous elements of each tensor; p[0] is the output. past: it goes past the caches, where the row can do that
 * itself (CPU_ROW_STREAMS). */
typedef void (*cpu_dense_row)(const void *context, int64_t n, char *const *p, bool past);

/* The same for rows of n neighbours in the output and in one of two inputs. Of the other input, number k, one element
 * belongs to each row. step[i]: elements from row to row of tensor i. */
typedef void (*cpu_across_rows)(const void *context, int64_t rows, int64_t n, char *const *p, const int64_t *step,
                                int k, bool past);

enum { CPU_ROW_UPDATES = 1, CPU_ROW_STREAMS = 2 }; /* it reads its output, too; it streams it if it is told to */

typedef struct dense_job {
    cpu_dense_row   row;
    cpu_across_rows across;  /* NULL: there is none, or the tensors do not lie so */
    int             repeats; /* its k */
    const void     *context;
    int             tensors;
    int64_t         size[CPU_WALK];
    int64_t         turns, turn[CPU_WALK]; /* as in cpu_walk */
    int64_t         chunk;                 /* elements that go through buffers at a time */
    bool            update;                /* the output is read too */
    bool            stream;                /* the output goes past the caches */
    bool            direct;                /* the row itself sends it there */
} dense_job;

/* Elements as bits, at any alignment and whatever their dtype. */
typedef uint8_t  bits1 __attribute__((may_alias));
typedef uint16_t bits2 __attribute__((may_alias, aligned(1)));
typedef uint32_t bits4 __attribute__((may_alias, aligned(1)));
typedef uint64_t bits8 __attribute__((may_alias, aligned(1)));

#define STRIDED_CASE(bytes, type)                                         \
    case bytes: {                                                         \
        type       *y = to;                                               \
        const type *x = from;                                             \
        if (to_step == 1 && step == 0)                                    \
            for (int64_t i = 0; i < n; i++) y[i] = *x;                    \
        else if (to_step == 1)                                            \
            for (int64_t i = 0; i < n; i++) y[i] = x[i * step];           \
        else                                                              \
            for (int64_t i = 0; i < n; i++) y[i * to_step] = x[i * step]; \
        break;                                                            \
    }

/* n elements of 1, 2, 4 or 8 bytes from one step to another. */
static void copy_strided(int64_t size, int64_t n, void *to, int64_t to_step, const void *from, int64_t step)
{
    switch (size) {
        STRIDED_CASE(1, bits1)
        STRIDED_CASE(2, bits2)
        STRIDED_CASE(4, bits4)
        STRIDED_CASE(8, bits8)
    }
}

/* Vectors of bytes, at any alignment. */
typedef uint8_t bytes_v __attribute__((vector_size(CPU_VECTOR), aligned(1), may_alias));

/* `rows` times `bytes` bytes, the next ones `by` further on in `from`. Whole vectors are written, which reach into the
 * rows behind; the caller has room there. */
static void copy_ahead(int64_t rows, int64_t bytes, char *to, const char *from, int64_t by)
{
    for (int64_t i = 0; i < rows; i++, to += bytes, from += by)
        for (int64_t k = 0; k < bytes; k += CPU_VECTOR) *(bytes_v *)(to + k) = *(const bytes_v *)(from + k);
}

/* repeat_ahead_: the same with one element, again and again. twice_: n elements that are neighbours, each twice. */
#define REPEAT(size, type)                                                                               \
    static void repeat_ahead_##size(int64_t rows, int64_t bytes, char *to, const char *from, int64_t by) \
    {                                                                                                    \
        typedef type each __attribute__((vector_size(CPU_VECTOR)));                                      \
        for (int64_t i = 0; i < rows; i++, to += bytes, from += by) {                                    \
            const each v = (each){0} + *(const bits##size *)from;                                        \
            for (int64_t k = 0; k < bytes; k += CPU_VECTOR) *(bytes_v *)(to + k) = (bytes_v)v;           \
        }                                                                                                \
    }                                                                                                    \
    static void twice_##size(int64_t n, char *restrict to, const char *restrict from)                    \
    {                                                                                                    \
        bits##size       *y = (bits##size *)to;                                                          \
        const bits##size *x = (const bits##size *)from;                                                  \
        for (int64_t i = 0; i < n; i++) y[2 * i] = y[2 * i + 1] = x[i];                                  \
    }
REPEAT(1, uint8_t)
REPEAT(2, uint16_t)
REPEAT(4, uint32_t)
REPEAT(8, uint64_t)
#undef REPEAT

typedef struct repeat_rows {
    void (*ahead)(int64_t rows, int64_t bytes, char *to, const char *from, int64_t by);
    void (*twice)(int64_t n, char *to, const char *from);
} repeat_rows;

/* `rows` short rows of n elements of 1, 2, 4 or 8 bytes, which follow each other in `to`. Of each, `from` has the
 * n neighbours, or, `one`, the element that all are; `step` elements further on, >= n unless `one`, is the next.
 * Vectors reach behind a row as long as rows follow, which are no nearer in `from`. The rest goes by elements. */
static void copy_rows(int64_t size, int64_t rows, int64_t n, char *to, const char *from, int64_t step, bool one)
{
    static const repeat_rows repeat[9] = {[1] = {repeat_ahead_1, twice_1},
                                          [2] = {repeat_ahead_2, twice_2},
                                          [4] = {repeat_ahead_4, twice_4},
                                          [8] = {repeat_ahead_8, twice_8}};
    if (one && n == 2 && step == 1) {
        repeat[size].twice(rows, to, from);
        return;
    }
    const int64_t bytes = n * size, by = step * size, over = (CPU_VECTOR - bytes % CPU_VECTOR) % CPU_VECTOR;
    int64_t       whole = rows - (over + bytes - 1) / bytes; /* rows behind which there is room */
    if (whole < 0) whole = 0;
    (one ? repeat[size].ahead : copy_ahead)(whole, bytes, to, from, by);
    for (int64_t k = 0; k < n; k++)
        copy_strided(size, rows - whole, to + whole * bytes + k * size, n, from + whole * by + (one ? 0 : k * size),
                     step);
}

/* Are elements `stride` apart, with their turns `turn` apart, rows that copy_rows takes? */
static inline bool is_rows(int64_t turns, int64_t stride, int64_t turn)
{
    return turns > 1 && (turn == 0 || (turn == 1 && stride >= turns));
}

/* n elements of each turn, those of a turn `turn` behind those of the last: into `room`, where turns follow each other
 * and elements are `turns` apart, or, `back`, from there. */
static void dense_move(const dense_job *j, int k, int64_t n, char *room, char *at, int64_t stride, bool back)
{
    const int64_t size = j->size[k];
    if (!back && is_rows(j->turns, stride, j->turn[k])) {
        copy_rows(size, n, j->turns, room, at, stride, j->turn[k] == 0);
        return;
    }
    for (int64_t t = 0; t < j->turns; t++, room += size, at += j->turn[k] * size) {
        if (back) copy_strided(size, n, at, stride, room, j->turns);
        else copy_strided(size, n, room, j->turns, at, stride);
    }
}

static void dense_row(const void *context, int64_t n, char *const *p, const int64_t *stride)
{
    const dense_job *j = context;
    const int64_t    turns = j->turns, most = j->chunk / turns;
    bool             lies[CPU_WALK], dense = true; /* as if in a room */
    if (j->across) {
        j->across(j->context, turns > 1 ? n : 1, turns > 1 ? turns : n, p, stride, j->repeats, j->stream);
        return;
    }
    for (int k = 0; k < j->tensors; k++) {
        lies[k] = (stride[k] == turns && j->turn[k] == 1) || n * turns == 1;
        dense &= lies[k];
    }
    if (dense && (!j->stream || j->direct)) {
        j->row(j->context, n * turns, p, j->stream);
        return;
    }
    char  room[CPU_WALK][CPU_BURST] __attribute__((aligned(64)));
    char *q[CPU_WALK];
    for (int64_t i = 0; i < n; i += most) {
        const int64_t m = n - i < most ? n - i : most;
        for (int k = 0; k < j->tensors; k++) {
            char      *at = p[k] + i * stride[k] * j->size[k];
            const bool there = i > 0 && stride[k] == 0; /* what repeats is in its room */
            q[k] = lies[k] && (k > 0 || !j->stream) ? at : room[k];
            if (!lies[k] && !there && (k > 0 || j->update)) dense_move(j, k, m, room[k], at, stride[k], false);
        }
        j->row(j->context, m * turns, q, false);
        char *out = p[0] + i * stride[0] * j->size[0];
        if (!lies[0]) dense_move(j, 0, m, room[0], out, stride[0], true);
        else if (j->stream) gm_stream_out(out, room[0], m * turns * j->size[0]);
    }
}

/* The input that has one element for a whole row of the output and of the other input; -1: there is none. */
static int walk_across(const cpu_walk *w)
{
    const int last = w->ndim - 1;
    if (w->tensors != 3 || last == 0 || !w->numel || w->shape[last] < 2 * CPU_SHORT) return -1;
    for (int k = 1; k < 3; k++)
        if (w->stride[k][last] == 0 && w->stride[3 - k][last] == 1 && w->stride[0][last] == 1) return k;
    return -1;
}

/* The frame of every elementwise kernel: y = row(x...) with broadcasting, any strides.
 * t[0] is the output; how: CPU_ROW_UPDATES, CPU_ROW_STREAMS or 0. weight: as in cpu_walk_run. across: NULL, or what
 * does the same where an input has one element for a whole row; it streams if row does. */
static void cpu_elementwise_across(gm_device *dev, int tensors, gm_tensor *const *t, int how, int weight,
                                   cpu_dense_row row, cpu_across_rows across, const void *context)
{
    cpu_walk  w;
    bool      update = how & CPU_ROW_UPDATES;
    dense_job j = {.row = row, .context = context, .tensors = tensors, .update = update};
    int64_t   widest = 1;
    cpu_walk_new(&w, tensors, t);
    j.stream = !update && cpu_streams(w.numel * w.size[0]);
    j.direct = CPU_DIRECT && how & CPU_ROW_STREAMS;
    j.repeats = across && (!j.stream || j.direct) ? walk_across(&w) : -1;
    if (j.repeats > 0) {
        j.across = across;
        if (w.shape[w.ndim - 1] < CPU_TURNS) walk_take_turns(&w);
    } else {
        walk_turn(&w, walk_repeats(&w) ? 16 * CPU_SHORT : 2 * CPU_SHORT);
    }
    j.turns = w.turns;
    for (int k = 0; k < tensors; k++) {
        j.size[k] = w.size[k];
        j.turn[k] = w.turn[k];
        if (w.size[k] > widest) widest = w.size[k];
    }
    j.chunk = CPU_BURST / widest / (tensors > 2 ? 2 : 1);
    cpu_walk_run(dev, &w, weight, dense_row, &j);
}

static void cpu_elementwise(gm_device *dev, int tensors, gm_tensor *const *t, int how, int weight, cpu_dense_row row,
                            const void *context)
{
    cpu_elementwise_across(dev, tensors, t, how, weight, row, NULL, context);
}
