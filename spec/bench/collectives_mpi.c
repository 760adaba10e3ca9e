/* collectives_mpi.c - the peer of collectives.lua: Open MPI's blocking collectives on f32, timed. Compiled by it.
 *
 * The algorithm of a collective is forced by a parameter of Open MPI that it reads when a communicator is made. */
#include <mpi.h>
#include <stdlib.h>

double gm_bench_mpi(int what, int algorithm, float *in, float *out, int n, int times);

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

/* Seconds of one call, the mean of `times`; negative: there is no such algorithm. n: elements of the whole tensor, a
 * multiple of the ranks. */
double gm_bench_mpi(int what, int algorithm, float *in, float *out, int n, int times)
{
    int      ranks;
    MPI_Comm comm = of_algorithm(what, algorithm);
    if (comm == MPI_COMM_NULL) return -1;
    MPI_Comm_size(comm, &ranks);
    MPI_Barrier(comm);
    double began = MPI_Wtime();
    for (int i = 0; i < times; i++) {
        if (what == 0) MPI_Allreduce(MPI_IN_PLACE, in, n, MPI_FLOAT, MPI_SUM, comm);
        if (what == 1) MPI_Allgather(in, n / ranks, MPI_FLOAT, out, n / ranks, MPI_FLOAT, comm);
        if (what == 2) MPI_Reduce_scatter_block(in, out, n / ranks, MPI_FLOAT, MPI_SUM, comm);
        if (what == 3) MPI_Alltoall(in, n / ranks, MPI_FLOAT, out, n / ranks, MPI_FLOAT, comm);
        if (what == 4) MPI_Bcast(in, n, MPI_FLOAT, 0, comm);
    }
    return (MPI_Wtime() - began) / times;
}
