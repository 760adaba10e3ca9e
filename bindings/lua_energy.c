/* lua_energy.c - meters of energy (host/observe/energy.h) for Lua: userdata "gm.energy". */
#include "../host/observe/energy.h"
#include "gm_lua.h"

#define METER "gm.energy"

typedef struct box {
    gm_energy *meter;
} box;

static gm_energy *check_meter(lua_State *L)
{
    box *b = gm_check_object(L, 1, METER);
    gm_check_argument(L, b->meter, 1, "this meter has been closed");
    return b->meter;
}

static const char *text_field(lua_State *L, const char *name)
{
    if (!lua_istable(L, 1)) return NULL;
    lua_getfield(L, 1, name); /* stays on the stack while the text is in use */
    return luaL_optstring(L, -1, NULL);
}

/* energy_open{ powercap =, nvml =, gpu = } -> a meter; gpu: a name as the driver has it, default the device in use */
static int energy_open(lua_State *L)
{
    gm_device *dev;
    char       name[96] = "";
    lua_settop(L, 1);
    box *b = lua_newuserdata(L, sizeof *b);
    *b = (box){NULL};
    luaL_getmetatable(L, METER);
    lua_setmetatable(L, 2);
    gm_energy_places places = {text_field(L, "powercap"), text_field(L, "nvml"), text_field(L, "gpu")};
    if (!places.gpu) {
        L_TRY(L, gm_rank_device(gm_lua_rank(L), &dev));
        places.gpu = dev->backend->identify ? dev->backend->identify(dev, name, sizeof name) : NULL;
    }
    L_TRY(L, gm_energy_open(&places, &b->meter));
    lua_settop(L, 2);
    return 1;
}

/* meter:update(now): reads the counters now and then, or at once */
static int update(lua_State *L)
{
    gm_energy_update(check_meter(L), lua_toboolean(L, 2));
    return 0;
}

static void set_text(lua_State *L, const char *name, const char *text) /* "": nothing is said */
{
    if (*text) gm_set_text(L, name, text);
}

/* meter:report() -> { machine, gpu, cpu_joules, gpu_joules, cpu_reason, gpu_reason }; joules or a reason of each */
static int report(lua_State *L)
{
    gm_energy_report r;
    gm_energy_read(check_meter(L), &r);
    lua_createtable(L, 0, 6);
    set_text(L, "machine", r.machine);
    set_text(L, "gpu", r.gpu);
    set_text(L, "cpu_reason", r.has_cpu ? "" : r.cpu_reason);
    set_text(L, "gpu_reason", r.has_gpu ? "" : r.gpu_reason);
    if (r.has_cpu) gm_set_number(L, "cpu_joules", r.cpu_joules);
    if (r.has_gpu) gm_set_number(L, "gpu_joules", r.gpu_joules);
    return 1;
}

static int collect(lua_State *L)
{
    box *b = lua_touserdata(L, 1);
    gm_energy_close(b->meter);
    b->meter = NULL;
    return 0;
}

int gm_open_energy(lua_State *L)
{
    static const gm_declaration functions[] = {GM_FUNCTION("energy_open", energy_open, "about table?"),
                                               GM_LAST_FUNCTION};
    static const gm_declaration methods[] = {GM_FUNCTION("update", update, "meter object, now boolean?"),
                                             GM_FUNCTION("report", report, "meter object"), GM_LAST_FUNCTION};
    gm_new_class(L, METER, methods, collect);
    gm_declare(L, functions);
    return 0;
}
