/* attention_amx_t.h - products of tiles for attention_amx.c, over the instructions of AMX or over plain C. AMX(name):
 * amx_real_name or amx_plain_name (amx_tiles.h). */

/* `high` x `wide` (1 or 2) tiles of sums, from tile (i, j) on. */
CPU_INLINE void AMX(tiled_block)(const tiled_product *p, int64_t i, int64_t j, const int high, const int wide)
{
    AMX(block)
    ((const char *)p->a + i * p->a_side, p->a_row, p->a_side, p->a_step, (const char *)p->b + 64 * j, p->b_row,
     (char *)p->c + 16 * i * p->c_row + 64 * j, p->c_row, p->steps, p->add, NULL, high, wide);
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
