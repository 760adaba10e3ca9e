/* gemm_tile_t.cuh - the tiled product for one type (gemm_t.cuh) and one size of tile:
 *   GM_EACH  rows, and columns, of a thread    GM_NAME(base)  a name of its own for each inclusion
 *
 * A block makes a tile of 16 GM_EACH rows and columns: its threads bring 16 of the depth at a time into shared memory
 * (the next ones are on their way from memory while these are worked on), and each thread multiplies what it needs
 * from registers. It reads its rows in groups of 16 bytes, so that the 16 threads of a row of threads read without
 * conflicts. */

#define GM_TILE  (GM_GEMM_SIDE * GM_EACH)
#define GM_LOADS (GM_TILE * GM_GEMM_DEPTH / (GM_GEMM_SIDE * GM_GEMM_SIDE))
#define GM_GROUP ((int)(16 / sizeof(GM_R)))

/* Element e of thread t (0 to 15, along one side): where it lies in the tile. */
GM_DEVICE int GM_NAME(gm_gemm_at)(int t, int e)
{
    return e / GM_GROUP * (GM_GEMM_SIDE * GM_GROUP) + t * GM_GROUP + e % GM_GROUP;
}

/* Element i of those that this thread brings: along the depth where memory is dense in it, else along the side. */
GM_DEVICE void GM_NAME(gm_gemm_which)(int i, bool deep, int *side, int *depth)
{
    int e = gm_thread + i * GM_GEMM_SIDE * GM_GEMM_SIDE;
    *side = deep ? e / GM_GEMM_DEPTH : e % GM_TILE;
    *depth = deep ? e % GM_GEMM_DEPTH : e / GM_TILE;
}

/* Rows from `first` on, of which there are `rows`, and depths from l on, of which there are k; zeros outside. */
GM_DEVICE void GM_NAME(gm_gemm_load)(GM_R *to, const GM_T *from, int64_t first, int64_t rows, int64_t step, int64_t l,
                                     int64_t k, int64_t deep_step)
{
    GM_UNROLL
    for (int i = 0; i < GM_LOADS; i++) {
        int side, depth;
        GM_NAME(gm_gemm_which)(i, deep_step == 1, &side, &depth);
        bool inside = first + side < rows && l + depth < k;
        to[i] = inside ? GM_PASTE(gm_get, GM_D)(from[(first + side) * step + (l + depth) * deep_step]) : 0;
    }
}

GM_DEVICE void GM_NAME(gm_gemm_keep)(GM_R *tile, const GM_R *from, bool deep)
{
    GM_UNROLL
    for (int i = 0; i < GM_LOADS; i++) {
        int side, depth;
        GM_NAME(gm_gemm_which)(i, deep, &side, &depth);
        tile[depth * GM_GEMM_PITCH(GM_EACH) + side] = from[i];
    }
}

/* This thread's elements of one depth. */
GM_DEVICE void GM_NAME(gm_gemm_pick)(GM_R *to, const GM_R *row, int t)
{
    GM_UNROLL
    for (int e = 0; e < GM_EACH; e += GM_GROUP)
        GM_PASTE(gm_unpack, GM_S)(gm_load_vector(row + GM_NAME(gm_gemm_at)(t, e)), to + e);
}

/* Each 16 of the depth are summed up for themselves: a sum of many terms then keeps more of its digits. */
GM_DEVICE void GM_NAME(gm_gemm_multiply)(GM_R sum[GM_EACH][GM_EACH], const GM_R *as, const GM_R *bs)
{
    GM_R part[GM_EACH][GM_EACH] = {{0}};
    GM_UNROLL
    for (int l = 0; l < GM_GEMM_DEPTH; l++) {
        GM_R u[GM_EACH], v[GM_EACH];
        GM_NAME(gm_gemm_pick)(u, as + l * GM_GEMM_PITCH(GM_EACH), gm_thread / GM_GEMM_SIDE);
        GM_NAME(gm_gemm_pick)(v, bs + l * GM_GEMM_PITCH(GM_EACH), gm_thread % GM_GEMM_SIDE);
        GM_UNROLL
        for (int i = 0; i < GM_EACH; i++) {
            GM_UNROLL
            for (int j = 0; j < GM_EACH; j++) part[i][j] += u[i] * v[j];
        }
    }
    GM_UNROLL
    for (int i = 0; i < GM_EACH; i++) {
        GM_UNROLL
        for (int j = 0; j < GM_EACH; j++) sum[i][j] += part[i][j];
    }
}

GM_KERNEL_NAMED(GM_NAME(gm_gemm), gm_gemm_args)
{
    GM_SHARED(GM_R, as);
    GM_R               *bs = as + GM_GEMM_DEPTH * GM_GEMM_PITCH(GM_EACH);
    const gm_gemm_place p = gm_gemm_place_of(&a, GM_TILE);
    const GM_T         *x = (const GM_T *)a.a + p.a, *w = (const GM_T *)a.b + p.b;
    GM_R                sum[GM_EACH][GM_EACH] = {{0}}, next_a[GM_LOADS], next_b[GM_LOADS];
    GM_NAME(gm_gemm_load)(next_a, x, p.row, a.m, a.a_m, 0, a.k, a.a_k);
    GM_NAME(gm_gemm_load)(next_b, w, p.column, a.n, a.b_n, 0, a.k, a.b_k);
    for (int64_t l = 0; l < a.k; l += GM_GEMM_DEPTH) {
        GM_NAME(gm_gemm_keep)(as, next_a, a.a_k == 1);
        GM_NAME(gm_gemm_keep)(bs, next_b, a.b_k == 1);
        GM_SYNC();
        GM_NAME(gm_gemm_load)(next_a, x, p.row, a.m, a.a_m, l + GM_GEMM_DEPTH, a.k, a.a_k);
        GM_NAME(gm_gemm_load)(next_b, w, p.column, a.n, a.b_n, l + GM_GEMM_DEPTH, a.k, a.b_k);
        GM_NAME(gm_gemm_multiply)(sum, as, bs);
        GM_SYNC();
    }
    GM_UNROLL
    for (int i = 0; i < GM_EACH; i++) {
        int64_t row = p.row + GM_NAME(gm_gemm_at)(gm_thread / GM_GEMM_SIDE, i);
        GM_UNROLL
        for (int j = 0; j < GM_EACH; j++) {
            int64_t column = p.column + GM_NAME(gm_gemm_at)(gm_thread % GM_GEMM_SIDE, j);
            if (row < a.m && column < a.n) GM_PASTE(gm_gemm_finish, GM_D)(&a, &p, row, column, sum[i][j]);
        }
    }
}

#undef GM_TILE
#undef GM_LOADS
#undef GM_GROUP
