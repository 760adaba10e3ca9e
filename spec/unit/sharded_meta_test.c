/* sharded_meta_test.c - a chain of the ops on rows that are cut, forward and backward: what the meta device and
 * transport count for each rank (calls and bytes of every collective, calls and FLOPs of every op) is what the ranks,
 * run for real, have counted. */
#include <string.h>

#include "../../host/life.h"
#include "../../host/parallel/sharded/sharded.h"
#include "calls.h"
#include "redistribute_blocks.h"
#include "threads_transport.h"

#define BATCH   5
#define LENGTH  3
#define WIDTH   7
#define WORDS   11
#define ENTRIES 64

/* What one rank has counted. */
typedef struct account {
    gm_traffic    traffic[ENTRIES];
    int           n;
    gm_op_counter ops[GM_OP_COUNT];
} account;

/* A leaf, or places; what they are is all the same. */
static gm_value *make(gm_rank *r, gm_dtype dtype, const gm_layout *l, int ndim, const int64_t *shape)
{
    gm_value *v = NULL;
    OK(gm_value_new_block(r, "test", dtype, l, ndim, shape, &v));
    for (int64_t i = 0; gm_tensor_data(v->local) && i < gm_tensor_numel(v->local); i++)
        gm_store(dtype, gm_tensor_data(v->local), i, dtype == GM_I64 ? (double)(i % 3) : (double)(i % 7) / 8);
    if (dtype != GM_I64) OK(gm_value_require_grad(v, true));
    return v;
}

static gm_value *apply(gm_rank *r, gm_op op, int n, gm_value *const *in, gm_function f)
{
    gm_attrs  a = gm_attrs_default();
    gm_value *y = NULL;
    a.function = f;
    OK(gm_apply(r, op, n, in, &a, 1, NULL, &y));
    return y;
}

/* Words of a table whose rows are cut -> rows cut by col -> norms with parameters cut deeper -> a slice of the cut
 * width, settled, times losses of classes that are cut -> backward; and the largest entries. */
static void chain(gm_rank *r)
{
    uint32_t  row = gm_mesh_mask(&r->mesh, "row"), col = gm_mesh_mask(&r->mesh, "col");
    gm_layout rows = gm_layout_cut(0, row), deep = gm_layout_cut(0, row | col), whole = gm_layout_replicated();
    gm_layout stream = rows, columns = gm_layout_cut(2, col);
    gm_attrs  a = gm_attrs_default();
    enum { TABLE, IDS, SCALE, SHIFT, X, PLACED, Y, SUM, Z, SLICE, SETTLED, LOSS, PRODUCT, TOTAL, BEST, N };
    gm_value *v[N] = {NULL}, *none;
    gm_layout_copy_dim(&stream, 2, &columns, 2);
    a.label_smoothing = 0.1;
    v[TABLE] = make(r, GM_F32, &rows, 2, (int64_t[]){WORDS, WIDTH});
    v[IDS] = make(r, GM_I64, &whole, 2, (int64_t[]){BATCH, LENGTH});
    v[SCALE] = make(r, GM_F32, &deep, 1, (int64_t[]){WIDTH});
    v[SHIFT] = make(r, GM_F32, &deep, 1, (int64_t[]){WIDTH});
    OK(call_embedding(r, v[TABLE], v[IDS], 4, &v[X]));
    OK(gm_redistribute(r, v[X], &stream, &v[PLACED]));
    OK(call_norm(r, GM_OP_layer_norm, (gm_value *[]){v[PLACED], v[PLACED], v[SCALE], v[SHIFT]}, 1e-5, &v[Y], &v[SUM]));
    OK(call_norm(r, GM_OP_rms_norm, (gm_value *[]){v[Y], NULL, v[SCALE]}, 1e-5, &v[Z], &none));
    OK(gm_select(r, v[SUM], 2, WIDTH - 1, &v[SLICE]));
    OK(gm_settle(r, v[SLICE], &v[SETTLED]));
    OK(call_cross_entropy(r, v[Z], v[IDS], &a, &v[LOSS]));
    v[PRODUCT] = apply(r, GM_OP_binary, 2, (gm_value *[]){v[LOSS], v[SETTLED]}, GM_FN_mul);
    v[TOTAL] = apply(r, GM_OP_sum, 1, &v[PRODUCT], GM_FN_none);
    OK(call_argmax(r, v[Y], 2, true, &v[BEST]));
    OK(gm_tape_backward(v[TOTAL], NULL, false));
    for (int i = 0; i < N; i++) gm_value_release(v[i]);
}

static void take_account(gm_rank *r, account *to)
{
    gm_comm_reset_traffic(r->comm);
    memset(r->device->counters, 0, sizeof r->device->counters);
    chain(r);
    to->n = gm_comm_traffic(r->comm, to->traffic, ENTRIES);
    memcpy(to->ops, r->device->counters, sizeof to->ops);
}

static void for_real(gm_rank *r, void *context) { take_account(r, (account *)context + r->rank); }

static void on_meta(const gm_mesh *mesh, int rank, account *to)
{
    gm_rank *r = NULL;
    OK(gm_rank_new(&r));
    OK(gm_rank_pretend(r, rank, gm_mesh_size(mesh)));
    OK(gm_rank_set_mesh(r, mesh));
    OK(gm_rank_open_device(r, "meta", 1));
    take_account(r, to);
    for (int i = 0; i < to->n; i++) to->traffic[i].group = to->traffic[i].op = NULL; /* they go with the comm */
    gm_rank_free(r);
}

void gm_test_sharded_rows_counted_on_meta(void **state)
{
    gm_mesh meshes[] = {mesh_of("row", 2, "col", 2, "", 1), mesh_of("row", 2, "col", 3, "", 1),
                        mesh_of("col", 3, "", 1, "", 1), mesh_of("row", 4, "", 1, "", 1)};
    account real[MOST_RANKS], meta;
    (void)state;
    for (size_t k = 0; k < sizeof meshes / sizeof *meshes; k++) {
        run_ranks(&meshes[k], for_real, real);
        for (int rank = 0; rank < gm_mesh_size(&meshes[k]); rank++) {
            uint64_t bytes = 0;
            on_meta(&meshes[k], rank, &meta);
            assert_int_equal(real[rank].n, meta.n);
            for (int i = 0; i < meta.n; i++) {
                assert_int_equal(real[rank].traffic[i].calls, meta.traffic[i].calls);
                assert_int_equal(real[rank].traffic[i].bytes, meta.traffic[i].bytes);
                bytes += meta.traffic[i].bytes;
            }
            assert_true(bytes > 0);
            for (int op = 0; op < GM_OP_COUNT; op++) {
                if (real[rank].ops[op].calls != meta.ops[op].calls || real[rank].ops[op].flops != meta.ops[op].flops)
                    fail_msg("%s on rank %d of mesh %zu: %llu calls, %g FLOPs; on meta %llu, %g", gm_op_name((gm_op)op),
                             rank, k, (unsigned long long)real[rank].ops[op].calls, real[rank].ops[op].flops,
                             (unsigned long long)meta.ops[op].calls, meta.ops[op].flops);
            }
        }
    }
}
