/* kind.c - see kind.h. */
#include "kind.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "../../op.h"

#define ALIGNMENT 256 /* more than this is not told apart */

static int32_t align_of(const void *p)
{
    uintptr_t bits = (uintptr_t)p | ALIGNMENT;
    return p ? (int32_t)(bits & -bits) : 0;
}

static void set_steps(gm_kind *kind, const gm_gemm_args *a)
{
    const int64_t steps[][2] = {{a->a_m, a->a_k}, {a->b_k, a->b_n}, {a->y_m, a->y_n}, {a->pre_m, a->pre_n}};
    for (int i = 0; i < GM_KIND_VECTOR; i++) {
        if (i == GM_KIND_PRE && !a->pre) continue;
        kind->step[i][0] = steps[i][0];
        kind->step[i][1] = steps[i][1];
    }
}

void gm_kind_of(const gm_product *p, bool tf32, gm_kind *out)
{
    const gm_gemm_args *a = &p->args;
    const void         *vector = p->db ? gm_tensor_data(p->db) : a->bias;
    const void         *operand[GM_KIND_OPERANDS] = {a->a, a->b, a->y, a->pre, vector};
    memset(out, 0, sizeof *out);
    out->m = a->m;
    out->n = a->n;
    out->k = a->k;
    set_steps(out, a);
    for (int d = 0; d < a->ndim; d++) out->batch[d] = a->dim[d];
    for (int i = 0; i < GM_KIND_OPERANDS; i++) out->align[i] = align_of(operand[i]);
    out->ndim = a->ndim;
    out->dtype = (int32_t)p->dtype;
    out->to = (int32_t)p->to;
    out->function = a->function;
    out->format = a->format;
    out->scaling = a->scaling;
    out->bias = a->bias != NULL;
    out->pre = a->pre != NULL;
    out->slope = a->slope;
    out->sums = p->db != NULL;
    out->adds = a->accumulate;
    out->tf32 = tf32 && p->dtype == GM_F32;
}

/* ---- text ---- */

typedef struct line {
    char  *text;
    size_t used;
} line;

static void add(line *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add(line *l, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(l->text + l->used, GM_KIND_TEXT - l->used, fmt, args);
    va_end(args);
    if (n > 0) l->used += (size_t)n < GM_KIND_TEXT - l->used ? (size_t)n : GM_KIND_TEXT - l->used - 1;
}

static void add_wishes(line *l, const gm_kind *kind)
{
    if (kind->bias) add(l, " bias");
    if (kind->function) add(l, kind->slope ? " slope of %s" : " %s", gm_function_name((gm_function)kind->function));
    if (kind->pre && !kind->slope) add(l, " pre");
    if (kind->sums) add(l, " sums");
    if (kind->adds) add(l, " added");
    if (kind->tf32) add(l, " tf32");
    if (kind->dtype == GM_U8) add(l, " format %d", (int)kind->format);
    if (kind->scaling) add(l, kind->scaling == GM_SCALES_SQUARE ? " scales of squares" : " scales of rows");
}

char *gm_kind_text(const gm_kind *kind, char *buf)
{
    static const char *name[] = {"a", "b", "y", "pre"};
    line               l = {buf, 0};
    add(&l, "%s to %s (%lld, %lld) (%lld, %lld)", gm_dtype_name((gm_dtype)kind->dtype),
        gm_dtype_name((gm_dtype)kind->to), (long long)kind->m, (long long)kind->k, (long long)kind->k,
        (long long)kind->n);
    add_wishes(&l, kind);
    add(&l, "; steps");
    for (int i = 0; i < GM_KIND_VECTOR - !kind->pre; i++)
        add(&l, " %s %lld,%lld", name[i], (long long)kind->step[i][0], (long long)kind->step[i][1]);
    for (int d = 0; d < kind->ndim; d++) {
        const gm_gemm_dim *b = &kind->batch[d];
        add(&l, "; batch %lld %lld,%lld,%lld,%lld", (long long)b->n, (long long)b->a, (long long)b->b, (long long)b->y,
            (long long)b->pre);
    }
    add(&l, "; aligned");
    for (int i = 0; i < GM_KIND_OPERANDS; i++) add(&l, "%s%d", i ? "," : " ", (int)kind->align[i]);
    return buf;
}
