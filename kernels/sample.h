/* sample.h - pure functions from words of philox.h to random numbers.
 *
 * Every backend calls these functions, or takes the same steps. So a draw has the same bits in all of them, but for cut
 * normal numbers on a GPU, where the last bits of log may differ. The trap: compilers may turn a * b + c into one
 * operation in the cpu tables and in the CUDA kernels, but not in the reference. Each such expression here is therefore
 * an explicit fma(), which rounds once everywhere. Results are doubles; the caller rounds them once to its dtype. */
#ifndef GM_SAMPLE_H
#define GM_SAMPLE_H

#include <math.h>
#include <string.h>

#include "op.h"
#include "philox.h"

/* The index in the global tensor (row-major) of the element at the local coordinates `at`. shape: the local shape. */
GM_INLINE uint64_t gm_box_index(const gm_box *box, int ndim, const int64_t *shape, const int64_t *at)
{
    uint64_t i = 0;
    for (int d = 0; d < ndim; d++)
        i = box->ndim ? i * (uint64_t)box->shape[d] + (uint64_t)(box->offset[d] + at[d])
                      : i * (uint64_t)shape[d] + (uint64_t)at[d];
    return i;
}

/* A uniform number in [low, high). */
GM_INLINE double gm_sample_uniform(double low, double high, uint32_t word)
{
    return fma(high - low, (double)gm_uniform_of(word), low);
}

/* c[0] + c[1] x + ... + c[7] x^7 */
GM_INLINE double gm_polynomial7(const double c[8], double x)
{
    double y = c[7];
    for (int i = 6; i >= 0; i--) y = fma(y, x, c[i]);
    return y;
}

GM_INLINE uint64_t gm_bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

GM_INLINE double gm_double_of(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Chebyshev fits of our own, within 2^-54: 2 atanh(s) / s of s^2, |s| <= 3 - 2 sqrt(2); sin(pi f / 2) / f and
 * cos(pi f / 2) of f^2, |f| <= 1/2. */
#define GM_LOG_FIT                                                                                                 \
    {                                                                                                              \
        2.0, 0.6666666666666765, 0.3999999999930234, 0.2857142876064168, 0.22222197056726045, 0.18183631680229334, \
            0.15312528148364055, 0.14809710360656705                                                               \
    }
#define GM_SIN_FIT                                                                                                  \
    {                                                                                                               \
        1.5707963267948966, -0.6459640975062463, 0.07969262624616692, -0.004681754135314827, 0.0001604411847266723, \
            -3.598842717144858e-06, 5.691927850489633e-08, -6.627624938992472e-10                                   \
    }
#define GM_COS_FIT                                                                                 \
    {                                                                                              \
        1.0, -1.2337005501361697, 0.2536695079010467, -0.02086348076331121, 0.0009192602741831558, \
            -2.520203677046026e-05, 4.710609726757823e-07, -6.321256869628588e-09                  \
    }

#define GM_LOG2_HIGH 0.6931471803691238     /* of log(2): 32 bits */
#define GM_LOG2_LOW  1.9082149292705877e-10 /* the rest of it */
#define GM_ROOT_HALF 0x3fe6a09e667f3bcdu    /* the bits of sqrt(1/2) */

/* log(u), within a unit or two of the last place; u > 0 is in the normal range. u = 2^k m, m in [sqrt(1/2), sqrt(2)),
 * log(m) = 2 atanh(s), s = (m - 1) / (m + 1). */
GM_INLINE double gm_sample_log(double u)
{
    const double fit[8] = GM_LOG_FIT;
    uint64_t     bits = gm_bits_of(u) - (GM_ROOT_HALF - ((uint64_t)1023 << 52));
    double       k = (double)(int)(bits >> 52) - 1023;
    double       m = gm_double_of((bits & (((uint64_t)1 << 52) - 1)) + GM_ROOT_HALF), s = (m - 1) / (m + 1);
    return fma(k, GM_LOG2_HIGH, fma(k, GM_LOG2_LOW, s * gm_polynomial7(fit, s * s)));
}

/* Two normal numbers, by Box and Muller 1958. Elements 2k and 2k + 1 of a stream share its words 2k (a) and 2k + 1 (b).
 * The angle is exact: b names 2^24 parts of a turn, of which f is the distance from the nearest quarter. Vectors of the
 * CPU take the same steps (kernels/cpu/normal.c), and so does a GPU: the bits are the same. */
GM_INLINE void gm_sample_normal(double mean, double std, uint32_t a, uint32_t b, double *even, double *odd)
{
    const double sines[8] = GM_SIN_FIT, cosines[8] = GM_COS_FIT;
    double       r = std * sqrt(-2 * gm_sample_log((double)((a >> 8) + 1) * 0x1p-24)); /* of (0, 1] */
    uint32_t     part = b >> 8, quarter = (part + (1u << 21)) >> 22;
    double       f = (double)((int32_t)part - (int32_t)(quarter << 22)) * 0x1p-22, z = f * f;
    double       s = f * gm_polynomial7(sines, z), c = gm_polynomial7(cosines, z);
    double       x = quarter & 1 ? s : c, y = quarter & 1 ? c : s; /* cos and sin of the angle, but for signs */
    *even = fma(r, (quarter + 1) & 2 ? -x : x, mean);
    *odd = fma(r, quarter & 2 ? -y : y, mean);
}

/* The standard normal quantile: z with P(Z < z) = p, 0 < p < 1. Wichura, "Algorithm AS 241: The
 * percentage points of the normal distribution" (Applied Statistics 37, 1988), PPND16: 16 digits. */
GM_INLINE double gm_normal_quantile(double p)
{
    static const double a[8] = {3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
                                1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
                                3.3430575583588128105e4, 2.5090809287301226727e3};
    static const double b[8] = {1.0,
                                4.2313330701600911252e1,
                                6.8718700749205790830e2,
                                5.3941960214247511077e3,
                                2.1213794301586595867e4,
                                3.9307895800092710610e4,
                                2.8729085735721942674e4,
                                5.2264952788528545610e3};
    static const double c[8] = {1.42343711074968357734e0,  4.63033784615654529590e0, 5.76949722146069140550e0,
                                3.64784832476320460504e0,  1.27045825245236838258e0, 2.41780725177450611770e-1,
                                2.27238449892691845833e-2, 7.74545014278341407640e-4};
    static const double d[8] = {1.0,
                                2.05319162663775882187e0,
                                1.67638483018380384940e0,
                                6.89767334985100004550e-1,
                                1.48103976427480074590e-1,
                                1.51986665636164571966e-2,
                                5.47593808499534494600e-4,
                                1.05075007164441684324e-9};
    static const double e[8] = {6.65790464350110377720e0,  5.46378491116411436990e0,  1.78482653991729133580e0,
                                2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                2.71155556874348757815e-5, 2.01033439929228813265e-7};
    static const double f[8] = {1.0,
                                5.99832206555887937690e-1,
                                1.36929880922735805310e-1,
                                1.48753612908506148525e-2,
                                7.86869131145613259100e-4,
                                1.84631831751005468180e-5,
                                1.42151175831644588870e-7,
                                2.04426310338993978564e-15};
    double              q = p - 0.5;
    if (fabs(q) <= 0.425) {
        double r = fma(-q, q, 0.180625);
        return q * gm_polynomial7(a, r) / gm_polynomial7(b, r);
    }
    double r = sqrt(-log(q < 0 ? p : 1 - p));
    double z = r <= 5 ? gm_polynomial7(c, r - 1.6) / gm_polynomial7(d, r - 1.6)
                      : gm_polynomial7(e, r - 5) / gm_polynomial7(f, r - 5);
    return q < 0 ? -z : z;
}

/* A normal distribution cut to [low, high], drawn by inversion of its distribution function. An interval above the mean
 * is mirrored, because the distribution function keeps its digits only in the lower tail. */
typedef struct gm_truncated {
    double mean, std, low, high, start, width;
} gm_truncated;

GM_INLINE gm_truncated gm_truncated_of(double mean, double std, double low, double high)
{
    double       root_half = 0.70710678118654752440, signed_std = low > mean ? -std : std;
    double       near_end = low > mean ? high : low, far_end = low > mean ? low : high;
    double       start = 0.5 * erfc(-root_half * ((near_end - mean) / signed_std));
    double       end = 0.5 * erfc(-root_half * ((far_end - mean) / signed_std));
    gm_truncated t = {mean, signed_std, low, high, start, end - start};
    return t;
}

GM_INLINE double gm_sample_truncated(const gm_truncated *t, uint32_t word)
{
    double u = ((double)(word >> 8) + 0.5) * 0x1p-24;
    double x = fma(t->std, gm_normal_quantile(fma(t->width, u, t->start)), t->mean);
    return x < t->low ? t->low : x > t->high ? t->high : x;
}

#endif
