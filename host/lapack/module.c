/* module.c - ganymede_lapack.so (lapack.h): the one place that is linked with LAPACK. */
#include <stddef.h>
#include <stdlib.h>
#include "lapack.h"

/* LAPACK 3.11: eigenvalues w of the symmetric a (n, n), whose place eigenvectors take, columns first. The sizes of
 * texts are how Fortran passes them. */
void dsyevd_(const char *jobz, const char *uplo, const int *n, double *a, const int *lda, double *w, double *work,
             const int *lwork, int *iwork, const int *liwork, int *info, size_t jobz_length, size_t uplo_length);

__attribute__((visibility("default"))) int gm_lapack_module_eigenvectors(int n, double *a, double *w);

int gm_lapack_module_eigenvectors(int n, double *a, double *w)
{
    int     lwork = 1 + 6 * n + 2 * n * n, liwork = 3 + 5 * n, info = GM_LAPACK_NO_MEMORY; /* as dsyevd documents */
    double *work = malloc((size_t)lwork * sizeof *work);
    int    *iwork = malloc((size_t)liwork * sizeof *iwork);
    if (work && iwork) dsyevd_("V", "U", &n, a, &n, w, work, &lwork, iwork, &liwork, &info, 1, 1);
    free(work);
    free(iwork);
    return info;
}
