/* anomaly.c - see anomaly.h. */
#include "anomaly.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* What a tensor holds: the first NaN and the first infinity as places in row-major order (-1: none), the first of both,
 * and the range of what is finite. */
typedef struct content {
    int64_t nan, infinity;
    double  value;
    double  low, high;
} content;

/* The bytes from the first element to the end of the last one. */
static size_t extent(const gm_tensor *t)
{
    int64_t n = 1;
    for (int d = 0; d < t->ndim; d++) n += (t->shape[d] - 1) * t->stride[d];
    return gm_tensor_numel(t) ? (size_t)n * gm_dtype_size(t->dtype) : 0;
}

static void look(content *c, double v, int64_t at)
{
    if (isfinite(v)) {
        c->low = v < c->low ? v : c->low;
        c->high = v > c->high ? v : c->high;
        return;
    }
    int64_t *first = isnan(v) ? &c->nan : &c->infinity;
    if (c->nan < 0 && c->infinity < 0) c->value = isnan(v) ? NAN : v; /* without its sign */
    if (*first < 0) *first = at;
}

static void look_at_all(const gm_tensor *t, const void *data, content *c)
{
    int64_t n = gm_tensor_numel(t), at[GM_MAX_DIMS] = {0}, offset = 0;
    for (int64_t i = 0; i < n; i++) {
        look(c, gm_load(t->dtype, data, offset), i);
        for (int d = t->ndim - 1; d >= 0; d--) {
            offset += t->stride[d];
            if (++at[d] < t->shape[d]) break;
            offset -= at[d] * t->stride[d];
            at[d] = 0;
        }
    }
}

static gm_status read_from(gm_device *dev, const gm_tensor *t, content *c)
{
    size_t bytes = extent(t);
    if (dev->backend->on_host) {
        look_at_all(t, gm_tensor_data(t), c);
        return GM_OK;
    }
    void *host = malloc(bytes + 1);
    if (!host) return GM_FAIL(GM_ENOMEM, "no memory to look at the results of an op");
    gm_status st = gm_device_read(dev, host, gm_tensor_data(t), bytes);
    if (st == GM_OK) look_at_all(t, host, c);
    free(host);
    return st;
}

/* *known: the tensor has floating-point numbers that can be read. */
static gm_status content_of(gm_rank *r, const gm_tensor *t, content *c, bool *known)
{
    *c = (content){-1, -1, 0, INFINITY, -INFINITY};
    *known = t && gm_dtype_is_float(t->dtype) && gm_tensor_has_data(t);
    if (!*known) return GM_OK;
    GM_TRY(gm_storage_open(t->storage));
    gm_status st = read_from(r->device, t, c);
    gm_storage_close(t->storage, false);
    return st;
}

/* Says in words what was given: the first that is bad, or the range of each. *finite: is all of it? */
static gm_status describe(gm_rank *r, int n, const gm_anomaly_part *given, bool *finite, char *buf, size_t size)
{
    size_t used = 0;
    *finite = true;
    snprintf(buf, size, "it was given no numbers");
    for (int i = 0; i < n; i++) {
        content c;
        bool    known;
        GM_TRY(content_of(r, given[i].t, &c, &known));
        if (c.nan >= 0 || c.infinity >= 0) {
            *finite = false;
            snprintf(buf, size,
                     "%s had %g before: it came from the data, a parameter, another rank, or a write in place",
                     given[i].name, c.value);
            return GM_OK;
        }
        if (!known || c.low > c.high || used >= size) continue;
        int more = snprintf(buf + used, size - used, "%s%s is finite, from %g to %g", used ? "; " : "", given[i].name,
                            c.low, c.high);
        used += more > 0 ? (size_t)more : 0;
    }
    return GM_OK;
}

static gm_status report(const char *what, const char *path, const gm_anomaly_part *made, const content *c,
                        const char *given)
{
    char    shape[96];
    int64_t at = c->nan >= 0 && (c->infinity < 0 || c->nan < c->infinity) ? c->nan : c->infinity;
    return GM_FAIL(GM_ENOTFINITE, "anomaly: %s%s%s made %g: element %lld of %s, %s; %s", what, *path ? " in " : "",
                   path, c->value, (long long)at + 1, made->name, gm_tensor_describe(made->t, shape, sizeof shape),
                   given);
}

gm_status gm_anomaly_check(gm_rank *r, const char *what, const char *path, int n_given, const gm_anomaly_part *given,
                           int n_made, const gm_anomaly_part *made)
{
    for (int i = 0; i < n_made; i++) {
        content c;
        char    words[512];
        bool    finite, known;
        GM_TRY(content_of(r, made[i].t, &c, &known));
        if (c.nan < 0 && (c.infinity < 0 || made[i].nan_only)) continue;
        GM_TRY(describe(r, n_given, given, &finite, words, sizeof words));
        if (c.nan >= 0 || finite) return report(what, path, &made[i], &c, words);
    }
    return GM_OK;
}
