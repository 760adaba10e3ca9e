/* gemm_amx_t.h - the loops of gemm_amx.c over the instructions of AMX, or over plain C. AMX(name): amx_real_name or
 * amx_plain_name (amx_tiles.h). */

/* Sums of `high` x `wide` tiles (1 or 2) over so many steps of 16 pairs: tiles 0 1 / 2 3 are sums, 4 and 5 rows of a, 6
 * and 7 columns of b. Where both are 2, four loads serve four products. */
CPU_INLINE void AMX(block)(const tile_f32 *t, const int high, const int wide, float *room)
{
    const char   *a = (const char *)t->a, *b = (const char *)t->b, *fetch = t->fetch;
    const int64_t b_row = t->b_step * (int64_t)sizeof(float), steps = t->k, fetch_step = t->fetch_step;
    AMX(zero)(0);
    if (wide > 1) AMX(zero)(1);
    if (high > 1) AMX(zero)(2);
    if (high > 1 && wide > 1) AMX(zero)(3);
    for (int64_t k = 0; k < steps; k += AMX_PAIRS) {
        for (int i = 0; i < AMX_PAIRS / GEMM_FETCH; i++, fetch += fetch_step) __builtin_prefetch(fetch, 0, 2);
        AMX(load)(6, b, b_row);
        AMX(load)(4, a, 64);
        AMX(dot)(0, 4, 6);
        if (wide > 1) {
            AMX(load)(7, b + 64, b_row);
            AMX(dot)(1, 4, 7);
        }
        if (high > 1) {
            AMX(load)(5, a + AMX_TILE, 64);
            AMX(dot)(2, 5, 6);
            if (wide > 1) AMX(dot)(3, 5, 7);
        }
        a += 2 * AMX_TILE;
        b += AMX_PAIRS * b_row;
    }
    AMX(store)(0, room, AMX_ROOM_ROW);
    if (wide > 1) AMX(store)(1, room + 16, AMX_ROOM_ROW);
    if (high > 1) AMX(store)(2, room + 16 * GEMM_COLUMNS, AMX_ROOM_ROW);
    if (high > 1 && wide > 1) AMX(store)(3, room + 16 * GEMM_COLUMNS + 16, AMX_ROOM_ROW);
}

AMX_IN static void AMX(block_1x1)(const tile_f32 *t, float *room) { AMX(block)(t, 1, 1, room); }
AMX_IN static void AMX(block_1x2)(const tile_f32 *t, float *room) { AMX(block)(t, 1, 2, room); }
AMX_IN static void AMX(block_2x1)(const tile_f32 *t, float *room) { AMX(block)(t, 2, 1, room); }
AMX_IN static void AMX(block_2x2)(const tile_f32 *t, float *room) { AMX(block)(t, 2, 2, room); }

AMX_IN static void AMX(begin)(void) { AMX(configure)(&amx_whole); }
AMX_IN static void AMX(end)(void) { AMX(release)(); }

static const amx_kind AMX(kind) = {
    AMX(begin), AMX(end), {{AMX(block_1x1), AMX(block_1x2)}, {AMX(block_2x1), AMX(block_2x2)}}};
#undef AMX
#undef AMX_IN
