/* terminal.c - see terminal.h. libedit reads through read_key, which wakes up for interrupts. */
#define _GNU_SOURCE
#include "terminal.h"

#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>
#include "signals.h"

#define HISTORY_LINES 2000

struct gm_terminal {
    EditLine    *edit; /* NULL: no terminal */
    History     *history;
    char        *history_file;
    bool         history_failed;
    gm_completer completer;
    void        *context;
    int (*wait)(void *context, int fd);
    void  *wait_context;
    char   prompt[64];
    char  *line; /* the last one read */
    size_t room;
};

static char *prompt_of(EditLine *edit)
{
    gm_terminal *t;
    el_get(edit, EL_CLIENTDATA, &t);
    return t->prompt;
}

static int wait_readable(const gm_terminal *t)
{
    return t->wait ? t->wait(t->wait_context, STDIN_FILENO) : gm_signals_wait_readable(STDIN_FILENO);
}

/* One character, decoded from the locale's encoding; -1 with EINTR when an interrupt is pending. */
static int read_key(EditLine *edit, wchar_t *out)
{
    mbstate_t    state = {0};
    gm_terminal *t;
    el_get(edit, EL_CLIENTDATA, &t);
    for (int length = 0; length < 8; length++) {
        char byte;
        int  ready = wait_readable(t);
        if (ready == 0) errno = EINTR;
        if (ready <= 0) return -1;
        ssize_t n = read(STDIN_FILENO, &byte, 1);
        if (n <= 0) return (int)n;
        size_t used = mbrtowc(out, &byte, 1, &state);
        if (used == (size_t)-1) { /* not of this encoding: take the byte as it is */
            *out = (unsigned char)byte;
            return 1;
        }
        if (used != (size_t)-2) return 1;
    }
    return -1;
}

static unsigned char complete(EditLine *edit, int key)
{
    gm_terminal    *t;
    const LineInfo *info = el_line(edit);
    char           *insert = NULL, *list = NULL, *before;
    unsigned char   what = CC_REFRESH;
    (void)key;
    el_get(edit, EL_CLIENTDATA, &t);
    before = strndup(info->buffer, (size_t)(info->cursor - info->buffer));
    if (!before) return CC_ERROR;
    t->completer(t->context, before, &insert, &list);
    if (insert && *insert && el_insertstr(edit, insert)) what = CC_ERROR;
    if (list && *list) {
        fprintf(stdout, "\n%s\n", list);
        fflush(stdout);
        what = CC_REDISPLAY;
    }
    if (!insert && !list) what = CC_REFRESH_BEEP;
    free(insert);
    free(list);
    free(before);
    return what;
}

static gm_status open_history(gm_terminal *t, const char *file)
{
    HistEvent event;
    t->history = history_init();
    if (!t->history) return GM_FAIL(GM_ENOMEM, "no memory for the history");
    history(t->history, &event, H_SETSIZE, HISTORY_LINES);
    history(t->history, &event, H_SETUNIQUE, 1);
    if (!file) return GM_OK;
    t->history_file = strdup(file);
    if (!t->history_file) return GM_FAIL(GM_ENOMEM, "no memory for the history");
    history(t->history, &event, H_LOAD, file); /* a missing or foreign file is an empty history */
    return GM_OK;
}

static gm_status open_editor(gm_terminal *t)
{
    t->edit = el_init("ganymede", stdin, stdout, stderr);
    if (!t->edit) return GM_FAIL(GM_EIO, "this terminal cannot be edited on; try TERM=dumb");
    el_set(t->edit, EL_CLIENTDATA, t);
    el_set(t->edit, EL_PROMPT, prompt_of);
    el_set(t->edit, EL_EDITOR, "emacs");
    el_set(t->edit, EL_SIGNAL, 0);
    el_set(t->edit, EL_HIST, history, t->history);
    el_set(t->edit, EL_GETCFN, read_key);
    el_wset(t->edit, EL_ADDFN, L"ganymede-complete", L"Complete a name", complete); /* el_set would leak copies */
    el_set(t->edit, EL_BIND, "^I", "ganymede-complete", NULL);
    el_set(t->edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_source(t->edit, NULL); /* ~/.editrc */
    return GM_OK;
}

/* The C locale knows no letters beyond ASCII; only the encoding is taken from the user, numbers stay as they are. */
static void choose_encoding(void)
{
    const char *chosen = setlocale(LC_CTYPE, "");
    if (!chosen || !strcmp(chosen, "C") || !strcmp(chosen, "POSIX")) setlocale(LC_CTYPE, "C.UTF-8");
}

gm_status gm_terminal_open(const char *file, gm_completer completer, void *context, gm_terminal **out)
{
    gm_status    st = GM_OK;
    gm_terminal *t = calloc(1, sizeof *t);
    if (!t) return GM_FAIL(GM_ENOMEM, "no memory for the terminal");
    t->completer = completer;
    t->context = context;
    if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)) {
        choose_encoding();
        GM_TRY_OR(open_history(t, file), st, failed);
        GM_TRY_OR(open_editor(t), st, failed);
    }
    *out = t;
    return GM_OK;
failed:
    gm_terminal_close(t);
    return st;
}

void gm_terminal_close(gm_terminal *t)
{
    if (!t) return;
    if (t->edit) el_end(t->edit);
    if (t->history) history_end(t->history);
    free(t->history_file);
    free(t->line);
    free(t);
}

bool gm_terminal_is_interactive(const gm_terminal *t) { return t->edit != NULL; }

void gm_terminal_set_wait(gm_terminal *t, int (*wait)(void *context, int fd), void *context)
{
    t->wait = wait;
    t->wait_context = context;
}

static gm_status keep(gm_terminal *t, size_t n)
{
    if (n < t->room) return GM_OK;
    size_t room = n < 4096 ? 8192 : 2 * n;
    char  *grown = realloc(t->line, room);
    if (!grown) return GM_FAIL(GM_ENOMEM, "a line of %zu bytes does not fit in memory", n);
    t->line = grown;
    t->room = room;
    return GM_OK;
}

static gm_status read_edited(gm_terminal *t, const char *prompt, gm_input *what)
{
    int n = 0;
    snprintf(t->prompt, sizeof t->prompt, "%s", prompt);
    /* el_gets writes the prompt first and leaves line mode after it. A Ctrl-D between them would be lost. */
    el_set(t->edit, EL_PREP_TERM, 1);
    const char *text = el_gets(t->edit, &n);
    if (!text || n <= 0) {
        *what = gm_signals_pending() ? GM_INPUT_INTERRUPTED : GM_INPUT_END;
        fputc('\n', stdout);
        fflush(stdout);
        return GM_OK;
    }
    if (n > 0 && text[n - 1] == '\n') n--;
    GM_TRY(keep(t, (size_t)n + 1));
    memcpy(t->line, text, (size_t)n);
    t->line[n] = 0;
    *what = GM_INPUT_LINE;
    return GM_OK;
}

/* How much of standard input is read at once, so that a program that a line starts finds the rest of it: a byte; of a
 * file more, because what lies beyond the line is given back. */
static size_t piece_of_input(void)
{
    struct stat about;
    return fstat(STDIN_FILENO, &about) == 0 && S_ISREG(about.st_mode) ? 4096 : 1;
}

static gm_status read_plain(gm_terminal *t, gm_input *what)
{
    size_t n = 0, piece = piece_of_input();
    for (;;) {
        int ready = wait_readable(t);
        if (ready == 0) {
            *what = gm_signals_pending() ? GM_INPUT_INTERRUPTED : GM_INPUT_END;
            return GM_OK;
        }
        GM_TRY(keep(t, n + piece));
        ssize_t got = ready < 0 ? -1 : read(STDIN_FILENO, t->line + n, piece);
        if (got < 0) return GM_FAIL(GM_EIO, "standard input: %s", strerror(errno));
        if (got == 0 && n == 0) {
            *what = GM_INPUT_END;
            return GM_OK;
        }
        char *end = memchr(t->line + n, '\n', (size_t)got);
        off_t beyond = end ? t->line + n + got - (end + 1) : 0;
        if (beyond > 0 && lseek(STDIN_FILENO, -beyond, SEEK_CUR) < 0)
            return GM_FAIL(GM_EIO, "standard input: %s", strerror(errno));
        n = end ? (size_t)(end - t->line) : n + (size_t)got;
        if (end || got == 0) break;
    }
    t->line[n] = 0;
    *what = GM_INPUT_LINE;
    return GM_OK;
}

gm_status gm_terminal_read(gm_terminal *t, const char *prompt, gm_input *what, const char **line)
{
    GM_TRY(t->edit ? read_edited(t, prompt, what) : read_plain(t, what));
    *line = *what == GM_INPUT_LINE ? t->line : NULL;
    return GM_OK;
}

gm_status gm_terminal_remember(gm_terminal *t, const char *text)
{
    HistEvent event;
    if (!t->history || !*text) return GM_OK;
    history(t->history, &event, H_ENTER, text);
    if (!t->history_file || t->history_failed) return GM_OK;
    if (history(t->history, &event, H_SAVE, t->history_file) < 0) {
        t->history_failed = true;
        return GM_FAIL(GM_EIO, "the history file %s cannot be written: %s", t->history_file, strerror(errno));
    }
    return GM_OK;
}
