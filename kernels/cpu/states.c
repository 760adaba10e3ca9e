/* states.c - updates of parameters whose moments are kept in bf16 or in blocks of 8 bits (states.h). A block, or as
 * many elements, passes through buffers of f32 that stay in the nearest cache. Part of optimizer.c.
 *
 * The code nearest to a number is found from the upper bits of the number: cells of 7 bits of fraction are so narrow
 * that at most one middle between two codes is in each. */
#include <pthread.h>

#define CELLS_FROM ((127 - 23) << 7)             /* 2^-23: smaller numbers have the code 0 */
#define CELLS      ((127 << 7) + 1 - CELLS_FROM) /* to 1 */

/* signed, unsigned: the code nearest to the least number of a cell; from which number on the next code is nearer. Of
 * 32 bits, as vectors want them. */
static int32_t        cells[2][CELLS];
static float          middles[2][256];
static pthread_once_t cells_made = PTHREAD_ONCE_INIT;

static void make_codes(const float *values, int top, int32_t *cell, float *middle)
{
    for (uint32_t i = 0; i < CELLS; i++) {
        uint32_t bits = (i + CELLS_FROM) << 16;
        float    least;
        memcpy(&least, &bits, 4);
        cell[i] = gm_code_nearest(values, top, least);
    }
    for (int i = 0; i < 256; i++) middle[i] = i < top ? 0.5f * (values[i] + values[i + 1]) : INFINITY;
}

static void make_cells(void)
{
    make_codes(gm_codes_signed, 128, cells[0], middles[0]);
    make_codes(gm_codes_unsigned, 255, cells[1], middles[1]);
}

static void prepare_codes(void) { pthread_once(&cells_made, make_cells); }

static void decode_block(const uint8_t *code, float scale, bool squares, int n, float *to)
{
    const float *values = squares ? gm_codes_unsigned : gm_codes_signed;
    for (int i = 0; i < n; i++) to[i] = values[code[i]] * scale;
}

/* As gm_state_scale, by the bits of the numbers: loops over integers become vectors. */
static float scale_of(const float *x, int n)
{
    int32_t size = 0, positive = 0;
    float   scale;
    for (int i = 0; i < n; i++) {
        int32_t u;
        memcpy(&u, x + i, 4);
        u &= 0x7fffffff;
        size = u > size ? u : size;
    }
    for (int i = 0; i < n; i++) {
        int32_t u;
        memcpy(&u, x + i, 4);
        positive |= u == size;
    }
    memcpy(&scale, &size, 4);
    return gm_state_scale(positive ? scale : 0, positive ? 0 : -scale, (uint32_t)size);
}

/* The codes of the sizes of n ratios. */
static void codes_of(const float *ratio, bool squares, int n, int32_t *to)
{
    const int32_t *cell = cells[squares];
    const float   *middle = middles[squares];
    for (int i = 0; i < n; i++) {
        int32_t bits;
        float   size;
        memcpy(&bits, ratio + i, 4);
        bits &= 0x7fffffff;
        memcpy(&size, &bits, 4);
        int32_t place = (bits >> 16) - CELLS_FROM;
        int32_t code = cell[place > 0 ? place : 0];
        to[i] = code + (size >= middle[code]);
    }
}

/* x is lost. */
static void encode_block(float *x, bool squares, int n, uint8_t *code, float *scale)
{
    int32_t size[GM_STATE_BLOCK];
    float   s = *scale = scale_of(x, n);
    if (!(s < 0 || s > 0)) { /* 0, or NaN */
        memset(code, 0, (size_t)n);
        return;
    }
    for (int i = 0; i < n; i++) x[i] /= s;
    codes_of(x, squares, n, size);
    for (int i = 0; i < n; i++) { /* as gm_code_signed and gm_code_unsigned, without branches */
        int32_t bits, c = size[i];
        memcpy(&bits, x + i, 4);
        int32_t negative = bits >> 31, least = squares & (bits > 0), most = 255 + (negative & -128);
        c = c > least ? c : least;
        c = c < most ? c : most;
        code[i] = (uint8_t)(c + (negative & -(c > 0) & 128));
    }
}

/* n elements of moment k in bf16, rounded by chance; words: theirs. */
static void round_moment(const uint32_t *words, int k, int n, const float *from, uint16_t *to)
{
    for (int i = 0; i < n; i++) to[i] = bf16_by_chance(from[i], gm_state_word(words[i], k) >> 16);
}

typedef struct states_room {
    float moment[OPTIMIZER_MOMENTS][GM_STATE_BLOCK];
    char  moved[ROLES][GM_STATE_BLOCK * 8]; /* of tensors that are not contiguous */
} states_room;

/* The address of n elements from number `first` on, in room where the tensor is not contiguous. */
static void *elements_of(const gm_tensor *t, int64_t first, int n, char *room)
{
    if (gm_tensor_is_contiguous(t)) return (char *)gm_tensor_data(t) + (size_t)first * gm_dtype_size(t->dtype);
    move_elements(t, first, n, room, false);
    return room;
}

static float *scale_at(const gm_tensor *moment, gm_state_rows rows, int64_t block)
{
    return (float *)((char *)gm_tensor_data(moment) + gm_state_scales_at(rows.n)) + block;
}

/* Elements [first, first + n), n at most GM_STATE_BLOCK. block: their number, where moments are kept in blocks. */
static void update_block(const optimizer_job *j, const optimizer_part *part, gm_state_rows rows, int64_t block,
                         int64_t first, int n)
{
    states_room room __attribute__((aligned(64)));
    void       *t[ROLES] = {0}, *kept[OPTIMIZER_MOMENTS] = {0};
    int         tensor = part->tensor;
    bool        coded = j->states == GM_STATES_BLOCKS;
    for (int role = 0; role < ROLES; role++) {
        const gm_tensor *x = tensor_of(j, tensor, role);
        int              k = role - ROLE_MOMENT;
        if (!x) continue;
        t[role] = elements_of(x, first, n, room.moved[role]);
        if (k < 0 || role >= ROLE_MASTER) continue;
        kept[k] = t[role];
        t[role] = room.moment[k];
        if (coded) decode_block(kept[k], *scale_at(x, rows, block), j->squares >> k & 1, n, t[role]);
        else find_cast(GM_BF16, GM_F32)(n, kept[k], t[role]);
    }
    if (gm_dtype_is_narrow(j->in[tensor]->dtype)) update_narrow(j, part, first, n, t);
    else j->row[0](j, part, n, t);
    if (j->measure) return;
    uint32_t        made[WORDS];
    const uint32_t *words = coded ? NULL : words_of(j, tensor, gm_state_key(j->key), first, n, made);
    for (int role = ROLE_P; role < ROLES; role++) {
        const gm_tensor *x = tensor_of(j, tensor, role);
        int              k = role - ROLE_MOMENT;
        bool             moment = k >= 0 && role < ROLE_MASTER;
        if (!x) continue;
        if (moment && coded) encode_block(t[role], j->squares >> k & 1, n, kept[k], scale_at(x, rows, block));
        if (moment && !coded) round_moment(words, k, n, t[role], kept[k]);
        if (!gm_tensor_is_contiguous(x)) move_elements(x, first, n, room.moved[role], true);
    }
}

/* Elements, or blocks, [first, first + n) of a tensor. */
static void update_states(const optimizer_job *j, const optimizer_part *part, int64_t first, int64_t n)
{
    const gm_tensor *g = j->in[part->tensor];
    gm_state_rows    rows = gm_state_rows_of(g->ndim, g->shape);
    if (j->states == GM_STATES_BLOCKS) {
        for (int64_t b = first; b < first + n; b++)
            update_block(j, part, rows, b, gm_state_first(rows, b), gm_state_length(rows, b));
        return;
    }
    for (int64_t i = 0; i < n; i += GM_STATE_BLOCK)
        update_block(j, part, rows, 0, first + i, (int)(n - i < GM_STATE_BLOCK ? n - i : GM_STATE_BLOCK));
}
