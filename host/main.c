/* main.c - ganymede VERB [arguments]: finds the Lua files, makes the rank, runs ganymede.cli.
 *
 * The folder that holds lua/ is $GANYMEDE_ROOT, or the executable's own folder, or the one above it. */
#define _GNU_SOURCE
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "job/keeper.h"
#include "job/output.h"
#include "embed.h"
#include "life.h"

static bool holds_lua(const char *folder)
{
    char file[PATH_MAX + 32];
    snprintf(file, sizeof file, "%s/lua/ganymede/cli/init.lua", folder);
    return access(file, R_OK) == 0;
}

static bool find_root(char root[PATH_MAX])
{
    const char *given = getenv("GANYMEDE_ROOT");
    if (given) {
        snprintf(root, PATH_MAX, "%s", given);
        return holds_lua(root);
    }
    ssize_t n = readlink("/proc/self/exe", root, PATH_MAX - 1);
    if (n < 0) return false;
    root[n] = 0;
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(root, '/');
        if (!slash) return false;
        *slash = 0;
        if (holds_lua(root)) return true;
    }
    return false;
}

static int fail(const char *text)
{
    fflush(stdout);
    fprintf(stderr, "ganymede: %s\n", text);
    return 1;
}

int main(int argc, char **argv)
{
    char     root[PATH_MAX];
    gm_rank *rank = NULL;
    int      code = 1;
    bool     kept;
    if (!gm_output_prepare()) return 1; /* nobody could be told */
    signal(SIGXFSZ, SIG_IGN);           /* a file at its size limit is an error of write, which is reported */
    if (gm_keeper_split(&kept) != GM_OK) return fail(gm_last_error());
    if (kept) return 0;
    if (!find_root(root)) {
        fail("cannot find lua/ganymede beside the program; set GANYMEDE_ROOT to the folder that holds it");
        return 2;
    }
    gm_status st = gm_rank_new(&rank);
    if (st == GM_OK) st = gm_embed_run(rank, root, argc, argv, &code);
    if (st != GM_OK) code = fail(gm_last_error());
    bool several = rank && rank->world > 1;
    if (!several || !code) gm_rank_free(rank);
    fflush(NULL);
    if (several) _exit(code); /* others may be gone, and MPI keeps what it has: nothing waits or checks */
    return code;
}
