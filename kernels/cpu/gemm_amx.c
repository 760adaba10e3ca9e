/* gemm_amx.c - products of bf16 in tiles of AMX, which multiply 16 rows by 16 columns over 32 numbers in one
 * instruction. The blocking is that of all products (gemm_block_t.h); slivers and the innermost loop are others.
 *
 * A panel has the layout of pairs (gemm_pairs.c): 16 pairs along k are the rows of two tiles of b. A sliver is
 * AMX_ROWS rows of a in tiles of 1 KB that follow each other: for each 16 pairs along k one of rows 0 to 15 and one of
 * rows 16 to 31, in both of which a row of 16 pairs is 64 bytes. What is missing along k, and in rows, is zero; sums of
 * missing rows and columns are computed and not used. All tiles are whole, so that one configuration serves all.
 *
 * Sums go through memory on the stack to where they belong, by the lines of code that finish all other tiles. Numbers
 * and sums below 2^-126 count as zeros, as in gemm_pairs.c. Sums of the first and of the second numbers of pairs are
 * apart within 16 pairs, so bits differ from those of other tables; they depend on the shape alone. Part of gemm.c. */
#if GEMM_PAIRS
#include "amx_tiles.h"

#define AMX_TILE     1024                           /* bytes of a whole tile */
#define AMX_ROOM_ROW (GEMM_COLUMNS * sizeof(float)) /* from row to row of sums in memory */

/* The instructions, or plain C in their place. */
struct amx_kind {
    void (*begin)(void), (*end)(void);                   /* around the use of tiles, on the thread that uses them */
    void (*block[2][2])(const tile_f32 *t, float *room); /* sums of 1 or 2 tiles of rows and of columns */
};

#define AMX(name) amx_real_##name
#define AMX_IN    AMX_TARGET
#include "gemm_amx_t.h"
#define AMX(name) amx_plain_##name
#define AMX_IN
#include "gemm_amx_t.h"

/* ---- packing ---- */

/* One tile of a: `rows` rows from src on, at most 16, and `numbers` numbers of each, at most 32. */
static void amx_pack_tile(float *dst, const pairs_word *src, int64_t side, int64_t along, int64_t rows, int64_t numbers)
{
    vf32 v[16];
    if (along == 1) {
        for (int i = 0; i < 16; i++) v[i] = i < rows ? pairs_load(src + i * side, numbers) : (vf32){0};
    } else if (side == 1 || rows == 1) {
        for (int p = 0; p < 16; p++) {
            const pairs_word *x = src + 2 * p * along;
            v[p] = 2 * p < numbers ? pairs_join(x, 2 * p + 1 < numbers ? x + along : NULL, rows) : (vf32){0};
        }
        transpose_f32(v);
    } else {
        bits4 *to = (bits4 *)dst;
        memset(dst, 0, AMX_TILE);
        for (int64_t i = 0; i < rows; i++)
            for (int64_t p = 0; p < numbers; p++)
                to[16 * i + p / 2] |= (uint32_t)src[i * side + p * along] << (p % 2 * 16);
        return;
    }
    for (int i = 0; i < 16; i++) store_f32(dst + 16 * i, v[i]);
}

/* A sliver of a: `count` rows, `numbers` numbers of each. */
static void amx_pack(float *dst, const pairs_word *src, int64_t side, int64_t along, int64_t count, int64_t numbers)
{
    for (int64_t p = 0; p < numbers; p += 32, dst += 512)
        for (int64_t i = 0; i < count; i += 16)
            amx_pack_tile(dst + 16 * i, src + i * side + p * along, side, along, count - i < 16 ? count - i : 16,
                          numbers - p < 32 ? numbers - p : 32);
}

/* Zeros behind the k pairs of a panel, up to whole tiles. */
static void amx_pad(float *panel, int64_t k)
{
    const int64_t more = -k & (AMX_PAIRS - 1);
    memset(panel + k * GEMM_COLUMNS, 0, (size_t)more * AMX_ROOM_ROW);
}

/* ---- the tile ---- */

/* tile_run by AMX: t->a is a sliver of `rows` rows, t->b a panel. */
static void amx_run(const amx_kind *amx, const tile_f32 *t, int64_t rows)
{
    float     room[AMX_ROWS * GEMM_COLUMNS] __attribute__((aligned(64)));
    const int vectors = t->columns > LANES ? 2 : 1;
    tile_f32  row = *t;
    amx->block[rows > 16][vectors - 1](t, room);
    for (int64_t i = 0; i < rows; i++, row.c += row.c_row) {
        vf32 acc[1][2];
        for (int j = 0; j < vectors; j++) acc[0][j] = load_f32(room + i * GEMM_COLUMNS + j * LANES);
        tile_write_f32(&row, acc, 1, vectors);
        if (row.init) row.init += row.init_row;
    }
}
#endif
