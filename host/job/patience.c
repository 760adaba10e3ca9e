/* patience.c - see patience.h. */
#define _GNU_SOURCE
#include "patience.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

static bool read_line(pid_t pid, const char *thread, const char *file, char *buf, int size)
{
    char path[320];
    snprintf(path, sizeof path, "/proc/%d/task/%s/%s", (int)pid, thread, file);
    FILE *f = fopen(path, "re");
    bool  got = f && fgets(buf, size, f);
    if (f) fclose(f);
    return got;
}

static bool add_thread(pid_t pid, const char *thread, gm_core_use *sum)
{
    char               text[512];
    unsigned long long ran, waited;
    if (!read_line(pid, thread, "schedstat", text, sizeof text)) return false;
    if (sscanf(text, "%llu %llu", &ran, &waited) != 2) return false;
    sum->ran += 1e-9 * (double)ran;
    sum->waited += 1e-9 * (double)waited;
    if (!read_line(pid, thread, "stat", text, sizeof text)) return true;
    const char *after = strrchr(text, ')'); /* the name before may hold anything */
    sum->wants |= after && !strncmp(after, ") R", 3);
    return true;
}

bool gm_core_use_add(pid_t pid, gm_core_use *sum)
{
    char           path[32];
    struct dirent *e;
    bool           known = false;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *threads = opendir(path);
    while (threads && (e = readdir(threads)))
        if (e->d_name[0] != '.') known |= add_thread(pid, e->d_name, sum);
    if (threads) closedir(threads);
    return known;
}

bool gm_core_use_of(pid_t pid, gm_core_use *out)
{
    *out = (gm_core_use){0};
    return gm_core_use_add(pid, out);
}

/* Seconds since the last look in which it waited for a core. Threads may have ended since, and their numbers with
 * them. */
static double without_core(gm_patience *p, double passed, const gm_core_use *use)
{
    double ran = use->ran - p->use.ran, waited = use->waited - p->use.waited;
    if (use->wants && ran == 0 && waited == 0) {
        p->lent += passed;
        return passed;
    }
    waited -= p->lent;
    p->lent = 0;
    return waited < 0 ? 0 : waited < passed ? waited : passed;
}

void gm_patience_add(gm_patience *p, double now, const gm_core_use *use)
{
    double passed = p->begun ? now - p->looked : 0;
    if (passed > GM_PATIENCE_MOST) passed = GM_PATIENCE_MOST;
    p->had += use && p->begun ? passed - without_core(p, passed, use) : passed;
    p->begun = true;
    p->looked = now;
    if (use) p->use = *use;
}
