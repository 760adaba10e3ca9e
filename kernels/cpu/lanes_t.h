/* lanes_t.h - sums across lanes, and sums of vectors in double, for one type of numbers (as.h). */

CPU_INLINE T F(sum_v)(V v)
{
    T s = 0;
    for (int i = 0; i < LANES / 2; i++) s += v[i] + v[i + LANES / 2];
    return s;
}

/* Lane j: the sum across lanes of r[j]. r is used up. */
CPU_INLINE V F(sums_v)(V r[LANES])
{
    VI lane;
    for (int j = 0; j < LANES; j++) lane[j] = j;
#pragma GCC unroll 4
    for (int d = LANES / 2; d > 0; d /= 2) {
        VI odd = (lane & d) != 0, low = lane + (odd & (LANES - d)), high = low + d;
#pragma GCC unroll 8
        for (int i = 0; i < d; i++)
            r[i] = __builtin_shuffle(r[i], r[i + d], low) + __builtin_shuffle(r[i], r[i + d], high);
    }
    return r[0];
}

CPU_INLINE T F(max_of)(V v)
{
    T m = v[0];
    for (int i = 1; i < LANES; i++) m = v[i] > m ? v[i] : m;
    return m;
}

/* What a vector adds to two accumulators in double. */
CPU_INLINE void F(add_wide)(vf64 *a, vf64 *b, V v)
{
#if T_BITS == 32
    *a += widen(low_half(v));
    *b += widen(high_half(v));
#else
    (void)b;
    *a += v;
#endif
}

CPU_INLINE void F(mul_wide)(vf64 *a, vf64 *b, V v, V w)
{
#if T_BITS == 32
    *a += widen(low_half(v)) * widen(low_half(w));
    *b += widen(high_half(v)) * widen(high_half(w));
#else
    (void)b;
    *a += v * w;
#endif
}

/* acc[i .. i + m) += v */
CPU_INLINE void F(add_to)(double *acc, int64_t i, int64_t m, V v)
{
#if T_BITS == 32
    if (m >= LANES) {
        *(any_f64 *)(acc + i) += widen(low_half(v));
        *(any_f64 *)(acc + i + LANES / 2) += widen(high_half(v));
        return;
    }
#else
    if (m >= LANES) {
        *(any_f64 *)(acc + i) += v;
        return;
    }
#endif
    for (int64_t k = 0; k < m; k++) acc[i + k] += v[k];
}

/* acc += v w, a vector of them, in double */
CPU_INLINE void F(add_product_to)(double *acc, V v, V w)
{
    vf64 a = *(any_f64 *)acc, b = *(any_f64 *)(acc + LANES - CPU_VECTOR / 8); /* b of f64: unused */
    F(mul_wide)(&a, &b, v, w);
    if (T_BITS == 32) *(any_f64 *)(acc + LANES - CPU_VECTOR / 8) = b;
    *(any_f64 *)acc = a;
}

/* Number r of a column that may be absent: 0 then. */
CPU_INLINE T F(number_at)(const cpu_rows *column, int64_t r) { return column->data ? *(T *)cpu_row_at(column, r) : 0; }
