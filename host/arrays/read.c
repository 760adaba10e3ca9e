/* read.c - boxes of arrays; see gm_arrays_read in arrays.h. */
#include <stdlib.h>
#include <string.h>
#include "arrays.h"

#define BUFFER ((int64_t)1 << 17) /* elements that are converted at once: a multiple of every block */

/* One read: what is wanted of an array in the order of its file. */
typedef struct job {
    const gm_bytes *file;
    const gm_array *array;
    gm_extent       box, whole;
    int64_t         stride[GM_MAX_DIMS];
    gm_dtype        to;
    char           *elements;
    unsigned char  *raw; /* bytes of the file */
    char           *run; /* numbers */
} job;

/* Dimensions of a Fortran array lie the other way round in its file. */
static void turn(int64_t *list, int n)
{
    for (int i = 0; i < n / 2; i++) {
        int64_t x = list[i];
        list[i] = list[n - 1 - i], list[n - 1 - i] = x;
    }
}

static void in_order_of_file(job *j)
{
    int n = j->array->ndim;
    if (!j->array->fortran) return;
    turn(j->box.offset, n);
    turn(j->box.shape, n);
    turn(j->whole.shape, n);
    turn(j->stride, n);
}

/* n elements from `first` on, as numbers at *out; they may begin inside of a block. */
static gm_status load(const job *j, int64_t first, int64_t n, char **out)
{
    const gm_array *a = j->array;
    int64_t         block = gm_element_block(a->element), skip = first % block, blocks = (skip + n + block - 1) / block;
    size_t          bytes = gm_element_bytes(a->element);
    GM_TRY(gm_bytes_copy(j->file, (size_t)a->begin + (size_t)(first / block) * bytes, (size_t)blocks * bytes, j->raw));
    gm_elements_decode(a->element, a->swapped, j->raw, skip + n, j->to, j->run);
    *out = j->run + (size_t)skip * gm_dtype_size(j->to);
    return GM_OK;
}

static gm_status read_runs(const job *j)
{
    const int64_t total = gm_extent_numel(&j->box), run = gm_extent_run(&j->box, &j->whole);
    const int64_t most = BUFFER - GM_ELEMENT_BLOCK;
    for (int64_t first = 0; first < total; first += run) {
        int64_t begin = gm_extent_place(&j->box, &j->whole, first);
        for (int64_t done = 0; done < run; done += most) {
            int64_t n = run - done < most ? run - done : most;
            char   *numbers;
            GM_TRY(load(j, begin + done, n, &numbers));
            gm_extent_copy(&j->box, first + done, n, gm_dtype_size(j->to), numbers, j->elements, j->stride,
                           j->box.offset, false);
        }
    }
    return GM_OK;
}

gm_status gm_arrays_read(const gm_arrays *s, const gm_array *a, const gm_extent *box, gm_dtype to, void *elements,
                         const int64_t *stride)
{
    job j = {
        .file = &s->files[a->file], .array = a, .box = *box, .whole.ndim = a->ndim, .to = to, .elements = elements};
    if (box->ndim != a->ndim || !gm_extent_inside(box, a->shape))
        return GM_FAIL(GM_ESHAPE, "%s: the box is not inside of the array '%s'", s->path, a->name);
    if (!gm_extent_numel(box)) return GM_OK;
    memcpy(j.whole.shape, a->shape, sizeof j.whole.shape);
    memcpy(j.stride, stride, (size_t)a->ndim * sizeof *stride);
    in_order_of_file(&j);
    j.raw = malloc((size_t)BUFFER * 8);
    j.run = malloc((size_t)BUFFER * 8);
    gm_status st = j.raw && j.run ? read_runs(&j) : GM_FAIL(GM_ENOMEM, "%s: no memory to read from it", s->path);
    free(j.raw);
    free(j.run);
    return st;
}
