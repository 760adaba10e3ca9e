/* gemm_amx_t.h - the loops of gemm_amx.c and attention_amx.c over the instructions of AMX, or over plain C. AMX(name):
 * amx_real_name or amx_plain_name (amx_tiles.h). */

/* c = a b, or, `add`, c += a b, over so many steps of 32 numbers, for `high` x `wide` tiles (1 or 2): tiles 0 1 / 2 3
 * are sums, 4 and 5 rows of a, 6 and 7 columns of b. Where both are 2, four loads serve four products. Bytes: a_row,
 * b_row and c_row from row to row of a tile, a_side to the next 16 rows of a, a_step to its next 32 numbers. Tiles of b
 * and of c lie beside each other. */
CPU_INLINE void AMX(block)(const char *a, int64_t a_row, int64_t a_side, int64_t a_step, const char *b, int64_t b_row,
                           char *c, int64_t c_row, int64_t steps, bool add, amx_soon *soon, const int high,
                           const int wide)
{
    char *const below = c + 16 * c_row;
    if (add) {
        AMX(load)(0, c, c_row);
        if (wide > 1) AMX(load)(1, c + 64, c_row);
        if (high > 1) AMX(load)(2, below, c_row);
        if (high > 1 && wide > 1) AMX(load)(3, below + 64, c_row);
    } else {
        AMX(zero)(0);
        if (wide > 1) AMX(zero)(1);
        if (high > 1) AMX(zero)(2);
        if (high > 1 && wide > 1) AMX(zero)(3);
    }
    for (; steps > 0; steps--, a += a_step, b += 16 * b_row) {
        if (soon) amx_ask(soon);
        AMX(load)(4, a, a_row);
        AMX(load)(6, b, b_row);
        AMX(dot)(0, 4, 6);
        if (wide > 1) {
            AMX(load)(7, b + 64, b_row);
            AMX(dot)(1, 4, 7);
        }
        if (high > 1) {
            AMX(load)(5, a + a_side, a_row);
            AMX(dot)(2, 5, 6);
            if (wide > 1) AMX(dot)(3, 5, 7);
        }
    }
    AMX(store)(0, c, c_row);
    if (wide > 1) AMX(store)(1, c + 64, c_row);
    if (high > 1) AMX(store)(2, below, c_row);
    if (high > 1 && wide > 1) AMX(store)(3, below + 64, c_row);
}

#define AMX_SHAPE(high, wide)                                                                                         \
    AMX_IN static void AMX(block_##high##x##wide)(const float *a, const float *b, int64_t steps, float *sums,         \
                                                  bool fresh, amx_soon *soon)                                         \
    {                                                                                                                 \
        AMX(block)                                                                                                    \
        ((const char *)a, 64, AMX_TILE, 2 * AMX_TILE, (const char *)b, AMX_ROW, (char *)sums, AMX_ROW, steps, !fresh, \
         soon, high, wide);                                                                                           \
    }
AMX_SHAPE(1, 1)
AMX_SHAPE(1, 2)
AMX_SHAPE(2, 1)
AMX_SHAPE(2, 2)
#undef AMX_SHAPE

/* Products of rows with ones are their sums. */
AMX_IN static void AMX(row_sums)(const float *a, int64_t steps, float *sums, bool two)
{
    bits4 ones[16 * 16] __attribute__((aligned(64)));
    for (int i = 0; i < 16 * 16; i++) ones[i] = 0x3f803f80; /* two of bf16 */
    AMX(zero)(0);
    AMX(zero)(1);
    AMX(load)(6, ones, 64);
    for (; steps > 0; steps--, a += AMX_STEP) {
        AMX(load)(4, (const char *)a, 64);
        AMX(dot)(0, 4, 6);
        if (two) {
            AMX(load)(5, (const char *)a + AMX_TILE, 64);
            AMX(dot)(1, 5, 6);
        }
    }
    AMX(store)(0, (char *)sums, 64);
    if (two) AMX(store)(1, (char *)sums + AMX_TILE, 64);
}

AMX_IN static void AMX(begin)(void) { AMX(configure)(&amx_whole); }
AMX_IN static void AMX(end)(void) { AMX(release)(); }

static const amx_kind AMX(kind) = {
    AMX(begin), AMX(end), {{AMX(block_1x1), AMX(block_1x2)}, {AMX(block_2x1), AMX(block_2x2)}}, AMX(row_sums)};
#undef AMX
#undef AMX_IN
