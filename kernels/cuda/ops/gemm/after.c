/* after.c - ways to make a product (products/product.h) that make the plain one first, in its own way, and then pass
 * over memory once more. */
#include <string.h>

#include "../../../op.h"
#include "../../products/product.h"
#include "../columns/pass.h"

/* ---- sums ---- */

static bool has_sums(const gm_product *p) { return p->db && !p->args.ndim && p->dtype == p->to; }

static gm_status one_if(bool possible, int most, gm_variant *out, int *n)
{
    *n = possible && most > 0;
    if (*n) memset(out, 0, sizeof *out);
    return GM_OK;
}

static gm_status offers_sums(gm_device *dev, const gm_product *p, int most, gm_variant *out, int *n)
{
    (void)dev;
    return one_if(has_sums(p), most, out, n);
}

/* Row l of what is summed has the l-th numbers of all rows of a. */
static gm_status run_sums(gm_device *dev, const gm_product *p, const gm_variant *v, bool *served)
{
    const gm_gemm_args *a = &p->args;
    gm_product          plain = *p;
    gm_columns_matrix   g = {(void *)(uintptr_t)a->a, a->a_k, a->a_m};
    gm_columns_pass     pass = {.g = g, .rows = a->k, .width = a->m, .db = p->db, .accumulate = a->accumulate};
    (void)v;
    *served = has_sums(p);
    if (!*served) return GM_OK;
    plain.db = NULL;
    GM_TRY(gm_product_run(dev, &plain));
    return gm_columns_pass_run(dev, p->dtype, &pass);
}

const gm_way gm_way_sums_after = {"sums after", offers_sums, run_sums, NULL};

/* ---- slopes ---- */

static bool has_slope(const gm_product *p)
{
    return p->args.slope && !p->args.ndim && !p->args.accumulate && p->dtype == p->to;
}

static gm_status offers_slope(gm_device *dev, const gm_product *p, int most, gm_variant *out, int *n)
{
    (void)dev;
    return one_if(has_slope(p), most, out, n);
}

/* Element by element, in place. */
static gm_status run_slope(gm_device *dev, const gm_product *p, const gm_variant *v, bool *served)
{
    const gm_gemm_args *a = &p->args;
    gm_product          plain = *p;
    gm_columns_matrix   y = {a->y, a->y_m, a->y_n}, pre = {a->pre, a->pre_m, a->pre_n};
    gm_columns_pass     pass = {.g = y, .pre = pre, .dpre = y, .rows = a->m, .width = a->n, .function = a->function};
    (void)v;
    *served = has_slope(p);
    if (!*served) return GM_OK;
    plain.args.pre = NULL;
    plain.args.slope = false;
    plain.args.function = GM_FN_none;
    GM_TRY(gm_product_run(dev, &plain));
    return gm_columns_pass_run(dev, p->dtype, &pass);
}

const gm_way gm_way_slope_after = {"slope after", offers_slope, run_slope, NULL};

/* ---- functions ---- */

static int64_t batch_of(const gm_gemm_args *a)
{
    int64_t n = 1;
    for (int d = 0; d < a->ndim; d++) n *= a->dim[d].n;
    return n;
}

static bool has_function(const gm_product *p)
{
    const gm_gemm_args *a = &p->args;
    bool                of_numbers = p->dtype == p->to && p->dtype != GM_F64 && p->dtype != GM_U8;
    return of_numbers && (a->bias || a->function) && !a->slope && !a->accumulate && !p->db && a->k;
}

/* The product in f32 without gaps. y is set by the caller. */
static gm_product in_f32(const gm_product *p)
{
    gm_product    plain = *p;
    gm_gemm_args *a = &plain.args;
    int64_t       step = a->m * a->n;
    plain.to = GM_F32;
    a->wide = plain.dtype != GM_F32;
    a->y_m = a->n;
    a->y_n = 1;
    a->bias = NULL;
    a->pre = NULL;
    a->function = GM_FN_none;
    for (int d = a->ndim - 1; d >= 0; step *= a->dim[d--].n) a->dim[d].y = step;
    return plain;
}

/* Not worth a trial where the library has the function itself: it writes and reads 8 bytes more for each number. */
static gm_status offers_function(gm_device *dev, const gm_product *p, int most, gm_variant *out, int *n)
{
    (void)dev;
    return one_if(has_function(p) && p->args.function, most, out, n);
}

/* pre and y are rounded once. */
static gm_status run_function(gm_device *dev, const gm_product *p, const gm_variant *v, bool *served)
{
    gm_status    st;
    char         name[GM_CUDA_NAME];
    gm_block    *block;
    gm_product   plain = in_f32(p);
    gm_gemm_args rest = p->args;
    int64_t      numbers = batch_of(&rest) * rest.m * rest.n;
    (void)v;
    *served = false;
    if (!has_function(p)) return GM_OK;
    GM_TRY(gm_cuda_scratch(dev, (size_t)numbers * sizeof(float), &plain.args.y, &block));
    rest.a = plain.args.y;
    GM_TRY_OR(gm_product_try(dev, &plain, served), st, done);
    if (*served)
        st = GM_LAUNCH(dev, gm_cuda_name(name, "gm_gemm_finish_all", p->dtype), gm_cuda_over(dev, numbers, 4, 256),
                       rest);
done:
    gm_pool_release(dev->pool, block);
    return st;
}

const gm_way gm_way_function_after = {"function after", offers_function, run_function, NULL};
