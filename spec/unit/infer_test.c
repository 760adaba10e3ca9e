/* infer_test.c - what inference accepts, what it says the outputs are, and how it refuses. Tensors here are
 * headers without storage: inference looks at no data. */
#include "../../kernels/infer.h"
#include "unit.h"

static gm_tensor headers[64];
static int       used;
static gm_attrs  at;
static gm_spec   got[GM_MAX_OUT];

static void begin(void)
{
    used = 0;
    at = gm_attrs_default();
}

static gm_tensor *t(gm_dtype dtype, int ndim, const int64_t *shape)
{
    gm_tensor *x = &headers[used++ % 64];
    *x = (gm_tensor){.refs = 1, .dtype = dtype, .ndim = ndim};
    if (ndim) memcpy(x->shape, shape, (size_t)ndim * sizeof *shape);
    gm_shape_strides(ndim, shape, x->stride);
    return x;
}

#define F(...) t(GM_F32, SHAPE(__VA_ARGS__))
#define D(...) t(GM_F64, SHAPE(__VA_ARGS__))
#define B(...) t(GM_BF16, SHAPE(__VA_ARGS__))
#define H(...) t(GM_F16, SHAPE(__VA_ARGS__))
#define I(...) t(GM_I64, SHAPE(__VA_ARGS__))
#define U(...) t(GM_U8, SHAPE(__VA_ARGS__))
#define SCALAR t(GM_F32, 0, NULL)
#define IN(...) \
    (int)(sizeof((gm_tensor *[]){__VA_ARGS__}) / sizeof(gm_tensor *)), (gm_tensor *[]) { __VA_ARGS__ }
#define NONE(n) \
    (n), (gm_tensor *[8]) { 0 }

static gm_status infer(gm_op op, int n_in, gm_tensor *const *in, int n_out, gm_tensor *const *out)
{
    return gm_infer(&(gm_call){op, n_in, n_out, in, out, &at}, got);
}

static void expect(int i, gm_dtype dtype, int ndim, const int64_t *shape)
{
    assert_int_equal(got[i].dtype, dtype);
    assert_int_equal(got[i].ndim, ndim);
    assert_memory_equal(got[i].shape, shape, (size_t)ndim * sizeof *shape);
}

void gm_test_slots_parsed(void **state)
{
    (void)state;
    gm_slots       s;
    const gm_slot *slot = s.slot;
    gm_slots_parse("q k v key_mask?", &s);
    assert_true(s.n == 4 && !s.repeats && slot[3].content == GM_HOLDS_FLAGS && slot[0].content == GM_HOLDS_FLOATS);
    assert_string_equal(slot[3].name, "key_mask");
    assert_true(slot[3].optional && !slot[3].inout && !slot[0].optional);
    gm_slots_parse("t? | p& buffer&?...", &s);
    assert_true(s.n == 3 && s.fixed == 1 && s.repeats);
    assert_string_equal(slot[2].name, "buffer");
    assert_true(slot[1].inout && !slot[1].optional && slot[2].inout && slot[2].optional);
    assert_true(gm_slots_at(&s, 0) == slot && gm_slots_at(&s, 3) == slot + 1 && gm_slots_at(&s, 6) == slot + 2);
    gm_slots_parse("x mean^ rstd^?", &s);
    assert_int_equal(s.n, 3);
    assert_string_equal(slot[1].name, "mean");
    assert_true(!slot[0].wide && slot[1].wide && slot[2].wide && slot[2].optional);
    gm_slots_parse("", &s);
    assert_int_equal(s.n, 0);
    for (int op = 0; op < GM_OP_COUNT; op++) {
        gm_op found;
        assert_true(gm_op_parse(gm_op_name((gm_op)op), &found) && (int)found == op);
        assert_in_range(gm_op_takes(found)->n, 0, GM_MAX_SLOTS);
        assert_in_range(gm_op_gives(found)->n, 1, GM_MAX_OUT);
        assert_ptr_equal(gm_op_takes(found)->list, gm_op_inputs(found));
        assert_ptr_equal(gm_op_gives(found)->list, gm_op_outputs(found));
    }
    for (int f = 0; f < GM_FN_COUNT; f++) {
        gm_function found;
        assert_true(gm_function_parse(gm_function_name((gm_function)f), &found) && (int)found == f);
    }
    assert_false(gm_op_parse("conv", &(gm_op){0}));
}

void gm_test_infer_counts(void **state)
{
    (void)state;
    begin();
    FAILS(GM_EINVAL, "matmul: 1 inputs given; it takes 2: 'a b'", infer(GM_OP_matmul, IN(F(2, 2)), NONE(1)));
    FAILS(GM_EINVAL, "matmul: 2 outputs given; it takes 1: 'y&'", infer(GM_OP_matmul, IN(F(2, 2), F(2, 2)), NONE(2)));
    FAILS(GM_EINVAL, "matmul: input 2 (b) is missing", infer(GM_OP_matmul, IN(F(2, 2), NULL), NONE(1)));
    FAILS(GM_EINVAL, "axpy: output 1 (y) is updated in place and must be given", infer(GM_OP_axpy, IN(F(2)), NONE(1)));
    FAILS(GM_EINVAL, "fill: output 1 (y)", infer(GM_OP_fill, NONE(0), NONE(1)));
    OK(infer(GM_OP_matmul, IN(F(2, 2), F(2, 2)), NONE(1))); /* replaced: the caller may allocate */
    at.accumulate = true;
    FAILS(GM_EINVAL, "must be given", infer(GM_OP_matmul, IN(F(2, 2), F(2, 2)), NONE(1)));
    FAILS(GM_ESHAPE, "matmul: y is (2, 3), should be (2, 2)", infer(GM_OP_matmul, IN(F(2, 2), F(2, 2)), IN(F(2, 3))));
    FAILS(GM_ESHAPE, "matmul: y is f64, should be f32", infer(GM_OP_matmul, IN(F(2, 2), F(2, 2)), IN(D(2, 2))));
    OK(infer(GM_OP_matmul, IN(F(2, 2), F(2, 2)), IN(F(2, 2))));
}

void gm_test_infer_dtypes(void **state)
{
    (void)state;
    begin();
    at.function = GM_FN_add;
    FAILS(GM_ESHAPE, "add: b is f64, the inputs before it are f32: write b:to(\"f32\")",
          infer(GM_OP_binary, IN(F(2), D(2)), NONE(1)));
    FAILS(GM_ESHAPE, "add: a is i64; arithmetic is on f32, f64, bf16 and f16: write a:to(\"f32\")",
          infer(GM_OP_binary, IN(I(2), I(2)), NONE(1)));
    FAILS(GM_ESHAPE, "sum: x is u8", infer(GM_OP_sum, IN(U(2)), NONE(1)));
    FAILS(GM_ESHAPE, "where: condition is f32, should be u8", infer(GM_OP_where, IN(F(2), F(2), F(2)), NONE(1)));
    FAILS(GM_ESHAPE, "embedding: index is f32, should be i32 or i64",
          infer(GM_OP_embedding, IN(F(4, 2), F(3)), NONE(1)));
    OK(infer(GM_OP_embedding, IN(F(4, 2), t(GM_I32, SHAPE(3))), NONE(1)));
    for (int from = 0; from < GM_DTYPE_COUNT; from++)
        for (int to = 0; to < GM_DTYPE_COUNT; to++) {
            at.dtype = (gm_dtype)to;
            OK(infer(GM_OP_copy, IN(t((gm_dtype)from, SHAPE(2, 3))), NONE(1)));
            expect(0, (gm_dtype)to, SHAPE(2, 3));
        }
    at.dtype = GM_DTYPE_NONE;
    OK(infer(GM_OP_copy, IN(U(5)), NONE(1)));
    expect(0, GM_U8, SHAPE(5));
    FAILS(GM_ESHAPE, "uniform: y is i64", infer(GM_OP_uniform, NONE(0), IN(I(2))));
}

void gm_test_infer_elementwise(void **state)
{
    (void)state;
    begin();
    at.function = GM_FN_mul;
    OK(infer(GM_OP_binary, IN(F(4, 1, 3), F(5, 1)), NONE(1)));
    expect(0, GM_F32, SHAPE(4, 5, 3));
    OK(infer(GM_OP_binary, IN(SCALAR, F(0, 1)), NONE(1)));
    expect(0, GM_F32, SHAPE(0, 1));
    FAILS(GM_ESHAPE, "mul: (2, 3) and (4, 3) do not broadcast: sizes 2 and 4 differ",
          infer(GM_OP_binary, IN(F(2, 3), F(4, 3)), NONE(1)));
    FAILS(GM_EINVAL, "compare: 'mul' is no comparing function", infer(GM_OP_compare, IN(F(2), F(2)), NONE(1)));
    FAILS(GM_EINVAL, "unary: 'mul' is no unary function", infer(GM_OP_unary, IN(F(2)), NONE(1)));
    at.function = GM_FN_le;
    OK(infer(GM_OP_compare, IN(D(2, 1), D(3)), NONE(1)));
    expect(0, GM_U8, SHAPE(2, 3));
    OK(infer(GM_OP_where, IN(U(3), D(2, 1), D(1, 1)), NONE(1)));
    expect(0, GM_F64, SHAPE(2, 3));
    at.function = GM_FN_power;
    FAILS(GM_ESHAPE, "unary_grad: g is (3), should be (2)", infer(GM_OP_unary_grad, IN(F(2), F(3)), NONE(1)));
    FAILS(GM_ESHAPE, "axpy: y is (3), should be (2)", infer(GM_OP_axpy, IN(F(2)), IN(F(3))));
    at.p = 1;
    FAILS(GM_EINVAL, "dropout: p is 1, should be in [0, 1)", infer(GM_OP_dropout, IN(F(2)), NONE(1)));
    at.p = NAN;
    FAILS(GM_EINVAL, "dropout: p", infer(GM_OP_dropout, IN(F(2)), NONE(1)));
    at.p = 0.5;
    at.box = (gm_box){2, {4, 6}, {1, 2}};
    OK(infer(GM_OP_dropout, IN(F(3, 4)), NONE(1)));
    OK(infer(GM_OP_dropout, IN(F(4, 5)), NONE(1))); /* what reaches over the end is padding */
    at.box.offset[0] = 5;
    FAILS(GM_EINVAL, "dropout: a block (4, 4) at (5, 2) does not lie inside the global tensor (4, 6)",
          infer(GM_OP_dropout, IN(F(4, 4)), NONE(1)));
    at.box.offset[0] = 1;
    FAILS(GM_EINVAL, "uniform: a block (4, 4) at (1, 2)", infer(GM_OP_uniform, NONE(0), IN(F(4, 4))));
    FAILS(GM_EINVAL, "uniform: a block (4)", infer(GM_OP_uniform, NONE(0), IN(F(4))));
    begin();
    at.low = 2;
    FAILS(GM_EINVAL, "uniform: low 2 is above high 1", infer(GM_OP_uniform, NONE(0), IN(F(4))));
    at.truncated = true;
    FAILS(GM_EINVAL, "truncated to [2, 1]", infer(GM_OP_normal, NONE(0), IN(F(4))));
    at.low = 100, at.high = 101;
    FAILS(GM_EINVAL, "has no probability", infer(GM_OP_normal, NONE(0), IN(F(4))));
    at.truncated = false, at.std = -1;
    FAILS(GM_EINVAL, "normal: std is -1", infer(GM_OP_normal, NONE(0), IN(F(4))));
}

void gm_test_infer_dense(void **state)
{
    (void)state;
    begin();
    FAILS(GM_ESHAPE, "matmul: (4, 3) x (2, 5): inner sizes 3 and 2 differ",
          infer(GM_OP_matmul, IN(F(4, 3), F(2, 5)), NONE(1)));
    FAILS(GM_ESHAPE, "matmul: a is (3), needs at least 2 dimensions", infer(GM_OP_matmul, IN(F(3), F(3, 5)), NONE(1)));
    OK(infer(GM_OP_matmul, IN(F(7, 1, 4, 3), F(6, 3, 5)), NONE(1)));
    expect(0, GM_F32, SHAPE(7, 6, 4, 5));
    FAILS(GM_ESHAPE, "do not broadcast", infer(GM_OP_matmul, IN(F(7, 4, 3), F(6, 3, 5)), NONE(1)));
    at.transpose_a = at.transpose_b = true;
    OK(infer(GM_OP_matmul, IN(F(3, 4), F(5, 3)), NONE(1)));
    expect(0, GM_F32, SHAPE(4, 5));
    FAILS(GM_ESHAPE, "matmul: (4, 3)' x (5, 3)': inner sizes 4 and 3 differ",
          infer(GM_OP_matmul, IN(F(4, 3), F(5, 3)), NONE(1)));
    begin();
    OK(infer(GM_OP_linear, IN(D(2, 7, 3), D(5, 3), D(5)), NONE(2)));
    expect(0, GM_F64, SHAPE(2, 7, 5));
    expect(1, GM_F64, SHAPE(2, 7, 5));
    OK(infer(GM_OP_linear, IN(F(3), F(5, 3), NULL), NONE(2)));
    FAILS(GM_ESHAPE, "linear: x (2, 4), w (5, 3): inner sizes 4 and 3 differ",
          infer(GM_OP_linear, IN(F(2, 4), F(5, 3), NULL), NONE(2)));
    FAILS(GM_ESHAPE, "linear: b is (3), should be (5)", infer(GM_OP_linear, IN(F(2, 3), F(5, 3), F(3)), NONE(2)));
    at.function = GM_FN_exp;
    FAILS(GM_EINVAL, "linear: 'exp' is no activation", infer(GM_OP_linear, IN(F(2, 3), F(5, 3), NULL), NONE(2)));
    at.function = GM_FN_gelu;
    FAILS(GM_EINVAL, "pre is missing; the gradient of gelu needs it",
          infer(GM_OP_bias_activation_grad, IN(F(2, 3), NULL), NONE(2)));
    OK(infer(GM_OP_bias_activation_grad, IN(F(2, 3), F(2, 3)), NONE(2)));
    expect(1, GM_F32, SHAPE(3));
    begin();
    OK(infer(GM_OP_layer_norm, IN(F(2, 7, 3), F(2, 7, 3), F(3), F(3)), NONE(4)));
    expect(1, GM_F32, SHAPE(2, 7, 3));
    expect(3, GM_F32, SHAPE(2, 7));
    FAILS(GM_ESHAPE, "layer_norm: w is (2), should be (3)",
          infer(GM_OP_layer_norm, IN(F(2, 3), NULL, F(2), NULL), NONE(4)));
    FAILS(GM_ESHAPE, "residual is (3), should be (2, 3)", infer(GM_OP_rms_norm, IN(F(2, 3), F(3), NULL), NONE(3)));
    OK(infer(GM_OP_rms_norm, IN(F(2, 0), NULL, NULL), NONE(3)));
    expect(2, GM_F32, SHAPE(2));
    FAILS(GM_ESHAPE, "rms_norm_grad: rstd is (3), should be (2)",
          infer(GM_OP_rms_norm_grad, IN(F(2, 3), NULL, F(2, 3), F(3), F(3)), NONE(2)));
    FAILS(GM_ESHAPE, "layer_norm_grad: mean is (3), should be (2)",
          infer(GM_OP_layer_norm_grad, IN(F(2, 3), NULL, F(2, 3), F(3), F(3), F(2)), NONE(3)));
    at.eps = -1;
    FAILS(GM_EINVAL, "eps is -1", infer(GM_OP_rms_norm, IN(F(2, 3), NULL, NULL), NONE(3)));
    at.dim = 2;
    FAILS(GM_EINVAL, "softmax: there is no dimension 3 in (2, 3)", infer(GM_OP_softmax, IN(F(2, 3)), NONE(1)));
    at.dim = -2;
    OK(infer(GM_OP_softmax, IN(F(2, 3)), NONE(1)));
    at.dim = -1;
    FAILS(GM_EINVAL, "no dimension -1", infer(GM_OP_softmax, IN(SCALAR), NONE(1)));
    FAILS(GM_ESHAPE, "softmax_grad: g is (3), should be (2, 3)", infer(GM_OP_softmax_grad, IN(F(2, 3), F(3)), NONE(1)));
}

void gm_test_infer_attention(void **state)
{
    (void)state;
    begin();
    gm_tensor *q = F(2, 5, 6, 8), *k = F(2, 7, 3, 8), *v = F(2, 7, 3, 8);
    OK(infer(GM_OP_attention, IN(q, k, v, U(2, 7), NULL, NULL), NONE(2)));
    expect(0, GM_F32, SHAPE(2, 5, 6, 8));
    expect(1, GM_F32, SHAPE(2, 6, 5));
    OK(infer(GM_OP_attention_grad, IN(q, k, v, NULL, F(2, 5, 6, 8), F(2, 6, 5), F(2, 5, 6, 8), NULL, NULL), NONE(4)));
    expect(1, GM_F32, SHAPE(2, 7, 3, 8));
    FAILS(GM_ESHAPE, "6 query heads are no multiple of 4",
          infer(GM_OP_attention, IN(q, F(2, 7, 4, 8), F(2, 7, 4, 8), NULL, NULL, NULL), NONE(2)));
    FAILS(GM_ESHAPE, "attention: q (2, 5, 6, 8), k (2, 7, 3, 4)",
          infer(GM_OP_attention, IN(q, F(2, 7, 3, 4), v, NULL, NULL, NULL), NONE(2)));
    FAILS(GM_ESHAPE, "attention: v is (2, 6, 3, 8), should be (2, 7, 3, 8)",
          infer(GM_OP_attention, IN(q, k, F(2, 6, 3, 8), NULL, NULL, NULL), NONE(2)));
    FAILS(GM_ESHAPE, "key_mask is (2, 5), should be (2, 7)",
          infer(GM_OP_attention, IN(q, k, v, U(2, 5), NULL, NULL), NONE(2)));
    FAILS(GM_ESHAPE, "lse is (2, 5, 6), should be (2, 6, 5)",
          infer(GM_OP_attention_grad, IN(q, k, v, NULL, q, F(2, 5, 6), q, NULL, NULL), NONE(4)));
    OK(infer(GM_OP_attention, IN(q, k, v, NULL, I(2, 5, 2), NULL), NONE(2)));
    FAILS(GM_ESHAPE, "limits is (2, 7, 2), should be (2, 5, 2)",
          infer(GM_OP_attention, IN(q, k, v, NULL, I(2, 7, 2), NULL), NONE(2)));
    OK(infer(GM_OP_documents, IN(I(2, 5)), NONE(1)));
    FAILS(GM_ESHAPE, "segment is (5), should be (batch, sequence)", infer(GM_OP_documents, IN(I(5)), NONE(1)));
    k->stride[3] = 2;
    FAILS(GM_EINVAL, "last dimension of k (2, 7, 3, 8) has stride 2, should be 1",
          infer(GM_OP_attention, IN(q, k, v, NULL, NULL, NULL), NONE(2)));
    k->stride[3] = 1;
    at.box = (gm_box){4, {2, 6, 5, 7}, {0}};
    OK(infer(GM_OP_attention, IN(q, k, v, NULL, NULL, NULL), NONE(2)));
    at.box.ndim = 3;
    FAILS(GM_EINVAL, "a block (2, 6, 5, 7)", infer(GM_OP_attention, IN(q, k, v, NULL, NULL, NULL), NONE(2)));
    begin();
    at.scale = -1;
    FAILS(GM_EINVAL, "scale is -1", infer(GM_OP_attention, IN(q, k, v, NULL, NULL, NULL), NONE(2)));
}

void gm_test_infer_tables(void **state)
{
    (void)state;
    begin();
    OK(infer(GM_OP_embedding, IN(F(10, 4), I(2, 3)), NONE(1)));
    expect(0, GM_F32, SHAPE(2, 3, 4));
    OK(infer(GM_OP_embedding, IN(F(10, 4), t(GM_I64, 0, NULL)), NONE(1)));
    expect(0, GM_F32, SHAPE(4));
    FAILS(GM_ESHAPE, "embedding: w is (4), should be (rows, width)", infer(GM_OP_embedding, IN(F(4), I(2)), NONE(1)));
    FAILS(GM_EINVAL, "dw must be given", infer(GM_OP_embedding_grad, IN(I(2), F(2, 4)), NONE(1)));
    OK(infer(GM_OP_embedding_grad, IN(I(2), F(2, 4)), IN(F(10, 4))));
    FAILS(GM_ESHAPE, "g is (2, 5), should be (2, 4)", infer(GM_OP_embedding_grad, IN(I(2), F(2, 5)), IN(F(10, 4))));
    at.padding_index = 10;
    FAILS(GM_EINVAL, "padding_index 10 is neither -1 nor a row of (10, 4)",
          infer(GM_OP_embedding_grad, IN(I(2), F(2, 4)), IN(F(10, 4))));
    OK(infer(GM_OP_cross_entropy, IN(F(2, 3, 9), I(2, 3)), NONE(3)));
    expect(0, GM_F32, SHAPE(2, 3));
    expect(1, GM_F32, SHAPE(2, 3));
    expect(2, GM_F32, SHAPE(2, 3));
    FAILS(GM_ESHAPE, "target is (3, 2), should be (2, 3)",
          infer(GM_OP_cross_entropy, IN(F(2, 3, 9), I(3, 2)), NONE(3)));
    FAILS(GM_ESHAPE, "no classes", infer(GM_OP_cross_entropy, IN(F(2, 0), I(2)), NONE(3)));
    OK(infer(GM_OP_cross_entropy_grad, IN(F(2, 9), I(2), F(2), F(2), F(2)), NONE(1)));
    expect(0, GM_F32, SHAPE(2, 9));
    FAILS(GM_ESHAPE, "sum is (3), should be (2)",
          infer(GM_OP_cross_entropy_grad, IN(F(2, 9), I(2), F(2), F(3), F(2)), NONE(1)));
    at.label_smoothing = 1;
    FAILS(GM_EINVAL, "label_smoothing is 1, should be in [0, 1)",
          infer(GM_OP_cross_entropy, IN(F(2, 9), I(2)), NONE(3)));
}

void gm_test_infer_reductions(void **state)
{
    (void)state;
    begin();
    OK(infer(GM_OP_sum, IN(F(2, 3, 4)), NONE(1)));
    assert_int_equal(got[0].ndim, 0);
    at.dims = 5;
    OK(infer(GM_OP_sum, IN(F(2, 3, 4)), NONE(1)));
    expect(0, GM_F32, SHAPE(3));
    at.keepdim = true;
    OK(infer(GM_OP_sum, IN(F(2, 3, 4)), NONE(1)));
    expect(0, GM_F32, SHAPE(1, 3, 1));
    at.dims = 8;
    FAILS(GM_EINVAL, "sum: there are dimensions above 3 in (2, 3, 4)", infer(GM_OP_sum, IN(F(2, 3, 4)), NONE(1)));
    at.keepdim = false, at.dim = 1;
    OK(infer(GM_OP_max, IN(F(2, 3, 4)), NONE(2)));
    expect(0, GM_F32, SHAPE(2, 4));
    expect(1, GM_I64, SHAPE(2, 4));
    at.keepdim = true;
    OK(infer(GM_OP_argmax, IN(D(2, 3, 4)), NONE(1)));
    expect(0, GM_I64, SHAPE(2, 1, 4));
    FAILS(GM_ESHAPE, "min: dimension 2 of (2, 0) is empty", infer(GM_OP_min, IN(F(2, 0)), NONE(2)));
    OK(infer(GM_OP_scatter, IN(I(2, 4), F(2, 4)), IN(F(2, 3, 4))));
    OK(infer(GM_OP_scatter, IN(I(2, 1, 4), F(2, 1, 4)), IN(F(2, 3, 4))));
    FAILS(GM_ESHAPE, "index is (2, 3), should be (2, 4)", infer(GM_OP_scatter, IN(I(2, 3), F(2, 3)), IN(F(2, 3, 4))));
    FAILS(GM_ESHAPE, "g is (2, 1, 4), should be (2, 4)", infer(GM_OP_scatter, IN(I(2, 4), F(2, 1, 4)), IN(F(2, 3, 4))));
    FAILS(GM_ESHAPE, "dx is f64, should be f32", infer(GM_OP_scatter, IN(I(2, 4), F(2, 4)), IN(D(2, 3, 4))));
}

void gm_test_infer_optimizers(void **state)
{
    (void)state;
    begin();
    OK(infer(GM_OP_sum_squares, IN(F(2), D(3, 4)), NONE(1)));
    assert_int_equal(got[0].dtype, GM_F64);
    assert_int_equal(got[0].ndim, 0);
    OK(infer(GM_OP_sum_squares, NONE(0), NONE(1)));
    OK(infer(GM_OP_sgd, IN(NULL, NULL, F(2), D(3)), IN(F(2), NULL, NULL, NULL, D(3), NULL, NULL, NULL)));
    expect(4, GM_F64, SHAPE(3));
    FAILS(GM_EINVAL, "sgd: these attributes do not take a tensor 'buffer' for each parameter; see number 2",
          infer(GM_OP_sgd, IN(NULL, NULL, F(2), D(3)), IN(F(2), NULL, NULL, NULL, D(3), D(3), NULL, NULL)));
    FAILS(GM_EINVAL, "sgd: 2 gradients need 8 outputs, 4 given",
          infer(GM_OP_sgd, IN(NULL, NULL, F(2), D(3)), IN(F(2), NULL, NULL, NULL)));
    FAILS(GM_EINVAL, "output 1 (p)", infer(GM_OP_sgd, IN(NULL, NULL, F(2)), NONE(4)));
    FAILS(GM_ESHAPE, "sgd: p is f64, should be f32",
          infer(GM_OP_sgd, IN(NULL, NULL, F(2)), IN(D(2), NULL, NULL, NULL)));
    at.momentum = 0.9;
    FAILS(GM_EINVAL, "need a tensor 'buffer'", infer(GM_OP_sgd, IN(NULL, NULL, F(2)), IN(F(2), NULL, NULL, NULL)));
    OK(infer(GM_OP_sgd, IN(NULL, NULL, F(2)), IN(F(2), F(2), NULL, NULL)));
    at.nesterov = true, at.dampening = 0.1;
    FAILS(GM_EINVAL, "nesterov needs momentum above 0 and no dampening",
          infer(GM_OP_sgd, IN(NULL, NULL, F(2)), IN(F(2), F(2), NULL, NULL)));
    OK(infer(GM_OP_adam, IN(NULL, NULL, F(2)), IN(F(2), F(2), F(2), NULL, NULL, NULL)));
    FAILS(GM_ESHAPE, "adam: v is (3), should be (2)",
          infer(GM_OP_adam, IN(NULL, NULL, F(2)), IN(F(2), F(2), F(3), NULL, NULL, NULL)));
    at.beta2 = 1;
    FAILS(GM_EINVAL, "adam: beta2 is 1",
          infer(GM_OP_adam, IN(NULL, NULL, F(2)), IN(F(2), F(2), F(2), NULL, NULL, NULL)));
    begin(); /* trust ratios */
    FAILS(GM_EINVAL, "adam: measure is for updates with a trust ratio",
          (at.measure = true, infer(GM_OP_adam, IN(NULL, NULL, F(2)), IN(F(2), F(2), F(2), NULL, NULL, NULL))));
    at.trust = 1;
    FAILS(GM_EINVAL, "adam: these attributes need a tensor 'trust'",
          infer(GM_OP_adam, IN(NULL, NULL, F(2)), IN(F(2), F(2), F(2), NULL, NULL, NULL)));
    FAILS(GM_ESHAPE, "adam: trust is f32, should be f64",
          infer(GM_OP_adam, IN(NULL, NULL, F(2)), IN(F(2), F(2), F(2), NULL, NULL, F(2))));
    OK(infer(GM_OP_adam, IN(NULL, NULL, F(2)), IN(F(2), F(2), F(2), NULL, NULL, D(2))));
    at.trust_min = 2, at.trust_max = 1;
    FAILS(GM_EINVAL, "adam: trust_max 1 is below trust_min 2",
          infer(GM_OP_adam, IN(NULL, NULL, F(2)), IN(F(2), F(2), F(2), NULL, NULL, D(2))));
    at.trust_max = 3, at.eps = 0;
    FAILS(GM_EINVAL, "adam: the norm of an update needs eps above 0",
          infer(GM_OP_adam, IN(NULL, NULL, F(2)), IN(F(2), F(2), F(2), NULL, NULL, D(2))));
    OK(infer(GM_OP_sgd, IN(NULL, NULL, F(2)), IN(F(2), NULL, NULL, D(2))));
    at.trust = 2, at.decoupled = true;
    FAILS(GM_EINVAL, "sgd: LARS takes the weight decay with the gradient",
          infer(GM_OP_sgd, IN(NULL, NULL, F(2)), IN(F(2), NULL, NULL, D(2))));
    at.trust = 3;
    FAILS(GM_EINVAL, "sgd: trust is 3", infer(GM_OP_sgd, IN(NULL, NULL, F(2)), IN(F(2), NULL, NULL, D(2))));
    begin(); /* more outputs than a spec array holds: checked without one */
    gm_tensor *g[7] = {NULL}, *pmv[30];
    for (int i = 2; i < 7; i++) g[i] = F(2, 2);
    for (int i = 0; i < 30; i++) pmv[i] = i % 6 < 3 ? F(2, 2) : NULL;
    OK(gm_infer(&(gm_call){GM_OP_adam, 7, 30, g, pmv, &at}, NULL));
    pmv[19] = F(4);
    FAILS(GM_ESHAPE, "adam: m is (4), should be (2, 2)", gm_infer(&(gm_call){GM_OP_adam, 7, 30, g, pmv, &at}, NULL));
}

/* Of 16 bits: what ops.def marks is f32, all else as the inputs; masters are for 16 bits alone. */
void gm_test_infer_narrow(void **state)
{
    (void)state;
    begin();
    at.function = GM_FN_add;
    OK(infer(GM_OP_binary, IN(B(2), B(2)), NONE(1)));
    expect(0, GM_BF16, SHAPE(2));
    FAILS(GM_ESHAPE, "b is f32, the inputs before it are bf16: write b:to(\"bf16\")",
          infer(GM_OP_binary, IN(B(2), F(2)), NONE(1)));
    FAILS(GM_ESHAPE, "x is i64; arithmetic is on f32, f64, bf16 and f16", infer(GM_OP_affine, IN(I(2)), NONE(1)));
    at.function = GM_FN_none;
    OK(infer(GM_OP_layer_norm, IN(B(3, 4), NULL, B(4), B(4)), NONE(4)));
    expect(0, GM_BF16, SHAPE(3, 4));
    expect(1, GM_BF16, SHAPE(3, 4));
    expect(2, GM_F32, SHAPE(3));
    expect(3, GM_F32, SHAPE(3));
    OK(infer(GM_OP_layer_norm_grad, IN(B(3, 4), NULL, B(3, 4), B(4), F(3), F(3)), NONE(3)));
    expect(1, GM_BF16, SHAPE(4));
    FAILS(GM_ESHAPE, "layer_norm_grad: mean is bf16, should be f32 beside inputs of bf16",
          infer(GM_OP_layer_norm_grad, IN(B(3, 4), NULL, B(3, 4), B(4), B(3), F(3)), NONE(3)));
    OK(infer(GM_OP_cross_entropy, IN(H(3, 4), I(3)), NONE(3)));
    expect(0, GM_F32, SHAPE(3));
    OK(infer(GM_OP_cross_entropy_grad, IN(H(3, 4), I(3), F(3), F(3), F(3)), NONE(1)));
    expect(0, GM_F16, SHAPE(3, 4));
    OK(infer(GM_OP_attention, IN(B(1, 5, 2, 8), B(1, 5, 2, 8), B(1, 5, 2, 8), NULL, NULL, NULL), NONE(2)));
    expect(1, GM_F32, SHAPE(1, 2, 5));
    begin();
    OK(infer(GM_OP_adam, IN(NULL, NULL, B(2)), IN(B(2), F(2), F(2), NULL, F(2), NULL)));
    OK(infer(GM_OP_adam, IN(NULL, NULL, B(2)), IN(B(2), F(2), F(2), NULL, NULL, NULL)));
    FAILS(GM_ESHAPE, "adam: m is bf16, should be f32",
          infer(GM_OP_adam, IN(NULL, NULL, B(2)), IN(B(2), B(2), F(2), NULL, NULL, NULL)));
    FAILS(GM_EINVAL, "adam: parameter 1 is f32 and needs no master",
          infer(GM_OP_adam, IN(NULL, NULL, F(2)), IN(F(2), F(2), F(2), NULL, F(2), NULL)));
    at.stochastic = true;
    OK(infer(GM_OP_sgd, IN(NULL, NULL, B(2)), IN(B(2), NULL, NULL, NULL)));
    FAILS(GM_EINVAL, "without a master; see number 1, of bf16",
          infer(GM_OP_sgd, IN(NULL, NULL, B(2)), IN(B(2), NULL, F(2), NULL)));
    FAILS(GM_EINVAL, "without a master; see number 1, of f32",
          infer(GM_OP_sgd, IN(NULL, NULL, F(2)), IN(F(2), NULL, NULL, NULL)));
}

void gm_test_run_checks_outputs(void **state)
{
    (void)state;
    gm_device *dev = NULL;
    gm_tensor *x = NULL, *y = NULL, *wide = NULL;
    begin();
    OK(gm_device_new("ref", 1, &dev));
    OK(gm_tensor_new(dev, GM_F32, SHAPE(3), &x));
    OK(gm_tensor_new(dev, GM_F32, SHAPE(1), &y));
    OK(gm_tensor_expand(y, SHAPE(3), &wide));
    gm_tensor *out = NULL;
    gm_call    call = {GM_OP_copy, 1, 1, &x, &out, &at};
    FAILS(GM_EINVAL, "copy: output 1 (y) is missing", gm_run(dev, &call));
    out = y;
    FAILS(GM_ESHAPE, "copy: y is (1), should be (3)", gm_run(dev, &call));
    out = wide;
    FAILS(GM_EINVAL, "copy: output y (3) repeats elements", gm_run(dev, &call));
    assert_int_equal(dev->counters[GM_OP_copy].calls, 0);
    gm_tensor_release(wide);
    gm_tensor_release(y);
    gm_tensor_release(x);
    gm_device_free(dev);
}

static gm_op_counter run_on_meta(gm_op op, int n_in, gm_tensor *const *in, int n_out)
{
    gm_device *dev = NULL;
    gm_tensor *out[GM_MAX_OUT] = {NULL}, *in_place[GM_MAX_OUT] = {NULL};
    OK(gm_device_new("meta", 0, &dev));
    OK(infer(op, n_in, in, n_out, in_place));
    for (int i = 0; i < n_out; i++) OK(gm_tensor_new(dev, got[i].dtype, got[i].ndim, got[i].shape, &out[i]));
    assert_null(gm_tensor_data(out[0]));
    assert_int_equal(gm_pool_stats(dev->pool).live > 0, true);
    OK(gm_run(dev, &(gm_call){op, n_in, n_out, in, out, &at}));
    gm_op_counter c = dev->counters[op];
    for (int i = 0; i < n_out; i++) gm_tensor_release(out[i]);
    gm_device_free(dev);
    assert_int_equal(c.calls, 1);
    return c;
}

void gm_test_cost_on_meta(void **state)
{
    (void)state;
    begin();
    gm_op_counter c = run_on_meta(GM_OP_matmul, IN(F(2, 4, 3), F(3, 5)), 1);
    assert_true(c.flops == 2 * 2 * 4 * 3 * 5 && c.bytes == 4 * (24 + 15 + 40) && c.products == c.flops);
    begin();
    at.function = GM_FN_gelu;
    c = run_on_meta(GM_OP_linear, IN(F(4, 3), F(5, 3), F(5)), 2); /* bias and activation are no products */
    assert_true(c.flops == 2 * 4 * 3 * 5 + 20 + 20 && c.products == 2 * 4 * 3 * 5);
    begin();
    at.transpose_a = true;
    c = run_on_meta(GM_OP_matmul, IN(D(3, 4), D(3, 5)), 1);
    assert_true(c.flops == 2 * 4 * 3 * 5 && c.bytes == 8 * (12 + 15 + 20));
    begin();
    gm_tensor *row = F(4, 3);
    row->stride[0] = 0; /* one row shown four times is read once */
    at.function = GM_FN_add;
    c = run_on_meta(GM_OP_binary, IN(row, F(4, 3)), 1);
    assert_true(c.flops == 12 && c.bytes == 4 * (3 + 12 + 12) && c.products == 0);
    begin();
    c = run_on_meta(GM_OP_attention, IN(F(2, 4, 6, 8), F(2, 5, 3, 8), F(2, 5, 3, 8), NULL, NULL, NULL), 2);
    assert_true(c.flops == 4.0 * 2 * 6 * 4 * 5 * 8);
    at.causal = true; /* 4 queries, 5 keys: 2 + 3 + 4 + 5 pairs */
    c = run_on_meta(GM_OP_attention, IN(F(2, 4, 6, 8), F(2, 5, 3, 8), F(2, 5, 3, 8), NULL, NULL, NULL), 2);
    assert_true(c.flops == 4.0 * 2 * 6 * 8 * 14);
    gm_tensor *q = F(1, 4, 1, 8), *k = F(1, 2, 1, 8); /* 0 + 0 + 1 + 2 pairs */
    c = run_on_meta(GM_OP_attention, IN(q, k, k, NULL, NULL, NULL), 2);
    assert_true(c.flops == 4.0 * 8 * 3);
    c = run_on_meta(GM_OP_attention_grad, IN(q, k, k, NULL, q, F(1, 1, 4), q, NULL, F(1, 1, 4, 2)), 4);
    assert_true(c.flops == 2.5 * 4.0 * 8 * 3);
}
