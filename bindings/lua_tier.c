/* lua_tier.c - the Lua face of host/tier/tier.h: userdata "gm.tier", and what rests in it. */
#include "gm_lua.h"

#include "../host/gradients/stored.h"

#define TIER "gm.tier"

typedef struct box {
    gm_tier *tier;
} box;

gm_tier *gm_check_tier(lua_State *L, int arg)
{
    box *b = gm_check_object(L, arg, TIER);
    if (!b->tier) gm_bad_argument(L, arg, "this tier was closed");
    return b->tier;
}

gm_tier_kind gm_check_tier_kind(lua_State *L, int arg)
{
    static const char *const kinds[] = {"host", "disk", NULL};
    return gm_check_option(L, arg, NULL, kinds) ? GM_TIER_DISK : GM_TIER_HOST;
}

static void note(void *context, const char *text) { gm_device_note(context, text); }

/* tier(kind: "host" or "disk", folder or "", bytes of the ring, where): a tier of this rank. where, on a GPU: "beside":
 * of what the host computes with; "below": of the GPU's tensors, through a ring in its memory and another one of the
 * host */
static int tier(lua_State *L)
{
    gm_device       *dev;
    gm_rank         *r = gm_lua_rank(L);
    gm_tier_settings s = {.kind = gm_check_tier_kind(L, 1),
                          .ring = (size_t)luaL_checknumber(L, 3),
                          .disk = {.folder = luaL_checkstring(L, 2)}};
    lua_settop(L, 4);
    box *b = lua_newuserdata(L, sizeof *b);
    b->tier = NULL;
    luaL_getmetatable(L, TIER);
    lua_setmetatable(L, -2);
    L_TRY(L, gm_rank_device(r, &dev));
    s.disk.say = note, s.disk.say_context = dev;
    if (!lua_isnoneornil(L, 4)) {
        static const char *const places[] = {"beside", "below", NULL};
        int                      below = gm_check_option(L, 4, NULL, places);
        L_TRY(L, gm_rank_beside(r, below ? &s.beside : &dev));
    }
    L_TRY(L, gm_tier_new(dev, &s, &b->tier));
    return 1;
}

/* t:prepare(bytes): takes space for so many bytes beside those that rest in it */
static int prepare(lua_State *L)
{
    L_TRY(L, gm_tier_prepare(gm_check_tier(L, 1), (uint64_t)luaL_checknumber(L, 2)));
    return 0;
}

/* t:rest(gradients, activations, least bytes): these come to rest in it from now on */
static int rest(lua_State *L)
{
    gm_rank_rest(gm_lua_rank(L), gm_check_tier(L, 1), lua_toboolean(L, 2), lua_toboolean(L, 3),
                 (size_t)luaL_checknumber(L, 4));
    return 0;
}

/* t:rest_parameter(parameter, least bytes): its numbers rest in it between their uses */
static int rest_parameter(lua_State *L)
{
    L_TRY(L, gm_parameter_rest(gm_check_value(L, 2), gm_check_tier(L, 1), (size_t)luaL_checknumber(L, 3)));
    return 0;
}

static int end_step(lua_State *L)
{
    gm_tier_end_step(gm_check_tier(L, 1));
    return 0;
}

/* t:stats() -> { tier, placed_bytes, placed_peak_bytes, ring_bytes, resident_peak_bytes, read_bytes, written_bytes,
 * fetched, stored, kept (storages), waited_seconds } */
static int stats(lua_State *L)
{
    gm_tier_stats s = gm_tier_stats_of(gm_check_tier(L, 1));
    lua_createtable(L, 0, 11);
    gm_set_text(L, "tier", s.kind == GM_TIER_DISK ? "disk" : "host");
    gm_set_number(L, "placed_bytes", (double)s.placed);
    gm_set_number(L, "placed_peak_bytes", (double)s.placed_peak);
    gm_set_number(L, "ring_bytes", (double)s.ring);
    gm_set_number(L, "resident_peak_bytes", (double)s.resident_peak);
    gm_set_number(L, "read_bytes", (double)s.read);
    gm_set_number(L, "written_bytes", (double)s.written);
    gm_set_number(L, "fetched", (double)s.fetched);
    gm_set_number(L, "stored", (double)s.stored);
    gm_set_number(L, "kept", (double)s.kept);
    gm_set_number(L, "waited_seconds", s.waited);
    return 1;
}

/* t:record(on): from now on it is noted when the disk moves bytes; false: no more */
static int record(lua_State *L)
{
    gm_disk_spans *s = gm_tier_spans(gm_check_tier(L, 1));
    if (s) gm_disk_spans_set(s, lua_toboolean(L, 2));
    return 0;
}

/* t:recorded() -> list of { what = "read", "write" or "wait", begin, finish (seconds of core.executor_clock), bytes },
 * in the order of their ends; how many were lost for lack of memory */
static int recorded(lua_State *L)
{
    static const char *const names[] = {"read", "write", "wait"};
    gm_disk_spans           *s = gm_tier_spans(gm_check_tier(L, 1));
    lua_newtable(L);
    for (size_t i = 0; s && i < s->n; i++) {
        lua_createtable(L, 0, 4);
        gm_set_text(L, "what", names[s->list[i].what]);
        gm_set_number(L, "begin", s->list[i].begin);
        gm_set_number(L, "finish", s->list[i].end);
        gm_set_number(L, "bytes", (double)s->list[i].bytes);
        lua_rawseti(L, -2, (int)i + 1);
    }
    lua_pushnumber(L, s ? (lua_Number)s->lost : 0);
    return 2;
}

/* t:close(): nothing more comes to rest in it; what rests there stays */
static int close(lua_State *L)
{
    gm_rank *r = gm_lua_rank(L);
    box     *b = gm_check_object(L, 1, TIER);
    if (b->tier && r->rests.tier == b->tier) gm_rank_rest(r, NULL, false, false, 0);
    gm_tier_release(b->tier);
    b->tier = NULL;
    return 0;
}

/* rests(t): does this rank's block of it rest in a disk's tier? */
static int rests(lua_State *L)
{
    lua_pushboolean(L, gm_tier_holds(gm_check_value(L, 1)->local->storage));
    return 1;
}

int gm_open_tier(lua_State *L)
{
    static const gm_declaration methods[] = {
        GM_FUNCTION("prepare", prepare, "tier object, bytes number"),
        GM_FUNCTION("rest", rest, "tier object, gradients boolean, activations boolean, least number"),
        GM_FUNCTION("rest_parameter", rest_parameter, "tier object, parameter tensor, least number"),
        GM_FUNCTION("end_step", end_step, "tier object"),
        GM_FUNCTION("stats", stats, "tier object"),
        GM_FUNCTION("record", record, "tier object, on boolean"),
        GM_FUNCTION("recorded", recorded, "tier object"),
        GM_FUNCTION("close", close, "tier object"),
        GM_LAST_FUNCTION};
    static const gm_declaration functions[] = {
        GM_FUNCTION("tier", tier, "kind string, folder string, ring number, where string?"),
        GM_FUNCTION("rests", rests, "t tensor"), GM_LAST_FUNCTION};
    gm_new_class(L, TIER, methods, close);
    gm_declare(L, functions);
    return 0;
}
