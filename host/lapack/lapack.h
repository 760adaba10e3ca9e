/* lapack.h - what the program calls of LAPACK. It is a module of its own, ganymede_lapack.so beside the program, loaded
 * by the first call: LAPACK, BLAS and Fortran's library would make each start of the program a fifth longer. */
#ifndef GM_LAPACK_H
#define GM_LAPACK_H

#include "../../kernels/status.h"

/* The eigenvectors of a symmetric matrix: LAPACK's dsyevd, "divide and conquer" (Cuppen 1981; Gu and Eisenstat 1995). a
 * (n, n) with n up to 16,384, of finite numbers, becomes an eigenvector a row; w (n) has their eigenvalues, rising.
 * GM_EINVAL: the module or LAPACK is not there, or it did not converge. GM_ENOMEM. */
gm_status gm_lapack_eigenvectors(int n, double *a, double *w);

/* ---- between the program and the module ---- */
#define GM_LAPACK_MODULE       "ganymede_lapack.so"
#define GM_LAPACK_EIGENVECTORS "gm_lapack_module_eigenvectors"
/* Returns dsyevd's info, 0 for success; GM_LAPACK_NO_MEMORY: there was no memory for its work. */
#define GM_LAPACK_NO_MEMORY (-100)
typedef int (*gm_lapack_eigenvectors_function)(int n, double *a, double *w);

#endif
