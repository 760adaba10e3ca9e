/* fuzz.c - throws bytes at every reader of files: safetensors, GGUF, npy, npz, NIfTI, IDX, token files, and the indexes
 * of checkpoints (with a right checksum). For libFuzzer; fuzz_spec.lua builds it and says how long it runs.
 *
 * The first byte of an input chooses the reader, the others are the file. It passes when nothing crashes or hangs under
 * the sanitizers, and no more memory is taken than the limit of the run; that what is accepted is also right is the
 * business of other specs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../host/arrays/arrays.h"
#include "../../host/checkpoint/index.h"
#include "../../host/data/array_file.h"
#include "../../host/data/token_file.h"
#include "../../host/checkpoint/files.h"

#define MOST 65536 /* bytes of a file */

static char folder[] = "/tmp/gm-fuzz-XXXXXX", path[sizeof folder + 32];

static void leave(void)
{
    unlink(path);
    rmdir(folder);
}

/* Makes the file of this input, with such an end of its name. */
static void put_file(const char *suffix, const uint8_t *data, size_t size)
{
    if (!path[0]) {
        if (!mkdtemp(folder)) abort();
        atexit(leave);
    } else {
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/f%s", folder, suffix);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file)) abort();
}

/* Reads the small arrays of a file. */
static void read_arrays(void)
{
    gm_arrays    *s;
    static double values[4096];
    if (gm_arrays_open(path, &s) != GM_OK) return;
    for (int i = 0; i < s->n; i++) {
        const gm_array *a = &s->list[i];
        gm_extent       box = {.ndim = a->ndim};
        int64_t         stride[GM_MAX_DIMS], n = 1;
        for (int d = a->ndim - 1; d >= 0; d--) {
            box.shape[d] = a->shape[d];
            stride[d] = n;
            if (a->shape[d] > 4096 || (n *= a->shape[d]) > 4096) break;
        }
        if (n <= 4096) (void)gm_arrays_read(s, a, &box, GM_F64, values, stride);
    }
    gm_arrays_close(s);
}

static void read_idx(void)
{
    gm_array_file a;
    double        values[64];
    if (gm_array_open(path, &a) != GM_OK) return;
    if (gm_array_read_f64(&a, 0, a.numel < 64 ? a.numel : 64, values) != GM_OK) abort();
    gm_array_close(&a);
}

static void read_tokens(void)
{
    gm_token_file t;
    int64_t       values[64];
    if (gm_token_open(path, 0, 0, &t) != GM_OK) return;
    (void)gm_token_read(&t, 0, t.count < 64 ? t.count : 64, values); /* tokens beyond the vocabulary are an error */
    gm_token_close(&t);
}

/* The text without its last brace and checksum, which are added. */
static void read_index(const uint8_t *data, size_t size)
{
    static char text[MOST + 32];
    gm_index    x;
    memcpy(text, data, size);
    size += (size_t)sprintf(text + size, ",\"crc32c\":\"%08x\"}\n", gm_crc32c(0, text, size));
    if (gm_index_parse("fuzz", text, size, GM_INDEX_WHOLE, &x) == GM_OK) gm_index_free(&x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const suffixes[] = {".safetensors", ".gguf", ".npy", ".npz", ".nii", ".idx", ".tokens"};
    const size_t             kinds = sizeof suffixes / sizeof *suffixes;
    if (!size || size > MOST) return -1;
    size_t kind = data[0] % (kinds + 1);
    data++, size--;
    if (kind == kinds) return read_index(data, size), 0;
    put_file(suffixes[kind], data, size);
    if (kind == 5) read_idx();
    else if (kind == 6) read_tokens();
    else read_arrays();
    return 0;
}
