/* collectives_mpi.c - the peer of collectives.lua: Open MPI's blocking collectives on f32, timed. Compiled by it. */
#include <mpi.h>

double gm_bench_mpi(int what, float *in, float *out, int n, int times);

/* Seconds of one call, the mean of `times`. n: elements of the whole tensor, a multiple of the ranks. */
double gm_bench_mpi(int what, float *in, float *out, int n, int times)
{
    int ranks;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Barrier(MPI_COMM_WORLD);
    double began = MPI_Wtime();
    for (int i = 0; i < times; i++) {
        if (what == 0) MPI_Allreduce(MPI_IN_PLACE, in, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        if (what == 1) MPI_Allgather(in, n / ranks, MPI_FLOAT, out, n / ranks, MPI_FLOAT, MPI_COMM_WORLD);
        if (what == 2) MPI_Reduce_scatter_block(in, out, n / ranks, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
    return (MPI_Wtime() - began) / times;
}
