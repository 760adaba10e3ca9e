/* trust.c - see trust.h. */
#include "trust.h"

#include "../comm/comm.h"

uint32_t gm_trust_axes(const gm_optimizer *o)
{
    uint32_t cut = 0;
    for (int i = 0; i < gm_optimizer_parameters(o); i++) cut |= gm_layout_cut_axes(gm_optimizer_layout(o, i));
    if (!cut) return 0;
    const gm_mesh *mesh = &gm_optimizer_parameter(o, 0)->rank->mesh;
    return ((1u << mesh->n_axes) - 1) & ~gm_mesh_mask(mesh, GM_AXIS_PIPELINE);
}

bool gm_trust_counts(const gm_optimizer *o, int i, uint32_t axes)
{
    const gm_rank *r = gm_optimizer_parameter(o, i)->rank;
    uint32_t       copies = axes & ~gm_layout_cut_axes(gm_optimizer_layout(o, i));
    int            coordinate[GM_MAX_AXES];
    gm_mesh_coordinates(&r->mesh, r->rank, coordinate);
    for (int a = 0; a < r->mesh.n_axes; a++)
        if (copies >> a & 1 && coordinate[a]) return false;
    return true;
}

gm_status gm_trust_sum(gm_rank *r, uint32_t axes, gm_tensor *t)
{
    gm_comm  *comm;
    gm_group *g;
    if (!axes) return GM_OK;
    GM_TRY(gm_rank_comm(r, &comm));
    GM_TRY(gm_comm_group(comm, axes, &g));
    return gm_comm_all_reduce(comm, g, t, GM_SUM, NULL);
}
