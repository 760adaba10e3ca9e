/* product.c - see product.h. */
#include "product.h"

#include "choose.h"

const gm_way *const gm_ways[] = {&gm_way_wgmma,       &gm_way_cublaslt,       &gm_way_sums_after,
                                 &gm_way_slope_after, &gm_way_function_after, NULL};

/* The rule where nothing was chosen: the first that can. */
static gm_status run_first(gm_device *dev, const gm_product *p, bool *served)
{
    *served = false;
    for (int i = 0; gm_ways[i] && !*served; i++) GM_TRY(gm_ways[i]->run(dev, p, NULL, served));
    return GM_OK;
}

/* Without numbers to multiply; the libraries refuse it, and there is nothing to choose. */
static bool is_empty(const gm_product *p)
{
    const gm_gemm_args *a = &p->args;
    int64_t             n = a->m * a->n * a->k;
    for (int d = 0; d < a->ndim; d++) n *= a->dim[d].n;
    return !n;
}

gm_status gm_product_try(gm_device *dev, const gm_product *p, bool *served)
{
    const gm_way     *way;
    const gm_variant *variant;
    const char       *kind;
    if (is_empty(p)) return run_first(dev, p, served);
    GM_TRY(gm_products_choose(dev, p, &way, &variant, &kind));
    if (!way) return run_first(dev, p, served);
    GM_TRY(way->run(dev, p, variant, served));
    if (*served) return GM_OK;
    return GM_FAIL(GM_EINVAL,
                   "the chosen way to make products, \"%s\", cannot make this one (%s): the choice was made elsewhere, "
                   "or its file was changed; time_products = true chooses anew",
                   way->name, kind);
}

gm_status gm_product_run(gm_device *dev, const gm_product *p)
{
    bool served;
    if (!p->args.m || !p->args.n) return p->db ? run_first(dev, p, &served) : GM_OK;
    GM_TRY(gm_product_try(dev, p, &served));
    return served ? GM_OK : gm_way_tiles.run(dev, p, NULL, &served);
}
