/* mesh.h - the ranks as an n-dimensional grid with named axes. The last axis varies fastest with the rank. */
#ifndef GM_MESH_H
#define GM_MESH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "../../kernels/status.h"

#define GM_MAX_AXES 8

/* The axis whose coordinate is a rank's stage; it cuts no tensor. */
#define GM_AXIS_PIPELINE "pipeline"

/* A set of axes is a mask: bit a stands for axis[a]. */

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
/* coordinate[n_axes] receives the coordinates of a rank. */
void gm_mesh_coordinates(const gm_mesh *mesh, int rank, int *coordinate);
int  gm_mesh_rank(const gm_mesh *mesh, const int *coordinate);
int  gm_mesh_axis(const gm_mesh *mesh, const char *name); /* its index, -1: there is none */
/* The bit of an axis; 0 when the mesh has no such axis (it has size 1 then, and its group is the rank alone). */
uint32_t gm_mesh_mask(const gm_mesh *mesh, const char *name);
/* Is this the name of a known axis that a mesh may lack because its size is 1? */
bool gm_mesh_may_lack(const char *name);
/* The axes that cut a batch of samples: data, shard and expert, as far as the mesh has them. */
uint32_t gm_mesh_batch_axes(const gm_mesh *mesh);
/* The ranks that differ from `rank` in the coordinates of these axes only, itself included, ascending;
 * returns how many. members has room for gm_mesh_size. */
int gm_mesh_members(const gm_mesh *mesh, uint32_t axes, int rank, int *members);
/* "data.row" for a mask, "" for none; returns buf. */
char *gm_mesh_describe(const gm_mesh *mesh, uint32_t axes, char *buf, size_t size);

#endif
