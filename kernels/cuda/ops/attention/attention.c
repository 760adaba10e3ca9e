/* attention.c - attention and its gradient. cuDNN computes the calls that it takes (dnn.h). Our own kernels compute the
 * others: on tensor cores for 16-bit heads of up to 128 numbers without a bias (attention_mma*.cu), else in plain tiles
 * (attention.cu).
 */
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>

#include "../../../memory.h"
#include "../../../sample.h"
#include "attention_args.h"
#include "../../runtime/cuda.h"
#include "../../dnn/dnn.h"
#include "prefix.h"

static gm_attention_view view_of(const gm_tensor *t)
{
    return (gm_attention_view){gm_tensor_data(t), {t->stride[0], t->stride[1], t->stride[2], t->stride[3]}};
}

static void read_mask(gm_attention_args *a, const gm_tensor *mask)
{
    if (!mask) return;
    a->mask = gm_tensor_data(mask);
    a->mask_stride[0] = mask->stride[0];
    a->mask_stride[1] = mask->stride[1];
}

static void read_limits(gm_attention_args *a, const gm_tensor *limits, int64_t first)
{
    if (!limits) return;
    a->limits = gm_tensor_data(limits);
    a->first_key = first;
    for (int d = 0; d < 3; d++) a->limits_stride[d] = limits->stride[d];
}

static void read_bias(gm_attention_args *a, const gm_tensor *bias, int64_t row)
{
    if (!bias) return;
    a->bias = gm_tensor_data(bias);
    a->biases = bias->shape[0];
    a->row = row;
    for (int d = 0; d < 4; d++) a->bias_stride[d] = bias->stride[d];
}

static void read_dbias(gm_attention_args *a, const gm_tensor *dbias)
{
    if (!dbias) return;
    a->dbias = gm_tensor_data(dbias);
    for (int d = 0; d < 4; d++) a->dbias_stride[d] = dbias->stride[d];
}

static void read_lse(gm_attention_args *a, const gm_tensor *lse)
{
    a->lse = gm_tensor_data(lse);
    for (int d = 0; d < 3; d++) a->lse_stride[d] = lse->stride[d];
}

static gm_status read_dropout(gm_device *dev, gm_attention_args *a, const gm_attrs *at)
{
    const gm_step_block *block;
    const gm_box        *box = &at->box;
    const int64_t        shape[4] = {a->batch, a->heads, a->queries, a->keys};
    a->drop = gm_drop_of(at->stream.key, at->p);
    a->keep = gm_drop_keep(a->drop.threshold);
    a->keep_f32 = (float)a->keep;
    a->drop_first = gm_weight_index(box, shape, (int64_t[4]){0});
    a->drop_blocks[2] = gm_weight_row(box, a->keys) / GM_DROP_EACH;
    a->drop_blocks[1] = a->drop_blocks[2] * (uint64_t)(box->ndim ? box->shape[2] : a->queries);
    a->drop_blocks[0] = a->drop_blocks[1] * (uint64_t)(box->ndim ? box->shape[1] : a->heads);
    a->step = at->stream.step;
    if (!a->drop.threshold || a->step >= 0) return GM_OK;
    GM_TRY(gm_cuda_step(dev, &block));
    a->rng_step = (const uint64_t *)(const void *)((const char *)block + offsetof(gm_step_block, rng_step));
    return GM_OK;
}

/* What both ops have. */
static gm_status read_call(gm_device *dev, const gm_call *call, gm_attention_args *a)
{
    const gm_tensor *q = call->in[0], *k = call->in[1];
    const gm_attrs  *at = call->attrs;
    *a = (gm_attention_args){
        .q = view_of(q),
        .k = view_of(k),
        .v = view_of(call->in[2]),
        .batch = q->shape[0],
        .queries = q->shape[1],
        .heads = q->shape[2],
        .keys = k->shape[1],
        .key_heads = k->shape[2],
        .size = (int32_t)q->shape[3],
        .shift = k->shape[1] - q->shape[1] + at->behind,
        .window = at->window < k->shape[1] + at->behind ? at->window
                                                        : 0, /* query i sees keys up to i + shift at most */
        .causal = at->causal,
        .accumulate = at->accumulate,
        .scale = at->scale > 0 ? at->scale : 1 / sqrt((double)q->shape[3]),
        .softcap = at->softcap,
    };
    a->unit = (float)a->scale * 1.4426950408889634f;
    read_mask(a, call->in[3]);
    read_limits(a, call->in[call->op == GM_OP_attention ? 4 : 7], at->first);
    read_bias(a, call->in[call->op == GM_OP_attention ? 5 : 8], at->row);
    if (q->shape[3] > GM_ATTENTION_WIDE)
        return GM_FAIL(GM_EINVAL, "%s: heads of %" PRId64 " numbers; the CUDA kernels take up to %d: use more heads",
                       gm_op_name(call->op), q->shape[3], GM_ATTENTION_WIDE);
    return read_dropout(dev, a, at);
}

/* ---- on tensor cores ---- */

/* Those kernels have places of 32 bits: of rows with what lies behind and before them, of heads of a batch, and of
 * dropout's blocks of a row. */
static bool has_short_places(const gm_attention_args *a)
{
    const int64_t most = INT32_MAX / 4;
    return a->queries < most && a->keys < most && a->shift < most && a->shift > -most && a->batch * a->heads < most &&
           a->drop_blocks[2] < (uint64_t)most;
}

static bool is_for_tensor_cores(const gm_attention_args *a, const gm_tensor *q)
{
    return !a->bias && gm_dtype_is_narrow(q->dtype) && q->shape[3] <= GM_ATTENTION_MMA_WIDE && has_short_places(a);
}

static bool has_vectors(const gm_attention_view *x)
{
    if (!x->data) return true;
    return (uintptr_t)x->data % 16 == 0 && x->stride[0] % 8 == 0 && x->stride[1] % 8 == 0 && x->stride[2] % 8 == 0 &&
           x->stride[3] == 1;
}

static bool may_read_vectors(const gm_attention_args *a)
{
    return a->size % 8 == 0 && has_vectors(&a->q) && has_vectors(&a->k) && has_vectors(&a->v) && has_vectors(&a->o) &&
           has_vectors(&a->g) && has_vectors(&a->dq) && has_vectors(&a->dk) && has_vectors(&a->dv);
}

/* A kernel of blocks for `side` of `rows` rows of each head. kept: the rows that a block has in shared memory all the
 * time; tile: those of one of the two factors that pass, twice; bytes: what lies behind them. */
static gm_status launch_mma(gm_device *dev, const char *kernel, gm_attention_args *a, gm_dtype dtype, int side,
                            int kept, int tile, size_t bytes, int64_t rows, int64_t heads)
{
    char base[GM_CUDA_NAME], name[GM_CUDA_NAME];
    int  width = a->size <= GM_ATTENTION_MMA_NARROW ? GM_ATTENTION_MMA_NARROW : GM_ATTENTION_MMA_WIDE;
    a->vectors = may_read_vectors(a);
    snprintf(base, sizeof base, "%s_%d", kernel, width);
    return GM_LAUNCH(dev, gm_cuda_name(name, base, dtype),
                     ((gm_cuda_grid){.x = (rows + side - 1) / side * heads * a->batch,
                                     .block = 2 * side,
                                     .shared = (size_t)((kept + 4 * tile) * (width + 8)) * 2 + bytes}),
                     *a);
}

static int keys_of_tile(const gm_attention_args *a)
{
    return a->size <= GM_ATTENTION_MMA_NARROW ? GM_ATTENTION_MMA_KEYS_64 : GM_ATTENTION_MMA_KEYS_128;
}

static gm_status on_tensor_cores(gm_device *dev, gm_attention_args *a, gm_dtype dtype)
{
    const int keys = keys_of_tile(a);
    const int queries = a->size <= GM_ATTENTION_MMA_NARROW ? GM_ATTENTION_MMA_QUERIES_64 : GM_ATTENTION_MMA_QUERIES_128;
    return launch_mma(dev, "gm_attention_mma", a, dtype, queries, queries, keys,
                      2 * (size_t)keys + sizeof(gm_attention_drops), a->queries, a->heads);
}

static gm_status grad_on_tensor_cores(gm_device *dev, gm_attention_args *a, gm_dtype dtype)
{
    const int    keys = keys_of_tile(a), rows = GM_ATTENTION_MMA_ROWS, queries = GM_ATTENTION_MMA_GRAD_QUERIES;
    const size_t told = 2 * sizeof(float); /* of a query */
    GM_TRY(launch_mma(dev, "gm_attention_mma_dq", a, dtype, rows, 2 * rows, keys,
                      2 * (size_t)keys + rows * told + sizeof(gm_attention_drops), a->queries, a->heads));
    return launch_mma(dev, "gm_attention_mma_dkv", a, dtype, rows, 2 * rows, queries, 2 * queries * told, a->keys,
                      a->key_heads);
}

/* ---- in plain tiles ---- */

/* The kernels of narrow heads: in f32 they have neither limits nor a bias, and 16 bits have none (attention.cu). */
static bool takes_narrow(const gm_attention_args *a, gm_dtype dtype)
{
    return a->size <= GM_ATTENTION_NARROW && (dtype == GM_F64 || (dtype == GM_F32 && !a->limits && !a->bias));
}

/* The queries, and the keys, of a tile. */
static int64_t side_of(const gm_attention_args *a, gm_dtype dtype)
{
    int of_narrow = dtype == GM_F64 ? GM_ATTENTION_EACH_narrow_f64 : GM_ATTENTION_EACH_narrow_f32;
    int of_wide = dtype == GM_F64 ? GM_ATTENTION_EACH_wide_f64 : GM_ATTENTION_EACH_wide_f32;
    return GM_ATTENTION_THREADS * (takes_narrow(a, dtype) ? of_narrow : of_wide);
}

static int64_t tiles_of(const gm_attention_args *a, gm_dtype dtype, int64_t rows)
{
    return (rows + side_of(a, dtype) - 1) / side_of(a, dtype);
}

/* tiles: of queries by numbers of a head in shared memory; crosses: of queries by keys. */
static gm_status launch(gm_device *dev, const char *kernel, const gm_attention_args *a, gm_dtype dtype, int tiles,
                        int crosses, int64_t blocks)
{
    char    base[GM_CUDA_NAME], name[GM_CUDA_NAME];
    int64_t side = side_of(a, dtype);
    size_t  numbers = (size_t)(side * (tiles * (a->size | 1) + crosses * (side + 1)));
    snprintf(base, sizeof base, "%s_%s", kernel, takes_narrow(a, dtype) ? "narrow" : "wide");
    return GM_LAUNCH(dev, gm_cuda_name(name, base, dtype),
                     ((gm_cuda_grid){.x = blocks,
                                     .block = GM_ATTENTION_THREADS * GM_ATTENTION_THREADS,
                                     .shared = numbers * (dtype == GM_F64 ? sizeof(double) : sizeof(float))}),
                     *a);
}

static gm_status grad_in_tiles(gm_device *dev, const gm_attention_args *a, gm_dtype dtype)
{
    int64_t queries = tiles_of(a, dtype, a->queries), keys = tiles_of(a, dtype, a->keys);
    GM_TRY(launch(dev, "gm_attention_dq", a, dtype, 4, 1, queries * a->heads * a->batch));
    GM_TRY(launch(dev, "gm_attention_dkv", a, dtype, 4, 2, keys * a->key_heads * a->batch));
    if (!a->dbias) return GM_OK;
    return launch(dev, "gm_attention_dbias", a, dtype, 4, 0, keys * queries * a->heads * a->biases);
}

/* ---- the ops ---- */

gm_status cuda_attention(gm_device *dev, const gm_call *call)
{
    gm_attention_args a;
    bool              served;
    GM_TRY(gm_key_prefix_check(dev, call));
    GM_TRY(gm_dnn_attention(dev, call, &served));
    if (served) return GM_OK;
    GM_TRY(read_call(dev, call, &a));
    a.o = view_of(call->out[0]);
    read_lse(&a, call->out[1]);
    if (is_for_tensor_cores(&a, call->in[0])) return on_tensor_cores(dev, &a, call->in[0]->dtype);
    int64_t tiles = tiles_of(&a, call->in[0]->dtype, a.queries);
    return launch(dev, "gm_attention", &a, call->in[0]->dtype, 2, 1, tiles * a.heads * a.batch);
}

gm_status cuda_attention_grad(gm_device *dev, const gm_call *call)
{
    gm_attention_args a;
    gm_block         *block;
    gm_dtype          dtype = call->in[0]->dtype;
    bool              served;
    GM_TRY(gm_dnn_attention_grad(dev, call, &served));
    if (served) return GM_OK;
    GM_TRY(read_call(dev, call, &a));
    a.o = view_of(call->in[4]);
    read_lse(&a, call->in[5]);
    a.g = view_of(call->in[6]);
    a.dq = view_of(call->out[0]);
    a.dk = view_of(call->out[1]);
    a.dv = view_of(call->out[2]);
    read_dbias(&a, call->out[3]);
    size_t rows = (size_t)(a.batch * a.heads * a.queries),
           sums = (2 * rows * gm_dtype_size(gm_dtype_wide(dtype)) + 15) & ~15;
    size_t ranges = a.limits ? 2 * sizeof(int64_t) * (size_t)(a.batch * a.queries) : 0;
    GM_TRY(gm_cuda_scratch(dev, sums + ranges + 16, &a.delta, &block));
    a.ranges = (int64_t *)(void *)((char *)a.delta + sums);
    gm_status st = is_for_tensor_cores(&a, call->in[0]) ? grad_on_tensor_cores(dev, &a, dtype)
                                                        : grad_in_tiles(dev, &a, dtype);
    gm_pool_release(dev->pool, block);
    return st;
}
