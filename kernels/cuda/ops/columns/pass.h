/* pass.h - the pass of bias_activation_grad over matrices that are given by addresses. */
#ifndef GM_CUDA_COLUMNS_PASS_H
#define GM_CUDA_COLUMNS_PASS_H

#include "../../runtime/cuda.h"

/* Element (i, j) lies i * row + j * column elements behind data. data NULL: not given. */
typedef struct gm_columns_matrix {
    void   *data;
    int64_t row, column;
} gm_columns_matrix;

/* dpre = g f'(pre), db (+)= the sum over rows of g f'(pre). Without pre, f'(pre) is 1. dpre may be g. */
typedef struct gm_columns_pass {
    gm_columns_matrix g, pre, dpre; /* (rows, width) */
    int64_t           rows, width;
    int32_t           function;   /* gm_function */
    const gm_tensor  *db;         /* (width); NULL: not wanted */
    bool              accumulate; /* to db */
} gm_columns_pass;

gm_status gm_columns_pass_run(gm_device *dev, gm_dtype t, const gm_columns_pass *pass);

#endif
