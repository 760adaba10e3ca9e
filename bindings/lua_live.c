/* lua_live.c - what other processes see of a running job and ask of it, and how they do: the private folder
 * (host/job/folder.h), the page of a rank (host/comm/page.h), requests (host/job/requests.h), a text over HTTP
 * (host/observe/text_server.h). */
#define _GNU_SOURCE
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../host/comm/page_copy.h"
#include "../host/job/folder.h"
#include "../host/job/link.h"
#include "../host/job/requests.h"
#include "../host/job/where.h"
#include "../host/observe/text_server.h"
#include "../kernels/clock.h"
#include "gm_lua.h"
#include "lua_comm.h"

#define FOLDER   "gm.folder"
#define PAGE     "gm.page"
#define REQUESTS "gm.requests"
#define ASKED    "gm.asked"
#define SERVER   "gm.text_server"
#define PAGES    (1 << 16) /* bytes for what one process shows there */

/* ---- the folder ---- */

/* job_folder() -> the private folder that the supervisor of this rank has made, or nil */
static int job_folder(lua_State *L)
{
    lua_pushstring(L, gm_link_folder());
    return 1;
}

/* folder_wanted() -> TMPDIR, if folders of jobs lie there; nil: they lie in /dev/shm, or in /tmp */
static int folder_wanted(lua_State *L)
{
    lua_pushstring(L, gm_job_folder_wanted());
    return 1;
}

/* folder_make(swept[, in memory]) -> folder: a private folder, which goes with it; swept: also where this process is
 * killed; in memory: in /dev/shm, whatever TMPDIR says */
static int folder_make(lua_State *L)
{
    const bool     swept = lua_toboolean(L, 1), in_memory = lua_toboolean(L, 2);
    gm_job_folder *f = lua_newuserdata(L, sizeof *f);
    *f = (gm_job_folder){0};
    luaL_getmetatable(L, FOLDER);
    lua_setmetatable(L, -2);
    L_TRY(L, in_memory ? gm_job_folder_make_in_memory(f, swept) : gm_job_folder_make(f, swept, PAGES));
    return 1;
}

static int folder_path(lua_State *L)
{
    lua_pushstring(L, ((gm_job_folder *)gm_check_object(L, 1, FOLDER))->path);
    return 1;
}

static int folder_close(lua_State *L)
{
    gm_job_folder_remove(gm_check_object(L, 1, FOLDER));
    return 0;
}

/* is_own_folder(path) -> is it a folder that belongs to this user, and that no other may enter? */
static int is_own_folder(lua_State *L)
{
    lua_pushboolean(L, gm_job_folder_is_own(luaL_checkstring(L, 1)));
    return 1;
}

/* real_path(path) -> the path from the root, without links; nil: there is nothing */
static int real_path(lua_State *L)
{
    char *path = realpath(luaL_checkstring(L, 1), NULL);
    lua_pushstring(L, path);
    free(path);
    return 1;
}

/* ---- the page of a rank ---- */

typedef struct page_box {
    gm_page      *page;
    gm_page_copy *copy; /* NULL: none */
} page_box;

/* page_make(path = nil: without a file) -> page: what this rank does is written into it from now on */
static int page_make(lua_State *L)
{
    const char *path = luaL_optstring(L, 1, NULL);
    page_box   *b = lua_newuserdata(L, sizeof *b);
    gm_rank    *r = gm_lua_rank(L);
    *b = (page_box){0};
    luaL_getmetatable(L, PAGE);
    lua_setmetatable(L, -2);
    L_TRY(L, gm_page_make(path, r->rank, r->world, &b->page));
    if (r->world > 1) gm_comm_set_page(gm_lua_comm(L), b->page);
    return 1;
}

/* page:step(step, samples, tokens): so many steps are made; samples and tokens of this process so far */
static int page_step(lua_State *L)
{
    page_box *b = gm_check_object(L, 1, PAGE);
    gm_rank  *r = gm_lua_rank(L);
    if (!b->page) return 0;
    gm_page_step totals = {gm_now(), luaL_checknumber(L, 3), luaL_checknumber(L, 4), 0};
    if (r->device) {
        gm_memory_stats m = gm_pool_stats(r->device->pool);
        gm_page_memory(b->page, m.live, m.peak, m.reserved);
    }
    gm_page_stepped(b->page, gm_check_integer(L, 2), totals);
    return 0;
}

/* page:copy(path): other machines see it there from now on (page_copy.h) */
static int page_copy(lua_State *L)
{
    page_box *b = gm_check_object(L, 1, PAGE);
    if (!b->page || b->copy) return luaL_error(L, "a page is copied to one place while it is open");
    L_TRY(L, gm_page_copy_start(b->page, luaL_checkstring(L, 2), &b->copy));
    return 0;
}

static int page_close(lua_State *L)
{
    page_box *b = gm_check_object(L, 1, PAGE);
    gm_rank  *r = gm_lua_rank(L);
    if (b->page && r && r->comm) gm_comm_set_page(r->comm, NULL);
    if (gm_page_copy_stop(b->copy)) gm_page_free(b->page); /* else a thread still reads it */
    *b = (page_box){0};
    return 0;
}

/* Adds a call to the table at the top of the stack: { text, seconds, peer, group, epoch, number, members }. */
static void set_call(lua_State *L, const char *name, const gm_page_call *call, double now)
{
    char text[640], key[64];
    if (call->record.call < 0) return;
    lua_createtable(L, 0, 7);
    gm_set_text(L, "text", gm_page_describe(call, text, sizeof text));
    gm_set_number(L, "seconds", now - call->since);
    snprintf(key, sizeof key, "%016llx.%llu", (unsigned long long)call->record.group,
             (unsigned long long)call->record.epoch);
    gm_set_text(L, "group", key);
    gm_set_number(L, "number", (double)call->record.number);
    if (call->peer >= 0) gm_set_number(L, "peer", call->peer);
    lua_createtable(L, GM_PAGE_MEMBERS, 0);
    for (int i = 0; i < call->size && i < GM_PAGE_MEMBERS && call->size <= GM_PAGE_MEMBERS; i++) {
        lua_pushinteger(L, call->member[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "members");
    lua_setfield(L, -2, name);
}

/* Adds the rates of the steps that the page has: { steps, samples, tokens, seconds between the first and the last,
 * waited: those of them in which the rank waited for others }. */
static void set_rate(lua_State *L, const gm_page *p, double now)
{
    uint64_t held = p->n_steps < GM_PAGE_STEPS ? p->n_steps : GM_PAGE_STEPS;
    if (!held) return;
    gm_page_step last = p->steps[(p->n_steps - 1) % GM_PAGE_STEPS];
    gm_page_step first = p->steps[(p->n_steps - held) % GM_PAGE_STEPS];
    gm_set_number(L, "since_step", now - last.ended);
    if (held < 2) return;
    lua_createtable(L, 0, 5);
    gm_set_number(L, "steps", (double)(held - 1));
    gm_set_number(L, "samples", last.samples - first.samples);
    gm_set_number(L, "tokens", last.tokens - first.tokens);
    gm_set_number(L, "seconds", last.ended - first.ended);
    gm_set_number(L, "waited", last.waited - first.waited);
    lua_setfield(L, -2, "lately");
}

/* page_read(path) -> { rank, world, pid, phase, age, step, since_step, lately, live, peak, reserved, waiting, last,
 * host }; of a copy from another machine also `silent`, the seconds since it was made; or nil, why, kind */
static int page_read(lua_State *L)
{
    gm_page *p = lua_newuserdata(L, sizeof *p);
    L_OR_NIL(L, gm_page_read(luaL_checkstring(L, 1), p));
    double silent = p->copied ? gm_clock(CLOCK_REALTIME) - p->copied_wall : 0;
    if (silent < 0) silent = 0; /* clocks of the wall differ a little */
    double now = p->copied ? p->copied + silent : gm_now();
    lua_createtable(L, 0, 14);
    gm_set_text(L, "host", p->host);
    if (p->copied) gm_set_number(L, "silent", silent);
    gm_set_number(L, "rank", p->rank);
    gm_set_number(L, "world", p->world);
    gm_set_number(L, "pid", p->pid);
    gm_set_text(L, "phase", gm_phase_name((gm_phase)p->phase));
    gm_set_number(L, "age", now - p->opened);
    if (p->step >= 0) gm_set_number(L, "step", (double)p->step);
    gm_set_number(L, "live", (double)p->live);
    gm_set_number(L, "peak", (double)p->peak);
    gm_set_number(L, "reserved", (double)p->reserved);
    set_rate(L, p, now);
    set_call(L, "waiting", &p->waiting, now);
    set_call(L, "last", &p->last, now);
    return 1;
}

/* process_is(pid) -> what the system says of a process: "process 4711 sleeps in futex_do_wait, after 0.31 s of ..." */
static int process_is(lua_State *L)
{
    char text[256];
    lua_pushstring(L, gm_where_is((pid_t)gm_check_integer(L, 1), text, sizeof text));
    return 1;
}

/* ---- requests ---- */

typedef struct requests_box {
    gm_requests *requests;
} requests_box;

/* requests_open(path) -> requests */
static int requests_open(lua_State *L)
{
    const char   *path = luaL_checkstring(L, 1);
    requests_box *b = lua_newuserdata(L, sizeof *b);
    b->requests = NULL;
    luaL_getmetatable(L, REQUESTS);
    lua_setmetatable(L, -2);
    L_TRY(L, gm_requests_open(path, &b->requests));
    return 1;
}

static gm_requests *check_requests(lua_State *L)
{
    requests_box *b = gm_check_object(L, 1, REQUESTS);
    if (!b->requests) gm_bad_argument(L, 1, "these requests were closed");
    return b->requests;
}

/* requests:look() -> how many wait */
static int requests_look(lua_State *L)
{
    lua_pushinteger(L, gm_requests_look(check_requests(L)));
    return 1;
}

/* requests:take() -> id, text; nil: none waits */
static int requests_take(lua_State *L)
{
    const char *text;
    size_t      n;
    int         id;
    if (!gm_requests_take(check_requests(L), &id, &text, &n)) return 0;
    lua_pushinteger(L, id);
    lua_pushlstring(L, text, n);
    return 2;
}

/* requests:answer(id, text) -> has the peer got it? */
static int requests_answer(lua_State *L)
{
    size_t      n;
    const char *text = luaL_checklstring(L, 3, &n);
    lua_pushboolean(L, gm_requests_answer(check_requests(L), (int)luaL_checkinteger(L, 2), text, n));
    return 1;
}

static int requests_close(lua_State *L)
{
    requests_box *b = gm_check_object(L, 1, REQUESTS);
    gm_requests_close(b->requests);
    b->requests = NULL;
    return 0;
}

typedef struct asked_box {
    int fd; /* -1: closed */
} asked_box;

/* request_connect(path) -> connection; or nil, why, kind: "io": nobody listens, "invalid": another user does */
static int request_connect(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    asked_box  *b = lua_newuserdata(L, sizeof *b);
    b->fd = -1;
    luaL_getmetatable(L, ASKED);
    lua_setmetatable(L, -2);
    L_OR_NIL(L, gm_request_connect(path, &b->fd));
    return 1;
}

/* connection:send(text) -> has it gone out? */
static int asked_send(lua_State *L)
{
    asked_box  *b = gm_check_object(L, 1, ASKED);
    size_t      n;
    const char *text = luaL_checklstring(L, 2, &n);
    lua_pushboolean(L, gm_request_send(b->fd, text, n));
    return 1;
}

/* connection:receive(seconds) -> the answer; nil and "gone", "late" or "interrupted" */
static int asked_receive(lua_State *L)
{
    asked_box *b = gm_check_object(L, 1, ASKED);
    char      *buf = lua_newuserdata(L, GM_REQUEST_ANSWER);
    long       n = gm_request_receive(b->fd, buf, GM_REQUEST_ANSWER, luaL_checknumber(L, 2));
    if (n > 0) {
        lua_pushlstring(L, buf, (size_t)n);
        return 1;
    }
    lua_pushnil(L);
    lua_pushstring(L, n == 0 ? "gone" : n == -1 ? "late" : "interrupted");
    return 2;
}

static int asked_close(lua_State *L)
{
    asked_box *b = gm_check_object(L, 1, ASKED);
    if (b->fd >= 0) close(b->fd);
    b->fd = -1;
    return 0;
}

/* ---- a text over HTTP ---- */

typedef struct server_box {
    gm_text_server *server;
} server_box;

/* text_server(port, path, type) -> server: on 127.0.0.1; port 0: any that is free */
static int text_server(lua_State *L)
{
    int         port = (int)gm_check_integer(L, 1);
    const char *path = luaL_checkstring(L, 2), *type = luaL_checkstring(L, 3);
    server_box *b = lua_newuserdata(L, sizeof *b);
    b->server = NULL;
    luaL_getmetatable(L, SERVER);
    lua_setmetatable(L, -2);
    gm_check_argument(L, port >= 0 && port <= 65535, 1, "a port is 0 to 65535");
    L_TRY(L, gm_text_server_open(port, path, type, &b->server));
    return 1;
}

static gm_text_server *check_server(lua_State *L)
{
    server_box *b = gm_check_object(L, 1, SERVER);
    if (!b->server) gm_bad_argument(L, 1, "this server was closed");
    return b->server;
}

static int server_port(lua_State *L)
{
    lua_pushinteger(L, gm_text_server_port(check_server(L)));
    return 1;
}

/* server:set(text): what it answers from now on */
static int server_set(lua_State *L)
{
    size_t      n;
    const char *text = luaL_checklstring(L, 2, &n);
    L_TRY(L, gm_text_server_set(check_server(L), text, n));
    return 0;
}

static int server_close(lua_State *L)
{
    server_box *b = gm_check_object(L, 1, SERVER);
    gm_text_server_close(b->server);
    b->server = NULL;
    return 0;
}

int gm_open_live(lua_State *L)
{
    static const gm_declaration folder[] = {GM_FUNCTION("path", folder_path, "folder object"),
                                            GM_FUNCTION("close", folder_close, "folder object"), GM_LAST_FUNCTION};
    static const gm_declaration page[] = {
        GM_FUNCTION("step", page_step, "page object, step integer, samples number, tokens number"),
        GM_FUNCTION("copy", page_copy, "page object, path string"), GM_FUNCTION("close", page_close, "page object"),
        GM_LAST_FUNCTION};
    static const gm_declaration requests[] = {
        GM_FUNCTION("look", requests_look, "requests object"), GM_FUNCTION("take", requests_take, "requests object"),
        GM_FUNCTION("answer", requests_answer, "requests object, id integer, text string"),
        GM_FUNCTION("close", requests_close, "requests object"), GM_LAST_FUNCTION};
    static const gm_declaration asked[] = {GM_FUNCTION("send", asked_send, "connection object, text string"),
                                           GM_FUNCTION("receive", asked_receive, "connection object, seconds number"),
                                           GM_FUNCTION("close", asked_close, "connection object"), GM_LAST_FUNCTION};
    static const gm_declaration server[] = {GM_FUNCTION("port", server_port, "server object"),
                                            GM_FUNCTION("set", server_set, "server object, text string"),
                                            GM_FUNCTION("close", server_close, "server object"), GM_LAST_FUNCTION};
    static const gm_declaration functions[] = {
        GM_FUNCTION("text_server", text_server, "port integer, path string, type string"),
        GM_FUNCTION("job_folder", job_folder, ""),
        GM_FUNCTION("folder_wanted", folder_wanted, ""),
        GM_FUNCTION("folder_make", folder_make, "swept boolean, in_memory boolean?"),
        GM_FUNCTION("is_own_folder", is_own_folder, "path string"),
        GM_FUNCTION("real_path", real_path, "path string"),
        GM_FUNCTION("page_make", page_make, "path string?"),
        GM_FUNCTION("page_read", page_read, "path string"),
        GM_FUNCTION("process_is", process_is, "pid integer"),
        GM_FUNCTION("requests_open", requests_open, "path string"),
        GM_FUNCTION("request_connect", request_connect, "path string"),
        GM_LAST_FUNCTION};
    gm_new_class(L, FOLDER, folder, folder_close);
    gm_new_class(L, PAGE, page, page_close);
    gm_new_class(L, REQUESTS, requests, requests_close);
    gm_new_class(L, ASKED, asked, asked_close);
    gm_new_class(L, SERVER, server, server_close);
    gm_declare(L, functions);
    return 0;
}
