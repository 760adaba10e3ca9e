/* convolution_test.c - what convolutions cost: the products of all three ops are those of the convolution that they
 * belong to. Tensors are headers without storage. */
#include "../../kernels/infer.h"
#include "unit.h"

static gm_tensor header(int ndim, const int64_t *shape)
{
    gm_tensor t = {.refs = 1, .dtype = GM_F32, .ndim = ndim};
    memcpy(t.shape, shape, (size_t)ndim * sizeof *shape);
    gm_shape_strides(ndim, shape, t.stride);
    return t;
}

/* 2 samples, 8 channels in 2 groups over (4, 3), 6 outputs by a kernel of 2 x 1 and a stride of 2 x 1: over (2, 3). */
void gm_test_convolution_cost(void **state)
{
    (void)state;
    gm_tensor x = header(SHAPE(2, 8, 4, 3)), w = header(SHAPE(6, 4, 2, 1)), y = header(SHAPE(2, 6, 2, 3));
    gm_tensor b = header(SHAPE(6));
    gm_attrs  at = gm_attrs_default();
    double    flops, bytes, products = 2.0 * 2 * 6 * 2 * 3 * 4 * 2, results = 2.0 * 6 * 2 * 3;
    at.groups = 2;
    at.stride.at[0] = 2;
    at.function = GM_FN_gelu; /* bias and activation are no products */
    gm_call c = {GM_OP_convolution, 3, 2, (gm_tensor *[]){&x, &w, &b}, (gm_tensor *[]){&y, &y}, &at};
    OK(gm_infer(&c, NULL));
    gm_cost(&c, &flops, &bytes);
    assert_true(gm_cost_products(&c) == products && flops == products + 2 * results);
    assert_true(bytes == 4 * (192 + 48 + 6 + 72 + 72));
    at.function = GM_FN_none;
    c = (gm_call){GM_OP_transposed_convolution, 3, 2, (gm_tensor *[]){&y, &w, NULL}, (gm_tensor *[]){&x, NULL}, &at};
    OK(gm_infer(&c, NULL));
    gm_cost(&c, &flops, &bytes);
    assert_true(gm_cost_products(&c) == products && flops == products);
    at.kernel = (gm_sizes){{2, 1, 0}};
    for (int made = 0; made < 2; made++) { /* before dw is there, and after */
        gm_tensor *out[2] = {made ? &w : NULL, made ? &b : NULL};
        c = (gm_call){GM_OP_convolution_weight_grad, 2, 2, (gm_tensor *[]){&y, &x}, out, &at};
        OK(gm_infer(&c, NULL));
        gm_cost(&c, &flops, &bytes);
        assert_true(gm_cost_products(&c) == products && flops == products + made * results);
    }
}
