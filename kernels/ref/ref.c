/* ref.c - the table of the reference backend (ref.h), and its memory, which comes from the system. */
#include "ref.h"

#include "../graph_host.h"
#include "loops.h"

static gm_status take(void *context, size_t bytes, void **out)
{
    (void)context;
    size_t whole = (bytes + 63) / 64 * 64;
    *out = aligned_alloc(64, whole ? whole : 64);
    return *out ? GM_OK : GM_FAIL(GM_ENOMEM, "the system has no %zu bytes left", bytes);
}

static void give(void *context, void *p, size_t bytes)
{
    (void)context, (void)bytes;
    free(p);
}

const gm_backend gm_ref = {
    .name = "ref",
    .has_data = true,
    .on_host = true,
    .memory = {take, give},
    GM_HOST_GRAPHS,
    .kernel =
        {
#define GM_OP(name, rule, in, out, attrs) [GM_OP_##name] = gm_ref_##name,
#include "../ops.def"
#undef GM_OP
        },
};
