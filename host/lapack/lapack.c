/* lapack.c - see lapack.h. LAPACK counts columns first, so of a symmetric matrix it reads what is there, and leaves an
 * eigenvector in each of our rows. */
#include "lapack.h"

#include <dlfcn.h>
#include <limits.h>
#include <string.h>
#include "../../kernels/beside.h"

static gm_status load(gm_lapack_eigenvectors_function *out)
{
    char path[PATH_MAX];
    GM_TRY(gm_path_beside(GM_LAPACK_MODULE, path, sizeof path));
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!module) return GM_FAIL(GM_EINVAL, "cannot load LAPACK: %s; install liblapack-dev, and build again", dlerror());
    void *symbol = dlsym(module, GM_LAPACK_EIGENVECTORS);
    if (!symbol) return GM_FAIL(GM_EINVAL, "%s has no function " GM_LAPACK_EIGENVECTORS "; build again", path);
    memcpy(out, &symbol, sizeof *out);
    return GM_OK;
}

gm_status gm_lapack_eigenvectors(int n, double *a, double *w)
{
    gm_lapack_eigenvectors_function find = NULL;
    GM_TRY(load(&find));
    int info = find(n, a, w);
    if (!info) return GM_OK;
    if (info == GM_LAPACK_NO_MEMORY)
        return GM_FAIL(GM_ENOMEM, "no memory for the eigenvectors of a matrix of %d x %d", n, n);
    return GM_FAIL(GM_EINVAL, "LAPACK's dsyevd found no eigenvectors of a matrix of %d x %d: info %d", n, n, info);
}
