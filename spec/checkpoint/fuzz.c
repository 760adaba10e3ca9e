/* fuzz.c - throws mutated bytes at every reader of files: safetensors headers, checkpoint indexes (with a
 * right checksum), IDX and token files. It passes when nothing crashes under the sanitizers; that what
 * is accepted is also right is the specs' business. Not part of the build:
 *
 *     gcc -std=c11 -D_GNU_SOURCE= -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined \
 *         spec/checkpoint/fuzz.c host/checkpoint/{index,safetensors,box,files}.c \
 *         host/data/{array_file,token_file,bytes}.c kernels/{status,dtype}.c -ljansson -lisal -lz -o fuzz
 *     ./fuzz 600        seconds; prints how many inputs of each kind there were and how many were accepted
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "../../host/checkpoint/files.h"
#include "../../host/checkpoint/index.h"
#include "../../host/checkpoint/safetensors.h"
#include "../../host/data/array_file.h"
#include "../../host/data/token_file.h"

#define ROOM 65536

typedef struct fuzz {
    uint64_t state;
    int      fd; /* a file in memory, and its path */
    char     path[64];
    char     bytes[ROOM];
} fuzz;

/* Marsaglia's xorshift: the same inputs in every run. */
static uint64_t below(fuzz *f, uint64_t n)
{
    f->state ^= f->state << 13;
    f->state ^= f->state >> 7;
    f->state ^= f->state << 17;
    return f->state % n;
}

static const char *const words[] = {"{",
                                    "}",
                                    "[",
                                    "]",
                                    ",",
                                    ":",
                                    "\"",
                                    "0",
                                    "24",
                                    "-1",
                                    "1e9",
                                    "\"w\"",
                                    "\"dtype\"",
                                    "\"I32\"",
                                    "\"shape\"",
                                    "\"data_offsets\"",
                                    "\"__metadata__\"",
                                    "[0,24]",
                                    "[2,3]",
                                    "null",
                                    "\\u0000",
                                    "\xff",
                                    " ",
                                    "99999999999999999999",
                                    "4611686018427387904",
                                    "\"boxes\"",
                                    "\"offset\"",
                                    "\"begin\"",
                                    "\"bytes\"",
                                    "\"file\"",
                                    "\"crc32c\"",
                                    "\"../x\""};

/* One change: a bit, a byte, a word put in, bytes taken out, bytes doubled. Returns the new length. */
static size_t change(fuzz *f, char *b, size_t n, size_t room)
{
    if (!n) return 0;
    size_t      at = below(f, n), most = n - at < 40 ? n - at : 40, m;
    const char *word = words[below(f, sizeof words / sizeof *words)];
    switch (below(f, 5)) {
    case 0: b[at] ^= (char)(1 << below(f, 7)); return n;
    case 1: b[at] = (char)below(f, 256); return n;
    case 2:
        m = strlen(word);
        if (n + m > room) return n;
        memmove(b + at + m, b + at, n - at);
        memcpy(b + at, word, m);
        return n + m;
    case 3:
        m = 1 + below(f, most);
        if (m > n - at) m = n - at;
        memmove(b + at, b + at + m, n - at - m);
        return n - m;
    default:
        m = below(f, most + 1);
        if (n + m > room) return n;
        memmove(b + at + m, b + at, n - at);
        return n + m;
    }
}

/* The seed text with none (one time in twenty) to five changes, at b. */
static size_t mutated(fuzz *f, const void *seed, size_t n, char *b, size_t room)
{
    memcpy(b, seed, n);
    if (!below(f, 20)) return n;
    for (uint64_t k = 1 + below(f, 5); k > 0; k--) n = change(f, b, n, room);
    return n;
}

static void put_file(fuzz *f, size_t n)
{
    if (ftruncate(f->fd, 0) || pwrite(f->fd, f->bytes, n, 0) != (ssize_t)n) abort();
}

static bool try_safetensors(fuzz *f)
{
    static const char seed[] =
        "{\"__metadata__\":{\"a\":\"b\"},\"w\":{\"dtype\":\"I32\",\"shape\":[2,3],\"data_offsets\":"
        "[0,24]},\"v\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[24,27]}}";
    gm_safetensors s;
    size_t n = mutated(f, seed, sizeof seed - 1, f->bytes + 8, ROOM / 2), data = below(f, 8) ? 27 : below(f, 40);
    for (int k = 0; k < 8; k++) f->bytes[k] = (char)(n >> 8 * k);
    if (!below(f, 10)) f->bytes[below(f, 8)] = (char)below(f, 256);
    memset(f->bytes + 8 + n, 7, data);
    put_file(f, 8 + n + data);
    if (gm_safetensors_read(f->fd, "fuzz", 8 + n + data, &s) != GM_OK) return false;
    gm_safetensors_free(&s);
    return true;
}

static bool try_index(fuzz *f)
{
    static const char seed[] =
        "{\"files\":{\"rank-00000.safetensors\":{\"bytes\":400,\"header_crc32c\":\"01234567\"},\"rank-00001."
        "safetensors\":"
        "{\"bytes\":400,\"header_crc32c\":\"01234567\"}},\"format\":\"ganymede checkpoint\",\"meta\":{\"step\":1},"
        "\"tensors\":{\"w\":{\"boxes\":[{\"begin\":64,\"bytes\":24,\"crc32c\":\"01234567\",\"file\":"
        "\"rank-00000.safetensors\",\"offset\":[0,0],\"shape\":[2,3]},{\"begin\":64,\"bytes\":12,\"crc32c\":"
        "\"01234567\","
        "\"file\":\"rank-00001.safetensors\",\"offset\":[2,0],\"shape\":[1,3]}],\"dtype\":\"i32\",\"shape\":[3,3]}},"
        "\"version\":1,\"world\":2";
    gm_index x;
    size_t   n = mutated(f, seed, sizeof seed - 1, f->bytes, ROOM / 2);
    n += (size_t)sprintf(f->bytes + n, ",\"crc32c\":\"%08x\"}\n", gm_crc32c(0, f->bytes, n));
    if (gm_index_parse("fuzz", f->bytes, n, GM_INDEX_WHOLE, &x) != GM_OK) return false;
    gm_index_free(&x);
    return true;
}

static bool try_array(fuzz *f)
{
    static const unsigned char seed[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 3,  0,  0,
                                         0, 2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    gm_array_file              a;
    double                     values[64];
    put_file(f, mutated(f, seed, sizeof seed, f->bytes, 200));
    if (gm_array_open(f->path, &a) != GM_OK) return false;
    if (gm_array_read_f64(&a, 0, a.numel < 64 ? a.numel : 64, values) != GM_OK) abort();
    gm_array_close(&a);
    return true;
}

static bool try_tokens(fuzz *f)
{
    static const unsigned char seed[] = {'G', 'M', 'T', 'O', 'K', 'E', 'N', 'S', 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0,
                                         0,   0,   0,   0,   0,   9,   0,   0,   0, 0, 0, 0, 0, 1, 0, 2, 0, 3, 0};
    gm_token_file              t;
    int64_t                    values[64];
    put_file(f, mutated(f, seed, sizeof seed, f->bytes, 200));
    if (gm_token_open(f->path, below(f, 4) ? 0 : 2, 0, &t) != GM_OK) return false;
    (void)gm_token_read(&t, 0, t.count < 64 ? t.count : 64, values); /* tokens beyond the vocabulary are an error */
    gm_token_close(&t);
    return true;
}

int main(int argc, char **argv)
{
    static fuzz f = {.state = 88172645463325252u};
    static const struct {
        const char *name;
        bool (*run)(fuzz *f);
    } kinds[] = {{"safetensors", try_safetensors}, {"index", try_index}, {"IDX", try_array}, {"tokens", try_tokens}};
    long   tried = 0, accepted[4] = {0};
    time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 10);
    f.fd = memfd_create("fuzz", 0);
    snprintf(f.path, sizeof f.path, "/proc/self/fd/%d", f.fd);
    for (; time(NULL) < end; tried++)
        for (int k = 0; k < 4; k++) accepted[k] += kinds[k].run(&f);
    for (int k = 0; k < 4; k++) printf("%-12s %ld inputs, %ld accepted\n", kinds[k].name, tried, accepted[k]);
    return 0;
}
