/* folded.cu - the copies of folded.h: from a tensor of few channels to one whose channels hold the places that a stride
 * passes over, and back. Tensors of 16 bits. */
#include "../../common/dtype.cuh"
#include "folded_args.h"

/* The place of wide that a channel of folded is: channel k, and places i and j of the fold. */
typedef struct gm_folded_place {
    int32_t k, i, j;
} gm_folded_place;

GM_DEVICE void gm_folded_next(const gm_folded_args &a, gm_folded_place *p)
{
    if (++p->j < a.fold[1]) return;
    p->j = 0;
    if (++p->i < a.fold[0]) return;
    p->i = 0;
    p->k++;
}

/* A thread has a place of folded, with all of its channels. */
GM_KERNEL(gm_convolution_fold, gm_folded_args)
{
    GM_GRID_LOOP(at, a.n) {
        const int64_t   s = at % a.columns, r = at / a.columns % a.rows, n = at / a.columns / a.rows;
        const int64_t   top = r * a.fold[0] - a.low[0], left = s * a.fold[1] - a.low[1];
        const uint16_t *wide = (const uint16_t *)a.wide + n * a.stride[0];
        gm_folded_place p = {0, 0, 0};
        for (int32_t pack = 0; pack < a.packs; pack++) {
            uint32_t e[GM_FOLDED_PACK];
            GM_UNROLL for (int c = 0; c < GM_FOLDED_PACK; c++)
            {
                const int64_t y = top + p.i, x = left + p.j;
                const bool    inside = p.k < a.size[1] && y >= 0 && y < a.size[2] && x >= 0 && x < a.size[3];
                e[c] = inside ? wide[p.k * a.stride[1] + y * a.stride[2] + x * a.stride[3]] : 0;
                gm_folded_next(a, &p);
            }
            gm_vector v;
            GM_UNROLL for (int c = 0; c < 4; c++) v.word[c] = e[2 * c] | e[2 * c + 1] << 16;
            gm_store_vector((uint16_t *)a.folded + (at * a.packs + pack) * GM_FOLDED_PACK, v);
        }
    }
}

/* A thread has an element of wide. accumulate: it is added to what is there. */
template <class T, class R = gm_real<T>> GM_DEVICE void gm_convolution_unfold(const gm_folded_args a)
{
    GM_GRID_LOOP(at, a.n) {
        const int64_t x = at % a.size[3], y = at / a.size[3] % a.size[2];
        const int64_t k = at / a.size[3] / a.size[2] % a.size[1], n = at / a.size[3] / a.size[2] / a.size[1];
        const int64_t r = y / a.fold[0], s = x / a.fold[1];
        const int64_t c = (k * a.fold[0] + y % a.fold[0]) * a.fold[1] + x % a.fold[1];
        const int64_t place = ((n * a.rows + r) * a.columns + s) * a.packs * GM_FOLDED_PACK + c;
        T            *to = (T *)a.wide + n * a.stride[0] + k * a.stride[1] + y * a.stride[2] + x * a.stride[3];
        const R       v = gm_get(((const T *)a.folded)[place]);
        *to = gm_put<T>(a.accumulate ? gm_get(*to) + v : v);
    }
}

GM_KERNELS(gm_convolution_unfold, gm_folded_args)
