/* states.c - see states.h. */
#include "states.h"

#include <math.h>
#include <string.h>
#include "../../kernels/states.h"
#include "../gradients/parts.h"
#include "items.h"

gm_spec gm_states_spec(const gm_value *parameter, const gm_tensor *like, int64_t kind)
{
    gm_spec part = gm_spec_of(gm_dtype_wide(like->dtype), like->ndim, like->shape);
    if (kind == GM_STATES_BF16) part.dtype = GM_BF16;
    if (kind != GM_STATES_BLOCKS) return part;
    if (gm_is_shared_out(parameter)) {
        gm_owned_rows own = gm_owned_rows_of(parameter, &parameter->param->owned, parameter->rank->rank);
        part.shape[own.dim] = own.length;
    }
    int64_t bytes = gm_state_bytes(gm_state_rows_of(part.ndim, part.shape));
    return gm_spec_of(GM_U8, 1, &bytes);
}

uint64_t gm_states_bytes(const gm_spec *spec)
{
    uint64_t bytes = gm_dtype_size(spec->dtype);
    for (int d = 0; d < spec->ndim; d++) bytes *= (uint64_t)spec->shape[d];
    return bytes;
}

bool gm_states_positive(gm_op op, int k)
{
    switch (op) {
#define GM_OPTIMIZER(name, moments, there, positive, ...) \
    case GM_OP_##name:                                    \
        return (unsigned)(positive) >> k & 1;
#include "../../kernels/optimizers.def"
#undef GM_OPTIMIZER
    default: return false;
    }
}

gm_status gm_states_wide(const gm_value *parameter, const gm_tensor *like, gm_device *dev, gm_tensor **out)
{
    gm_attrs zero = gm_attrs_default();
    gm_rank_place(parameter->rank, "optimizer state");
    GM_TRY(gm_tensor_new(dev, GM_F32, like->ndim, like->shape, out));
    gm_status st = gm_run_one(dev, GM_OP_fill, &zero, NULL, *out);
    if (st == GM_OK) return GM_OK;
    gm_tensor_release(*out);
    *out = NULL;
    return st;
}

/* ---- blocks, on the host ---- */

/* Where element i of a tensor, in row-major order, is in memory. */
static float *element(const gm_host_elements *e, int64_t i)
{
    int64_t at = 0;
    for (int d = e->tensor->ndim - 1; d >= 0; d--) {
        at += i % e->tensor->shape[d] * e->tensor->stride[d];
        i /= e->tensor->shape[d];
    }
    return (float *)e->data + at;
}

static void decode_block(const uint8_t *code, float scale, const float *values, int n, float *to)
{
    for (int i = 0; i < n; i++) to[i] = values[code[i]] * scale;
}

static void encode_block(const float *from, int n, bool positive, uint8_t *code, float *scale)
{
    float    largest = from[0], least = from[0];
    uint32_t bits = 0;
    for (int i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, from + i, 4);
        u &= 0x7fffffffu;
        if (u > bits) bits = u;
        if (from[i] > largest) largest = from[i];
        if (from[i] < least) least = from[i];
    }
    *scale = gm_state_scale(largest, least, bits);
    for (int i = 0; i < n; i++) {
        float ratio = *scale < 0 || *scale > 0 ? from[i] / *scale : 0;
        if (positive) code[i] = gm_code_unsigned(ratio, gm_code_nearest(gm_codes_unsigned, 255, ratio));
        else code[i] = gm_code_signed(ratio, gm_code_nearest(gm_codes_signed, ratio < 0 ? 127 : 128, fabsf(ratio)));
    }
}

/* Every block of the part of `wide` that is updated, to or from the bytes that are kept. */
static void move_blocks(const gm_host_elements *wide, const gm_host_elements *kept, bool positive, bool encode)
{
    gm_state_rows rows = gm_state_rows_of(wide->tensor->ndim, wide->tensor->shape);
    uint8_t      *code = kept->data;
    float         room[GM_STATE_BLOCK];
    for (int64_t b = 0; b < rows.blocks; b++) {
        int64_t first = gm_state_first(rows, b);
        float  *scale = (float *)(code + gm_state_scales_at(rows.n)) + b;
        int     n = gm_state_length(rows, b);
        if (!encode) decode_block(code + first, *scale, positive ? gm_codes_unsigned : gm_codes_signed, n, room);
        for (int i = 0; i < n; i++) {
            float *at = element(wide, first + i);
            if (encode) room[i] = *at;
            else *at = room[i];
        }
        if (encode) encode_block(room, n, positive, code + first, scale);
    }
}

static gm_status convert(const gm_value *parameter, gm_tensor *wide, gm_tensor *kept, bool positive, bool encode)
{
    gm_host_elements from = {0}, to = {0};
    gm_tensor       *part;
    gm_status        st;
    GM_TRY(gm_owned_part(parameter, wide, &part));
    GM_TRY_OR(gm_host_open(part, &from), st, done);
    GM_TRY_OR(gm_host_open(kept, &to), st, done);
    if (from.data && to.data) {
        move_blocks(&from, &to, positive, encode);
        st = gm_host_changed(encode ? &to : &from);
    }
done:
    gm_host_close(&to);
    gm_host_close(&from);
    gm_tensor_release(part);
    return st;
}

static gm_status copy(gm_tensor *from, gm_tensor *to)
{
    gm_attrs a = gm_attrs_default();
    a.dtype = to->dtype;
    return gm_run_one(to->storage->device, GM_OP_copy, &a, from, to);
}

gm_status gm_states_decode(const gm_value *parameter, gm_tensor *kept, bool positive, gm_tensor *wide)
{
    if (kept->dtype != GM_U8) return copy(kept, wide);
    return convert(parameter, wide, kept, positive, false);
}

gm_status gm_states_encode(const gm_value *parameter, gm_tensor *wide, bool positive, gm_tensor *kept)
{
    if (kept->dtype != GM_U8) return copy(wide, kept);
    return convert(parameter, wide, kept, positive, true);
}

/* ---- states of an optimizer ---- */

bool gm_optimizer_is_compact(const gm_optimizer *o, int i, int k)
{
    int s = gm_optimizer_place(o, i, k);
    if (s == MAX_STATES) return false;
    gm_dtype kept = o->items[i].state[s]->dtype;
    return kept == GM_U8 || kept == GM_BF16;
}

gm_status gm_optimizer_numbers(gm_optimizer *o, int i, int k, gm_tensor **out)
{
    item *it = &o->items[i];
    int   s = gm_optimizer_place(o, i, k);
    GM_TRY(gm_states_wide(it->parameter, gm_item_like(it), it->state[s]->storage->device, out));
    gm_status st = gm_states_decode(it->parameter, it->state[s], gm_states_positive(o->op, s), *out);
    if (st == GM_OK) return GM_OK;
    gm_tensor_release(*out);
    *out = NULL;
    return st;
}

gm_status gm_optimizer_set_numbers(gm_optimizer *o, int i, int k, gm_tensor *from)
{
    item *it = &o->items[i];
    int   s = gm_optimizer_place(o, i, k);
    return gm_states_encode(it->parameter, from, gm_states_positive(o->op, s), it->state[s]);
}
