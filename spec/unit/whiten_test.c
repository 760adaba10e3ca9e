/* whiten_test.c - W of gm_whiten against what defines it: of C = B' B, the columns of B W are the left singular vectors
 * that B was built of, by falling singular values, and zero where B has no direction. */
#include "../../host/optim/whiten.h"
#include "unit.h"

#define ROWS 7
#define N    4

static const double at_most = 1e-13; /* some 50 roundings of 1e-16 */

/* b (ROWS, N) = U S V': columns of cosines for U and V, which are orthogonal by their formula (DCT-II). */
static double cosine(int n, int i, int k) { return sqrt((k ? 2.0 : 1.0) / n) * cos(M_PI * (i + 0.5) * k / n); }

static void build(double *b, const double *s)
{
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < N; j++) {
            b[i * N + j] = 0;
            for (int k = 0; k < N; k++) b[i * N + j] += cosine(ROWS, i, k) * s[k] * cosine(N, j, k);
        }
}

static void products(const double *b, double *c)
{
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            c[i * N + j] = 0;
            for (int k = 0; k < ROWS; k++) c[i * N + j] += b[k * N + i] * b[k * N + j];
        }
}

/* Column j of b w is column `of` of U, with either sign; of < 0: zeros. */
static void check_column(const double *b, const double *w, int j, int of, double tolerance)
{
    double sign = 0;
    for (int i = 0; i < ROWS; i++) {
        double x = 0;
        for (int k = 0; k < N; k++) x += b[i * N + k] * w[k * N + j];
        double want = of < 0 ? 0 : cosine(ROWS, i, of);
        if (!sign && fabs(want) > 0.1) sign = x * want < 0 ? -1 : 1;
        assert_true(fabs(x - (sign ? sign : 1) * want) <= tolerance);
    }
}

static gm_device *device(void)
{
    gm_device *dev;
    OK(gm_device_new("cpu", 1, &dev));
    return dev;
}

/* Two matrices: of falling singular values that are not in order, and one of rank 2. */
void gm_test_whiten_gives_singular_vectors(void **state)
{
    static const double s[2][N] = {{0.5, 4, 0.01, 2}, {0, 3, 0, 1}};
    static const int    order[2][N] = {{1, 3, 0, 2}, {1, 3, -1, -1}};
    gm_device          *dev = device();
    gm_tensor          *c;
    double              b[2][ROWS * N];
    (void)state;
    OK(gm_tensor_new(dev, GM_F64, 3, (int64_t[]){2, N, N}, &c));
    double *w = gm_tensor_data(c);
    for (int k = 0; k < 2; k++) {
        build(b[k], s[k]);
        products(b[k], w + k * N * N);
    }
    OK(gm_whiten(c, 1e-6));
    for (int k = 0; k < 2; k++) /* what C keeps of the smallest is its square, so 400^2 times less of its digits */
        for (int j = 0; j < N; j++)
            check_column(b[k], w + k * N * N, j, order[k][j], j == 3 ? 400e3 * at_most : 1e3 * at_most);
    gm_tensor_release(c);
    gm_device_free(dev);
}

/* Directions below the bound are left out, those above it are not. */
void gm_test_whiten_leaves_out_what_is_small(void **state)
{
    static const double s[N] = {1, 0.5, 1e-3, 1e-4};
    gm_device          *dev = device();
    gm_tensor          *c;
    double              b[ROWS * N];
    (void)state;
    OK(gm_tensor_new(dev, GM_F64, 2, (int64_t[]){N, N}, &c));
    double *w = gm_tensor_data(c);
    build(b, s);
    products(b, w);
    OK(gm_whiten(c, 5e-4));
    check_column(b, w, 2, 2, 1e-9);
    for (int i = 0; i < N; i++) assert_true(w[i * N + 3] == 0);
    memset(w, 0, N * N * sizeof *w);
    OK(gm_whiten(c, 0));
    for (int i = 0; i < N * N; i++) assert_true(w[i] == 0);
    gm_tensor_release(c);
    gm_device_free(dev);
}

/* What is not finite reaches its own matrix alone, and no decomposition runs on it without end. */
void gm_test_whiten_passes_on_what_is_not_finite(void **state)
{
    static const double bad[] = {NAN, INFINITY};
    gm_device          *dev = device();
    gm_tensor          *c;
    (void)state;
    OK(gm_tensor_new(dev, GM_F64, 3, (int64_t[]){2, N, N}, &c));
    double *w = gm_tensor_data(c);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 2 * N * N; i++) w[i] = i % (N + 1) == 0 ? 4 : 0;
        for (int i = 0; i < N * N; i++) w[N * N + i] = i % (N + 1) == 0 ? 4 : 0;
        w[5] = bad[k];
        OK(gm_whiten(c, 1e-6));
        for (int i = 0; i < N * N; i++) assert_true(isnan(w[i]));
        for (int i = 0; i < N; i++) { /* columns of the unit matrix, by half: in some order, with some sign */
            double sum = 0;
            for (int j = 0; j < N; j++) sum += fabs(w[N * N + i * N + j]);
            assert_true(fabs(sum - 0.5) <= at_most);
        }
    }
    gm_tensor_release(c);
    gm_device_free(dev);
}
