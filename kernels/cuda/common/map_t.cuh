/* map_t.cuh - loads and stores of items for one dtype (each_dtype.cuh). */

typedef struct GM_ALIGNED(GM_V) GM_E(gm_bytes)
{
    uint8_t byte[GM_V];
}
GM_E(gm_bytes);

/* An item as it is loaded: its lanes (step 1), or one element shown again and again (step 0). */
GM_DEVICE gm_vector GM_E(gm_fetch)(const void *p, int64_t at, int step)
{
    GM_R x[GM_V];
    if (step) return gm_load_vector((const GM_T *)p + at);
    GM_UNROLL for (int k = 0; k < GM_V; k++) x[k] = GM_AT(p, at);
    return GM_E(gm_pack)(x);
}

GM_DEVICE void GM_E(gm_take)(const void *p, int64_t at, int step, GM_R *x)
{
    GM_E(gm_unpack)(GM_E(gm_fetch)(p, at, step), x);
}

GM_DEVICE void GM_E(gm_give)(void *p, int64_t at, const GM_R *y)
{
    gm_store_vector((GM_T *)p + at, GM_E(gm_pack)(y));
}

/* As many bytes: conditions and results of comparisons. The host has seen to it that they are aligned to the lanes. */
GM_DEVICE void GM_E(gm_take_u8)(const void *p, int64_t at, int step, uint8_t *x)
{
    const uint8_t *from = (const uint8_t *)p + at;
    GM_E(gm_bytes) b;
    if (step) b = *(const GM_E(gm_bytes) *)from;
    GM_UNROLL for (int k = 0; k < GM_V; k++) x[k] = step ? b.byte[k] : from[0];
}

GM_DEVICE void GM_E(gm_give_u8)(void *p, int64_t at, const uint8_t *y)
{
    GM_E(gm_bytes) b;
    GM_UNROLL for (int k = 0; k < GM_V; k++) b.byte[k] = y[k];
    *(GM_E(gm_bytes) *)((uint8_t *)p + at) = b;
}
