/* status.c - keeps the message of the last failure, one for each thread. */
#include "status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char last_error[2048];

/* The tree-relative part of __FILE__, so that messages do not depend on where it was built. */
static const char *short_path(const char *file)
{
    static const char *const roots[] = {"/kernels/", "/host/", "/bindings/"};
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++) {
        const char *p = strstr(file, roots[i]);
        if (p) return p + 1;
    }
    return file;
}

gm_status gm_fail(gm_status s, const char *file, int line, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char text[sizeof last_error]; /* the arguments may point into last_error */
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    size_t n = strlen(text);
    snprintf(text + n, sizeof text - n, " [%s:%d]", short_path(file), line);
    memcpy(last_error, text, sizeof last_error);
    return s;
}

gm_status gm_fail_again(gm_status s, const char *text)
{
    if (text != last_error) snprintf(last_error, sizeof last_error, "%s", text);
    return s;
}

const char *gm_last_error(void) { return last_error; }
