/* recurrent_t.h - rows of the cells of recurrent layers for one element type (as.h); see recurrent.c. */

/* Elements i .. i + LANES of part k of a row of n of them; zeros where there is no row. */
CPU_INLINE V M(part_at)(const E *row, int k, int64_t n, int64_t i)
{
    return row ? M(at)(row + k * n, i, n - i) : F(splat)(0);
}

CPU_INLINE void M(part_put)(E *row, int k, int64_t n, int64_t i, V v)
{
    if (row) M(put)(row + k * n, i, n - i, v);
}

/* What the gates are given: x + moved. */
CPU_INLINE V M(part_sum)(const E *x, const E *moved, int k, int64_t n, int64_t i)
{
    V v = M(at)(x + k * n, i, n - i);
    return moved ? v + M(at)(moved + k * n, i, n - i) : v;
}

static void M(lstm_cell_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const cell_job *j = context;
    const int64_t   n = j->width;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const E *x = cpu_row_at(&j->x, r), *moved = M(row_or_none)(&j->moved, r), *c = M(row_or_none)(&j->state, r);
        E       *y = cpu_row_at(&j->y, r), *next = cpu_row_at(&j->next, r), *gates = M(row_or_none)(&j->gates, r);
        for (int64_t i = 0; i < n; i += LANES) {
            V in = F(sigmoid_v)(M(part_sum)(x, moved, 0, n, i)), forget = F(sigmoid_v)(M(part_sum)(x, moved, 1, n, i));
            V candidate = F(tanh_v)(M(part_sum)(x, moved, 2, n, i));
            V out = F(sigmoid_v)(M(part_sum)(x, moved, 3, n, i)), s = in * candidate;
            if (c) s += forget * M(part_at)(c, 0, n, i);
            M(part_put)(next, 0, n, i, s);
            M(part_put)(y, 0, n, i, out * F(tanh_v)(s));
            if (!gates) continue;
            M(part_put)(gates, 0, n, i, in);
            M(part_put)(gates, 1, n, i, forget);
            M(part_put)(gates, 2, n, i, candidate);
            M(part_put)(gates, 3, n, i, out);
        }
    }
}

static void M(lstm_cell_grad_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const cell_job *j = context;
    const int64_t   n = j->width;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const E *g = M(row_or_none)(&j->g, r), *gh = M(row_or_none)(&j->gh, r), *gc = M(row_or_none)(&j->gc, r);
        const E *gates = cpu_row_at(&j->gates, r), *c = M(row_or_none)(&j->state, r), *next = cpu_row_at(&j->next, r);
        E       *dx = cpu_row_at(&j->dx, r), *dc = M(row_or_none)(&j->dstate, r);
        for (int64_t i = 0; i < n; i += LANES) {
            V in = M(part_at)(gates, 0, n, i), forget = M(part_at)(gates, 1, n, i);
            V candidate = M(part_at)(gates, 2, n, i), out = M(part_at)(gates, 3, n, i);
            V t = F(tanh_v)(M(part_at)(next, 0, n, i)), gy = M(part_at)(g, 0, n, i) + M(part_at)(gh, 0, n, i);
            V s = M(part_at)(gc, 0, n, i) + gy * out * (1 - t * t);
            M(part_put)(dx, 0, n, i, s * candidate * (in * (1 - in)));
            M(part_put)(dx, 1, n, i, s * M(part_at)(c, 0, n, i) * (forget * (1 - forget)));
            M(part_put)(dx, 2, n, i, s * in * (1 - candidate * candidate));
            M(part_put)(dx, 3, n, i, gy * t * (out * (1 - out)));
            M(part_put)(dc, 0, n, i, s * forget);
        }
    }
}

static void M(gru_cell_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const cell_job *j = context;
    const int64_t   n = j->width;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const E *x = cpu_row_at(&j->x, r), *moved = M(row_or_none)(&j->moved, r), *h = M(row_or_none)(&j->state, r);
        E       *y = cpu_row_at(&j->y, r), *gates = M(row_or_none)(&j->gates, r);
        for (int64_t i = 0; i < n; i += LANES) {
            V reset = F(sigmoid_v)(M(part_sum)(x, moved, 0, n, i)), z = F(sigmoid_v)(M(part_sum)(x, moved, 1, n, i));
            V given = M(part_at)(moved, 2, n, i), candidate = F(tanh_v)(M(part_at)(x, 2, n, i) + reset * given);
            V s = (1 - z) * candidate;
            if (h) s += z * M(part_at)(h, 0, n, i);
            M(part_put)(y, 0, n, i, s);
            if (!gates) continue;
            M(part_put)(gates, 0, n, i, reset);
            M(part_put)(gates, 1, n, i, z);
            M(part_put)(gates, 2, n, i, candidate);
            M(part_put)(gates, 3, n, i, given);
        }
    }
}

static void M(gru_cell_grad_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const cell_job *j = context;
    const int64_t   n = j->width;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const E *g = M(row_or_none)(&j->g, r), *gh = M(row_or_none)(&j->gh, r), *gates = cpu_row_at(&j->gates, r);
        const E *h = M(row_or_none)(&j->state, r);
        E       *dx = cpu_row_at(&j->dx, r), *dmoved = M(row_or_none)(&j->dmoved, r);
        E       *dh = M(row_or_none)(&j->dstate, r);
        for (int64_t i = 0; i < n; i += LANES) {
            V reset = M(part_at)(gates, 0, n, i), z = M(part_at)(gates, 1, n, i);
            V candidate = M(part_at)(gates, 2, n, i), given = M(part_at)(gates, 3, n, i);
            V s = M(part_at)(g, 0, n, i) + M(part_at)(gh, 0, n, i);
            V dn = s * (1 - z) * (1 - candidate * candidate), dr = dn * given * (reset * (1 - reset));
            V dz = s * (M(part_at)(h, 0, n, i) - candidate) * (z * (1 - z));
            M(part_put)(dx, 0, n, i, dr);
            M(part_put)(dx, 1, n, i, dz);
            M(part_put)(dx, 2, n, i, dn);
            M(part_put)(dmoved, 0, n, i, dr);
            M(part_put)(dmoved, 1, n, i, dz);
            M(part_put)(dmoved, 2, n, i, dn * reset);
            M(part_put)(dh, 0, n, i, s * z);
        }
    }
}
