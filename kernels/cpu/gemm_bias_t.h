/* gemm_bias_t.h - rows of bias_activation_grad for one element type. */

/* Job: rows [begin, end); part number `thread` writes its column sums to its scratch. */
static void F(bias_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const gemm_bias *w = context;
    int64_t          n = w->n;
    double          *sum = w->scratch + 2 * n * thread;
    T               *row = (T *)(sum + n);
    memset(sum, 0, (size_t)n * sizeof *sum);
    for (int64_t i = begin; i < end; i++) {
        if (w->narrow) {
            add_columns_bf16(n, (const bits2 *)w->g + i * w->g_row, sum);
            continue;
        }
        const T *g = (const T *)w->g + i * w->g_row, *pre = w->pre ? (const T *)w->pre + i * w->pre_row : NULL;
        T       *dpre = w->dpre ? (T *)w->dpre + i * w->dpre_row : row;
        if (w->f != GM_FN_none) F(activation_grad_row)(w->f, n, pre, g, dpre);
        else if (w->dpre) memcpy(dpre, g, (size_t)n * sizeof(T));
        F(add_columns)(n, w->f != GM_FN_none ? dpre : g, sum);
    }
}

/* db (+)= the sums of the parts, in their order. */
static void F(bias_sum)(const gemm_bias *w, int parts, bool accumulate, T *db, int64_t step)
{
    for (int64_t j = 0; j < w->n; j++) {
        double s = accumulate ? db[j * step] : 0;
        for (int k = 0; k < parts; k++) s += w->scratch[2 * w->n * k + j];
        db[j * step] = (T)s;
    }
}
