/* mesh.h - the ranks as an n-dimensional grid with named axes, slowest first, last fastest. */
#ifndef GM_MESH_H
#define GM_MESH_H

#include <stdbool.h>
#include "../../kernels/status.h"

#define GM_MAX_AXES 8

typedef struct gm_mesh {
    int n_axes;
    struct {
        char name[16];
        int  size;
    } axis[GM_MAX_AXES];
} gm_mesh;

/* A mesh of one rank: no axes. */
gm_mesh gm_mesh_of_one(void);
/* Appends an axis inside the ones there are. GM_EINVAL: size < 1, a name in use or too long, or too many axes. */
gm_status gm_mesh_add_axis(gm_mesh *mesh, const char *name, int size);
int       gm_mesh_size(const gm_mesh *mesh); /* ranks */
/* Coordinates of a rank, one an axis. */
void gm_mesh_coordinates(const gm_mesh *mesh, int rank, int *coordinate);

#endif
