/* wgmma.cu - products of 16-bit matrices on Hopper, with all that a dense layer needs beside them (wgmma_args.h).
 *
 * A block stays on its multiprocessor and computes one tile of y after the other. One thread has tiles of a and b
 * copied to shared memory, stage by stage. Two warpgroups take turns: while one multiplies, the other finishes its tile
 * (bias, activation, rounding, the way to memory). So the tensor cores seldom wait for what follows a product. NVIDIA's
 * CUTLASS calls this "ping-pong". Sums have one order for each number of pieces. */
#include "wgmma_args.h"

#include "../../common/hopper.cuh"
#include "../../common/mma.cuh"
#include "../../../op.h"

#if defined(GM_EMULATED) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

#define PANELS    (GM_WGMMA_COLUMNS / GM_WGMMA_PANEL)
#define PANEL_ROW (2 * GM_WGMMA_PANEL) /* bytes */
#define BLOCKS    (GM_WGMMA_PANEL / 8) /* of 8 columns, in a panel */
#define WARPS     4                    /* of a warpgroup */

enum { MEET_FINISH = 1 }; /* and the next number: of the second warpgroup */

typedef struct gm_wgmma_room { /* addresses in shared memory */
    uint32_t stage, staging, ones;
    uint32_t full, empty; /* barriers of stages */
    uint32_t turn;        /* of warpgroups */
    uint32_t there;       /* of panels of pre: GM_WGMMA_PANELS for each warpgroup */
} gm_wgmma_room;

#define BARRIER 8 /* bytes */

typedef struct gm_wgmma_place { /* a tile, and a piece of its sum */
    int m, n, piece, first, depths;
} gm_wgmma_place;

GM_DEVICE gm_wgmma_room gm_wgmma_room_of(const unsigned char *shared)
{
    gm_wgmma_room r;
    r.stage = (gm_shared_address(shared) + GM_TILE_ATOM - 1) / GM_TILE_ATOM * GM_TILE_ATOM;
    r.staging = r.stage + GM_WGMMA_STAGES * GM_WGMMA_STAGE;
    r.ones = r.staging + 2 * GM_WGMMA_PANELS * GM_WGMMA_STAGING;
    r.full = r.ones + GM_TILE_ATOM;
    r.empty = r.full + GM_WGMMA_STAGES * BARRIER;
    r.turn = r.empty + GM_WGMMA_STAGES * BARRIER;
    r.there = r.turn + 2 * BARRIER;
    return r;
}

/* A place in the ring of stages. */
typedef struct gm_wgmma_ring {
    uint32_t stage, parity;
} gm_wgmma_ring;

GM_DEVICE void gm_wgmma_advance(gm_wgmma_ring &ring, int by)
{
    ring.stage += (uint32_t)by;
    ring.parity ^= ring.stage / GM_WGMMA_STAGES & 1;
    ring.stage %= GM_WGMMA_STAGES;
}

/* Tiles of `group` rows of tiles together, column by column. */
GM_DEVICE gm_wgmma_place gm_wgmma_place_of(const gm_wgmma_args &a, int unit)
{
    gm_wgmma_place at;
    const int      tiles = a.tiles_m * a.tiles_n, tile = unit % tiles, of_group = a.group * a.tiles_n;
    const int      first = tile / of_group * a.group, rest = tile % of_group;
    const int      rows = a.tiles_m - first < a.group ? a.tiles_m - first : a.group;
    at.piece = unit / tiles;
    at.m = first + rest % rows;
    at.n = rest / rows;
    at.first = (int)((int64_t)at.piece * a.depths / a.pieces);
    at.depths = (int)((int64_t)(at.piece + 1) * a.depths / a.pieces) - at.first;
    return at;
}

/* ---- the thread that loads ---- */

/* `size` rows of a' or columns of b from `from` on, 64 deep from `depth` on. */
template <bool turned, int size>
GM_DEVICE void gm_wgmma_load(uint32_t to, const gm_tensor_map *map, int from, int depth, uint32_t full)
{
    if constexpr (!turned) gm_tile_load(to, map, depth, from, full);
    else
        for (int i = 0; i < size; i += 64)
            gm_tile_load(to + i / 64 * (GM_WGMMA_DEPTH * GM_TILE_ROW), map, from + i, depth, full);
}

template <bool turned_a, bool turned_b> GM_DEVICE void gm_wgmma_produce(const gm_wgmma_args &a, gm_wgmma_room r)
{
    gm_wgmma_ring ring = {0, 0};
    bool          again = false; /* the ring was filled once */
    for (int unit = (int)gm_block_x; unit < a.units; unit += (int)gm_grid_x) {
        const gm_wgmma_place at = gm_wgmma_place_of(a, unit);
        for (int d = 0; d < at.depths; d++) {
            const int      depth = (at.first + d) * GM_WGMMA_DEPTH;
            const uint32_t stage = r.stage + ring.stage * GM_WGMMA_STAGE, full = r.full + ring.stage * BARRIER;
            if (again) gm_await(r.empty + ring.stage * BARRIER, (int)ring.parity ^ 1);
            gm_expect(full, GM_WGMMA_STAGE);
            gm_wgmma_load<turned_a, GM_WGMMA_ROWS>(stage, &a.a, at.m * GM_WGMMA_ROWS, depth, full);
            gm_wgmma_load<turned_b, GM_WGMMA_COLUMNS>(stage + GM_WGMMA_ROWS * GM_TILE_ROW, &a.b,
                                                      at.n * GM_WGMMA_COLUMNS, depth, full);
            gm_wgmma_advance(ring, 1);
            again = again || ring.stage == 0;
        }
    }
}

/* ---- a warpgroup multiplies ---- */

typedef struct gm_wgmma_sums {
    float tile[2][GM_WGMMA_COLUMNS / 2]; /* 64 rows each */
    float ones[2][4];                    /* of a's rows */
} gm_wgmma_sums;

/* What the 16 numbers k of the sum are further on, in units of 16 bytes. */
template <bool turned> GM_DEVICE uint32_t gm_wgmma_step(int k) { return (turned ? k * 16 * GM_TILE_ROW : k * 32) / 16; }

template <bool turned> GM_DEVICE uint32_t gm_wgmma_low(uint32_t address)
{
    return gm_factor_low(address, turned ? GM_WGMMA_DEPTH * GM_TILE_ROW : 16);
}

/* The products of a stage; more: sums go on. with_ones: sums of a's rows too. */
template <class T, bool turned_a, bool turned_b, bool with_ones>
GM_DEVICE void gm_wgmma_stage(uint32_t a, uint32_t b, uint32_t ones, bool more, gm_wgmma_sums &sums)
{
    GM_UNROLL for (int k = 0; k < GM_WGMMA_DEPTH / 16; k++)
    {
        const uint64_t of_b = gm_factor(b + gm_wgmma_step<turned_b>(k));
        GM_UNROLL for (int h = 0; h < 2; h++)
        {
            const uint64_t of_a = gm_factor(a + h * (64 * GM_TILE_ROW / 16) + gm_wgmma_step<turned_a>(k));
            gm_wgmma<T, GM_WGMMA_COLUMNS, turned_a, turned_b>(sums.tile[h], of_a, of_b, k > 0 || more);
            if constexpr (with_ones)
                gm_wgmma<T, 8, turned_a, false>(sums.ones[h], of_a, gm_factor(ones + gm_wgmma_step<false>(k)),
                                                k > 0 || more);
        }
    }
}

/* Products along `depths` stages from the ring's place on. The last ones are still under way at the end. */
template <class T, bool turned_a, bool turned_b, bool with_ones>
GM_DEVICE void gm_wgmma_multiply(gm_wgmma_room r, gm_wgmma_ring ring, int depths, gm_wgmma_sums &sums)
{
    const uint32_t a = gm_wgmma_low<turned_a>(r.stage), ones = gm_wgmma_low<false>(r.ones);
    const uint32_t b = gm_wgmma_low<turned_b>(r.stage + GM_WGMMA_ROWS * GM_TILE_ROW);
    uint32_t       before = 0;
    for (int d = 0; d < depths; d++) {
        const uint32_t further = ring.stage * (GM_WGMMA_STAGE / 16);
        gm_await(r.full + ring.stage * BARRIER, (int)ring.parity);
        gm_products_begin();
        gm_wgmma_stage<T, turned_a, turned_b, with_ones>(a + further, b + further, ones, d > 0, sums);
        gm_products_close();
        gm_await_products<1>(); /* those of the stage before */
        if (d > 0 && gm_thread % 32 == 0) gm_arrive(before);
        before = r.empty + ring.stage * BARRIER;
        gm_wgmma_advance(ring, 1);
    }
}

/* The last products of a tile have ended. after: the place behind them. */
GM_DEVICE void gm_wgmma_multiplied(gm_wgmma_room r, gm_wgmma_ring after)
{
    gm_await_products<0>();
    if (gm_thread % 32 == 0) gm_arrive(r.empty + (after.stage + GM_WGMMA_STAGES - 1) % GM_WGMMA_STAGES * BARRIER);
}

/* ---- what follows a product ---- */

/* 1 / (1 + exp(-2 u)) for the u of tanh in GELU, by the GPU's own exponential (2 units of the last place of f32). */
GM_DEVICE float gm_wgmma_gate(float x)
{
    constexpr float c = -2 * 1.44269504088896340736f * 0.79788456080286535588f;
    return gm_reciprocal_near(1 + gm_exp2_near(x * (c + c * 0.044715f * (x * x))));
}

template <int function> GM_DEVICE float gm_wgmma_value(float x)
{
    if constexpr (function == GM_FN_relu) return x > 0 || x != x ? x : 0;
    else if constexpr (function == GM_FN_gelu_tanh) return x * gm_wgmma_gate(x);
    else return x;
}

template <int function> GM_DEVICE float gm_wgmma_slope(float x)
{
    if constexpr (function == GM_FN_relu) return x <= 0 ? 0 : 1;
    else if constexpr (function == GM_FN_gelu_tanh) {
        const float s = gm_wgmma_gate(x);
        return s + x * s * (1 - s) * (2 * 0.79788456080286535588f) * (1 + 3 * 0.044715f * x * x);
    } else return 1;
}

/* The thread's place: rows g and g + 8 of its warp's 16, columns 2 t and 2 t + 1 of blocks of 8. */
typedef struct gm_wgmma_lane {
    int  group, row, t; /* group: the warpgroup; row: of the first 64 */
    bool first;         /* the thread that asks for copies */
} gm_wgmma_lane;

GM_DEVICE gm_wgmma_lane gm_wgmma_lane_of(void)
{
    gm_wgmma_lane l;
    const int     i = gm_thread % GM_WARPGROUP;
    l.group = gm_thread / GM_WARPGROUP - 1;
    l.row = i / 32 * 16 + i % 32 / 4;
    l.t = i % 4;
    l.first = i == 0;
    return l;
}

GM_DEVICE void gm_wgmma_meet(gm_wgmma_lane l) { gm_meet(MEET_FINISH + l.group, GM_WARPGROUP); }

template <class T> GM_DEVICE float gm_low_of(uint32_t word) { return gm_get(T{(uint16_t)word}); }
template <class T> GM_DEVICE float gm_high_of(uint32_t word) { return gm_get(T{(uint16_t)(word >> 16)}); }

/* Rows l.row, and 8, 64 and 72 further. */
GM_DEVICE int gm_wgmma_further(int i) { return 8 * (i % 2) + 64 * (i / 2); }

/* The biases of a panel's columns that the thread has, two in a word. */
template <class T> GM_DEVICE void gm_wgmma_biases(const gm_wgmma_args &a, gm_wgmma_lane l, int column, uint32_t *bias)
{
    GM_UNROLL for (int j = 0; j < BLOCKS; j++)
    {
        const int from = column + 8 * j + 2 * l.t;
        bias[j] = a.bias && from < a.n ? *(const uint32_t *)((const T *)a.bias + from) : 0;
    }
}

/* A panel of the tile: bias, pre, function. low, high: the sums of the first 64 rows and of the others. */
template <class T, int function, bool with_pre>
GM_DEVICE void gm_wgmma_panel(gm_wgmma_lane l, const uint32_t *bias, const float *low, const float *high, uint32_t out,
                              uint32_t pre)
{
    out = gm_swizzled_row(out, l.row) + 4 * l.t;
    pre = gm_swizzled_row(pre, l.row) + 4 * l.t;
    GM_UNROLL for (int j = 0; j < BLOCKS; j++)
    {
        float x[8];
        GM_UNROLL for (int i = 0; i < 4; i++)
        {
            const float *c = (i < 2 ? low : high) + 4 * j + 2 * (i % 2);
            x[2 * i] = c[0] + gm_low_of<T>(bias[j]);
            x[2 * i + 1] = c[1] + gm_high_of<T>(bias[j]);
            if constexpr (with_pre)
                gm_put_word((pre ^ j << 4) + gm_wgmma_further(i) * PANEL_ROW, gm_pair<T>(x[2 * i], x[2 * i + 1]));
        }
        GM_UNROLL for (int i = 0; i < 8; i++) x[i] = gm_wgmma_value<function>(x[i]);
        GM_UNROLL for (int i = 0; i < 4; i++)
            gm_put_word((out ^ j << 4) + gm_wgmma_further(i) * PANEL_ROW, gm_pair<T>(x[2 * i], x[2 * i + 1]));
    }
}

GM_DEVICE uint32_t gm_wgmma_staging(gm_wgmma_room r, gm_wgmma_lane l, int p)
{
    return r.staging + (GM_WGMMA_PANELS * l.group + p % GM_WGMMA_PANELS) * GM_WGMMA_STAGING;
}

/* Panels leave through the places of the staging memory in turn; with pre, two places go together. */
template <class T, int function, bool with_pre>
GM_DEVICE void gm_wgmma_finish(const gm_wgmma_args &a, gm_wgmma_room r, gm_wgmma_lane l, gm_wgmma_place at,
                               const gm_wgmma_sums &sums)
{
    GM_UNROLL for (int p = 0; p < PANELS; p++)
    {
        const int      column = at.n * GM_WGMMA_COLUMNS + p * GM_WGMMA_PANEL, row = at.m * GM_WGMMA_ROWS;
        const uint32_t out = gm_wgmma_staging(r, l, with_pre ? 2 * p : p), pre = gm_wgmma_staging(r, l, 2 * p + 1);
        uint32_t       bias[BLOCKS];
        gm_wgmma_biases<T>(a, l, column, bias);
        if (l.first) gm_await_stores<with_pre ? GM_WGMMA_PANELS / 2 - 1 : GM_WGMMA_PANELS - 1>();
        gm_wgmma_meet(l);
        gm_wgmma_panel<T, function, with_pre>(l, bias, &sums.tile[0][4 * BLOCKS * p], &sums.tile[1][4 * BLOCKS * p],
                                              out, pre);
        gm_written();
        gm_wgmma_meet(l);
        if (!l.first) continue;
        gm_tile_store(&a.y, out, column, row);
        if constexpr (with_pre) gm_tile_store(&a.pre, pre, column, row);
        gm_close_stores();
    }
}

/* Panels of pre come into the staging memory, where y then takes their place. */
GM_DEVICE void gm_wgmma_fetch(const gm_wgmma_args &a, gm_wgmma_room r, gm_wgmma_lane l, gm_wgmma_place at, int p)
{
    const uint32_t there = r.there + (GM_WGMMA_PANELS * l.group + p % GM_WGMMA_PANELS) * BARRIER;
    gm_expect(there, GM_WGMMA_STAGING);
    gm_tile_load(gm_wgmma_staging(r, l, p), &a.pre, at.n * GM_WGMMA_COLUMNS + p * GM_WGMMA_PANEL, at.m * GM_WGMMA_ROWS,
                 there);
}

template <class T, int function>
GM_DEVICE void gm_wgmma_slopes(gm_wgmma_lane l, const float *low, const float *high, uint32_t panel)
{
    panel = gm_swizzled_row(panel, l.row) + 4 * l.t;
    GM_UNROLL for (int j = 0; j < BLOCKS; j++) GM_UNROLL for (int i = 0; i < 4; i++)
    {
        const float   *c = (i < 2 ? low : high) + 4 * j + 2 * (i % 2);
        const uint32_t at = (panel ^ j << 4) + gm_wgmma_further(i) * PANEL_ROW, word = gm_get_word(at);
        gm_put_word(at, gm_pair<T>(c[0] * gm_wgmma_slope<function>(gm_low_of<T>(word)),
                                   c[1] * gm_wgmma_slope<function>(gm_high_of<T>(word))));
    }
}

/* turn: tiles that this warpgroup had before, which says how often a place was filled. */
template <class T, int function>
GM_DEVICE void gm_wgmma_finish_slopes(const gm_wgmma_args &a, gm_wgmma_room r, gm_wgmma_lane l, gm_wgmma_place at,
                                      const gm_wgmma_sums &sums, int turn)
{
    GM_UNROLL for (int p = 0; p < PANELS; p++)
    {
        const int      place = p % GM_WGMMA_PANELS, fills = (PANELS - 1 - place) / GM_WGMMA_PANELS + 1;
        const uint32_t panel = gm_wgmma_staging(r, l, p);
        gm_await(r.there + (GM_WGMMA_PANELS * l.group + place) * BARRIER, (turn * fills + p / GM_WGMMA_PANELS) % 2);
        gm_wgmma_slopes<T, function>(l, &sums.tile[0][4 * BLOCKS * p], &sums.tile[1][4 * BLOCKS * p], panel);
        gm_written();
        gm_wgmma_meet(l);
        if (!l.first) continue;
        gm_tile_store(&a.y, panel, at.n * GM_WGMMA_COLUMNS + p * GM_WGMMA_PANEL, at.m * GM_WGMMA_ROWS);
        gm_close_stores();
        if (p == 0 || p - 1 + GM_WGMMA_PANELS >= PANELS) continue;
        gm_await_stores<1>(); /* the panel before has left: the place is free */
        gm_wgmma_fetch(a, r, l, at, p - 1 + GM_WGMMA_PANELS);
    }
}

/* Before the tile's products: the first panels of pre are asked for. */
GM_DEVICE void gm_wgmma_fetch_first(const gm_wgmma_args &a, gm_wgmma_room r, gm_wgmma_lane l, gm_wgmma_place at)
{
    if (!l.first) return;
    gm_await_stores<0>();
    for (int p = 0; p < GM_WGMMA_PANELS; p++) gm_wgmma_fetch(a, r, l, at, p);
}

GM_DEVICE void gm_wgmma_store_pair(float *to, float low, float high)
{
#ifdef GM_EMULATED
    to[0] = low, to[1] = high;
#else
    *(float2 *)to = make_float2(low, high);
#endif
}

GM_DEVICE void gm_wgmma_finish_parts(const gm_wgmma_args &a, gm_wgmma_lane l, gm_wgmma_place at,
                                     const gm_wgmma_sums &sums, bool with_ones)
{
    float *part = a.parts + at.piece * a.m * a.n;
    GM_UNROLL for (int i = 0; i < 4; i++)
    {
        const int64_t row = (int64_t)at.m * GM_WGMMA_ROWS + l.row + gm_wgmma_further(i);
        if (row >= a.m) continue;
        GM_UNROLL for (int j = 0; j < GM_WGMMA_COLUMNS / 8; j++)
        {
            const int64_t column = (int64_t)at.n * GM_WGMMA_COLUMNS + 8 * j + 2 * l.t;
            const float  *c = &sums.tile[i / 2][4 * j + 2 * (i % 2)];
            if (column < a.n) gm_wgmma_store_pair(part + row * a.n + column, c[0], c[1]);
        }
        if (with_ones && l.t == 0) a.part_sums[at.piece * a.m + row] = sums.ones[i / 2][2 * (i % 2)];
    }
}

/* ---- the block ---- */

enum { LINEAR, LINEAR_PRE, INPUT, WEIGHT };

template <class T, int kind, int function> GM_DEVICE void gm_wgmma_consume(const gm_wgmma_args &a, gm_wgmma_room r)
{
    constexpr bool      turned_a = kind == WEIGHT, turned_b = kind >= INPUT;
    constexpr bool      slopes = kind == INPUT && function != GM_FN_none;
    const gm_wgmma_lane l = gm_wgmma_lane_of();
    gm_wgmma_ring       ring = {0, 0};
    int                 turn = 0;
    for (int i = 0, unit = (int)gm_block_x; unit < a.units; i++, unit += (int)gm_grid_x) {
        const gm_wgmma_place at = gm_wgmma_place_of(a, unit);
        const gm_wgmma_ring  from = ring;
        gm_wgmma_advance(ring, at.depths);
        if (i % 2 != l.group) continue;
        gm_wgmma_sums sums;
        const bool    with_ones = kind == WEIGHT && a.part_sums && at.n == 0;
        if constexpr (slopes) gm_wgmma_fetch_first(a, r, l, at);
        gm_await(r.turn + l.group * BARRIER, turn % 2);
        if (with_ones) gm_wgmma_multiply<T, turned_a, turned_b, kind == WEIGHT>(r, from, at.depths, sums);
        else gm_wgmma_multiply<T, turned_a, turned_b, false>(r, from, at.depths, sums);
        if (gm_thread % 32 == 0) gm_arrive(r.turn + (1 - l.group) * BARRIER);
        gm_wgmma_multiplied(r, ring);
        if constexpr (slopes) gm_wgmma_finish_slopes<T, function>(a, r, l, at, sums, turn);
        else if constexpr (kind == WEIGHT) gm_wgmma_finish_parts(a, l, at, sums, with_ones);
        else gm_wgmma_finish<T, function, kind == LINEAR_PRE>(a, r, l, at, sums);
        turn++;
    }
    if (l.first) gm_await_stores<0>();
}

template <class T> GM_DEVICE void gm_wgmma_start(gm_wgmma_room r)
{
    const uint32_t one = gm_pair<T>(1, 1);
    for (int i = gm_thread; i < GM_TILE_ATOM / 4; i += gm_block_size) gm_put_word(r.ones + 4 * i, one);
    if (gm_thread == 0) {
        for (int s = 0; s < GM_WGMMA_STAGES; s++) {
            gm_barrier_start(r.full + s * BARRIER, 1);
            gm_barrier_start(r.empty + s * BARRIER, WARPS);
        }
        for (int i = 0; i < 2; i++) gm_barrier_start(r.turn + i * BARRIER, WARPS);
        for (int i = 0; i < 2 * GM_WGMMA_PANELS; i++) gm_barrier_start(r.there + i * BARRIER, 1);
        gm_barriers_started();
    }
    gm_written();
    GM_SYNC();
}

template <class T, int kind, int function> GM_DEVICE void gm_wgmma_block(const gm_wgmma_args &a, unsigned char *shared)
{
    const gm_wgmma_room r = gm_wgmma_room_of(shared);
    gm_wgmma_start<T>(r);
    if (gm_thread < GM_WARPGROUP) {
        gm_fewer_registers<24>();
        if (gm_thread == 0) gm_wgmma_produce<kind == WEIGHT, (kind >= INPUT)>(a, r);
    } else {
        gm_more_registers<240>();
        /* the first turn is the first warpgroup's */
        if (gm_thread >= 2 * GM_WARPGROUP && gm_thread % 32 == 0) gm_arrive(r.turn);
        gm_wgmma_consume<T, kind, function>(a, r);
    }
}

#define PRODUCT(name, T, kind, function)                                 \
    GM_KERNEL_BOUND(gm_wgmma_##name, gm_wgmma_args, GM_WGMMA_THREADS, 1) \
    {                                                                    \
        GM_SHARED(unsigned char, shared);                                \
        gm_wgmma_block<T, kind, function>(a, shared);                    \
    }
#define PRODUCTS(suffix, T)                                                \
    PRODUCT(linear_none_##suffix, T, LINEAR, GM_FN_none)                   \
    PRODUCT(linear_relu_pre_##suffix, T, LINEAR_PRE, GM_FN_relu)           \
    PRODUCT(linear_gelu_tanh_pre_##suffix, T, LINEAR_PRE, GM_FN_gelu_tanh) \
    PRODUCT(linear_relu_##suffix, T, LINEAR, GM_FN_relu)                   \
    PRODUCT(linear_gelu_tanh_##suffix, T, LINEAR, GM_FN_gelu_tanh)         \
    PRODUCT(input_none_##suffix, T, INPUT, GM_FN_none)                     \
    PRODUCT(input_relu_##suffix, T, INPUT, GM_FN_relu)                     \
    PRODUCT(input_gelu_tanh_##suffix, T, INPUT, GM_FN_gelu_tanh)           \
    PRODUCT(weight_##suffix, T, WEIGHT, GM_FN_none)
PRODUCTS(bf16, gm_bf16)
PRODUCTS(f16, gm_f16)

/* The parts in their order; a pair of columns a thread. */
template <class T> GM_DEVICE void gm_wgmma_join(const gm_wgmma_join_args a)
{
    const int64_t pairs = a.m * a.n / 2;
    GM_GRID_LOOP(i, pairs + (a.sums ? a.m : 0)) {
        const bool    is_sum = i >= pairs;
        const float  *from = is_sum ? a.part_sums + (i - pairs) : a.parts + 2 * i;
        const int64_t step = is_sum ? a.m : a.m * a.n;
        float         low = 0, high = 0;
        for (int p = 0; p < a.pieces; p++) {
            low += from[p * step];
            if (!is_sum) high += from[p * step + 1];
        }
        if (is_sum) {
            T *sum = (T *)a.sums + (i - pairs);
            *sum = gm_put<T>(a.accumulate ? gm_get(*sum) + low : low);
            continue;
        }
        T *y = (T *)a.y + 2 * i / a.n * a.y_m + 2 * i % a.n;
        y[0] = gm_put<T>(a.accumulate ? gm_get(y[0]) + low : low);
        y[1] = gm_put<T>(a.accumulate ? gm_get(y[1]) + high : high);
    }
}
GM_KERNEL(gm_wgmma_join_bf16, gm_wgmma_join_args) { gm_wgmma_join<gm_bf16>(a); }
GM_KERNEL(gm_wgmma_join_f16, gm_wgmma_join_args) { gm_wgmma_join<gm_f16>(a); }

#endif
