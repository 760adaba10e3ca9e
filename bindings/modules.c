/* modules.c - Lua files of the program that were compiled when it was built.
 *
 * A start reads some 110 Lua files. To parse them takes most of its time (docs/performance.md), so the build compiles
 * them into one archive beside the executable. The archive holds the text of each file besides. A module is taken from
 * it only when that text is still, byte for byte, what the file under <root>/lua holds. Any other file is parsed. So a
 * changed file takes effect at once, and the archive never has to be deleted. Only the LuaJIT that wrote it uses it.
 *
 * The archive: the line "ganymede modules 1 LUAJIT_VERSION", a line "PATH TEXT_BYTES CODE_BYTES" for each file in the
 * order of their paths, an empty line; then, in the same order, the text and the code of each (string.dump with the
 * chunk name "@PATH").
 * bindings/modules.lua writes it. */
#include <fcntl.h>
#include <limits.h>
#include <luajit.h>
#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "gm_lua.h"
#include "open.h"

/* A file that is mapped for reading. */
typedef struct {
    char  *bytes;
    size_t size;
} mapping;

/* The text and code of a file: pointers into the archive. */
typedef struct {
    const char *path, *text, *code;
    size_t      path_size, text_size, code_size;
} entry;

/* One process has one program: its archive stays mapped until the end. */
static mapping     archive;
static entry      *entries; /* in the order of their paths */
static int         n_entries;
static const char *folder; /* that holds lua/ */
static int         compiled;

static bool map_file(const char *path, mapping *m)
{
    struct stat about;
    int         fd = open(path, O_RDONLY | O_CLOEXEC);
    bool        ok = fd >= 0 && fstat(fd, &about) == 0 && about.st_size > 0;
    if (ok) {
        m->size = (size_t)about.st_size;
        m->bytes = mmap(NULL, m->size, PROT_READ, MAP_PRIVATE, fd, 0);
        ok = m->bytes != MAP_FAILED;
    }
    if (fd >= 0) close(fd);
    return ok;
}

/* Is it an archive, and of this LuaJIT? */
static bool is_ours(const mapping *m)
{
    static const char first[] = "ganymede modules 1 " LUAJIT_VERSION "\n";
    return m->size > sizeof first && memcmp(m->bytes, first, sizeof first - 1) == 0;
}

/* Lists what the archive holds; of one that is damaged nothing. */
static void list_entries(void)
{
    const char *end = archive.bytes + archive.size, *head_end = memmem(archive.bytes, archive.size, "\n\n", 2);
    const char *line = (const char *)memchr(archive.bytes, '\n', archive.size) + 1;
    const char *at = head_end ? head_end + 2 : end;
    int         room = 0;
    for (const char *c = line; head_end && c <= head_end; c++) room += *c == '\n';
    entries = calloc((size_t)room + 1, sizeof *entries);
    if (!entries) return;
    for (; n_entries < room; n_entries++) {
        char       *next;
        entry      *e = &entries[n_entries];
        const char *space = memchr(line, ' ', (size_t)(end - line));
        if (!space) break;
        e->path = line;
        e->path_size = (size_t)(space - line);
        e->text_size = strtoul(space, &next, 10);
        e->code_size = strtoul(next, &next, 10);
        if (*next != '\n' || e->text_size > (size_t)(end - at) || e->code_size > (size_t)(end - at) - e->text_size)
            break;
        e->text = at;
        e->code = at + e->text_size;
        at = e->code + e->code_size;
        line = next + 1;
    }
    if (n_entries < room || at != end) n_entries = 0;
}

static int compare_paths(const void *key, const void *of)
{
    const char  *path = key;
    const entry *e = of;
    int          order = strncmp(path, e->path, e->path_size);
    return order ? order : path[e->path_size] != 0;
}

static const entry *find_entry(const char *path)
{
    return bsearch(path, entries, (size_t)n_entries, sizeof *entries, compare_paths);
}

/* Does the file hold the text that was compiled? Reading in pieces takes a third of the time of mapping it. */
static bool is_current(const char *file, const entry *e)
{
    char    piece[16384];
    size_t  seen = 0;
    ssize_t n = 0;
    int     fd = open(file, O_RDONLY | O_CLOEXEC);
    bool    same = fd >= 0;
    while (same && (n = read(fd, piece, sizeof piece)) > 0) {
        same = seen + (size_t)n <= e->text_size && memcmp(piece, e->text + seen, (size_t)n) == 0;
        seen += (size_t)n;
    }
    if (fd >= 0) close(fd);
    return same && n == 0 && seen == e->text_size;
}

/* Compiled code in two pieces: the start, which holds the name of the file as messages say it, and what follows. */
typedef struct {
    char        start[PATH_MAX + 16];
    size_t      start_size, rest_size;
    const char *rest;
} code;

/* A number of LuaJIT's dumps: 7 bits a byte, the lowest first. */
static size_t put_number(char *to, size_t n)
{
    size_t size = 0;
    for (; n >= 128; n >>= 7) to[size++] = (char)((n & 127) | 128);
    to[size++] = (char)n;
    return size;
}

static size_t get_number(const char **at)
{
    size_t n = 0;
    for (int shift = 0;; shift += 7) {
        unsigned char byte = (unsigned char)*(*at)++;
        n |= (size_t)(byte & 127) << shift;
        if (byte < 128) return n;
    }
}

/* The head of a dump (lj_bcdump.h): ESC L J, the version, flags; then the length of the chunk's name, and the name. */
static void rename_code(const entry *e, const char *file, code *c)
{
    const char *at = e->code + 4;
    get_number(&at);
    size_t flags_end = (size_t)(at - e->code), name = get_number(&at), length = strlen(file) + 1;
    memcpy(c->start, e->code, flags_end);
    size_t n = flags_end + put_number(c->start + flags_end, length);
    c->start[n] = '@';
    memcpy(c->start + n + 1, file, length - 1);
    c->start_size = n + length;
    c->rest = at + name;
    c->rest_size = e->code_size - (size_t)(c->rest - e->code);
}

static const char *give_piece(lua_State *L, void *from, size_t *size)
{
    code       *c = from;
    const char *piece = c->start_size ? c->start : c->rest;
    (void)L;
    *size = c->start_size ? c->start_size : c->rest_size;
    if (c->start_size) {
        c->start_size = 0;
    } else {
        c->rest_size = 0;
    }
    return *size ? piece : NULL;
}

/* package.loaders: name -> loader, or nothing where package.path is to be searched. */
static int search(lua_State *L)
{
    const char              *name = luaL_checkstring(L, 1);
    static const char *const ends[] = {".lua", "/init.lua"};
    if (strncmp(name, "ganymede", 8) != 0) return 0;
    name = luaL_gsub(L, name, ".", "/");
    for (int i = 0; i < 2; i++) {
        char         path[PATH_MAX], file[PATH_MAX];
        const entry *e;
        code         c;
        if (snprintf(path, sizeof path, "%s%s", name, ends[i]) >= (int)sizeof path) return 0;
        if (snprintf(file, sizeof file, "%s/lua/%s", folder, path) >= (int)sizeof file) return 0;
        if (!(e = find_entry(path)) || !is_current(file, e)) continue;
        rename_code(e, file, &c);
        if (lua_load(L, give_piece, &c, file)) return lua_error(L);
        compiled++;
        return 1;
    }
    return 0;
}

void gm_add_module_searcher(lua_State *L, const char *root)
{
    char    path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - sizeof "/ganymede.modules");
    if (n < 0) return;
    path[n] = 0;
    strcpy(strrchr(path, '/'), "/ganymede.modules");
    if (!map_file(path, &archive) || !is_ours(&archive)) return;
    list_entries();
    folder = root;
    lua_getglobal(L, "package");
    lua_getfield(L, -1, "loaders");
    for (int i = (int)lua_objlen(L, -1); i >= 2; i--) {
        lua_rawgeti(L, -1, i);
        lua_rawseti(L, -2, i + 1);
    }
    lua_pushcfunction(L, search);
    lua_rawseti(L, -2, 2);
    lua_pop(L, 2);
}

/* modules_compiled() -> how many modules of this process came from the archive. */
static int modules_compiled(lua_State *L)
{
    lua_pushinteger(L, compiled);
    return 1;
}

int gm_open_modules(lua_State *L)
{
    static const gm_declaration functions[] = {
        GM_FUNCTION("modules_compiled", modules_compiled, ""),
        GM_LAST_FUNCTION,
    };
    gm_declare(L, functions);
    return 0;
}
