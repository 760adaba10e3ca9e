/* gate_t.h - rows of gate_grad for one element type (as.h); see gate.c. */

#define GATE_ROW(both)                                                              \
    for (int64_t i = 0; i < n; i += LANES) {                                        \
        V gv = M(at)(g, i, n - i), slope, value = both(M(at)(a, i, n - i), &slope); \
        if (da) M(put)(da, i, n - i, gv * M(at)(b, i, n - i) * slope);              \
        if (db) M(put)(db, i, n - i, gv * value);                                   \
    }

static void M(gate_grad_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const gate_job *j = context;
    int64_t         n = j->g.width;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const E *g = cpu_row_at(&j->g, r), *a = cpu_row_at(&j->a, r), *b = cpu_row_at(&j->b, r);
        E       *da = M(row_or_none)(&j->da, r), *db = M(row_or_none)(&j->db, r);
        switch (j->function) {
        case GM_FN_reglu: GATE_ROW(F(relu_both_v)) break;
        case GM_FN_geglu: GATE_ROW(F(gelu_both_v)) break;
        case GM_FN_geglu_tanh: GATE_ROW(F(gelu_tanh_both_v)) break;
        default: GATE_ROW(F(silu_both_v)) break;
        }
    }
}
#undef GATE_ROW
