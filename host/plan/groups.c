/* groups.c - see replay.h. Places and ranks are reckoned from coordinates, without lists of members. */
#include <stdlib.h>
#include <string.h>

#include "replay.h"

static gm_status unknown_group(const char *name)
{
    return GM_FAIL(GM_EINVAL, "a simulation cannot read the group '%s': axes of the mesh, or up to %d of their places",
                   name, GM_GROUP_PLACES);
}

/* "pipeline@0+3": behind the @. */
static bool read_places(char *text, int size, int *place, int *n)
{
    char *word, *end;
    while ((word = strsep(&text, "+")) != NULL) {
        long v = strtol(word, &end, 10);
        if (end == word || *end || v < 0 || v >= size || *n == GM_GROUP_PLACES) return false;
        if (*n && v <= place[*n - 1]) return false; /* not in order of ranks */
        place[(*n)++] = (int)v;
    }
    return true;
}

static gm_status read_group(const gm_mesh *mesh, const char *name, gm_groups *g, int at)
{
    char copy[128], *rest = copy, *word, *places;
    int  size = 1;
    g->axes[at] = 0;
    g->n_places[at] = 0;
    if (strlen(name) >= sizeof copy) return unknown_group(name);
    strcpy(copy, name);
    strcpy(g->name[at], name);
    if (*name == '@') return GM_OK; /* the rank alone with its disk or host */
    if ((places = strchr(copy, '@')) != NULL) *places++ = 0;
    while ((word = strsep(&rest, ".")) != NULL) {
        int a = gm_mesh_axis(mesh, word);
        if (a < 0) return unknown_group(name);
        g->axes[at] |= 1u << a;
        size *= mesh->axis[a].size;
    }
    return !places || read_places(places, size, g->place[at], &g->n_places[at]) ? GM_OK : unknown_group(name);
}

gm_status gm_groups_find(gm_groups *g, const gm_mesh *mesh, const char *name, int *out)
{
    *out = -1;
    if (!*name) return GM_OK;
    for (int i = 0; i < g->n; i++)
        if (!strcmp(g->name[i], name)) {
            *out = i;
            return GM_OK;
        }
    if (g->n == GM_SIMULATED_GROUPS)
        return GM_FAIL(GM_EINVAL, "a simulation takes %d groups of axes, and there are more", GM_SIMULATED_GROUPS);
    GM_TRY(read_group(mesh, name, g, g->n));
    *out = g->n++;
    return GM_OK;
}

static int along(const gm_groups *g, const gm_mesh *mesh, int group)
{
    int size = 1;
    for (int a = 0; a < mesh->n_axes; a++)
        if (g->axes[group] & 1u << a) size *= mesh->axis[a].size;
    return size;
}

int gm_groups_size(const gm_groups *g, const gm_mesh *mesh, int group)
{
    return g->n_places[group] ? g->n_places[group] : along(g, mesh, group);
}

int gm_groups_place(const gm_groups *g, const gm_mesh *mesh, int group, int rank, int *base)
{
    int place = 0, unit = 1, stride = 1, rest = rank;
    *base = rank;
    for (int a = mesh->n_axes - 1; a >= 0; a--) {
        int size = mesh->axis[a].size, at = rest % size;
        rest /= size;
        if (g->axes[group] & 1u << a) {
            place += at * unit;
            unit *= size;
            *base -= at * stride;
        }
        stride *= size;
    }
    if (!g->n_places[group]) return place;
    for (int i = 0; i < g->n_places[group]; i++)
        if (g->place[group][i] == place) return i;
    return -1;
}

int gm_groups_rank(const gm_groups *g, const gm_mesh *mesh, int group, int base, int place)
{
    int stride = 1, rank = base;
    if (g->n_places[group]) place = g->place[group][place];
    for (int a = mesh->n_axes - 1; a >= 0; a--) {
        int size = mesh->axis[a].size;
        if (g->axes[group] & 1u << a) {
            rank += place % size * stride;
            place /= size;
        }
        stride *= size;
    }
    return rank;
}
