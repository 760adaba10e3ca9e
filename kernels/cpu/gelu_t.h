/* gelu_t.h - GELU, its form with tanh, and their slopes, for one element type: gelu_v, gelu_grad_v, gelu_both_v
 * and gelu_tanh_v, ... of vector.c.
 *
 * f32 on AVX-512: polynomials of 32 pieces (pieces.h), whose coefficients a permutation of two registers finds. They
 * take some 16 cycles for a vector, where exp and a quotient take 21 to 30 (Zen 4). All else: exp and a quotient of
 * polynomials (f64: a polynomial in a quotient), or sigmoid. */

#if T_BITS == 32 && CPU_VECTOR == 64

#define PIECES_END 5.859375f /* 31.25 steps: from here on q is 0, which is below 7e-8 away */

/* Each lane's number of a row: that of the piece which is in the low five bits of k. */
CPU_INLINE vf32 piece_of_f32(const float *row, vf32 k)
{
    return __builtin_shuffle(load_f32(row), load_f32(row + 16), (vi32)k);
}

/* q(|x|) for x < 0, else 1 - q(|x|). NaN stays NaN. */
CPU_INLINE vf32 piece_f32(const float (*table)[32], int degree, vf32 x)
{
    vf32 a = abs_v_f32(x), k = a * (1 / PIECES_STEP) + MAGIC, t = a - (k - MAGIC) * PIECES_STEP;
    vf32 q = piece_of_f32(table[degree], k);
#pragma GCC unroll 5
    for (int d = degree - 1; d >= 0; d--) q = q * t + piece_of_f32(table[d], k);
    q = if_most_f32(splat_f32(PIECES_END), a, splat_f32(0), q);
    return if_less_f32(x, splat_f32(0), q, 1 - q);
}

CPU_INLINE vf32 gelu_v_f32(vf32 x) { return x * piece_f32(pieces_gelu, 5, x); }
CPU_INLINE vf32 gelu_grad_v_f32(vf32 x) { return piece_f32(pieces_gelu_grad, 4, x); }
CPU_INLINE vf32 gelu_tanh_v_f32(vf32 x) { return x * piece_f32(pieces_gelu_tanh, 4, x); }
CPU_INLINE vf32 gelu_tanh_grad_v_f32(vf32 x) { return piece_f32(pieces_gelu_tanh_grad, 4, x); }
CPU_INLINE vf32 gelu_both_v_f32(vf32 x, vf32 *slope)
{
    *slope = gelu_grad_v_f32(x);
    return gelu_v_f32(x);
}

CPU_INLINE vf32 gelu_tanh_both_v_f32(vf32 x, vf32 *slope)
{
    *slope = gelu_tanh_grad_v_f32(x);
    return gelu_tanh_v_f32(x);
}

#else

/* Mills' ratio: Phi(-u) = e M(u), e = exp(-u^2 / 2), 0 <= u <= TAIL_END, where e is 0 */
#if T_BITS == 32
#define TAIL_END 14.5f
CPU_INLINE V F(mills_v)(V u) /* within 5e-9 M, and what rounding adds: no term is negative */
{
    V n = u * 0.00402014508208635684f + 0.0399838894524963372f;
    V d = u * 0.0100768661108146081f + 0.100232129227337973f;
    n = n * u + 0.181305953806814084f;
    d = d * u + 0.464378197461366601f;
    n = n * u + 0.435685284469511002f;
    d = d * u + 1.19448097543764339f;
    n = n * u + 0.500000002480072122f;
    d = d * u + 1.66925548776189952f;
    return n / (d * u + 1);
}
#else
#define TAIL_END 39.5
CPU_INLINE V F(mills_v)(V u) /* K G(t) / (u + K), t = (u - K) / (u + K), G a polynomial */
{
    const T K = 4;
    V       r = 1 / (u + K), t = (u - K) * r;
    V       p = F(splat)(-1.81136984258447746e-10 * K);
    p = p * t + -6.292047904981627e-10 * K;
    p = p * t + 4.79534867090196032e-10 * K;
    p = p * t + 4.90101234975943171e-9 * K;
    p = p * t + 3.31769674349027642e-9 * K;
    p = p * t + -2.13474649356940297e-8 * K;
    p = p * t + -3.87365106161456788e-8 * K;
    p = p * t + 6.79483599471872167e-8 * K;
    p = p * t + 2.55384356545601305e-7 * K;
    p = p * t + -1.57423379009835644e-7 * K;
    p = p * t + -1.48004121977288834e-6 * K;
    p = p * t + 1.79166593415904961e-7 * K;
    p = p * t + 8.78617085529063602e-6 * K;
    p = p * t + -4.77064689483794904e-7 * K;
    p = p * t + -0.0000577737336661590255 * K;
    p = p * t + 0.0000333360781221687343 * K;
    p = p * t + 0.00040770461438281673 * K;
    p = p * t + -0.000869923091850893165 * K;
    p = p * t + -0.00188504724168080958 * K;
    p = p * t + 0.0150991437227342845 * K;
    p = p * t + -0.0466304644899143367 * K;
    p = p * t + 0.0967843501855536322 * K;
    p = p * t + -0.151974160492973027 * K;
    p = p * t + 0.188821282603937873 * K;
    return p * r;
}
#endif

/* Phi(-u) = *e times what is returned, u = min(|x|, TAIL_END). What rounds off the square goes into exp. */
CPU_INLINE V F(normal_tail_v)(V x, V *u_out, V *e)
{
    V u = F(min_v)(F(splat)(TAIL_END), F(abs_v)(x)), half = u * (T)-0.5, s = half * u;
    *u_out = u;
    *e = F(exp_low_v)(s, F(product_low)(half, u, s));
    return F(mills_v)(u);
}

/* x Phi(x) = max(x, 0) - |x| Phi(-|x|); -inf becomes NaN, as in 0 * inf */
CPU_INLINE V F(gelu_of_tail)(V x, V u, V e, V tail) { return (x - F(min_v)(x, F(splat)(0))) - (e * u) * tail; }

CPU_INLINE V F(gelu_v)(V x)
{
    V u, e, tail = F(normal_tail_v)(x, &u, &e);
    return F(gelu_of_tail)(x, u, e, tail);
}

/* The slope is Phi(x) + x phi(x). */
CPU_INLINE V F(gelu_both_v)(V x, V *slope)
{
    V u, e, tail = F(normal_tail_v)(x, &u, &e), at = x * (T)0.398942280401432677940 - F(copysign_v)(tail, x);
    *slope = F(if_less)(x, F(splat)(0), F(splat)(0), F(splat)(1)) + e * at;
    return F(gelu_of_tail)(x, u, e, tail);
}

#if T_BITS == 32
CPU_INLINE V F(gelu_grad_v)(V x) /* for x < 0 e times a quotient, within 7e-8; its value at -x is 1 less that at x */
{
    V u = F(min_v)(F(splat)(TAIL_END), F(abs_v)(x)), e = F(exp_down_v)(u * (T)-0.5 * u);
    V n = u * -0.0831255602221409446f + -0.322969435089694055f;
    V d = u * 0.000404955805614661769f + 0.202880433398833799f;
    n = n * u + -0.375290359731277829f;
    d = d * u + 0.845178765118447706f;
    n = n * u + 0.499999932741588939f;
    V tail = e * n / (d * u + 1);
    return F(if_less)(x, F(splat)(0), tail, 1 - tail);
}
#else
CPU_INLINE V F(gelu_grad_v)(V x)
{
    V slope;
    F(gelu_both_v)(x, &slope);
    return slope;
}
#endif
#undef TAIL_END

/* 0.5 (1 + tanh(c (x + a x^3))) = sigmoid(2 c (x + a x^3)), c = sqrt(2 / pi), a = 0.044715 */
CPU_INLINE V F(gelu_argument_v)(V x) { return x * ((x * x) * (T)0.0713548162726009 + (T)1.59576912160573071); }
CPU_INLINE V F(gelu_tanh_v)(V x) { return x * F(sigmoid_v)(F(gelu_argument_v)(x)); }

CPU_INLINE V F(gelu_tanh_both_v)(V x, V *slope)
{
    V d, s = F(sigmoid_slope_v)(F(gelu_argument_v)(x), &d);
    *slope = s + d * (x * ((x * x) * (T)0.2140644488178027 + (T)1.59576912160573071));
    return x * s;
}

CPU_INLINE V F(gelu_tanh_grad_v)(V x)
{
    V slope;
    F(gelu_tanh_both_v)(x, &slope);
    return slope;
}
#endif
