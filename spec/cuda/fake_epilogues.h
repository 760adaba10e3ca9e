/* fake_epilogues.h - what cuBLASLt's epilogues do to a number, in double. Its gelu is the tanh form (Hendrycks, Gimpel
 * 2016, arXiv:1606.08415). */
#ifndef GM_FAKE_EPILOGUES_H
#define GM_FAKE_EPILOGUES_H

#include <cublasLt.h>
#include <math.h>

/* What the tanh form of gelu makes of x, and its derivative there. */
static inline double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

static inline double gelu_slope(double x)
{
    double t = tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.79788456080286535588 * (1 + 3 * 0.044715 * x * x);
}

static inline double activation(uint32_t epilogue, double x)
{
    if (epilogue & CUBLASLT_EPILOGUE_GELU) return gelu(x);
    if (epilogue & CUBLASLT_EPILOGUE_RELU) return x > 0 ? x : 0;
    return x;
}

#endif
