/* gemm_bias_t.h - rows of bias_activation_grad for one element type. */

#define BIAS_ROWS 64 /* rows summed before their sum is added to the total: keeps the rounding error small */

/* Job: rows [begin, end); part number `thread` writes its column sums to its scratch. */
static void F(bias_part)(void *context, int64_t begin, int64_t end, int thread)
{
    const gemm_bias *w = context;
    int64_t          n = w->n;
    T               *total = (T *)w->scratch + 3 * n * thread, *few = total + n, *row = few + n;
    for (int64_t j = 0; j < n; j++) total[j] = few[j] = 0;
    for (int64_t i = begin; i < end; i++) {
        const T *g = (const T *)w->g + i * w->g_row, *pre = w->pre ? (const T *)w->pre + i * w->pre_row : NULL;
        T       *dpre = w->dpre ? (T *)w->dpre + i * w->dpre_row : row;
        if (w->f != GM_FN_none) F(activation_grad_row)(w->f, n, pre, g, dpre);
        else if (w->dpre) memcpy(dpre, g, (size_t)n * sizeof(T));
        F(axpy_row)(n, 1, w->f != GM_FN_none ? dpre : g, few);
        if ((i - begin) % BIAS_ROWS == BIAS_ROWS - 1 || i == end - 1) {
            F(axpy_row)(n, 1, few, total);
            memset(few, 0, (size_t)n * sizeof(T));
        }
    }
}

/* db (+)= the sums of the parts, in their order. */
static void F(bias_sum)(const gemm_bias *w, int parts, bool accumulate, T *db, int64_t step)
{
    for (int64_t j = 0; j < w->n; j++) {
        T s = accumulate ? db[j * step] : 0;
        for (int k = 0; k < parts; k++) s += ((const T *)w->scratch)[3 * w->n * k + j];
        db[j * step] = s;
    }
}

#undef BIAS_ROWS
