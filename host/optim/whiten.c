/* whiten.c - see whiten.h. */
#include "whiten.h"

#include <math.h>
#include <stdlib.h>
#include "../../kernels/device.h"
#include "../lapack/lapack.h"

typedef struct room {
    int     n;
    double *c, *w, *turned; /* a matrix, its eigenvalues, the result */
} room;

static void close_room(room *r)
{
    free(r->c);
    free(r->w);
    free(r->turned);
}

static gm_status open_room(room *r, int64_t n)
{
    size_t square = (size_t)n * (size_t)n * sizeof(double);
    *r = (room){.n = (int)n, .c = malloc(square), .w = malloc((size_t)n * sizeof(double)), .turned = malloc(square)};
    if (r->c && r->turned && r->w) return GM_OK;
    close_room(r);
    return GM_FAIL(GM_ENOMEM, "no memory to decompose a matrix of %d x %d", r->n, r->n);
}

static bool is_finite(const double *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return false;
    return true;
}

/* r->turned = W of r->c. Columns of W go from the largest eigenvalue down. */
static gm_status whiten(room *r, double least)
{
    size_t n = (size_t)r->n;
    if (!is_finite(r->c, n * n)) {
        for (size_t i = 0; i < n * n; i++) r->turned[i] = NAN;
        return GM_OK;
    }
    GM_TRY(gm_lapack_eigenvectors(r->n, r->c, r->w));
    for (size_t j = 0; j < n; j++) {
        size_t from = n - 1 - j;
        bool   is_there = r->w[from] > 0 && r->w[from] > least * least * r->w[n - 1];
        double scale = is_there ? 1 / sqrt(r->w[from]) : 0;
        for (size_t i = 0; i < n; i++) r->turned[i * n + j] = r->c[from * n + i] * scale;
    }
    return GM_OK;
}

gm_status gm_whiten(gm_tensor *c, double least)
{
    gm_device *dev = c->storage->device;
    int64_t    n = c->shape[c->ndim - 1];
    size_t     bytes = (size_t)n * (size_t)n * sizeof(double);
    char      *data = gm_tensor_data(c);
    room       r;
    if (!data || !gm_tensor_numel(c)) return GM_OK;
    GM_TRY(open_room(&r, n));
    gm_status st = GM_OK;
    for (int64_t k = 0; st == GM_OK && k < gm_tensor_numel(c) / (n * n); k++) {
        st = gm_device_read(dev, r.c, data + (size_t)k * bytes, bytes);
        if (st == GM_OK) st = whiten(&r, least);
        if (st == GM_OK) st = gm_device_write(dev, data + (size_t)k * bytes, r.turned, bytes);
    }
    close_room(&r);
    return st;
}
