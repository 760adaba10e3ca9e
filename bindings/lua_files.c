/* lua_files.c - the Lua face of host/files/{lock,append,tree}.h: userdata "gm.lock" and "gm.append", checksums. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../host/files/append.h"
#include "../host/files/files.h"
#include "../host/files/lock.h"
#include "../host/files/tree.h"
#include "../host/tier/trial.h"
#include "gm_lua.h"

#define LOCK   "gm.lock"
#define APPEND "gm.append"

typedef struct lock_box {
    gm_lock lock;
} lock_box;
typedef struct append_box {
    int   fd;
    char *path;
} append_box;

/* ---- locks ---- */

static int lock_close(lua_State *L)
{
    lock_box *b = gm_check_object(L, 1, LOCK);
    if (b->lock.fd >= 0) close(b->lock.fd);
    b->lock.fd = -1;
    return 0;
}

/* lock_take(path, about, seconds) -> lock, does the system keep it?; or nil, what its holder wrote or what is wrong,
 * kind ("invalid": there is a holder) */
static int lock_take(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1), *about = luaL_checkstring(L, 2);
    double      seconds = luaL_checknumber(L, 3);
    lock_box   *b = lua_newuserdata(L, sizeof *b);
    b->lock.fd = -1;
    luaL_getmetatable(L, LOCK);
    lua_setmetatable(L, -2);
    L_OR_NIL(L, gm_lock_take(path, about, seconds, &b->lock));
    lua_pushboolean(L, b->lock.held);
    return 2;
}

/* ---- files that grow ---- */

static int append_close(lua_State *L)
{
    append_box *b = gm_check_object(L, 1, APPEND);
    if (b->fd >= 0) close(b->fd);
    free(b->path);
    *b = (append_box){.fd = -1};
    return 0;
}

/* append_open(path) -> file */
static int append_open(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    append_box *b = lua_newuserdata(L, sizeof *b);
    *b = (append_box){.fd = -1};
    luaL_getmetatable(L, APPEND);
    lua_setmetatable(L, -2);
    if (!(b->path = strdup(path))) return luaL_error(L, "no memory for a path");
    L_TRY(L, gm_append_open(path, &b->fd));
    return 1;
}

/* file:write(text) -> true; or nil and why none of it is there */
static int append_write(lua_State *L)
{
    size_t      n;
    append_box *b = gm_check_object(L, 1, APPEND);
    const char *text = luaL_checklstring(L, 2, &n);
    gm_check_argument(L, b->fd >= 0, 1, "this file was closed");
    L_OR_NIL(L, gm_append(b->fd, b->path, text, n));
    lua_pushboolean(L, 1);
    return 1;
}

/* ---- the rest ---- */

/* check_writable(path): could write_whole do so now? -> true; or nil and why not */
static int check_writable(lua_State *L)
{
    L_OR_NIL(L, gm_check_writable(luaL_checkstring(L, 1)));
    lua_pushboolean(L, 1);
    return 1;
}

/* is_file(path): is it a plain file, or a link to one? Opens nothing, so that a fifo makes nobody wait. */
static int is_file(lua_State *L)
{
    struct stat s;
    lua_pushboolean(L, !stat(luaL_checkstring(L, 1), &s) && S_ISREG(s.st_mode));
    return 1;
}

/* tree_checksum(folder, ending), file_checksum(path) -> text */
static int push_checksum(lua_State *L, gm_status st, uint32_t sum)
{
    char text[12];
    if (st != GM_OK) return gm_raise(L, st);
    snprintf(text, sizeof text, "%08x", sum);
    lua_pushstring(L, text);
    return 1;
}

static int tree_checksum(lua_State *L)
{
    uint32_t  sum = 0;
    gm_status st = gm_tree_checksum(luaL_checkstring(L, 1), luaL_checkstring(L, 2), &sum);
    return push_checksum(L, st, sum);
}

static int file_checksum(lua_State *L)
{
    uint32_t  sum = 0;
    gm_status st = gm_file_checksum(luaL_checkstring(L, 1), &sum);
    return push_checksum(L, st, sum);
}

/* output_told() -> true; or nil and why what was printed has not all arrived. A reader that has gone away (| head) has
 * had enough. */
static int output_told(lua_State *L)
{
    struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};
    errno = 0;
    bool failed = fflush(stdout) || ferror(stdout);
    if (!failed || errno == EPIPE || (poll(&p, 1, 0) == 1 && p.revents & POLLERR)) {
        lua_pushboolean(L, 1);
        return 1;
    }
    lua_pushnil(L);
    lua_pushstring(L, errno ? strerror(errno) : "an earlier write failed");
    return 2;
}

/* disk_speed(folder, bytes) -> bytes a second written, read, and moved while one half is read and the other written */
static int disk_speed(lua_State *L)
{
    gm_disk_speed    s;
    gm_disk_settings set = {.folder = luaL_checkstring(L, 1)};
    int64_t          bytes = gm_check_integer(L, 2);
    gm_check_argument(L, bytes > 0, 2, "a number of bytes above 0");
    L_TRY(L, gm_disk_measure(&set, (uint64_t)bytes, &s));
    lua_pushnumber(L, s.write);
    lua_pushnumber(L, s.read);
    lua_pushnumber(L, s.both);
    return 3;
}

int gm_open_files(lua_State *L)
{
    static const gm_declaration lock_methods[] = {GM_FUNCTION("close", lock_close, "lock object"), GM_LAST_FUNCTION};
    static const gm_declaration append_methods[] = {GM_FUNCTION("write", append_write, "file object, text string"),
                                                    GM_FUNCTION("close", append_close, "file object"),
                                                    GM_LAST_FUNCTION};
    static const gm_declaration functions[] = {
        GM_FUNCTION("lock_take", lock_take, "path string, about string, seconds number"),
        GM_FUNCTION("append_open", append_open, "path string"),
        GM_FUNCTION("check_writable", check_writable, "path string"),
        GM_FUNCTION("is_file", is_file, "path string"),
        GM_FUNCTION("tree_checksum", tree_checksum, "folder string, ending string"),
        GM_FUNCTION("file_checksum", file_checksum, "path string"),
        GM_FUNCTION("output_told", output_told, ""),
        GM_FUNCTION("disk_speed", disk_speed, "folder string, bytes integer"),
        GM_LAST_FUNCTION};
    gm_new_class(L, LOCK, lock_methods, lock_close);
    gm_new_class(L, APPEND, append_methods, append_close);
    gm_declare(L, functions);
    return 0;
}
