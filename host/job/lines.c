/* lines.c - see lines.h. */
#define _GNU_SOURCE
#include "lines.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LONGEST 65536 /* a longer line goes in parts; and so much is kept of what goes nowhere */

int gm_lines_open(gm_lines *l, gm_outlet *to, const char *label)
{
    int ends[2];
    *l = (gm_lines){.from = -1, .to = to, .room = 2 * LONGEST};
    snprintf(l->label, sizeof l->label, "%s", label);
    l->held = malloc(l->room + 1);
    if (!l->held || pipe2(ends, O_CLOEXEC)) return -1;
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    l->from = ends[0];
    return ends[1];
}

static void emit(gm_lines *l, const char *text, size_t n)
{
    if (!l->label[0]) {
        gm_outlet_put(l->to, text, n);
        return;
    }
    while (n) {
        const char *end = memchr(text, '\n', n);
        size_t      take = end ? (size_t)(end - text) + 1 : n;
        gm_outlet_put(l->to, l->label, strlen(l->label));
        gm_outlet_put(l->to, text, take);
        text += take;
        n -= take;
    }
}

/* A line that is written over again (progress on a terminal) ends with its carriage return. */
static bool ends_line(const gm_lines *l, char byte) { return byte == '\n' || (byte == '\r' && !l->label[0]); }

/* Passes on the whole lines of what is held. */
static void pass_on(gm_lines *l)
{
    size_t whole = l->n;
    if (!l->to) {
        if (l->n <= LONGEST) return;
        memmove(l->held, l->held + l->n - LONGEST, LONGEST);
        l->n = LONGEST;
        return;
    }
    while (whole && !ends_line(l, l->held[whole - 1])) whole--;
    if (!whole && l->n > LONGEST) whole = l->n;
    emit(l, l->held, whole);
    memmove(l->held, l->held + whole, l->n - whole);
    l->n -= whole;
}

void gm_lines_pump(gm_lines *l)
{
    for (size_t taken = 0; l->from >= 0 && taken < LONGEST;) {
        ssize_t got = read(l->from, l->held + l->n, l->room - l->n);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return;
        if (got == 0) {
            close(l->from);
            l->from = -1;
            return;
        }
        taken += (size_t)got;
        l->n += (size_t)got;
        pass_on(l);
    }
}

void gm_lines_break(gm_lines *l)
{
    if (!l->to || !l->n || !l->held) return;
    emit(l, l->held, l->n);
    gm_outlet_put(l->to, "\n", 1);
    l->n = 0;
}

void gm_lines_close(gm_lines *l)
{
    gm_lines_pump(l);
    if (l->from >= 0) close(l->from);
    l->from = -1;
    gm_lines_break(l);
    free(l->held);
    l->held = NULL;
}

const char *gm_lines_tail(gm_lines *l)
{
    if (!l->held) return "";
    l->held[l->n] = 0;
    return l->held;
}
