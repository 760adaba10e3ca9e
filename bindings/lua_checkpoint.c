/* lua_checkpoint.c - the Lua face of host/checkpoint: userdata "gm.checkpoint" and "gm.checkpoint.save".
 *
 * A checkpoint that is made of a file of others (adopt.h) is userdata "gm.checkpoint.adopt".
 * What is wrong with files is returned, not raised: nil, message, kind ("corrupt", "io", "invalid",
 * "memory"); lua/ganymede/checkpoint/init.lua decides on the exit status. */
#include <stdlib.h>
#include <string.h>

#include "gm_lua.h"

#include "../host/checkpoint/adopt.h"
#include "../host/checkpoint/checkpoint.h"
#include "../host/checkpoint/steps.h"

#define CHECKPOINT "gm.checkpoint"
#define SAVE       CHECKPOINT ".save"
#define ADOPT      CHECKPOINT ".adopt"

typedef struct box {
    gm_checkpoint *checkpoint;
} box; /* NULL once closed */
typedef struct save_box {
    gm_save *save;
} save_box; /* NULL once freed */
typedef struct adopt_box {
    gm_adopt *adopt;
} adopt_box; /* NULL once freed */
typedef struct text_box {
    char    *path; /* or other bytes */
    int64_t *steps;
} text_box; /* what C allocated, for the collector */

static int text_gc(lua_State *L)
{
    text_box *b = lua_touserdata(L, 1);
    free(b->path);
    free(b->steps);
    *b = (text_box){0};
    return 0;
}

static text_box *push_text(lua_State *L)
{
    text_box *b = lua_newuserdata(L, sizeof *b);
    *b = (text_box){0};
    luaL_getmetatable(L, CHECKPOINT ".text");
    lua_setmetatable(L, -2);
    return b;
}

static gm_checkpoint *check(lua_State *L)
{
    box *b = gm_check_object(L, 1, CHECKPOINT);
    if (!b->checkpoint) gm_bad_argument(L, 1, "this checkpoint was closed");
    return b->checkpoint;
}

/* ---- saving ---- */

static gm_save *check_save(lua_State *L)
{
    save_box *b = gm_check_object(L, 1, SAVE);
    if (!b->save) gm_bad_argument(L, 1, "this save is over");
    return b->save;
}

/* What this rank holds of v: its block, or its part of a parameter that rests in parts. */
static gm_piece piece_of(lua_State *L, const char *name, gm_value *v)
{
    gm_layout  layout;
    gm_tensor *t;
    gm_status  st = gm_value_resting(v, &layout, &t);
    if (st != GM_OK) gm_raise(L, st);
    return gm_piece_of(name, t, &layout, v->shape);
}

/* Piece i of the lists of names and tensors, at these stack indices; both stay alive in their tables. */
static void read_piece(lua_State *L, int names, int tensors, int i, gm_piece *p)
{
    lua_rawgeti(L, names, i + 1);
    lua_rawgeti(L, tensors, i + 1);
    if (lua_type(L, -2) != LUA_TSTRING) luaL_error(L, "checkpoint: entry %d has no name", i + 1);
    if (!gm_test_handle(L, lua_gettop(L))) luaL_error(L, "checkpoint: '%s' is not a tensor", lua_tostring(L, -2));
    *p = piece_of(L, lua_tostring(L, -2), gm_check_value(L, lua_gettop(L)));
    lua_pop(L, 2);
}

/* All of them -> array of *n, on the stack. */
static gm_piece *read_pieces(lua_State *L, int names, int tensors, int *n)
{
    luaL_checktype(L, names, LUA_TTABLE);
    luaL_checktype(L, tensors, LUA_TTABLE);
    *n = (int)lua_objlen(L, names);
    gm_piece *pieces = lua_newuserdata(L, (size_t)*n * sizeof *pieces + 1);
    for (int i = 0; i < *n; i++) read_piece(L, names, tensors, i, &pieces[i]);
    return pieces;
}

/* The field `stages` of the table at 1, which stays on the stack; NULL: there is none. */
static const gm_stage_list *read_lists(lua_State *L, const gm_mesh *mesh)
{
    int axis = gm_mesh_axis(mesh, GM_AXIS_PIPELINE), n = axis < 0 ? 0 : mesh->axis[axis].size;
    lua_getfield(L, 1, "stages");
    if (lua_isnil(L, -1)) return NULL;
    if (lua_type(L, -1) != LUA_TTABLE || (int)lua_objlen(L, -1) != n)
        luaL_error(L, "checkpoint: stages must be %d lists, one a stage of the pipeline", n);
    gm_stage_list *lists = lua_newuserdata(L, (size_t)n * sizeof *lists + 1);
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, -2, i + 1);
        lists[i].bytes = luaL_checklstring(L, -1, &lists[i].size); /* the table keeps it */
        lua_pop(L, 1);
    }
    return lists;
}

static const char *text_field(lua_State *L, const char *name)
{
    lua_getfield(L, 1, name);
    if (lua_type(L, -1) != LUA_TSTRING) luaL_error(L, "checkpoint: %s must be a text", name);
    return lua_tostring(L, -1); /* stays on the stack */
}

/* What the run has set as its limit of memory bounds the copy too. */
static uint64_t snapshot_limit(lua_State *L, gm_rank *r)
{
    gm_device *dev;
    uint64_t   limit = (uint64_t)gm_field_number(L, 1, "snapshot_limit", 0);
    if (gm_rank_device(r, &dev) != GM_OK) return limit;
    gm_memory_stats s = gm_pool_stats(dev->pool);
    if (!s.limit) return limit;
    uint64_t left = s.limit > s.reserved ? s.limit - s.reserved : 1;
    return limit && limit < left ? limit : left;
}

/* checkpoint_pieces(names, tensors) -> what they are as bytes, for the other stages of the pipeline */
static int checkpoint_pieces(lua_State *L)
{
    int    n;
    size_t size;
    lua_settop(L, 2);
    text_box       *t = push_text(L);
    const gm_piece *pieces = read_pieces(L, 1, 2, &n);
    L_OR_NIL(L, gm_save_list(pieces, n, &t->path, &size));
    lua_pushlstring(L, t->path, size);
    return 1;
}

/* checkpoint_new{ folder, step, names, tensors, meta: JSON, keep_last: 0 keeps all, spared: a step that stays beside
 * these (-1: none), background, snapshot_limit, apart: the ranks share no folder, sharers: ranks that share the memory
 * for copies (0: all), stages: by place along the pipeline, what checkpoint_pieces gave there; nil: all ranks save the
 * same } -> save, of which nothing is written yet */
static int checkpoint_new(lua_State *L)
{
    int      n;
    gm_rank *r = gm_lua_rank(L);
    gm_mesh  mesh = gm_rank_mesh(r);
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    lua_getfield(L, 1, "names");
    lua_getfield(L, 1, "tensors");
    const gm_piece *pieces = read_pieces(L, 2, 3, &n);
    gm_save_as      as = {.folder = text_field(L, "folder"),
                          .step = (int64_t)gm_field_number(L, 1, "step", -1),
                          .pieces = pieces,
                          .n = n,
                          .lists = read_lists(L, &mesh),
                          .meta = text_field(L, "meta"),
                          .keep_last = (int)gm_field_number(L, 1, "keep_last", 0),
                          .spared = (int64_t)gm_field_number(L, 1, "spared", -1),
                          .rank = r->rank,
                          .mesh = &mesh,
                          .apart = gm_field_flag(L, 1, "apart"),
                          .sharers = (int)gm_field_number(L, 1, "sharers", 0),
                          .background = gm_field_flag(L, 1, "background"),
                          .snapshot_limit = snapshot_limit(L, r)};
    save_box       *b = lua_newuserdata(L, sizeof *b);
    b->save = NULL;
    luaL_getmetatable(L, SAVE);
    lua_setmetatable(L, -2);
    L_OR_NIL(L, gm_save_new(&as, &b->save));
    return 1;
}

/* checkpoint_prepare(save) -> token; rank 0 alone */
static int checkpoint_prepare(lua_State *L)
{
    char token[GM_SAVE_TOKEN];
    L_OR_NIL(L, gm_save_prepare(check_save(L), token));
    lua_pushstring(L, token);
    return 1;
}

/* checkpoint_start(save, token) -> path, is it written in the background? */
static int checkpoint_start(lua_State *L)
{
    gm_save    *s = check_save(L);
    const char *token = luaL_checkstring(L, 2);
    L_OR_NIL(L, gm_save_start(s, token));
    lua_pushstring(L, gm_save_path(s));
    lua_pushboolean(L, gm_save_in_background(s));
    return 2;
}

/* checkpoint_wait(save, "written"|"done", seconds) -> was that reached in time? */
static int checkpoint_wait(lua_State *L)
{
    static const char *const names[] = {"written", "done", NULL};
    gm_save                 *s = check_save(L);
    gm_save_state            until = gm_check_option(L, 2, NULL, names) ? GM_SAVE_DONE : GM_SAVE_WRITTEN;
    double                   seconds = luaL_checknumber(L, 3);
    gm_check_argument(L, seconds >= 0, 3, "seconds are not negative");
    lua_pushboolean(L, gm_save_wait(s, until, seconds) >= until);
    return 1;
}

/* checkpoint_part(save): how this rank's own part went, once written -> true */
static int checkpoint_part(lua_State *L)
{
    L_OR_NIL(L, gm_save_part(check_save(L)));
    lua_pushboolean(L, 1);
    return 1;
}

/* checkpoint_result(save): once done, on rank 0: how all of it went -> path */
static int checkpoint_result(lua_State *L)
{
    gm_save *s = check_save(L);
    L_OR_NIL(L, gm_save_result(s));
    lua_pushstring(L, gm_save_path(s));
    return 1;
}

/* checkpoint_all_written(save): rank 0, when all ranks have written their parts */
static int checkpoint_all_written(lua_State *L)
{
    gm_save_all_written(check_save(L));
    return 0;
}

/* checkpoint_give_up(save, why): rank 0, when all others have stopped writing and some of them failed */
static int checkpoint_give_up(lua_State *L)
{
    gm_save_give_up(check_save(L), luaL_checkstring(L, 2));
    return 0;
}

/* checkpoint_free(save): stops what is under way */
static int checkpoint_free(lua_State *L)
{
    save_box *b = gm_check_object(L, 1, SAVE);
    gm_save_free(b->save);
    b->save = NULL;
    return 0;
}

/* Reached when a stop came before a save was started, and when the program ends, since ganymede.checkpoint holds what
 * is under way: a rank that is alone completes what it began; one of several cannot, its peers may be gone. */
static int save_gc(lua_State *L)
{
    save_box *b = gm_check_object(L, 1, SAVE);
    if (b->save && gm_save_is_started(b->save) && gm_lua_rank(L)->world == 1) gm_save_wait(b->save, GM_SAVE_DONE, -1);
    return checkpoint_free(L);
}

/* ---- adopting ---- */

static gm_adopt *check_adopt(lua_State *L)
{
    adopt_box *b = gm_check_object(L, 1, ADOPT);
    if (!b->adopt) gm_bad_argument(L, 1, "this checkpoint is finished");
    return b->adopt;
}

/* checkpoint_adopt(folder, step) -> object, the safetensors file to write; one process alone */
static int checkpoint_adopt(lua_State *L)
{
    const char *folder = luaL_checkstring(L, 1);
    int64_t     step = gm_check_integer(L, 2);
    adopt_box  *b = lua_newuserdata(L, sizeof *b);
    gm_check_argument(L, step >= 0, 2, "a step from 0 on");
    b->adopt = NULL;
    luaL_getmetatable(L, ADOPT);
    lua_setmetatable(L, -2);
    L_OR_NIL(L, gm_adopt_begin(folder, step, &b->adopt));
    lua_pushstring(L, gm_adopt_file(b->adopt));
    return 2;
}

/* checkpoint_adopt_finish(object, meta: JSON) -> path of the checkpoint */
static int checkpoint_adopt_finish(lua_State *L)
{
    gm_adopt *a = check_adopt(L);
    L_OR_NIL(L, gm_adopt_finish(a, luaL_checkstring(L, 2)));
    lua_pushstring(L, gm_adopt_path(a));
    return 1;
}

/* checkpoint_adopt_free(object): nothing is left of one that was not finished */
static int checkpoint_adopt_free(lua_State *L)
{
    adopt_box *b = gm_check_object(L, 1, ADOPT);
    gm_adopt_free(b->adopt);
    b->adopt = NULL;
    return 0;
}

/* ---- reading ---- */

/* checkpoint_list(folder) -> list of steps, list of paths; ascending */
static int checkpoint_list(lua_State *L)
{
    int         n;
    const char *folder = luaL_checkstring(L, 1);
    text_box   *t = push_text(L);
    L_OR_NIL(L, gm_steps_list(folder, &t->steps, &n));
    lua_createtable(L, n, 0);
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        lua_pushnumber(L, (lua_Number)t->steps[i]);
        lua_rawseti(L, -3, i + 1);
        free(t->path);
        t->path = gm_steps_path(folder, t->steps[i], "");
        if (!t->path) return luaL_error(L, "checkpoint: no memory for a path");
        lua_pushstring(L, t->path);
        lua_rawseti(L, -2, i + 1);
    }
    return 2;
}

/* checkpoint_open(path, part, parts) -> checkpoint, of which this share is verified; part counts from 0 */
static int checkpoint_open(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    int         part = (int)luaL_checkinteger(L, 2), parts = (int)luaL_checkinteger(L, 3);
    gm_check_argument(L, parts > 0 && part >= 0 && part < parts, 2, "a part from 0 to parts - 1");
    box *b = lua_newuserdata(L, sizeof *b);
    *b = (box){0};
    luaL_getmetatable(L, CHECKPOINT);
    lua_setmetatable(L, -2);
    L_OR_NIL(L, gm_checkpoint_open(path, part, parts, &b->checkpoint));
    return 1;
}

/* checkpoint_open_partly(path) -> checkpoint of which files may be missing here; checksums of data are not verified */
static int checkpoint_open_partly(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    box        *b = lua_newuserdata(L, sizeof *b);
    *b = (box){0};
    luaL_getmetatable(L, CHECKPOINT);
    lua_setmetatable(L, -2);
    L_OR_NIL(L, gm_checkpoint_open_partly(path, &b->checkpoint));
    return 1;
}

/* checkpoint_files(c, names, tensors) -> set of the ranks whose files these tensors are read from */
static int checkpoint_files(lua_State *L)
{
    int                  n;
    gm_rank             *r = gm_lua_rank(L);
    gm_mesh              mesh = gm_rank_mesh(r);
    const gm_checkpoint *c = check(L);
    lua_settop(L, 3);
    const gm_piece *pieces = read_pieces(L, 2, 3, &n);
    int             world = gm_checkpoint_world(c);
    bool           *needed = lua_newuserdata(L, (size_t)world * sizeof *needed);
    memset(needed, 0, (size_t)world * sizeof *needed);
    for (int i = 0; i < n; i++) L_OR_NIL(L, gm_checkpoint_files(c, &mesh, r->rank, &pieces[i], needed));
    lua_newtable(L);
    for (int i = 0; i < world; i++) {
        if (!needed[i]) continue;
        lua_pushboolean(L, 1);
        lua_rawseti(L, -2, i);
    }
    return 1;
}

static int checkpoint_close(lua_State *L)
{
    box *b = gm_check_object(L, 1, CHECKPOINT);
    gm_checkpoint_close(b->checkpoint);
    b->checkpoint = NULL;
    return 0;
}

/* checkpoint_meta(c) -> JSON, number of ranks that saved it */
static int checkpoint_meta(lua_State *L)
{
    lua_pushstring(L, gm_checkpoint_meta(check(L)));
    lua_pushinteger(L, gm_checkpoint_world(check(L)));
    return 2;
}

/* checkpoint_names(c) -> list, sorted */
static int checkpoint_names(lua_State *L)
{
    const gm_checkpoint *c = check(L);
    int                  n = gm_checkpoint_count(c);
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        lua_pushstring(L, gm_checkpoint_at(c, i).name);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* checkpoint_info(c, name) -> { name, dtype, shape, bytes, boxes }, or nil */
static int checkpoint_info(lua_State *L)
{
    const gm_checkpoint *c = check(L);
    int                  i = gm_checkpoint_find(c, luaL_checkstring(L, 2));
    if (i < 0) return 0;
    gm_stored s = gm_checkpoint_at(c, i);
    lua_createtable(L, 0, 5);
    lua_pushstring(L, s.name);
    lua_setfield(L, -2, "name");
    lua_pushstring(L, gm_dtype_name(s.dtype));
    lua_setfield(L, -2, "dtype");
    lua_pushnumber(L, (lua_Number)s.bytes);
    lua_setfield(L, -2, "bytes");
    lua_pushinteger(L, s.boxes);
    lua_setfield(L, -2, "boxes");
    lua_createtable(L, s.ndim, 0);
    for (int d = 0; d < s.ndim; d++) {
        lua_pushnumber(L, (lua_Number)s.shape[d]);
        lua_rawseti(L, -2, d + 1);
    }
    lua_setfield(L, -2, "shape");
    return 1;
}

/* checkpoint_read(c, name, tensor, cast, offset: list of positions from 0, or nil for the whole) -> true */
static int checkpoint_read(lua_State *L)
{
    int64_t              offset[GM_MAX_DIMS];
    gm_rank             *r = gm_lua_rank(L);
    gm_mesh              mesh = gm_rank_mesh(r);
    const gm_checkpoint *c = check(L);
    const char          *name = luaL_checkstring(L, 2);
    gm_value            *v = gm_check_value(L, 3);
    bool                 part = !lua_isnoneornil(L, 5);
    if (part && gm_check_shape(L, 5, offset) != v->ndim) return gm_bad_argument(L, 5, "one offset a dimension");
    L_TRY(L, gm_value_resting_changes(v));
    gm_piece to = piece_of(L, name, v);
    L_OR_NIL(L, gm_checkpoint_read(c, &mesh, r->rank, &to, part ? offset : NULL, lua_toboolean(L, 4)));
    lua_pushboolean(L, 1);
    return 1;
}

int gm_open_checkpoint(lua_State *L)
{
    static const gm_declaration fns[] = {
        GM_FUNCTION("checkpoint_pieces", checkpoint_pieces, "names table, tensors table"),
        GM_FUNCTION("checkpoint_new", checkpoint_new, "parts table"),
        GM_FUNCTION("checkpoint_prepare", checkpoint_prepare, "save object"),
        GM_FUNCTION("checkpoint_start", checkpoint_start, "save object, token string"),
        GM_FUNCTION("checkpoint_wait", checkpoint_wait, "save object, stage string, seconds number"),
        GM_FUNCTION("checkpoint_part", checkpoint_part, "save object"),
        GM_FUNCTION("checkpoint_result", checkpoint_result, "save object"),
        GM_FUNCTION("checkpoint_all_written", checkpoint_all_written, "save object"),
        GM_FUNCTION("checkpoint_give_up", checkpoint_give_up, "save object, why string"),
        GM_FUNCTION("checkpoint_free", checkpoint_free, "save object"),
        GM_FUNCTION("checkpoint_adopt", checkpoint_adopt, "folder string, step integer"),
        GM_FUNCTION("checkpoint_adopt_finish", checkpoint_adopt_finish, "adopt object, meta string"),
        GM_FUNCTION("checkpoint_adopt_free", checkpoint_adopt_free, "adopt object"),
        GM_FUNCTION("checkpoint_list", checkpoint_list, "folder string"),
        GM_FUNCTION("checkpoint_open", checkpoint_open, "path string, part integer, parts integer"),
        GM_FUNCTION("checkpoint_open_partly", checkpoint_open_partly, "path string"),
        GM_FUNCTION("checkpoint_files", checkpoint_files, "checkpoint object, names table, tensors table"),
        GM_FUNCTION("checkpoint_close", checkpoint_close, "checkpoint object"),
        GM_FUNCTION("checkpoint_meta", checkpoint_meta, "checkpoint object"),
        GM_FUNCTION("checkpoint_names", checkpoint_names, "checkpoint object"),
        GM_FUNCTION("checkpoint_info", checkpoint_info, "checkpoint object, name string"),
        GM_FUNCTION("checkpoint_read", checkpoint_read,
                    "checkpoint object, name string, t tensor, cast boolean?, offset table?"),
        GM_LAST_FUNCTION};
    luaL_newmetatable(L, CHECKPOINT);
    lua_pushcfunction(L, checkpoint_close);
    lua_setfield(L, -2, "__gc");
    luaL_newmetatable(L, SAVE);
    lua_pushcfunction(L, save_gc);
    lua_setfield(L, -2, "__gc");
    luaL_newmetatable(L, ADOPT);
    lua_pushcfunction(L, checkpoint_adopt_free);
    lua_setfield(L, -2, "__gc");
    luaL_newmetatable(L, CHECKPOINT ".text");
    lua_pushcfunction(L, text_gc);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 4);
    gm_declare(L, fns);
    return 0;
}
