/* terminal.h - a line of input: edited on a terminal (libedit), plain otherwise; history; completion.
 *
 * Belongs to one thread. The trap: while a line is read the terminal is in raw mode; gm_terminal_read
 * always restores it before it returns, also when a signal interrupts it. */
#ifndef GM_TERMINAL_H
#define GM_TERMINAL_H

#include <stdbool.h>
#include "../../kernels/status.h"

typedef struct gm_terminal gm_terminal;

/* Called when Tab is pressed: `line` is the text before the cursor. *insert receives what to type for the user
 * (NULL: nothing), *list lines to show (NULL: none); both are malloc'd, the terminal frees them. */
typedef void (*gm_completer)(void *context, const char *line, char **insert, char **list);

typedef enum gm_input { GM_INPUT_LINE, GM_INPUT_END, GM_INPUT_INTERRUPTED } gm_input;

/* history: file that lines are read from now and appended to (NULL: none; a missing one is made). On anything but
 * a terminal there is no editing and no prompt. */
gm_status gm_terminal_open(const char *history, gm_completer completer, void *context, gm_terminal **out);
void      gm_terminal_close(gm_terminal *t); /* NULL is allowed */
bool      gm_terminal_is_interactive(const gm_terminal *t);

/* What to wait with for input, in place of gm_signals_wait_readable: 1: fd is readable; 0: an interrupt is pending, or
 * the wait is over for another reason (GM_INPUT_END, then); -1: it failed. */
void gm_terminal_set_wait(gm_terminal *t, int (*wait)(void *context, int fd), void *context);
/* One line without its end. *line belongs to the terminal and lives until the next call; it is set for
 * GM_INPUT_LINE only. GM_EIO: standard input failed. */
gm_status gm_terminal_read(gm_terminal *t, const char *prompt, gm_input *what, const char **line);
/* Adds an entry (it may hold several lines) to the history and its file. A failure to write is reported once. */
gm_status gm_terminal_remember(gm_terminal *t, const char *text);

#endif
