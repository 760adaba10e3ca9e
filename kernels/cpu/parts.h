/* parts.h - the parts of the CPU backend, in order of dependence. Included once, by cpu.c. */
#include "base.c"   /* raw memory, parallel helpers, row iteration over strided tensors */
#include "dense.c"  /* rows made dense, for kernels that know nothing of strides */
#include "vector.c" /* vector types and the polynomial functions that elementwise kernels share */
#include "wide.c"   /* sin, cos and powers of floats, in double */
#include "transpose.c"
#include "copy.c" /* fill and copy: any strides, any dtype */
#include "elementwise.c"
#include "random.c"
#include "norm.c"
#include "norm_steps.c" /* norms in steps, for rows that are cut over ranks */
#include "images.c"     /* tensors (n, c, ...) as images */
#include "batch_norm.c"
#include "pooling.c"
#include "softmax.c"
#include "gate.c"      /* gradients of gates */
#include "recurrent.c" /* cells of recurrent layers */
#include "rotary.c"
#include "documents.c"
#include "loss.c" /* embedding and cross entropy */
#include "bags.c" /* bags of rows, and rows that a list names */
#include "cumsum.c"
#include "experts.c" /* mixtures of experts: plans, and moves of rows */
#include "reduce.c"
#include "extremes.c" /* max, min, argmax */
#include "order.c"    /* sort */
#include "optimizer.c"
#include "gemm.c"    /* matmul, linear, bias_activation_grad */
#include "grouped.c" /* products of groups of rows */
#include "convolution.c"
#include "few_bits.c" /* weights of 8 or 4 bits */
#include "float8.c"   /* floats of 8 bits */
#include "float8_blocks.c"
#include "attention.c"
#include "pages.c"  /* keys and values in pages */
#include "narrow.c" /* calls with bf16 and f16, by the kernels above */
