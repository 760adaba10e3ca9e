/* module.c - the one function that ganymede_cuda.so exports, the table of its ops, and the host's functions under
 * their usual names. */
#include "module.h"

#include <stdarg.h>
#include <stdio.h>
#include "counts.h"
#include "cuda.h"
#include "driver.h"
#include "graph.h"
#include "profile.h"
#include "transfer.h"

static gm_host_api host; /* set once, when the module is opened */

gm_status gm_fail(gm_status s, const char *file, int line, const char *fmt, ...)
{
    char    text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return host.fail(s, file, line, text);
}

#define GM_HOST(result, name, parameters, arguments) \
    result name parameters { return host.name arguments; }
#include "host_api.def"
#undef GM_HOST

static const gm_backend backend = {
    .name = "cuda",
    .has_data = true,
    .on_host = false,
    .memory = {gm_cuda_take, gm_cuda_give},
    .kernel =
        {
#define GM_OP(name, rule, in, out, attrs) [GM_OP_##name] = cuda_##name,
#include "../../ops.def"
#undef GM_OP
        },
    .open = gm_cuda_start,
    .close = gm_cuda_stop,
    .read = gm_cuda_read,
    .write = gm_cuda_write,
    .copy = gm_cuda_copy,
    .synchronize = gm_cuda_synchronize,
    .pinned = {gm_cuda_take_pinned, gm_cuda_give_pinned},
    .read_later = gm_cuda_read_later,
    .write_later = gm_cuda_write_later,
    .mark = gm_cuda_mark,
    .passed = gm_cuda_passed,
    .unmark = gm_cuda_unmark,
    .stamp = gm_cuda_stamp,
    .elapsed = gm_cuda_elapsed,
    .counts = gm_cuda_counts,
    .capture_begin = gm_cuda_capture_begin,
    .capture_end = gm_cuda_capture_end,
    .capture_drop = gm_cuda_capture_drop,
    .replay = gm_cuda_replay,
    .graph_free = gm_cuda_graph_free,
    .describe = gm_cuda_describe,
    .identify = gm_cuda_identify,
    .queues = &gm_cuda_queues,
    .choices = &gm_cuda_choices,
};

__attribute__((visibility("default"))) int gm_cuda_open(const gm_host_api *api, gm_cuda_api *out);

int gm_cuda_open(const gm_host_api *api, gm_cuda_api *out)
{
    bool fits = api->size == sizeof *api && api->version == GM_CUDA_VERSION && out->size == sizeof *out &&
                out->version == GM_CUDA_VERSION;
    if (!fits) {
        out->size = sizeof *out;
        out->version = GM_CUDA_VERSION;
        return 1;
    }
    host = *api;
    *out = (gm_cuda_api){sizeof *out, GM_CUDA_VERSION, &backend, gm_cuda_probe, gm_cuda_facts};
    return 0;
}
