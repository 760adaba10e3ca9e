/* attention_amx_t.h - products of tiles for attention_amx.c, over the instructions of AMX or over plain C. AMX(name):
 * amx_real_name or amx_plain_name (amx_tiles.h). */

/* `high` x `wide` (1 or 2) tiles of sums, from tile (i, j) on: tiles 0 1 / 2 3 are sums, 4 and 5 rows of a, 6 and 7
 * columns of b. */
CPU_INLINE void AMX(tiled_block)(const tiled_product *p, int64_t i, int64_t j, const int high, const int wide)
{
    const char   *a = (const char *)p->a + i * p->a_side, *b = (const char *)p->b + 64 * j;
    const int64_t a_row = p->a_row, a_side = p->a_side, b_row = p->b_row, c_row = p->c_row;
    char         *c = (char *)p->c + 16 * i * c_row + 64 * j, *below = c + 16 * c_row;
    if (p->add) {
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
    for (int64_t k = 0; k < p->steps; k++, a += p->a_step, b += 16 * b_row) {
        AMX(load)(6, b, b_row);
        AMX(load)(4, a, a_row);
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

AMX_IN static void AMX(tiled_multiply)(const tiled_product *p)
{
    for (int64_t i = 0; i < p->high; i += 2)
        for (int64_t j = 0; j < p->wide; j += 2) {
            const bool two = p->high - i > 1, both = p->wide - j > 1;
            if (two && both) AMX(tiled_block)(p, i, j, 2, 2);
            else if (two) AMX(tiled_block)(p, i, j, 2, 1);
            else if (both) AMX(tiled_block)(p, i, j, 1, 2);
            else AMX(tiled_block)(p, i, j, 1, 1);
        }
}

AMX_IN static void AMX(tiled_begin)(void) { AMX(configure)(&amx_whole); }
AMX_IN static void AMX(tiled_end)(void) { AMX(release)(); }

static const attention_tiles AMX(attention) = {AMX(tiled_begin), AMX(tiled_end), AMX(tiled_multiply)};
#undef AMX
#undef AMX_IN
