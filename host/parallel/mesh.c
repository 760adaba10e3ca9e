/* mesh.c - see mesh.h. */
#include "mesh.h"

#include <stdio.h>
#include <string.h>

gm_mesh gm_mesh_of_one(void) { return (gm_mesh){0}; }

gm_status gm_mesh_add_axis(gm_mesh *mesh, const char *name, int size)
{
    if (size < 1) return GM_FAIL(GM_EINVAL, "mesh: axis '%s' has size %d; at least 1 is needed", name, size);
    if (mesh->n_axes == GM_MAX_AXES) return GM_FAIL(GM_EINVAL, "mesh: more than %d axes", GM_MAX_AXES);
    if (strlen(name) >= sizeof mesh->axis[0].name) return GM_FAIL(GM_EINVAL, "mesh: the name '%s' is too long", name);
    for (int a = 0; a < mesh->n_axes; a++)
        if (!strcmp(mesh->axis[a].name, name)) return GM_FAIL(GM_EINVAL, "mesh: there is an axis '%s' already", name);
    snprintf(mesh->axis[mesh->n_axes].name, sizeof mesh->axis[0].name, "%s", name);
    mesh->axis[mesh->n_axes++].size = size;
    return GM_OK;
}

int gm_mesh_size(const gm_mesh *mesh)
{
    int n = 1;
    for (int a = 0; a < mesh->n_axes; a++) n *= mesh->axis[a].size;
    return n;
}

void gm_mesh_coordinates(const gm_mesh *mesh, int rank, int *coordinate)
{
    for (int a = mesh->n_axes - 1; a >= 0; a--) {
        coordinate[a] = rank % mesh->axis[a].size;
        rank /= mesh->axis[a].size;
    }
}
