/* gemm_amx_t.h - the loops of gemm_amx.c over the instructions of AMX, or over plain C. AMX(name): amx_real_name or
 * amx_plain_name (amx_tiles.h). */

/* A block of `high` x `wide` tiles (1 or 2): tiles 0 1 / 2 3 are sums, 4 and 5 rows of a, 6 and 7 columns of b. Where
 * both are 2, four loads serve four products. */
CPU_INLINE void AMX(block)(const float *a, const float *b, int64_t steps, float *sums, bool fresh, const int high,
                           const int wide)
{
    float *const low = sums + 16 * AMX_SIDE;
    if (fresh) {
        AMX(zero)(0);
        if (wide > 1) AMX(zero)(1);
        if (high > 1) AMX(zero)(2);
        if (high > 1 && wide > 1) AMX(zero)(3);
    } else {
        AMX(load)(0, sums, AMX_ROW);
        if (wide > 1) AMX(load)(1, sums + 16, AMX_ROW);
        if (high > 1) AMX(load)(2, low, AMX_ROW);
        if (high > 1 && wide > 1) AMX(load)(3, low + 16, AMX_ROW);
    }
    for (; steps > 0; steps--, a += AMX_STEP, b += AMX_STEP) {
        AMX(load)(4, a, 64);
        AMX(load)(6, b, AMX_ROW);
        AMX(dot)(0, 4, 6);
        if (wide > 1) {
            AMX(load)(7, b + 16, AMX_ROW);
            AMX(dot)(1, 4, 7);
        }
        if (high > 1) {
            AMX(load)(5, a + AMX_STEP / 2, 64);
            AMX(dot)(2, 5, 6);
            if (wide > 1) AMX(dot)(3, 5, 7);
        }
    }
    AMX(store)(0, sums, AMX_ROW);
    if (wide > 1) AMX(store)(1, sums + 16, AMX_ROW);
    if (high > 1) AMX(store)(2, low, AMX_ROW);
    if (high > 1 && wide > 1) AMX(store)(3, low + 16, AMX_ROW);
}

#define AMX_SHAPE(high, wide)                                                                                 \
    AMX_IN static void AMX(block_##high##x##wide)(const float *a, const float *b, int64_t steps, float *sums, \
                                                  bool fresh)                                                 \
    {                                                                                                         \
        AMX(block)(a, b, steps, sums, fresh, high, wide);                                                     \
    }
AMX_SHAPE(1, 1)
AMX_SHAPE(1, 2)
AMX_SHAPE(2, 1)
AMX_SHAPE(2, 2)
#undef AMX_SHAPE

AMX_IN static void AMX(begin)(void) { AMX(configure)(&amx_whole); }
AMX_IN static void AMX(end)(void) { AMX(release)(); }

static const amx_kind AMX(kind) = {
    AMX(begin), AMX(end), {{AMX(block_1x1), AMX(block_1x2)}, {AMX(block_2x1), AMX(block_2x2)}}};
#undef AMX
#undef AMX_IN
