/* memory_t.h - vectors of elements at any place of an array, for one element type (as.h); see vector.c. */

/* Whole vectors of p at i, or the first m lanes: the loops below step by LANES with m = n - i. */
CPU_INLINE V M(at)(const E *p, int64_t i, int64_t m)
{
    return __builtin_expect(m < LANES, 0) ? M(load_n)(p + i, m) : M(load)(p + i);
}

CPU_INLINE void M(put)(E *p, int64_t i, int64_t m, V v)
{
    if (__builtin_expect(m < LANES, 0)) M(store_n)(p + i, m, v);
    else M(store)(p + i, v);
}

/* put, past the caches (base.c) if `past`; whole vectors then go to addresses that vectors divide. The idiom is
 *     for (i = 0, m = M(first_step)(y, n, past); i < n; i += m < LANES ? m : LANES, m = n - i)
 *         M(put_past)(y, i, m, f(M(at)(x, i, m)), past); */
CPU_INLINE void M(put_past)(E *p, int64_t i, int64_t m, V v, bool past)
{
    if (__builtin_expect(m < LANES, 0)) M(store_n)(p + i, m, v);
    else if (past) M(store_past)(p + i, v);
    else M(store)(p + i, v);
}

CPU_INLINE int64_t M(first_step)(const E *y, int64_t n, bool past)
{
    int64_t head = (int64_t)(-(uintptr_t)y % (LANES * sizeof(E)) / sizeof(E));
    return past && head > 0 && head < n ? head : n;
}

/* a and b += the vector at p, in double. To widen halves where they lie takes half of the instructions of widening the
 * halves of a register, each of which is moved first. */
CPU_INLINE void M(add_wide_at)(vf64 *a, vf64 *b, const E *p)
{
    vf64 low, high;
    M(load_wide)(p, &low, &high);
    *a += low;
    if (T_BITS == 32) *b += high;
}

/* The same of their products. */
CPU_INLINE void M(mul_wide_at)(vf64 *a, vf64 *b, const E *p, const E *q)
{
    vf64 low, high, low_q, high_q;
    M(load_wide)(p, &low, &high);
    M(load_wide)(q, &low_q, &high_q);
    *a += low * low_q;
    if (T_BITS == 32) *b += high * high_q;
}
