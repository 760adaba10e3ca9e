/* collectives_mpi.c - the peer of collectives.lua: Open MPI's blocking collectives on f32, timed. Compiled by it.
 *
 * The algorithm of a collective is forced by a parameter of Open MPI that it reads when a communicator is made. */
#include <mpi.h>
#include <string.h>

double gm_bench_mpi(int what, int algorithm, float *in, float *out, int n, int times);
void   gm_bench_mpi_write(int on);

static const char *const parameters[] = {"coll_tuned_allreduce_algorithm", "coll_tuned_allgather_algorithm",
                                         "coll_tuned_reduce_scatter_block_algorithm", "coll_tuned_alltoall_algorithm",
                                         "coll_tuned_bcast_algorithm"};

/* A communicator whose collective is made by this algorithm; 0: Open MPI's own choice. MPI_COMM_NULL: no such one. */
static MPI_Comm of_algorithm(int what, int algorithm)
{
    static MPI_Comm   made[5][16];
    static int        tried[5][16], ready;
    int               level, index, count;
    MPI_T_cvar_handle handle;
    if (!ready++) MPI_T_init_thread(MPI_THREAD_SINGLE, &level);
    if (!algorithm) return MPI_COMM_WORLD;
    MPI_Comm *comm = &made[what][algorithm];
    if (tried[what][algorithm]++) return *comm;
    *comm = MPI_COMM_NULL;
    if (MPI_T_cvar_get_index(parameters[what], &index) != MPI_SUCCESS ||
        MPI_T_cvar_handle_alloc(index, NULL, &handle, &count) != MPI_SUCCESS)
        return MPI_COMM_NULL;
    if (MPI_T_cvar_write(handle, &algorithm) == MPI_SUCCESS) MPI_Comm_dup(MPI_COMM_WORLD, comm);
    algorithm = 0;
    MPI_T_cvar_write(handle, &algorithm);
    MPI_T_cvar_handle_free(&handle);
    return *comm;
}

static int call(int what, float *in, float *out, int n, int ranks, MPI_Comm comm)
{
    switch (what) {
    case 0: return MPI_Allreduce(MPI_IN_PLACE, in, n, MPI_FLOAT, MPI_SUM, comm);
    case 1: return MPI_Allgather(in, n / ranks, MPI_FLOAT, out, n / ranks, MPI_FLOAT, comm);
    case 2: return MPI_Reduce_scatter_block(in, out, n / ranks, MPI_FLOAT, MPI_SUM, comm);
    case 3: return MPI_Alltoall(in, n / ranks, MPI_FLOAT, out, n / ranks, MPI_FLOAT, comm);
    default: return MPI_Bcast(in, n, MPI_FLOAT, 0, comm);
    }
}

/* Does the algorithm make the collective? Some are for two ranks or for powers of two alone: with other numbers they
 * return an error, or do nothing. Each rank gives its number + 1, and the first and the last element of each block of
 * the result are looked at. All ranks say the same. The buffers hold zeros afterwards. */
static int works(int what, float *in, float *out, int n, int ranks, MPI_Comm comm)
{
    int rank, block = n / ranks, good = 1, all = 0;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    for (int i = 0; i < (what == 1 ? block : n); i++) in[i] = (float)(rank + 1);
    memset(out, 0, (size_t)n * sizeof *out);
    if (call(what, in, out, n, ranks, comm) != MPI_SUCCESS) good = 0;
    const float *found = what == 0 || what == 4 ? in : out;
    for (int b = 0; b < (what == 2 ? 1 : ranks); b++) {
        float want = what == 4 ? 1 : what == 0 || what == 2 ? (float)(ranks * (ranks + 1) / 2) : (float)(b + 1);
        if (found[b * block] != want || found[(b + 1) * block - 1] != want) good = 0;
    }
    memset(in, 0, (size_t)(what == 1 ? block : n) * sizeof *in);
    memset(out, 0, (size_t)n * sizeof *out);
    MPI_Allreduce(&good, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return all;
}

static int writes;

/* Whether what is sent is written anew before each call. */
void gm_bench_mpi_write(int on) { writes = on; }

/* Seconds of one call, the mean of `times`, and 0 times: 1 if the algorithm makes the collective; negative: there is no
 * such algorithm, or it does not. n: elements of the whole tensor, a multiple of the ranks. */
double gm_bench_mpi(int what, int algorithm, float *in, float *out, int n, int times)
{
    int      ranks;
    MPI_Comm comm = of_algorithm(what, algorithm);
    if (comm == MPI_COMM_NULL) return -1;
    MPI_Comm_size(comm, &ranks);
    if (!times) return works(what, in, out, n, ranks, comm) ? 1 : -1;
    MPI_Barrier(comm);
    double began = MPI_Wtime();
    for (int i = 0; i < times; i++) {
        if (writes) memset(in, 0, (size_t)(what == 1 ? n / ranks : n) * sizeof *in);
        call(what, in, out, n, ranks, comm);
    }
    return (MPI_Wtime() - began) / times;
}
