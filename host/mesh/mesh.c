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

int gm_mesh_rank(const gm_mesh *mesh, const int *coordinate)
{
    int rank = 0;
    for (int a = 0; a < mesh->n_axes; a++) rank = rank * mesh->axis[a].size + coordinate[a];
    return rank;
}

int gm_mesh_axis(const gm_mesh *mesh, const char *name)
{
    for (int a = 0; a < mesh->n_axes; a++)
        if (!strcmp(mesh->axis[a].name, name)) return a;
    return -1;
}

uint32_t gm_mesh_mask(const gm_mesh *mesh, const char *name)
{
    int a = gm_mesh_axis(mesh, name);
    return a < 0 ? 0 : 1u << a;
}

bool gm_mesh_may_lack(const char *name)
{
    static const char *const names[] = {"data", "shard", GM_AXIS_PIPELINE, "sequence", "expert", "tensor",
                                        "row",  "col",   "depth",          "output",   "input",  "weight"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], name)) return true;
    return false;
}

uint32_t gm_mesh_batch_axes(const gm_mesh *mesh)
{
    return gm_mesh_mask(mesh, "data") | gm_mesh_mask(mesh, "shard") | gm_mesh_mask(mesh, "expert");
}

int gm_mesh_members(const gm_mesh *mesh, uint32_t axes, int rank, int *members)
{
    int n = 0, mine[GM_MAX_AXES], other[GM_MAX_AXES], world = gm_mesh_size(mesh);
    gm_mesh_coordinates(mesh, rank, mine);
    for (int r = 0; r < world; r++) {
        bool in = true;
        gm_mesh_coordinates(mesh, r, other);
        for (int a = 0; a < mesh->n_axes; a++) in = in && (axes & 1u << a || mine[a] == other[a]);
        if (in) members[n++] = r;
    }
    return n;
}

char *gm_mesh_describe(const gm_mesh *mesh, uint32_t axes, char *buf, size_t size)
{
    size_t n = 0;
    if (size) *buf = 0;
    for (int a = 0; a < mesh->n_axes && n < size; a++)
        if (axes & 1u << a) n += (size_t)snprintf(buf + n, size - n, "%s%s", n ? "." : "", mesh->axis[a].name);
    return buf;
}
