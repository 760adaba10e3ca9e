/* pmpi_counter.c - an independent count of what ranks send: preloaded, it stands before MPI_Isend (the profiling
 * interface of the MPI standard) and adds up the bytes of each communicator by its name. Built by counter_spec.lua. */
#include <string.h>
#include <mpi.h>

static unsigned long long bytes, messages;

unsigned long long gm_pmpi_bytes(void);
unsigned long long gm_pmpi_messages(void);

/* Of the data communicator. */
unsigned long long gm_pmpi_bytes(void) { return bytes; }
unsigned long long gm_pmpi_messages(void) { return messages; }

int MPI_Isend(const void *buf, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request)
{
    char name[MPI_MAX_OBJECT_NAME] = "";
    int  n = 0, size = 0;
    PMPI_Comm_get_name(comm, name, &n);
    PMPI_Type_size(type, &size);
    if (!strcmp(name, "ganymede data")) {
        bytes += (unsigned long long)count * (unsigned long long)size;
        messages++;
    }
    return PMPI_Isend(buf, count, type, to, tag, comm, request);
}
