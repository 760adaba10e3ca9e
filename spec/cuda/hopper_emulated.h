/* hopper_emulated.h - what hopper.cuh says, on the CPU: copies are done at once, so are products, and a barrier in
 * shared memory is a count of arrivals and bytes. A thread that waits lets the others run. Addresses in shared memory
 * are distances from its begin; the swizzle is worked out from them as the hardware does. */
#ifndef GM_HOPPER_EMULATED_H
#define GM_HOPPER_EMULATED_H

static int gm_emulated_writes; /* to shared memory, of words and tiles */

GM_DEVICE uint32_t gm_shared_address(const void *p)
{
    return (uint32_t)((const unsigned char *)p - gm_emulated.shared);
}
GM_DEVICE void gm_put_word(uint32_t address, uint32_t word)
{
    gm_emulated_writes++;
    memcpy(gm_emulated.shared + address, &word, sizeof word);
}
GM_DEVICE uint32_t gm_get_word(uint32_t address)
{
    uint32_t word;
    memcpy(&word, gm_emulated.shared + address, sizeof word);
    return word;
}

/* ---- barriers ---- */

typedef struct gm_emulated_barrier {
    uint16_t count, pending;
    int32_t  bytes : 31; /* of copies that are still to come */
    uint32_t phase : 1;
} gm_emulated_barrier;

GM_DEVICE gm_emulated_barrier *gm_emulated_barrier_at(uint32_t b)
{
    return (gm_emulated_barrier *)(void *)(gm_emulated.shared + b);
}

GM_DEVICE void gm_emulated_count(uint32_t b, int arrivals, int bytes)
{
    gm_emulated_barrier *at = gm_emulated_barrier_at(b);
    at->pending = (uint16_t)(at->pending - arrivals);
    at->bytes += bytes;
    if (at->pending || at->bytes) return;
    at->phase ^= 1;
    at->pending = at->count;
}

GM_DEVICE bool gm_emulated_passed(const void *b, int parity)
{
    return (int)((const gm_emulated_barrier *)b)->phase != parity;
}

GM_DEVICE void gm_barrier_start(uint32_t b, int arrivals)
{
    *gm_emulated_barrier_at(b) = (gm_emulated_barrier){(uint16_t)arrivals, (uint16_t)arrivals, 0, 0};
}
GM_DEVICE void gm_barriers_started(void) {}
GM_DEVICE void gm_arrive(uint32_t b) { gm_emulated_count(b, 1, 0); }
GM_DEVICE void gm_expect(uint32_t b, int bytes) { gm_emulated_count(b, 1, bytes); }
GM_DEVICE void gm_await(uint32_t b, int parity, const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
    gm_emulated_wait(gm_emulated_passed, gm_emulated.shared + b, parity, file, line);
}
GM_DEVICE void gm_meet(int number, int threads, const char *file = __builtin_FILE(), int line = __builtin_LINE())
{
    gm_emulated_meet(number, threads, file, line);
}

template <int n> GM_DEVICE void gm_fewer_registers(void) {}
template <int n> GM_DEVICE void gm_more_registers(void) {}

/* ---- copies ---- */

/* Where a byte of a tile lies whose rows have so many bytes (mode 128B or 64B). */
GM_DEVICE uint32_t gm_emulated_swizzle(uint32_t address, int row_bytes)
{
    return address ^ (address >> 7 & (row_bytes == 128 ? 7u : 3u)) << 4;
}

/* f(shared, memory) of each 2 bytes of a box, memory NULL outside of the matrix. */
template <class F> GM_DEVICE void gm_emulated_box(const gm_tensor_map *map, uint32_t tile, int x, int y, F f)
{
    const gm_emulated_map *m = (const gm_emulated_map *)(const void *)map;
    const int              row_bytes = (int)m->box[0] * 2;
    for (int r = 0; r < (int)m->box[1]; r++)
        for (int c = 0; c < (int)m->box[0]; c++) {
            const bool there = x + c >= 0 && y + r >= 0 && x + c < m->size[0] && y + r < m->size[1];
            uint32_t   at = gm_emulated_swizzle(tile + (uint32_t)(r * row_bytes + 2 * c), row_bytes);
            f((uint16_t *)(void *)(gm_emulated.shared + at),
              there ? (uint16_t *)(void *)(m->data + (y + r) * m->step + (x + c) * 2) : NULL);
        }
}

GM_DEVICE void gm_tile_load(uint32_t to, const gm_tensor_map *from, int x, int y, uint32_t b)
{
    const gm_emulated_map *m = (const gm_emulated_map *)(const void *)from;
    gm_emulated_box(from, to, x, y, [](uint16_t *shared, const uint16_t *memory) { *shared = memory ? *memory : 0; });
    gm_emulated_writes++;
    gm_emulated_count(b, 0, -(int)(m->box[0] * m->box[1] * 2));
}
GM_DEVICE void gm_written(void) {}
GM_DEVICE void gm_tile_store(const gm_tensor_map *to, uint32_t from, int x, int y)
{
    gm_emulated_box(to, from, x, y, [](const uint16_t *shared, uint16_t *memory) {
        if (memory) *memory = *shared;
    });
}
GM_DEVICE void                  gm_close_stores(void) {}
template <int n> GM_DEVICE void gm_await_stores(void) {}

/* ---- products ---- */

GM_DEVICE void                  gm_products_begin(void) {}
GM_DEVICE void                  gm_products_close(void) {}
template <int n> GM_DEVICE void gm_await_products(void) {}

/* Number `along` of row (or column) `across` of a factor: its descriptor's fields, as PTX ISA has them. */
template <class T> GM_DEVICE float gm_emulated_factor(uint64_t d, bool turned, int across, int along)
{
    const uint32_t start = (uint32_t)(d & 0x3fff) << 4, leading = (uint32_t)(d >> 16 & 0x3fff) << 4;
    const uint32_t stride = (uint32_t)(d >> 32 & 0x3fff) << 4;
    const int      row = turned ? along : across, column = turned ? across : along;
    uint32_t       at = start + (uint32_t)(row / 8) * stride + (uint32_t)(row % 8 * 128 + column % 64 * 2);
    if (turned) at += (uint32_t)(column / 64) * leading;
    T x;
    memcpy(&x, gm_emulated.shared + gm_emulated_swizzle(at, 128), sizeof x);
    return gm_get(x);
}

/* The threads of a warpgroup come one after the other with the same b: it is read once, until something is written. */
static struct {
    uint64_t factor;
    int      columns, writes;
    bool     known;
    float    of[256][16];
} gm_emulated_b;

template <class T, int columns, bool turned> GM_DEVICE void gm_emulated_read(uint64_t b)
{
    if (gm_emulated_b.known && gm_emulated_b.factor == b && gm_emulated_b.columns == columns &&
        gm_emulated_b.writes == gm_emulated_writes)
        return;
    gm_emulated_b.factor = b;
    gm_emulated_b.columns = columns;
    gm_emulated_b.writes = gm_emulated_writes;
    gm_emulated_b.known = true;
    for (int j = 0; j < columns; j++)
        for (int k = 0; k < 16; k++) gm_emulated_b.of[j][k] = gm_emulated_factor<T>(b, turned, j, k);
}

template <class T, int columns, bool turned_a, bool turned_b>
GM_DEVICE void gm_wgmma(float *c, uint64_t a, uint64_t b, bool more)
{
    const int warp = gm_thread % 128 / 32, g = gm_thread % 32 / 4, t = gm_thread % 4;
    float     of_a[2][16];
    for (int i = 0; i < 32; i++)
        of_a[i / 16][i % 16] = gm_emulated_factor<T>(a, turned_a, 16 * warp + g + 8 * (i / 16), i % 16);
    gm_emulated_read<T, columns, turned_b>(b);
    for (int j = 0; j < columns / 8; j++)
        for (int e = 0; e < 2; e++) {
            const float *of_b = gm_emulated_b.of[8 * j + 2 * t + e];
            float        low = more ? c[4 * j + e] : 0, high = more ? c[4 * j + 2 + e] : 0;
            for (int k = 0; k < 16; k++) {
                low += of_a[0][k] * of_b[k];
                high += of_a[1][k] * of_b[k];
            }
            c[4 * j + e] = low;
            c[4 * j + 2 + e] = high;
        }
}

#endif
