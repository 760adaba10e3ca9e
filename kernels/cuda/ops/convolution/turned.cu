/* turned.cu - tensors whose channels become the last dimension, and back: planes of channels by places are turned in
 * tiles through shared memory. A side that is a multiple of 8 is read, or written, 16 bytes at once. */
#include "../../common/kernel.cuh"
#include "turned_args.h"

#define GM_TURN_EACH  (GM_TURN_SIDE * GM_TURN_SIDE / GM_TURN_THREADS)
#define GM_TURN_PACKS (GM_TURN_EACH / GM_TURN_PACK)

/* Reads the tile whose first number is at (row, column) of a plane. */
GM_DEVICE void gm_turn_read(const gm_turn_args &a, const uint16_t *from, int64_t row, int64_t column, uint32_t *tile)
{
    const int64_t rows = a.rows - row, columns = a.columns - column;
    from += row * a.columns + column;
    if (a.columns % GM_TURN_PACK == 0) {
        gm_vector v[GM_TURN_PACKS];
        GM_UNROLL for (int k = 0; k < GM_TURN_PACKS; k++)
        {
            const int i = gm_thread + k * GM_TURN_THREADS, r = i / 8, c = i % 8 * GM_TURN_PACK;
            v[k] = {{0, 0, 0, 0}};
            if (r < rows && c < columns) v[k] = gm_load_vector(from + r * a.columns + c);
        }
        GM_UNROLL for (int k = 0; k < GM_TURN_PACKS; k++)
        {
            const int i = gm_thread + k * GM_TURN_THREADS;
            GM_UNROLL for (int j = 0; j < 4; j++) tile[i / 8 * GM_TURN_WORDS + i % 8 * 4 + j] = v[k].word[j];
        }
        return;
    }
    uint16_t e[GM_TURN_EACH];
    GM_UNROLL for (int k = 0; k < GM_TURN_EACH; k++)
    {
        const int i = gm_thread + k * GM_TURN_THREADS, r = i / GM_TURN_SIDE, c = i % GM_TURN_SIDE;
        e[k] = r < rows && c < columns ? from[r * a.columns + c] : 0;
    }
    GM_UNROLL for (int k = 0; k < GM_TURN_EACH; k++)
    {
        const int i = gm_thread + k * GM_TURN_THREADS;
        ((uint16_t *)tile)[i / GM_TURN_SIDE * 2 * GM_TURN_WORDS + i % GM_TURN_SIDE] = e[k];
    }
}

/* Writes it at (column, row) of the turned plane. */
GM_DEVICE void gm_turn_write(const gm_turn_args &a, uint16_t *to, int64_t row, int64_t column, const uint16_t *tile)
{
    const int64_t rows = a.rows - row, columns = a.columns - column;
    to += column * a.rows + row;
    if (a.rows % GM_TURN_PACK == 0) {
        GM_UNROLL for (int k = 0; k < GM_TURN_PACKS; k++)
        {
            const int i = gm_thread + k * GM_TURN_THREADS, c = i / 8, r = i % 8 * GM_TURN_PACK;
            gm_vector v;
            GM_UNROLL for (int j = 0; j < 4; j++)
            {
                const uint32_t low = tile[(r + 2 * j) * 2 * GM_TURN_WORDS + c];
                v.word[j] = low | (uint32_t)tile[(r + 2 * j + 1) * 2 * GM_TURN_WORDS + c] << 16;
            }
            if (c < columns && r < rows) gm_store_vector(to + c * a.rows + r, v);
        }
        return;
    }
    GM_UNROLL for (int k = 0; k < GM_TURN_EACH; k++)
    {
        const int i = gm_thread + k * GM_TURN_THREADS, c = i / GM_TURN_SIDE, r = i % GM_TURN_SIDE;
        if (c < columns && r < rows) to[c * a.rows + r] = tile[r * 2 * GM_TURN_WORDS + c];
    }
}

/* A block has a tile. */
GM_KERNEL_BOUND(gm_convolution_turn, gm_turn_args, GM_TURN_THREADS, 5)
{
    GM_SHARED(uint32_t, tile);
    const int64_t each = (int64_t)a.tiles[0] * a.tiles[1], n = gm_block_x / each;
    const int32_t at = (int32_t)(gm_block_x - n * each);
    const int64_t row = (int64_t)(at / a.tiles[1]) * GM_TURN_SIDE, column = (int64_t)(at % a.tiles[1]) * GM_TURN_SIDE;
    gm_turn_read(a, (const uint16_t *)a.from + n * a.rows * a.columns, row, column, tile);
    GM_SYNC();
    gm_turn_write(a, (uint16_t *)a.to + n * a.rows * a.columns, row, column, (const uint16_t *)tile);
}
