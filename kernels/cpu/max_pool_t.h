/* max_pool_t.h - max pooling of a line of windows at a time, for one element type (as.h); see pooling.c.
 *
 * A row of an image is copied with its padding, which is -inf, and by phases: places `stride` apart are neighbours. So
 * neighbouring windows are neighbouring lanes, whatever the stride, and each place of the kernel is one load. Places
 * come in the order of their numbers, and a larger element takes a window from a smaller one: the first of equals
 * stays. The trap: -inf takes nothing, so a window begins with its first place inside of the image. */

typedef struct F(max_room) {
    T  row[POOL_ROW];
    T  best[POOL_WINDOWS];
    TI at[POOL_WINDOWS], column[POOL_WINDOWS]; /* column: the first place of a window in a row of the image, or -1 */
} F(max_room);

/* y[k] = x[k step] */
CPU_INLINE void F(take_row)(int64_t n, int64_t step, const T *x, T *y)
{
    if (step == 1) memcpy(y, x, (size_t)n * sizeof(T));
    else if (step == 2)
        for (int64_t k = 0; k < n; k++) y[k] = x[2 * k];
    else
        for (int64_t k = 0; k < n; k++) y[k] = x[k * step];
}

/* The phases of a row of n elements, as the windows of the block see it. */
CPU_INLINE void F(max_fill)(const gm_pool_axis *axis, const pool_block *b, const T *x, T *row)
{
    for (int64_t p = 0; p < b->phases; p++, row += b->pitch) {
        const int64_t start = b->first * axis->stride - axis->before + p; /* the place of row[0] */
        int64_t       from = start < 0 ? (-start + axis->stride - 1) / axis->stride : 0;
        int64_t       to = start < axis->n ? (axis->n - 1 - start) / axis->stride + 1 : 0;
        if (to > b->pitch) to = b->pitch;
        if (from > to) from = to;
        for (int64_t k = 0; k < from; k++) row[k] = (T)-INFINITY;
        if (to > from) F(take_row)(to - from, axis->stride, x + start + from * axis->stride, row + from);
        for (int64_t k = to; k < b->pitch; k++) row[k] = (T)-INFINITY;
    }
}

/* What a row of the image changes in best and at. place: that of the first window's first element in the image. */
CPU_INLINE void F(max_update)(const gm_pool_axis *axis, const pool_block *b, int64_t place, F(max_room) * room)
{
    VI lane;
    for (int k = 0; k < LANES; k++) lane[k] = (TI)(k * axis->stride);
    for (int64_t k = 0; k < b->count; k += LANES) {
        V  best = F(load)(room->best + k), at = F(load)((const T *)(const void *)(room->at + k));
        VI where = lane + (TI)(place + k * axis->stride);
        for (int64_t c = 0; c < axis->kernel; c++, where += (TI)axis->dilation) {
            V  v = F(load)(room->row + b->offset[c] + k);
            VI larger = ~(v <= best) & (best == best); /* NaN is, but nothing is larger than NaN */
            best = F(select)(larger, v, best);
            at = F(select)(larger, (V)where, at);
        }
        F(store)(room->best + k, best);
        F(store)((T *)(void *)(room->at + k), at);
    }
}

/* The block's windows in the line of windows d and h of an image. */
CPU_INLINE void F(max_block)(const pool_job *j, const pool_block *b, const gm_pool_window *d, const gm_pool_window *h,
                             const T *x, F(max_room) * room)
{
    const gm_pool_axis *axis = &j->axis[2];
    const bool          none = d->begin >= d->end || h->begin >= h->end;
    const TI            first = (TI)((d->begin * j->axis[1].n + h->begin) * axis->n);
    for (int64_t k = 0; k < b->count; k++) {
        room->best[k] = (T)-INFINITY;
        room->at[k] = none || room->column[k] < 0 ? -1 : first + room->column[k];
    }
    for (int64_t a = d->begin; a < d->end; a += d->step)
        for (int64_t c = h->begin; c < h->end; c += h->step) {
            const int64_t line = (a * j->axis[1].n + c) * axis->n;
            F(max_fill)(axis, b, x + line, room->row);
            F(max_update)(axis, b, line + b->first * axis->stride - axis->before, room);
        }
}

/* All lines of image r, those windows of each that are in the block. */
static void F(max_image)(const pool_job *j, const pool_block *b, int64_t r, F(max_room) * room)
{
    const int64_t i = r / j->x.c, c = r % j->x.c;
    const T      *x = cpu_image_at(&j->x, i, c);
    T            *y = (T *)cpu_image_at(&j->y, i, c) + b->first;
    int64_t      *index = j->index.data ? (int64_t *)cpu_image_at(&j->index, i, c) + b->first : NULL;
    for (int64_t at = 0, lines = j->axis[0].out * j->axis[1].out; at < lines; at++, y += j->axis[2].out) {
        const gm_pool_window d = gm_pool_window_of(&j->axis[0], at / j->axis[1].out);
        const gm_pool_window h = gm_pool_window_of(&j->axis[1], at % j->axis[1].out);
        F(max_block)(j, b, &d, &h, x, room);
        memcpy(y, room->best, (size_t)b->count * sizeof(T));
        for (int64_t k = 0; index && k < b->count; k++) index[at * j->axis[2].out + k] = room->at[k];
    }
}

/* Images [begin, end) in blocks of windows. */
static void F(max_images)(const pool_job *j, int64_t begin, int64_t end)
{
    F(max_room) room;
    pool_block    b = pool_block_of(&j->axis[2]);
    const int64_t most = b.count;
    for (; b.first < j->axis[2].out; b.first += most) {
        b.count = j->axis[2].out - b.first < most ? j->axis[2].out - b.first : most;
        for (int64_t k = 0; k < b.count; k++) {
            const gm_pool_window w = gm_pool_window_of(&j->axis[2], b.first + k);
            room.column[k] = w.begin < w.end ? (TI)w.begin : -1;
        }
        for (int64_t r = begin; r < end; r++) F(max_image)(j, &b, r, &room);
    }
}
