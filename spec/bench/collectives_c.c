/* collectives_c.c - what a collective takes where C calls it, as gradients, ring steps and cut layers do, beside the
 * best of Open MPI's algorithms, in turns in one run. collectives.lua measures the same calls out of Lua.
 *
 *     ninja -C build collectives_c
 *     OMPI_MCA_coll_tuned_use_dynamic_rules=1 mpirun -n 2 --bind-to none build/collectives_c [ROUNDS [BYTES...]]
 *
 * BYTES: sizes to measure, by default 8 to 1,048,576; COLLECTIVES="all_reduce,broadcast" in the environment chooses
 * among the collectives. WRITES=1: what a rank sends is written anew before each call, as the op before a collective
 * does; this is part of the time of both. ALONE=1 leaves MPI's calls out, for a profiler. STORES=plain, past or string
 * takes these in place of the ones that suit the processor (host/comm/lines.h). With more ranks than cores
 * add --oversubscribe and OMPI_MCA_mpi_yield_when_idle=1. f32; the bytes are those of the whole tensor (all_gather: of
 * the result). A call ends when the last rank has done it. Rank 0 prints for each collective and size: microseconds of
 * a call of ours and of MPI's, medians of the rounds; the number of MPI's algorithm; the median of the paired ratios:
 * above 1 ours is quicker. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../host/comm/comm.h"
#include "../../host/comm/join.h"
#include "../../host/comm/lines.h"
#include "../../kernels/arena.h"
#include "../../kernels/clock.h"
#include "../../kernels/device.h"

#define MOST_ROUNDS 99

double gm_bench_mpi(int what, int algorithm, float *in, float *out, int n, int times); /* collectives_mpi.c */
void   gm_bench_mpi_write(int on);

static const struct {
    const char *name;
    int         algorithms; /* of Open MPI, besides its own choice */
} kinds[] = {{"all_reduce", 7}, {"all_gather", 6}, {"reduce_scatter", 4}, {"all_to_all", 5}, {"broadcast", 7}};

#define DEFAULT_SIZES 6
static const int64_t sizes[DEFAULT_SIZES] = {8, 1 << 10, 1 << 12, 1 << 14, 1 << 18, 1 << 20};

typedef struct bench {
    gm_comm   *comm;
    gm_group  *world;
    gm_device *dev;
    int        ranks;
    bool       writes, alone;
    gm_tensor *whole, *out, *block; /* n, n and n / ranks numbers */
} bench;

static void must(gm_status st)
{
    if (st == GM_OK) return;
    fprintf(stderr, "collectives_c: %s\n", gm_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void call(bench *b, int what)
{
    switch (what) {
    case 0: must(gm_comm_all_reduce(b->comm, b->world, b->whole, GM_SUM, NULL)); break;
    case 1: must(gm_comm_all_gather(b->comm, b->world, b->block, 0, b->out, NULL)); break;
    case 2: must(gm_comm_reduce_scatter(b->comm, b->world, b->whole, 0, GM_SUM, b->block, NULL)); break;
    case 3: must(gm_comm_all_to_all(b->comm, b->world, b->whole, 0, b->out, 0, NULL)); break;
    default: must(gm_comm_broadcast(b->comm, b->world, b->whole, 0, NULL));
    }
}

static double largest(double x)
{
    double most;
    MPI_Allreduce(&x, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return most;
}

static double ours(bench *b, int what, int times)
{
    gm_tensor *in = what == 1 ? b->block : b->whole;
    MPI_Barrier(MPI_COMM_WORLD);
    double began = gm_now();
    for (int i = 0; i < times; i++) {
        if (b->writes) memset(gm_tensor_data(in), 0, (size_t)gm_tensor_numel(in) * 4);
        call(b, what);
    }
    return (largest(gm_now()) - largest(began)) / times;
}

static double theirs(bench *b, int what, int algorithm, int times)
{
    float *in = gm_tensor_data(what == 1 ? b->block : b->whole), *out = gm_tensor_data(b->out);
    MPI_Barrier(MPI_COMM_WORLD);
    double began = gm_now();
    if (gm_bench_mpi(what, algorithm, in, out, (int)gm_tensor_numel(b->whole), times) < 0) return -1;
    return (largest(gm_now()) - largest(began)) / times;
}

static int fastest(bench *b, int what, int times)
{
    float *in = gm_tensor_data(what == 1 ? b->block : b->whole), *out = gm_tensor_data(b->out);
    double least = 1e9;
    int    chosen = 0;
    for (int a = 0; a <= kinds[what].algorithms; a++) {
        if (gm_bench_mpi(what, a, in, out, (int)gm_tensor_numel(b->whole), 0) < 0) continue; /* not on so many ranks */
        double seconds = theirs(b, what, a, times);
        if (seconds >= 0 && seconds < least) least = seconds, chosen = a;
    }
    return chosen;
}

static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static double median(double *list, int n)
{
    qsort(list, (size_t)n, sizeof *list, by_value);
    return list[n / 2];
}

static void compare(bench *b, int what, int64_t bytes, int rounds)
{
    int64_t part = bytes / 4 / b->ranks, n = (part ? part : 1) * b->ranks;
    double  our[MOST_ROUNDS], their[MOST_ROUNDS], ratio[MOST_ROUNDS];
    part = n / b->ranks;
    must(gm_tensor_new(b->dev, GM_F32, 1, &n, &b->whole));
    must(gm_tensor_new(b->dev, GM_F32, 1, &n, &b->out));
    must(gm_tensor_new(b->dev, GM_F32, 1, &part, &b->block));
    memset(gm_tensor_data(b->whole), 0, (size_t)n * 4);
    memset(gm_tensor_data(b->out), 0, (size_t)n * 4);
    memset(gm_tensor_data(b->block), 0, (size_t)part * 4);
    int times = (int)(4000000 / (bytes + 2000)) + 2;
    int algorithm = b->alone ? 0 : fastest(b, what, times / 4 + 1);
    (void)ours(b, what, times); /* warms up */
    for (int i = 0; i < rounds; i++) {
        our[i] = ours(b, what, times);
        their[i] = b->alone ? NAN : theirs(b, what, algorithm, times);
        ratio[i] = their[i] / our[i];
    }
    if (gm_comm_rank(b->comm) == 0)
        printf("%-15s %10lld %8.2f us %8.2f us (%d) %6.2f\n", kinds[what].name, (long long)bytes,
               1e6 * median(our, rounds), 1e6 * median(their, rounds), algorithm, median(ratio, rounds));
    fflush(stdout);
    gm_tensor_release(b->whole);
    gm_tensor_release(b->out);
    gm_tensor_release(b->block);
}

/* -> 0, or 2 after words about what is wrong */
static int choose_stores(const char *name)
{
    static const char *const names[] = {"plain", "past", "string"}; /* as gm_line_stores has them */
    if (!name) return 0;
    for (int i = 0; i < 3; i++)
        if (!strcmp(name, names[i])) return gm_lines_choose((gm_line_stores)i), 0;
    return fprintf(stderr, "collectives_c: STORES is plain, past or string\n"), 2;
}

int main(int argc, char **argv)
{
    int           rounds = argc > 1 ? atoi(argv[1]) : 9;
    bench         b = {0};
    gm_launched   l;
    gm_join       how = {0};
    gm_transport *t;
    gm_arena     *arena = NULL;
    gm_mesh       mesh = gm_mesh_of_one();
    char          said[512];
    const char   *asked = getenv("COLLECTIVES"), *writes = getenv("WRITES"), *alone = getenv("ALONE");
    if (rounds < 1 || rounds > MOST_ROUNDS) return fprintf(stderr, "ROUNDS is 1 to %d\n", MOST_ROUNDS), 2;
    if (choose_stores(getenv("STORES"))) return 2;
    must(gm_launched_find(&l));
    if (l.world == 1) return fprintf(stderr, "collectives_c: start it by mpirun, on several ranks\n"), 2;
    must(gm_transport_join(&l, &how, &t));
    must(gm_mesh_add_axis(&mesh, "data", t->world));
    b.ranks = t->world;
    b.alone = alone && !strcmp(alone, "1");
    b.writes = writes && !strcmp(writes, "1");
    gm_bench_mpi_write(b.writes);
    must(gm_comm_new(t, &mesh, &b.comm));
    must(gm_comm_share_memory(b.comm, true, &arena, said, sizeof said));
    must(gm_comm_group(b.comm, gm_mesh_mask(&mesh, "data"), &b.world));
    must(gm_device_new("cpu", 1, &b.dev));
    if (gm_comm_rank(b.comm) == 0)
        printf("%d ranks through %s%s%s\n%-15s %10s %11s %11s %10s\n", b.ranks, gm_comm_transport(b.comm),
               said[0] ? ": " : "", said, "", "bytes", "ours", "MPI", "ratio");
    for (int what = 0; what < 5; what++) {
        if (asked && !strstr(asked, kinds[what].name)) continue;
        for (int i = 0; i < (argc > 2 ? argc - 2 : DEFAULT_SIZES); i++)
            compare(&b, what, argc > 2 ? atoll(argv[i + 2]) : sizes[i], rounds);
    }
    gm_device_free(b.dev);
    gm_comm_free(b.comm, true);
    if (arena) gm_arena_free(arena);
    return 0;
}
