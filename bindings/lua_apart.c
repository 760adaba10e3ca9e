/* lua_apart.c - the Lua face of host/checkpoint/apart.h: parts of checkpoints that lie in the memory of machines.
 *
 * What is wrong with files is returned, not raised: nil, message, kind, as in lua_checkpoint.c. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../host/checkpoint/apart.h"
#include "../host/files/files.h"
#include "../host/job/folder.h"
#include "gm_lua.h"

/* apart_look(folder, rank, data) -> { world, token, digest, bytes } of that rank's part; data: verify its checksums */
static int apart_look(lua_State *L)
{
    gm_apart    a;
    const char *folder = luaL_checkstring(L, 1);
    int64_t     rank = gm_check_integer(L, 2);
    gm_check_argument(L, rank >= 0 && rank < 1 << 20, 2, "the number of a rank");
    L_OR_NIL(L, gm_apart_look(folder, (int)rank, lua_toboolean(L, 3), &a));
    lua_createtable(L, 0, 4);
    gm_set_number(L, "world", a.world);
    gm_set_number(L, "bytes", (double)a.bytes);
    gm_set_text(L, "token", a.token);
    gm_set_text(L, "digest", a.digest);
    return 1;
}

/* apart_join(folder, world) -> true: the folder has an index.json of the parts of so many ranks */
static int apart_join(lua_State *L)
{
    const char *folder = luaL_checkstring(L, 1);
    int64_t     world = gm_check_integer(L, 2);
    gm_check_argument(L, world > 0 && world <= 1 << 20, 2, "a number of ranks");
    L_OR_NIL(L, gm_apart_join(folder, (int)world));
    lua_pushboolean(L, 1);
    return 1;
}

/* The device whose tensors are memory of the host. */
static gm_status host_device(gm_rank *r, gm_device **out)
{
    GM_TRY(gm_rank_device(r, out));
    return (*out)->backend->on_host ? GM_OK : gm_rank_beside(r, out);
}

/* apart_file(path, bytes) -> the file as a tensor u8 (bytes) to be sent; with bytes: a new file of that size, to be
 * received. It is open as long as the tensor is used. */
static int apart_file(lua_State *L)
{
    gm_device  *dev;
    gm_tensor  *t = NULL;
    gm_value   *v;
    gm_rank    *r = gm_lua_rank(L);
    const char *path = luaL_checkstring(L, 1);
    bool        makes = !lua_isnoneornil(L, 2);
    int64_t     bytes = makes ? gm_check_integer(L, 2) : 0;
    gm_check_argument(L, bytes >= 0, 2, "a number of bytes");
    gm_handle *h = gm_push_handle(L);
    L_TRY(L, host_device(r, &dev));
    L_OR_NIL(L, makes ? gm_apart_receive(dev, path, (uint64_t)bytes, &t) : gm_apart_send(dev, path, &t));
    gm_status st = gm_value_take(r, t, &v);
    if (st != GM_OK) return gm_raise(L, st);
    gm_handle_fill(r, h, v, "apart_file");
    return 1;
}

/* apart_folder(path) -> true: the folder is there, ours alone (mode 0700); several ranks may make it at once */
static int apart_folder(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    if (mkdir(path, 0700) && errno != EEXIST) L_OR_NIL(L, GM_FAIL(GM_EIO, "cannot make %s: %s", path, strerror(errno)));
    if (!gm_job_folder_is_own(path)) L_OR_NIL(L, GM_FAIL(GM_EIO, "%s is not a folder of this user alone", path));
    lua_pushboolean(L, 1);
    return 1;
}

/* apart_remove(path): a folder with all that is in it; nothing where it is not there, or belongs to another user */
static int apart_remove(lua_State *L)
{
    struct stat s;
    const char *path = luaL_checkstring(L, 1);
    if (!lstat(path, &s) && S_ISDIR(s.st_mode) && s.st_uid == geteuid()) gm_remove_tree(path);
    return 0;
}

/* apart_link(from, to) -> true: `to` is another name of that file */
static int apart_link(lua_State *L)
{
    const char *from = luaL_checkstring(L, 1), *to = luaL_checkstring(L, 2);
    if (link(from, to)) L_OR_NIL(L, GM_FAIL(GM_EIO, "%s: cannot be linked: %s", from, strerror(errno)));
    lua_pushboolean(L, 1);
    return 1;
}

int gm_open_apart(lua_State *L)
{
    static const gm_declaration functions[] = {
        GM_FUNCTION("apart_look", apart_look, "folder string, rank integer, data boolean?"),
        GM_FUNCTION("apart_join", apart_join, "folder string, world integer"),
        GM_FUNCTION("apart_file", apart_file, "path string, bytes integer?"),
        GM_FUNCTION("apart_folder", apart_folder, "path string"),
        GM_FUNCTION("apart_remove", apart_remove, "path string"),
        GM_FUNCTION("apart_link", apart_link, "from string, to string"),
        GM_LAST_FUNCTION};
    gm_declare(L, functions);
    return 0;
}
