/* fake_dots.h - the sums of fake_cublas.c, in double, along the depth in its order. Each factor is read once, because
 * reading a number of 16 bits takes longer than to multiply it. */
#ifndef GM_FAKE_DOTS_H
#define GM_FAKE_DOTS_H

#include <stdlib.h>
#include <string.h>

#include "fake_products.h"

/* TF32 has 10 bits of mantissa stored: nearest, ties away from zero, as cvt.rna.tf32. */
static inline double factor(const product *p, int32_t type, const void *data, int64_t i)
{
    float    v = (float)element(type, data, i);
    uint32_t bits;
    if (!is_tf32(p) || !isfinite(v)) return (double)v;
    memcpy(&bits, &v, sizeof bits);
    bits = (bits + 0x1000u) & ~0x1fffu;
    memcpy(&v, &bits, sizeof v);
    return (double)v;
}

/* Place of element (depth, column) of op(B). */
static inline int64_t place_in_b(const product *p, const matrix *b, int64_t depth, int64_t column)
{
    return p->transpose[1] == CUBLAS_OP_T ? column + depth * b->ld : depth + column * b->ld;
}

/* A factor of one element of the batch: number l of row i (of op(A), or of a column of op(B)) at value[l * n + i], and
 * its scale, if there are scales, at scale[l * n + i]. */
typedef struct operand {
    int64_t n, depth;
    double *value, *scale;
} operand;

static inline operand read_operand(const product *p, int which, const matrix *m, const void *data, int64_t batch)
{
    uint64_t rows, columns;
    turned(p, which, m, &rows, &columns);
    operand o = {.n = (int64_t)(which ? columns : rows), .depth = (int64_t)(which ? rows : columns)};
    bool    by_row = which == 0 && p->transpose[0] == CUBLAS_OP_T;
    size_t  bytes = (size_t)(o.n * o.depth) * sizeof *o.value;
    o.value = malloc(bytes);
    o.scale = p->factor[which] ? malloc(bytes) : NULL;
    if (!o.value || (p->factor[which] && !o.scale)) abort();
    for (int64_t l = 0; l < o.depth; l++)
        for (int64_t i = 0; i < o.n; i++) {
            int64_t at = which ? place_in_b(p, m, l, i) : by_row ? l + i * m->ld : i + l * m->ld;
            o.value[l * o.n + i] = factor(p, m->type, data, batch * m->step + at);
            if (o.scale)
                o.scale[l * o.n + i] = (double)((const float *)p->factor[which])[place_of_scale(
                    p->mode[which], (uint64_t)o.n, (uint64_t)o.depth, (uint64_t)i, (uint64_t)l)];
        }
    return o;
}

static inline void free_operand(operand *o)
{
    free(o->value);
    free(o->scale);
}

/* sums[row]: op(A) row times one column of op(B), added up along the depth. */
static inline void dots(const operand *a, const operand *b, int64_t column, double *restrict sums)
{
    memset(sums, 0, (size_t)a->n * sizeof *sums);
    for (int64_t l = 0; l < a->depth; l++) {
        const double *of_a = a->value + l * a->n, of_b = b->value[l * b->n + column];
        const double *scale_a = a->scale ? a->scale + l * a->n : NULL;
        const double  scale_b = b->scale ? b->scale[l * b->n + column] : 1;
        if (scale_a)
            for (int64_t row = 0; row < a->n; row++) sums[row] += of_a[row] * of_b * (scale_a[row] * scale_b);
        else
            for (int64_t row = 0; row < a->n; row++) sums[row] += of_a[row] * of_b;
    }
}

#endif
