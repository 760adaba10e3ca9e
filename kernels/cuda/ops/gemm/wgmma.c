/* wgmma.c - the way to make products by our own kernels for Hopper (wgmma.cu): 16-bit matrices whose rows start at
 * multiples of 16 bytes, with bias and GELU (tanh) or ReLU, with the slope of one of these, or along a long sum, in
 * pieces, with the sums of a's rows. Sums are in f32 and have one order for each shape and number of
 * multiprocessors. */
#include <stdio.h>
#include <string.h>

#include "../../../op.h"
#include "../../products/product.h"
#include "../../runtime/driver.h"
#include "../../runtime/tile_map.h"
#include "wgmma_args.h"

#define LEAST      64           /* rows, columns and depth; smaller products have other ways */
#define GROUP      16           /* rows of tiles together: with as many columns, what multiprocessors have under way */
#define PIECES     32           /* of a sum, at most */
#define PIECE      8            /* stages that a piece has, at least */
#define VARIANTS   3            /* numbers of pieces that are offered */
#define STAGE_TIME 0.48e-6      /* seconds that a multiprocessor takes for a stage, */
#define PART_TIME  (1 / 1.8e12) /* and the memory for a byte of parts, written and read (H200) */
#define TILE_TIME  10e-6        /* what follows a tile, where nothing else is under way meanwhile */

typedef enum kind { NOT_OURS, LINEAR, INPUT, WEIGHT } kind;

/* ---- what can be made ---- */

static bool is_plain(const gm_gemm_args *a) { return !a->ndim && a->alpha == 1 && !a->wide && !a->scale[0]; }

static kind kind_of(const gm_product *p)
{
    const gm_gemm_args *a = &p->args;
    bool                function = a->function == GM_FN_relu || a->function == GM_FN_gelu_tanh;
    if (a->a_m == 1 && a->a_k != 1 && a->b_n == 1 && !a->bias && !a->pre && a->function == GM_FN_none) return WEIGHT;
    if (a->a_k != 1 || p->db || a->accumulate) return NOT_OURS;
    if (a->b_k == 1 && a->b_n != 1 && !a->slope && (function || (a->function == GM_FN_none && !a->pre))) return LINEAR;
    if (a->b_n == 1 && !a->bias && (a->slope ? function && a->pre : a->function == GM_FN_none && !a->pre)) return INPUT;
    return NOT_OURS;
}

/* The four matrices as they lie in memory, and the tiles in which they are copied. */
typedef struct matrices {
    gm_tile_matrix a, b, y, pre;
} matrices;

static matrices matrices_of(const gm_product *p, kind k)
{
    const gm_gemm_args *g = &p->args;
    bool                turned_a = k == WEIGHT, turned_b = k != LINEAR;
    return (matrices){
        .a = {g->a, p->dtype, turned_a ? g->k : g->m, turned_a ? g->m : g->k, turned_a ? g->a_k : g->a_m,
              turned_a ? GM_WGMMA_DEPTH : GM_WGMMA_ROWS, GM_WGMMA_DEPTH},
        .b = {g->b, p->dtype, turned_b ? g->k : g->n, turned_b ? g->n : g->k, turned_b ? g->b_k : g->b_n,
              turned_b ? GM_WGMMA_DEPTH : GM_WGMMA_COLUMNS, GM_WGMMA_DEPTH},
        .y = {g->y, p->dtype, g->m, g->n, g->y_m, GM_WGMMA_ROWS, GM_WGMMA_PANEL},
        .pre = {g->pre, p->dtype, g->m, g->n, g->pre_m, GM_WGMMA_ROWS, GM_WGMMA_PANEL},
    };
}

static bool has_kernels(gm_device *dev)
{
    gm_cuda *cu = gm_cuda_of(dev);
    if (!cu->wgmma) cu->wgmma = gm_cuda_has(dev, "gm_wgmma_weight_bf16") ? 1 : -1;
    return cu->wgmma > 0;
}

static kind takes(gm_device *dev, const gm_product *p)
{
    const gm_gemm_args *g = &p->args;
    bool                small = g->m < LEAST || g->n < LEAST || g->k < LEAST;
    if (!gm_dtype_is_narrow(p->dtype) || p->to != p->dtype || small || !is_plain(g) || g->y_n != 1) return NOT_OURS;
    kind     k = kind_of(p);
    matrices x = matrices_of(p, k);
    if (k == NOT_OURS || !gm_tile_map_takes(&x.a) || !gm_tile_map_takes(&x.b) || !gm_tile_map_takes(&x.y))
        return NOT_OURS;
    if (g->pre && (g->pre_n != 1 || !gm_tile_map_takes(&x.pre))) return NOT_OURS;
    if (g->bias && (g->bias_n != 1 || (uintptr_t)g->bias % 4)) return NOT_OURS;
    if ((k == WEIGHT || g->bias) && g->n % 2) return NOT_OURS; /* columns of parts and biases go in pairs */
    if (p->db && (!gm_tensor_is_contiguous(p->db) || p->db->dtype != p->dtype)) return NOT_OURS;
    return has_kernels(dev) ? k : NOT_OURS;
}

/* ---- pieces of a sum ---- */

static int64_t over(int64_t n, int64_t by) { return (n + by - 1) / by; }

static int64_t tiles_of(const gm_gemm_args *g) { return over(g->m, GM_WGMMA_ROWS) * over(g->n, GM_WGMMA_COLUMNS); }

/* Seconds, so that numbers of pieces can be compared. */
static double time_of(const gm_device *dev, const gm_gemm_args *g, int pieces)
{
    int64_t rounds = over(tiles_of(g) * pieces, gm_cuda_multiprocessors(dev));
    double  stages = (double)over(over(g->k, GM_WGMMA_DEPTH), pieces);
    return (double)rounds * stages * STAGE_TIME + (rounds == 1 ? TILE_TIME : 0) +
           (double)pieces * (double)(g->m * g->n) * sizeof(float) * PART_TIME;
}

/* The best numbers of pieces, the best first; -> how many. */
static int best_pieces(const gm_device *dev, const gm_gemm_args *g, int most, int *out)
{
    int n = 0;
    for (int pieces = 1; pieces <= PIECES && (pieces == 1 || over(g->k, GM_WGMMA_DEPTH) / pieces >= PIECE); pieces++) {
        int at = n < most ? n++ : most;
        for (; at > 0 && time_of(dev, g, pieces) < time_of(dev, g, out[at - 1]); at--)
            if (at < most) out[at] = out[at - 1];
        if (at < most) out[at] = pieces;
    }
    return n;
}

/* ---- the way ---- */

static gm_status offers(gm_device *dev, const gm_product *p, int most, gm_variant *out, int *n)
{
    int  pieces[VARIANTS] = {1};
    kind k = takes(dev, p);
    *n = k == NOT_OURS || most < 1 ? 0 : 1;
    if (*n && k == WEIGHT) *n = best_pieces(dev, &p->args, most < VARIANTS ? most : VARIANTS, pieces);
    for (int i = 0; i < *n; i++) out[i] = (gm_variant){.word = {(uint64_t)pieces[i]}};
    return GM_OK;
}

static const char *name_of(char *buf, const gm_product *p, kind k)
{
    static const char *const kinds[] = {[LINEAR] = "linear", [INPUT] = "input", [WEIGHT] = "weight"};
    const gm_gemm_args      *g = &p->args;
    char                     base[GM_CUDA_NAME];
    const char *function = g->function == GM_FN_none ? "none" : g->function == GM_FN_relu ? "relu" : "gelu_tanh";
    snprintf(base, sizeof base, "gm_wgmma_%s%s%s%s", kinds[k], k == WEIGHT ? "" : "_", k == WEIGHT ? "" : function,
             k == LINEAR && g->pre ? "_pre" : "");
    return gm_cuda_name(buf, base, p->dtype);
}

static gm_status fill(gm_device *dev, const gm_product *p, kind k, int pieces, gm_wgmma_args *out)
{
    const gm_gemm_args *g = &p->args;
    matrices            x = matrices_of(p, k);
    *out = (gm_wgmma_args){.bias = g->bias,
                           .m = g->m,
                           .n = g->n,
                           .tiles_m = (int32_t)over(g->m, GM_WGMMA_ROWS),
                           .tiles_n = (int32_t)over(g->n, GM_WGMMA_COLUMNS),
                           .group = GROUP,
                           .depths = (int32_t)over(g->k, GM_WGMMA_DEPTH),
                           .pieces = pieces,
                           .units = (int32_t)(tiles_of(g) * pieces)};
    GM_TRY(gm_tile_map_make(dev, &x.a, &out->a));
    GM_TRY(gm_tile_map_make(dev, &x.b, &out->b));
    if (k != WEIGHT) GM_TRY(gm_tile_map_make(dev, &x.y, &out->y));
    if (g->pre) GM_TRY(gm_tile_map_make(dev, &x.pre, &out->pre));
    return GM_OK;
}

static gm_status launch(gm_device *dev, const gm_product *p, kind k, const gm_wgmma_args *a)
{
    char name[GM_CUDA_NAME];
    int  most = gm_cuda_multiprocessors(dev);
    return GM_LAUNCH(
        dev, name_of(name, p, k),
        ((gm_cuda_grid){.x = a->units < most ? a->units : most, .block = GM_WGMMA_THREADS, .shared = GM_WGMMA_SHARED}),
        *a);
}

/* The parts of the sum, and then what joins them. */
static gm_status run_pieces(gm_device *dev, const gm_product *p, gm_wgmma_args *a)
{
    char      name[GM_CUDA_NAME];
    void     *parts;
    gm_block *block;
    size_t    of_part = (size_t)(a->m * a->n) * sizeof(float);
    int64_t   n = a->m * a->n / 2 + a->m;
    gm_status st;
    GM_TRY(gm_cuda_scratch(dev, (size_t)a->pieces * (of_part + (size_t)a->m * sizeof(float)), &parts, &block));
    a->parts = parts;
    a->part_sums = p->db ? (float *)parts + (int64_t)a->pieces * a->m * a->n : NULL;
    gm_wgmma_join_args j = {.parts = a->parts,
                            .part_sums = a->part_sums,
                            .y = p->args.y,
                            .sums = p->db ? gm_tensor_data(p->db) : NULL,
                            .m = a->m,
                            .n = a->n,
                            .y_m = p->args.y_m,
                            .pieces = a->pieces,
                            .accumulate = p->args.accumulate};
    GM_TRY_OR(launch(dev, p, WEIGHT, a), st, done);
    st = GM_LAUNCH(dev, gm_cuda_name(name, "gm_wgmma_join", p->dtype), gm_cuda_over(dev, n, 1, 256), j);
done:
    gm_pool_release(dev->pool, block);
    return st;
}

/* Without a variant: the rule. Plain products are cuBLASLt's, which makes them with less energy, and so sooner where
 * power limits the GPU (docs/gpu_measured.md). So are products that keep less than all multiprocessors busy. */
static bool is_ours(const gm_device *dev, const gm_product *p, int pieces)
{
    bool more = p->args.function != GM_FN_none || p->db;
    return more && tiles_of(&p->args) * pieces >= gm_cuda_multiprocessors(dev);
}

static gm_status run(gm_device *dev, const gm_product *p, const gm_variant *v, bool *served)
{
    gm_wgmma_args a;
    int           pieces = v ? (int)v->word[0] : 1;
    kind          k = takes(dev, p);
    *served = false;
    if (k == NOT_OURS || pieces < 1 || pieces > PIECES || pieces > over(p->args.k, GM_WGMMA_DEPTH)) return GM_OK;
    if (k != WEIGHT && pieces != 1) return GM_OK;
    if (!v && k == WEIGHT) best_pieces(dev, &p->args, 1, &pieces);
    if (!v && !is_ours(dev, p, pieces)) return GM_OK;
    GM_TRY(fill(dev, p, k, pieces, &a));
    GM_TRY(k == WEIGHT ? run_pieces(dev, p, &a) : launch(dev, p, k, &a));
    *served = true;
    return GM_OK;
}

const gm_way gm_way_wgmma = {"wgmma", offers, run, NULL};
