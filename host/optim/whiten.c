/* whiten.c - see whiten.h. LAPACK counts columns first, so of a symmetric matrix it reads what is there, and leaves the
 * eigenvectors in rows of ours, by rising eigenvalues. */
#include "whiten.h"

#include <math.h>
#include <stdlib.h>
#include "../../kernels/device.h"

/* LAPACK 3.11, dsyevd: eigenvalues w of the symmetric a (n, n), whose place eigenvectors take. */
void dsyevd_(const char *jobz, const char *uplo, const int *n, double *a, const int *lda, double *w, double *work,
             const int *lwork, int *iwork, const int *liwork, int *info, size_t jobz_length, size_t uplo_length);

typedef struct room {
    int     n, lwork, liwork;
    double *c, *w, *work, *turned; /* a matrix, its eigenvalues, what dsyevd needs, the result */
    int    *iwork;
} room;

static void close_room(room *r)
{
    free(r->c);
    free(r->w);
    free(r->work);
    free(r->turned);
    free(r->iwork);
}

/* The sizes that dsyevd documents for eigenvectors. */
static gm_status open_room(room *r, int64_t n)
{
    size_t square = (size_t)n * (size_t)n;
    *r = (room){.n = (int)n, .lwork = (int)(1 + 6 * n + 2 * n * n), .liwork = (int)(3 + 5 * n)};
    r->c = malloc((square + 1) * sizeof(double));
    r->turned = malloc((square + 1) * sizeof(double));
    r->w = malloc(((size_t)n + 1) * sizeof(double));
    r->work = malloc((size_t)r->lwork * sizeof(double));
    r->iwork = malloc((size_t)r->liwork * sizeof(int));
    if (r->c && r->turned && r->w && r->work && r->iwork) return GM_OK;
    close_room(r);
    return GM_FAIL(GM_ENOMEM, "no memory to decompose a matrix of %lld x %lld", (long long)n, (long long)n);
}

static bool is_finite(const double *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return false;
    return true;
}

/* r->turned = W of r->c. Columns of W go from the largest eigenvalue down. */
static void whiten(room *r, double least)
{
    size_t n = (size_t)r->n;
    int    info = 1;
    if (is_finite(r->c, n * n))
        dsyevd_("V", "U", &r->n, r->c, &r->n, r->w, r->work, &r->lwork, r->iwork, &r->liwork, &info, 1, 1);
    if (info) {
        for (size_t i = 0; i < n * n; i++) r->turned[i] = NAN;
        return;
    }
    for (size_t j = 0; j < n; j++) {
        size_t from = n - 1 - j;
        bool   is_there = r->w[from] > 0 && r->w[from] > least * least * r->w[n - 1];
        double scale = is_there ? 1 / sqrt(r->w[from]) : 0;
        for (size_t i = 0; i < n; i++) r->turned[i * n + j] = r->c[from * n + i] * scale;
    }
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
        if (st == GM_OK) whiten(&r, least);
        if (st == GM_OK) st = gm_device_write(dev, data + (size_t)k * bytes, r.turned, bytes);
    }
    close_room(&r);
    return st;
}
