/* launched.c - see launched.h. */
#include "launched.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../../kernels/philox.h"

/* The whole number in a variable, at most INT_MAX; -1: it is not there, or no such number. */
static int number_of(const char *name)
{
    const char *text = getenv(name);
    char       *end;
    if (!text || !isdigit((unsigned char)*text)) return -1;
    long n = strtol(text, &end, 10);
    return *end || n > INT_MAX ? -1 : (int)n;
}

static int first_of(const char *const *names, int n)
{
    int value = -1;
    for (int i = 0; i < n && value < 0; i++) value = number_of(names[i]);
    return value;
}
#define FIRST_OF(...) \
    first_of((const char *const[]){__VA_ARGS__}, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *))

/* ---- where rank 0 listens ---- */

/* "n[3-5,9],m1" and "n3,n4" -> "n3". */
static void first_host(const char *list, char *out, size_t n)
{
    size_t head = strcspn(list, "[,");
    size_t digits = list[head] == '[' ? strcspn(list + head + 1, "-,]") : 0;
    snprintf(out, n, "%.*s%.*s", (int)head, list, (int)digits, list[head] == '[' ? list + head + 1 : "");
}

/* A port that all tasks of a step find: below those which systems give to clients, and another one for each step. */
static int port_of(uint64_t key) { return 20000 + (int)(key % 10000); }

static uint64_t mixed(uint64_t key, const char *name)
{
    const char *text = getenv(name);
    return gm_hash_text(key, text ? text : "");
}

/* torchrun itself listens at MASTER_PORT then, for what PyTorch's ranks have to tell each other. */
static bool is_torchruns_own(void)
{
    const char *uses = getenv("TORCHELASTIC_USE_AGENT_STORE");
    return uses && !strcmp(uses, "True");
}

static gm_status meeting_place(gm_launched *l)
{
    const char *address = getenv("MASTER_ADDR"), *nodes = getenv("SLURM_STEP_NODELIST");
    const char *names[] = {"GANYMEDE_JOB_KEY", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "SLURM_JOB_ID",
                           "SLURM_STEP_ID",    "MASTER_PORT",         "GANYMEDE_STANDBY_SET"};
    l->key = GM_HASH_START;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) l->key = mixed(l->key, names[i]);
    l->port = number_of("MASTER_PORT");
    if (l->port < 0 && getenv("MASTER_PORT"))
        return GM_FAIL(GM_EINVAL, "MASTER_PORT is '%s' in the environment, which is no port", getenv("MASTER_PORT"));
    if (l->port < 0 || is_torchruns_own()) l->port = port_of(l->key);
    if (l->port == 0 || l->port > 65535)
        return GM_FAIL(GM_EINVAL, "MASTER_PORT is %d in the environment; ports are 1 to 65535", l->port);
    if (address && *address) {
        snprintf(l->address, sizeof l->address, "%s", address);
        return GM_OK;
    }
    if (!nodes)
        return GM_FAIL(GM_EINVAL,
                       "srun started %d tasks, but SLURM_STEP_NODELIST does not say on which machines; set "
                       "MASTER_ADDR to that of task 0",
                       l->world);
    first_host(nodes, l->address, sizeof l->address);
    return GM_OK;
}

/* ---- who started this process ---- */

static bool by_mpirun(gm_launched *l)
{
    int n = number_of("OMPI_COMM_WORLD_SIZE");
    if (n < 0 && !getenv("SLURM_STEP_NUM_TASKS")) n = number_of("PMI_SIZE"); /* in a step it is srun's */
    if (n < 1) return false;
    l->by = "mpirun";
    l->world = n;
    l->rank = FIRST_OF("OMPI_COMM_WORLD_RANK", "PMI_RANK");
    l->place = FIRST_OF("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID");
    l->here = FIRST_OF("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS");
    return true;
}

/* WORLD_SIZE alone is no start: clusters set it for scripts. The caller says what is missing beside it. */
static bool by_environment(gm_launched *l)
{
    int n = number_of("WORLD_SIZE");
    if (n < 2 || !getenv("RANK")) return false;
    l->by = "the environment";
    l->world = n;
    l->rank = number_of("RANK");
    l->place = number_of("LOCAL_RANK");
    l->here = number_of("LOCAL_WORLD_SIZE");
    l->over_tcp = true;
    return true;
}

/* A script under srun may set torchrun's variables for its tasks: then they must say what the step is. torchrun itself,
 * one task of srun on each machine, starts another number of ranks. */
static gm_status check_step(const gm_launched *l)
{
    int tasks = number_of("SLURM_STEP_NUM_TASKS"), task = number_of("SLURM_PROCID");
    if (tasks < 2 || getenv("TORCHELASTIC_RUN_ID") || (tasks == l->world && task == l->rank)) return GM_OK;
    return GM_FAIL(GM_EINVAL,
                   "the environment says rank %d of %d (RANK, WORLD_SIZE), and srun started this process as "
                   "task %d of %d; unset RANK and WORLD_SIZE, or start as many tasks",
                   l->rank, l->world, task, tasks);
}

static gm_status check_environment(const gm_launched *l)
{
    static const char *const needed[] = {"MASTER_ADDR", "MASTER_PORT"};
    if (l->rank < 0 || l->rank >= l->world)
        return GM_FAIL(GM_EINVAL, "RANK is '%s' and WORLD_SIZE %d in the environment; ranks are 0 to %d",
                       getenv("RANK"), l->world, l->world - 1);
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!getenv(needed[i]) || !*getenv(needed[i]))
            return GM_FAIL(GM_EINVAL,
                           "RANK and WORLD_SIZE are in the environment, and %s is not: by MASTER_ADDR and MASTER_PORT, "
                           "where rank 0 listens, ranks find each other. Set it, or start one `ganymede run ... -n %d`",
                           needed[i], l->world);
    return check_step(l);
}

/* "2(x3),1": tasks on each machine of the step -> 2. */
static int leading_number(const char *name)
{
    const char *text = getenv(name);
    return text ? atoi(text) : 0;
}

static bool by_srun(gm_launched *l)
{
    int n = number_of("SLURM_STEP_NUM_TASKS");
    if (n < 1) return false;
    l->by = "srun";
    l->world = n;
    l->rank = number_of("SLURM_PROCID");
    l->place = number_of("SLURM_LOCALID");
    l->here = leading_number("SLURM_STEP_TASKS_PER_NODE");
    l->over_tcp = !getenv("PMIX_RANK"); /* Open MPI has left PMI */
    return true;
}

static gm_status check_task(const gm_launched *l)
{
    if (l->rank >= 0 && l->rank < l->world) return GM_OK;
    return GM_FAIL(GM_EINVAL,
                   "srun started %d tasks (SLURM_STEP_NUM_TASKS), and SLURM_PROCID does not say which of "
                   "them this is",
                   l->world);
}

gm_status gm_launched_find(gm_launched *out)
{
    gm_launched l = {.by = "nobody", .world = 1, .rank = 0};
    gm_status   st = GM_OK;
    if (!by_mpirun(&l)) {
        if (by_environment(&l)) st = check_environment(&l);
        else if (by_srun(&l)) st = check_task(&l);
    }
    GM_TRY(st);
    if (l.over_tcp && l.world > 1) GM_TRY(meeting_place(&l));
    if (l.place < 0) l.place = 0;
    if (l.here < 0) l.here = 0;
    *out = l;
    return GM_OK;
}
