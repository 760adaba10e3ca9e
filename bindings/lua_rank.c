/* lua_rank.c - the rank as Lua sees it: device, memory, seed, step, path, clocks, counters. */
#define _GNU_SOURCE
#include "gm_lua.h"

#include <string.h>
#include <time.h>
#include "../host/job/link.h"
#include "../kernels/clock.h"
#include "../kernels/profile.h"
#include "docs/docs.h"
#include "docs/rank.def"

/* use_device{ device = "cpu"|"cuda"|"cuda:1"|"meta"|..., threads = n, apart: meta stands for a device with memory of
 * its own }: before the first tensor. */
static int use_device(lua_State *L)
{
    gm_rank *r = gm_lua_rank(L);
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_getfield(L, 1, "device");
    const char *name = luaL_optstring(L, -1, "cpu");
    L_TRY(L, gm_rank_open_device(r, name, (int)gm_field_number(L, 1, "threads", 0)));
    lua_getfield(L, 1, "apart");
    r->apart = lua_toboolean(L, -1);
    return 0;
}

/* device() -> { name, backend, threads, has_data, on_host, apart: has it memory of its own (or stands it for such a
 * device), description }; opens the CPU if nothing is open */
static int device(lua_State *L)
{
    gm_rank   *r = gm_lua_rank(L);
    gm_device *dev;
    L_TRY(L, gm_rank_device(r, &dev));
    const char *backend = dev->backend->name;
    char        about[320];
    if (dev->backend->describe) dev->backend->describe(dev, about, sizeof about);
    lua_createtable(L, 0, 7);
    lua_pushboolean(L, gm_rank_is_apart(r));
    lua_setfield(L, -2, "apart");
    lua_pushstring(L, dev->backend->describe ? about : backend);
    lua_setfield(L, -2, "description");
    lua_pushboolean(L, dev->backend->on_host);
    lua_setfield(L, -2, "on_host");
    lua_pushlstring(L, backend, strcspn(backend, "-"));
    lua_setfield(L, -2, "name");
    lua_pushstring(L, backend);
    lua_setfield(L, -2, "backend");
    lua_pushinteger(L, dev->threads ? gm_threads_count(dev->threads) : 1);
    lua_setfield(L, -2, "threads");
    lua_pushboolean(L, dev->backend->has_data);
    lua_setfield(L, -2, "has_data");
    return 1;
}

/* A switch of the device, which says whether it has an effect here. */
static int turn(lua_State *L, void (*set)(gm_device *dev, bool wanted, bool *effect))
{
    gm_device *dev;
    bool       effect;
    luaL_checktype(L, 1, LUA_TBOOLEAN);
    L_TRY(L, gm_rank_device(gm_lua_rank(L), &dev));
    set(dev, lua_toboolean(L, 1), &effect);
    lua_pushboolean(L, effect);
    return 1;
}

/* set_tf32(wanted), set_deterministic(wanted) -> does it have an effect here? */
static int set_tf32(lua_State *L) { return turn(L, gm_device_set_tf32); }
static int set_deterministic(lua_State *L) { return turn(L, gm_device_set_deterministic); }

/* detect_anomaly([on]) -> was it on? From now on the first op that makes a number that is not finite fails
 * (host/autograd/anomaly.h). */
static int detect_anomaly(lua_State *L)
{
    gm_rank *r = gm_lua_rank(L);
    lua_pushboolean(L, r->detect_anomaly);
    if (lua_isnoneornil(L, 1)) return 1;
    luaL_checktype(L, 1, LUA_TBOOLEAN);
    r->detect_anomaly = lua_toboolean(L, 1);
    return 1;
}

/* cuda_facts() -> list of { name, found, text }, or nil and why this build has none */
static int cuda_facts(lua_State *L)
{
    gm_device_fact fact[32];
    int            n;
    if (gm_device_facts(fact, 32, &n) != GM_OK) {
        lua_pushnil(L);
        lua_pushstring(L, gm_last_error());
        return 2;
    }
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        lua_createtable(L, 0, 3);
        lua_pushstring(L, fact[i].name);
        lua_setfield(L, -2, "name");
        lua_pushboolean(L, fact[i].found);
        lua_setfield(L, -2, "found");
        lua_pushstring(L, fact[i].text);
        lua_setfield(L, -2, "text");
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static int rank(lua_State *L)
{
    lua_pushinteger(L, gm_lua_rank(L)->rank);
    return 1;
}

static int world(lua_State *L)
{
    lua_pushinteger(L, gm_lua_rank(L)->world);
    return 1;
}

static int memory(lua_State *L)
{
    gm_device *dev;
    L_TRY(L, gm_rank_device(gm_lua_rank(L), &dev));
    gm_memory_stats s = gm_pool_stats(dev->pool);
    gm_device      *beside = gm_lua_rank(L)->beside;
    gm_memory_stats host = dev->host ? gm_pool_stats(dev->host) : (gm_memory_stats){0};
    gm_memory_stats apart = beside ? gm_pool_stats(beside->pool) : (gm_memory_stats){0};
    lua_createtable(L, 0, 11);
    gm_set_number(L, "host_live", (double)apart.live); /* what rests and is updated on the host below a GPU */
    gm_set_number(L, "host_peak", (double)apart.peak);
    gm_set_number(L, "host_scratch_peak", (double)apart.scratch_peak);
    gm_set_number(L, "pinned", (double)host.reserved);
    gm_set_number(L, "live", (double)s.live);
    gm_set_number(L, "peak", (double)s.peak);
    gm_set_number(L, "scratch_peak", (double)s.scratch_peak);
    gm_set_number(L, "reserved", (double)s.reserved);
    gm_set_number(L, "limit", (double)s.limit);
    gm_set_number(L, "allocations", (double)s.allocations);
    gm_set_number(L, "system_allocations", (double)s.system_allocations);
    return 1;
}

static int push_places(lua_State *L, int (*list)(const gm_pool *, gm_holder *, int))
{
    gm_device *dev;
    gm_holder  h[256];
    int        n = (int)luaL_optinteger(L, 1, 10);
    gm_check_argument(L, n >= 1 && n <= 256, 1, "1 to 256 holders can be listed");
    L_TRY(L, gm_rank_device(gm_lua_rank(L), &dev));
    n = list(dev->pool, h, n);
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        lua_createtable(L, 0, 4);
        lua_pushstring(L, h[i].place);
        lua_setfield(L, -2, "place");
        gm_set_number(L, "live", (double)h[i].live);
        gm_set_number(L, "peak", (double)h[i].peak);
        gm_set_number(L, "blocks", (double)h[i].blocks);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* memory_holders(n = 10) -> list of { place, live, peak, blocks }, largest first */
static int memory_holders(lua_State *L) { return push_places(L, gm_pool_holders); }

/* memory_peaks(n = 10) -> the same by their peaks, of places that hold nothing now too */
static int memory_peaks(lua_State *L) { return push_places(L, gm_pool_peaks); }

/* memory_limit(bytes): 0 for none */
static int memory_limit(lua_State *L)
{
    gm_device *dev;
    int64_t    bytes = gm_check_integer(L, 1);
    gm_check_argument(L, bytes >= 0, 1, "a limit is not negative");
    L_TRY(L, gm_rank_device(gm_lua_rank(L), &dev));
    gm_pool_set_limit(dev->pool, (size_t)bytes);
    return 0;
}

static int memory_reset_peak(lua_State *L)
{
    gm_device *dev;
    L_TRY(L, gm_rank_device(gm_lua_rank(L), &dev));
    gm_pool_reset_peak(dev->pool);
    return 0;
}

static int set_seed(lua_State *L)
{
    gm_lua_rank(L)->seed = (uint64_t)gm_check_integer(L, 1);
    return 0;
}

static int seed(lua_State *L)
{
    lua_pushnumber(L, (lua_Number)gm_lua_rank(L)->seed);
    return 1;
}

/* set_rng_step(n): the step coordinate of random streams; n optimizer steps are done */
static int set_rng_step(lua_State *L)
{
    gm_device *dev;
    L_TRY(L, gm_rank_device(gm_lua_rank(L), &dev));
    dev->step.rng_step = (uint64_t)gm_check_integer(L, 1);
    if (gm_link_note()) gm_link_note()->step = (int64_t)dev->step.rng_step;
    return 0;
}

/* set_batch(offset, count): the micro-batch holds samples offset .. offset + count - 1 of the step's batch */
static int set_batch(lua_State *L)
{
    gm_rank *r = gm_lua_rank(L);
    int64_t  offset = gm_check_integer(L, 1), count = gm_check_integer(L, 2);
    gm_check_argument(L, offset >= 0, 1, "an offset is not negative");
    gm_check_argument(L, count >= 0, 2, "a count is not negative");
    r->batch_offset = offset;
    r->batch_count = count;
    return 0;
}

static int begin_step(lua_State *L)
{
    gm_rank_begin_step(gm_lua_rank(L));
    return 0;
}

/* set_path(module path) -> the path before */
static int set_path(lua_State *L)
{
    gm_rank    *r = gm_lua_rank(L);
    const char *path = luaL_checkstring(L, 1);
    lua_pushstring(L, r->path);
    L_TRY(L, gm_rank_set_path(r, path));
    return 1;
}

/* counters() -> { flops, product_flops, bytes, calls } of all ops run so far, and by_op = { name = { ... } } */
static int counters(lua_State *L)
{
    gm_device *dev;
    double     flops = 0, products = 0, bytes = 0, calls = 0;
    L_TRY(L, gm_rank_device(gm_lua_rank(L), &dev));
    lua_createtable(L, 0, 5);
    lua_newtable(L);
    for (int i = 0; i < GM_OP_COUNT; i++) {
        gm_op_counter *c = &dev->counters[i];
        if (!c->calls) continue;
        flops += c->flops;
        products += c->products;
        bytes += c->bytes;
        calls += (double)c->calls;
        lua_createtable(L, 0, 4);
        gm_set_number(L, "flops", c->flops);
        gm_set_number(L, "product_flops", c->products);
        gm_set_number(L, "bytes", c->bytes);
        gm_set_number(L, "calls", (double)c->calls);
        lua_setfield(L, -2, gm_op_name((gm_op)i));
    }
    lua_setfield(L, -2, "by_op");
    gm_set_number(L, "flops", flops);
    gm_set_number(L, "product_flops", products);
    gm_set_number(L, "bytes", bytes);
    gm_set_number(L, "calls", calls);
    return 1;
}

/* device_counts() -> what this process asked of its GPUs (gm_device_counts); nil where nothing is queued */
static int device_counts(lua_State *L)
{
    gm_device       *dev;
    gm_device_counts c;
    L_TRY(L, gm_rank_device(gm_lua_rank(L), &dev));
    if (!gm_device_count(dev, &c)) return 0;
    lua_createtable(L, 0, 6);
    gm_set_number(L, "launches", (double)c.launches);
    gm_set_number(L, "libraries", (double)c.libraries);
    gm_set_number(L, "graphs", (double)c.graphs);
    gm_set_number(L, "copies", (double)c.copies);
    gm_set_number(L, "waits", (double)c.waits);
    gm_set_number(L, "allocations", (double)c.allocations);
    return 1;
}

/* device_note() -> what a kernel chose for the user, each text once; nil: nothing more (gm_device_note) */
static int device_note(lua_State *L)
{
    gm_device *dev;
    char       text[320];
    L_TRY(L, gm_rank_device(gm_lua_rank(L), &dev));
    if (!gm_device_next_note(dev, text, sizeof text)) return 0;
    lua_pushstring(L, text);
    return 1;
}

/* synchronize(): everything that was queued for the device is done */
static int synchronize(lua_State *L)
{
    gm_device *dev;
    L_TRY(L, gm_rank_device(gm_lua_rank(L), &dev));
    L_TRY(L, gm_device_synchronize(dev));
    return 0;
}

/* profile_start(): every call of an op is timed from here on (profile.h) */
static int profile_start(lua_State *L)
{
    gm_device *dev;
    L_TRY(L, gm_rank_device(gm_lua_rank(L), &dev));
    L_TRY(L, gm_profile_start(dev));
    return 0;
}

/* profile_stop() -> list of { op, about, path (of the module), calls, seconds, flops, bytes }, those that took longest
 * first; waits */
static int profile_stop(lua_State *L)
{
    gm_device             *dev;
    const gm_profile_line *line;
    int                    n;
    L_TRY(L, gm_rank_device(gm_lua_rank(L), &dev));
    L_TRY(L, gm_profile_stop(dev));
    gm_profile_lines(dev, &line, &n);
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        lua_createtable(L, 0, 6);
        lua_pushstring(L, gm_op_name(line[i].op));
        lua_setfield(L, -2, "op");
        lua_pushstring(L, line[i].about);
        lua_setfield(L, -2, "about");
        gm_set_text(L, "path", line[i].path);
        gm_set_number(L, "calls", (double)line[i].calls);
        gm_set_number(L, "seconds", line[i].seconds);
        gm_set_number(L, "flops", line[i].flops);
        gm_set_number(L, "bytes", line[i].bytes);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static int clock_seconds(lua_State *L, clockid_t id)
{
    lua_pushnumber(L, gm_clock(id));
    return 1;
}

static int now(lua_State *L) { return clock_seconds(L, CLOCK_MONOTONIC); }
static int wall(lua_State *L) { return clock_seconds(L, CLOCK_REALTIME); }

int gm_open_rank(lua_State *L)
{
    static const gm_declaration functions[] = {GM_FUNCTION("use_device", use_device, "about table"),
                                               GM_FUNCTION("device", device, ""),
                                               GM_FUNCTION("set_tf32", set_tf32, "wanted boolean"),
                                               GM_FUNCTION("set_deterministic", set_deterministic, "wanted boolean"),
                                               GM_FUNCTION("detect_anomaly", detect_anomaly, "on boolean?"),
                                               GM_FUNCTION("cuda_facts", cuda_facts, ""),
                                               GM_FUNCTION("rank", rank, ""),
                                               GM_FUNCTION("world", world, ""),
                                               GM_PUBLIC(memory, memory, ""),
                                               GM_PUBLIC(memory_holders, memory_holders, "n integer?"),
                                               GM_FUNCTION("memory_peaks", memory_peaks, "n integer?"),
                                               GM_PUBLIC(memory_limit, memory_limit, "bytes integer"),
                                               GM_PUBLIC(memory_reset_peak, memory_reset_peak, ""),
                                               GM_FUNCTION("set_seed", set_seed, "seed integer"),
                                               GM_FUNCTION("seed", seed, ""),
                                               GM_FUNCTION("set_rng_step", set_rng_step, "n integer"),
                                               GM_FUNCTION("set_batch", set_batch, "offset integer, count integer"),
                                               GM_FUNCTION("begin_step", begin_step, ""),
                                               GM_FUNCTION("set_path", set_path, "path string"),
                                               GM_FUNCTION("counters", counters, ""),
                                               GM_FUNCTION("device_counts", device_counts, ""),
                                               GM_FUNCTION("device_note", device_note, ""),
                                               GM_FUNCTION("synchronize", synchronize, ""),
                                               GM_FUNCTION("profile_start", profile_start, ""),
                                               GM_FUNCTION("profile_stop", profile_stop, ""),
                                               GM_FUNCTION("now", now, ""),
                                               GM_FUNCTION("wall", wall, ""),
                                               GM_LAST_FUNCTION};
    gm_declare(L, functions);
    return 0;
}
