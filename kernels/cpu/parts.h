/* parts.h - the parts of the CPU backend, in order of dependence. Included once, by cpu.c. */
#include "base.c"   /* raw memory, parallel helpers, row iteration over strided tensors */
#include "vector.c" /* vector types and the polynomial functions that elementwise kernels share */
#include "copy.c"   /* fill and copy: any strides, any dtype */
#include "elementwise.c"
#include "random.c"
#include "norm.c"
#include "norm_steps.c" /* norms of rows of which there is a block here */
#include "softmax.c"
#include "loss.c"    /* embedding and cross entropy */
#include "experts.c" /* who is served by which expert, and rows on their way */
#include "reduce.c"
#include "optimizer.c"
#include "gemm.c" /* matmul, linear, bias_activation_grad */
#include "attention.c"
#include "narrow.c" /* bf16 and f16, by all of the above */
