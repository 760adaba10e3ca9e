/* open.c - the list of what Lua sees: module "ganymede.core". */
#include "open.h"

#include "gm_lua.h"

static const char rank_key; /* its address is the key in the registry */

gm_rank *gm_lua_rank(lua_State *L)
{
    lua_pushlightuserdata(L, (void *)&rank_key);
    lua_rawget(L, LUA_REGISTRYINDEX);
    gm_rank *r = lua_touserdata(L, -1);
    lua_pop(L, 1);
    return r;
}

static int open_core(lua_State *L)
{
    static int (*const parts[])(lua_State *) = {
        gm_open_signatures,   gm_open_handles,  gm_open_tensor,     gm_open_in_place,    gm_open_ops,
        gm_open_views,        gm_open_few_bits, gm_open_images,     gm_open_autograd,    gm_open_optim,
        gm_open_step_control, gm_open_rank,     gm_open_run_op,     gm_open_json,        gm_open_control,
        gm_open_terminal,     gm_open_data,     gm_open_checkpoint, gm_open_launch,      gm_open_layout,
        gm_open_comm,         gm_open_traffic,  gm_open_collective, gm_open_sharded,     gm_open_parameter,
        gm_open_experts,      gm_open_pipeline, gm_open_tape,       gm_open_region,      gm_open_graph,
        gm_open_choices,      gm_open_energy,   gm_open_plan,       gm_open_simulate,    gm_open_files,
        gm_open_modules,      gm_open_muon,     gm_open_average,    gm_open_arrays,      gm_open_tier,
        gm_open_text,         gm_open_tokenize, gm_open_pick,       gm_open_pages,       gm_open_process,
        gm_open_copy,         gm_open_live,     gm_open_sort,       gm_open_convolution, gm_open_tables,
        gm_open_float8,       gm_open_apart,    gm_open_step_end,   gm_open_whiten,      gm_open_recurrent};
    lua_newtable(L);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) parts[i](L);
    return 1;
}

void gm_preload(lua_State *L, gm_rank *rank)
{
    rank->main = L;
    lua_pushlightuserdata(L, (void *)&rank_key);
    lua_pushlightuserdata(L, rank);
    lua_rawset(L, LUA_REGISTRYINDEX);
    lua_getglobal(L, "package");
    lua_getfield(L, -1, "preload");
    lua_pushcfunction(L, open_core);
    lua_setfield(L, -2, "ganymede.core");
    lua_pop(L, 2);
}
