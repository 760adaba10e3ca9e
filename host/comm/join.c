/* join.c - see join.h. MPI is loaded only where a launcher started several ranks: starting it costs 0.3 s. */
#define _GNU_SOURCE
#include "join.h"

#include <dlfcn.h>
#include <limits.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../../kernels/beside.h"
#include "comm_tcp.h"
#include "place.h"

#if defined(__SANITIZE_ADDRESS__)
/* MPI keeps what it took at its start, some of it through plugins that it has unloaded when leaks are looked for, so
 * that none of it could be told from leaks of ours: a process that loaded MPI is not searched. The sanitizer asks. */
static bool                                loaded_mpi;
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int                                        __lsan_is_turned_off(void) { return loaded_mpi; }
#define LOADED_MPI() ((void)(loaded_mpi = true))
#else
#define LOADED_MPI() ((void)0)
#endif

static gm_status new_transport(const char *name, int rank, int world, bool has_data, gm_transport **out)
{
    gm_transport *t = calloc(1, sizeof *t);
    if (!t) return GM_FAIL(GM_ENOMEM, "no memory for a transport");
    t->size = sizeof *t;
    t->version = GM_TRANSPORT_VERSION;
    snprintf(t->name, sizeof t->name, "%s", name);
    t->rank = rank;
    t->world = world;
    t->has_data = has_data;
    *out = t;
    return GM_OK;
}

/* A world of one has nobody to send to: the comm never asks for a message. */
static int nothing_to_hear(gm_transport *t, void *bytes, size_t *n, int *from)
{
    (void)t, (void)bytes, (void)n, (void)from;
    return 0;
}

static void close_plain(gm_transport *t, bool orderly)
{
    (void)orderly;
    free(t);
}

gm_status gm_transport_self(gm_transport **out)
{
    GM_TRY(new_transport("self", 0, 1, true, out));
    (*out)->hear = nothing_to_hear;
    (*out)->close = close_plain;
    return GM_OK;
}

gm_status gm_transport_meta(int rank, int world, gm_transport **out)
{
    if (world < 1 || rank < 0 || rank >= world)
        return GM_FAIL(GM_EINVAL, "rank %d of %d: ranks are 0 to world - 1", rank, world);
    GM_TRY(new_transport("meta", rank, world, false, out));
    (*out)->hear = nothing_to_hear;
    (*out)->close = close_plain;
    return GM_OK;
}

/* RTLD_GLOBAL: Open MPI loads plugins of its own that look for the symbols of libmpi among the global ones. */
static gm_status load(const char *path, int world, gm_mpi_open_function *open)
{
    if (access(path, R_OK))
        return GM_FAIL(GM_ECOMM,
                       "this process is one of %d ranks, but %s is not there: Ganymede was built without MPI. Install "
                       "libopenmpi-dev and openmpi-bin, and build again",
                       world, path);
    void *module = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!module)
        return GM_FAIL(GM_ECOMM, "cannot load MPI: %s; install openmpi-bin, or build again if it has changed",
                       dlerror());
    void *symbol = dlsym(module, GM_MPI_OPEN);
    if (!symbol) return GM_FAIL(GM_ECOMM, "%s has no function " GM_MPI_OPEN "; build again", path);
    memcpy(open, &symbol, sizeof *open);
    return GM_OK;
}

/* Open MPI reads its parameters from the environment. What the user has set there stays. */
static gm_status use_interface(const gm_launched *l, const char *name)
{
    gm_place at;
    if (!name) return GM_OK;
    if (l->here == l->world)
        return GM_FAIL(GM_EINVAL, "all %d ranks are on this machine and share memory: no interface is used", l->world);
    GM_TRY(gm_place_of_interface(name, AF_INET, &at));
    if (getenv("OMPI_MCA_btl_tcp_if_include") || getenv("OMPI_MCA_btl_tcp_if_exclude"))
        return GM_FAIL(GM_EINVAL,
                       "interface %s, but mpirun was given btl_tcp_if_include or btl_tcp_if_exclude; leave "
                       "one out",
                       name);
    setenv("OMPI_MCA_btl_tcp_if_include", name, 1);
    return GM_OK;
}

static gm_status join_mpi(const gm_launched *l, const gm_join *how, gm_transport **out)
{
    char                 path[PATH_MAX];
    gm_mpi_open_function open = NULL;
    gm_transport        *t = NULL;
    GM_TRY(use_interface(l, how->interface));
    GM_TRY(gm_path_beside(GM_MPI_MODULE, path, sizeof path));
    GM_TRY(load(path, l->world, &open));
    GM_TRY(new_transport("MPI", 0, 1, true, &t));
    LOADED_MPI();
    if (open(t)) {
        gm_status st = GM_FAIL(GM_ECOMM, "%s", t->error);
        free(t);
        return st;
    }
    *out = t;
    if (t->world == l->world) return GM_OK;
    gm_status st = GM_FAIL(GM_ECOMM, "%s started %d ranks, but %s sees %d: start them with its own mpirun", l->by,
                           l->world, t->name, t->world);
    t->close(t, false);
    return st;
}

/* NCCL finds the other machines by an interface of its own choice; "=": the one of exactly this name. */
static void hint_nccl(const char *interface)
{
    char name[IF_NAMESIZE + 1];
    snprintf(name, sizeof name, "=%s", interface);
    setenv("NCCL_SOCKET_IFNAME", name, 0);
}

gm_status gm_transport_join(const gm_launched *l, const gm_join *how, gm_transport **out)
{
    if (how->interface) hint_nccl(how->interface);
    if (!l->over_tcp) return join_mpi(l, how, out);
    gm_meeting m = {l->rank, l->world, l->address, l->port, l->key, how->interface, how->seconds, how->stop};
    return gm_transport_tcp(&m, how->silence, out);
}
