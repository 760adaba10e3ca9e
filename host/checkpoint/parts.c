/* parts.c - see parts.h. */
#define _GNU_SOURCE
#include "parts.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../files/files.h"
#include "files.h"

#define WHY_MAX 1500

static char *name_of(int rank, const char *ending)
{
    char *name = NULL;
    return asprintf(&name, "rank-%05d%s", rank, ending) < 0 ? NULL : name;
}

static char *path_of(const char *folder, int rank, const char *ending)
{
    char *path = NULL;
    return asprintf(&path, "%s/rank-%05d%s", folder, rank, ending) < 0 ? NULL : path;
}

char *gm_part_file(int rank) { return name_of(rank, ".safetensors"); }

char *gm_part_index(int rank) { return name_of(rank, ".json"); }

/* A file that is seen whole or not at all: written beside, synced, renamed. */
static gm_status write_whole(const char *folder, int rank, const char *ending, const char *text, size_t size)
{
    gm_writer w = {.fd = -1};
    char     *fresh = name_of(rank, ".new"), *from = path_of(folder, rank, ".new"), *to = path_of(folder, rank, ending);
    gm_status st = fresh && from && to ? GM_OK : GM_FAIL(GM_ENOMEM, "%s: no memory for a name", folder);
    if (st == GM_OK) st = gm_writer_open(folder, fresh, &w);
    if (st == GM_OK) st = gm_writer_write(&w, text, size);
    if (st == GM_OK) st = gm_writer_finish(&w);
    if (st == GM_OK && rename(from, to)) st = GM_FAIL(GM_EIO, "%s: cannot be renamed: %s", from, gm_file_error(errno));
    gm_writer_drop(&w);
    free(fresh);
    free(from);
    free(to);
    return st;
}

gm_status gm_part_announce(const char *folder, int rank, gm_index *part, const gm_part_stamp *stamp)
{
    char       *text = NULL;
    size_t      size = 0;
    const char *state = stamp->state;
    free(part->meta);
    if (asprintf(&part->meta, "{\"digest\":\"%08x\",\"rank\":%d,\"token\":\"%s\"%s%s}", stamp->digest, rank,
                 stamp->token, state ? ",\"state\":" : "", state ? state : "") < 0)
        part->meta = NULL;
    if (!part->meta) return GM_FAIL(GM_ENOMEM, "no memory for the index of a checkpoint");
    GM_TRY(gm_index_format(part, &text, &size));
    gm_status st = write_whole(folder, rank, ".json", text, size);
    free(text);
    return st;
}

void gm_part_drop(const char *folder, int rank)
{
    static const char *const endings[] = {".json", ".new", ".safetensors"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        char *path = path_of(folder, rank, endings[i]);
        if (path) unlink(path);
        free(path);
    }
}

void gm_part_fail(const char *folder, int rank, const char *why)
{
    gm_part_drop(folder, rank);
    size_t n = strlen(why);
    (void)write_whole(folder, rank, ".failed", why, n < WHY_MAX ? n : WHY_MAX); /* its owner tells it as well */
}

gm_part_state gm_part_look(const char *folder, int rank)
{
    char         *ready = path_of(folder, rank, ".json"), *failed = path_of(folder, rank, ".failed");
    gm_part_state state = GM_PART_NONE;
    if (ready && !access(ready, F_OK)) state = GM_PART_READY;
    else if (failed && !access(failed, F_OK)) state = GM_PART_FAILED;
    free(ready);
    free(failed);
    return state;
}

/* A small file's text, with a 0 behind it; to be freed. */
static gm_status read_text(const char *folder, int rank, const char *ending, char **text, size_t *size)
{
    int       fd = -1;
    uint64_t  n = 0;
    char     *name = name_of(rank, ending);
    gm_status st = name ? gm_files_open(folder, name, &fd, &n) : GM_FAIL(GM_ENOMEM, "%s: no memory for a name", folder);
    *text = NULL;
    if (st == GM_OK && n > GM_INDEX_MAX) st = GM_FAIL(GM_ECORRUPT, "%s/%s: is too long", folder, name);
    if (st == GM_OK && !(*text = calloc(1, (size_t)n + 1))) st = GM_FAIL(GM_ENOMEM, "%s: no memory to read it", folder);
    if (st == GM_OK) st = gm_files_read(fd, name, 0, (size_t)n, *text);
    if (fd >= 0) close(fd);
    free(name);
    *size = (size_t)n;
    return st;
}

static gm_status check_stamp(const char *path, const gm_index *part, int rank, const gm_part_stamp *stamp)
{
    char digest[12];
    snprintf(digest, sizeof digest, "%08x", stamp->digest);
    json_t     *meta = json_loads(part->meta, 0, NULL);
    const char *token = json_string_value(json_object_get(meta, "token"));
    const char *planned = json_string_value(json_object_get(meta, "digest"));
    gm_status   st = GM_OK;
    if (!token || strcmp(token, stamp->token)) st = GM_FAIL(GM_ECORRUPT, "%s: belongs to another save", path);
    else if (part->world != stamp->world)
        st = GM_FAIL(GM_ECORRUPT, "%s: is of a save by %d ranks; these are %d", path, part->world, stamp->world);
    else if (json_integer_value(json_object_get(meta, "rank")) != rank)
        st = GM_FAIL(GM_ECORRUPT, "%s: is the part of another rank", path);
    else if (!planned || strcmp(planned, digest))
        st = GM_FAIL(GM_EINVAL, "%s: rank %d saves other tensors, or cuts them otherwise, than rank 0", path, rank);
    json_decref(meta);
    return st;
}

/* The one file that a part is about must be there in its whole length. */
static gm_status check_file(const char *folder, const char *path, const gm_index *part, int rank)
{
    int       fd = -1;
    uint64_t  size = 0;
    char     *name = gm_part_file(rank);
    gm_status st = name ? GM_OK : GM_FAIL(GM_ENOMEM, "%s: no memory for a name", folder);
    if (st == GM_OK && strcmp(part->files[0].name, name))
        st = GM_FAIL(GM_ECORRUPT, "%s: is about the file '%s'", path, part->files[0].name);
    if (st == GM_OK) st = gm_files_open(folder, name, &fd, &size);
    if (st == GM_OK && size != part->files[0].bytes)
        st = GM_FAIL(GM_ECORRUPT, "%s/%s: has %llu bytes, its rank wrote %llu", folder, name, (unsigned long long)size,
                     (unsigned long long)part->files[0].bytes);
    if (fd >= 0) close(fd);
    free(name);
    return st;
}

static gm_status read_ready(const char *folder, int rank, const gm_part_stamp *stamp, gm_index *out)
{
    char     *text = NULL, *path = path_of(folder, rank, ".json");
    size_t    size;
    gm_status st = path ? GM_OK : GM_FAIL(GM_ENOMEM, "%s: no memory for a name", folder);
    if (st == GM_OK) st = read_text(folder, rank, ".json", &text, &size);
    if (st == GM_OK) st = gm_index_parse(path, text, size, GM_INDEX_PART, out);
    if (st == GM_OK) st = check_stamp(path, out, rank, stamp);
    if (st == GM_OK) st = check_file(folder, path, out, rank);
    free(text);
    free(path);
    return st;
}

gm_status gm_part_read(const char *folder, int rank, const gm_part_stamp *stamp, gm_index *out)
{
    *out = (gm_index){0};
    if (gm_part_look(folder, rank) != GM_PART_FAILED) {
        gm_status st = read_ready(folder, rank, stamp, out);
        if (st != GM_OK) gm_index_free(out);
        return st;
    }
    char     *why = NULL;
    size_t    size;
    gm_status st = read_text(folder, rank, ".failed", &why, &size);
    if (st == GM_OK) st = GM_FAIL(GM_EIO, "rank %d: %s", rank, why);
    free(why);
    return st;
}

gm_status gm_part_forget(const char *folder, int rank)
{
    char     *path = path_of(folder, rank, ".json");
    gm_status st = path ? GM_OK : GM_FAIL(GM_ENOMEM, "%s: no memory for a name", folder);
    if (st == GM_OK && unlink(path) && errno != ENOENT)
        st = GM_FAIL(GM_EIO, "%s: cannot be removed: %s", path, strerror(errno));
    free(path);
    return st;
}
