/* terminal.h - reads lines of input. On a terminal the user can edit them (libedit), with history and completion.
 *
 * Only one thread may use it. The trap: the terminal is in raw mode while a line is read. gm_terminal_read always
 * restores it before it returns, also if a signal interrupts it. */
#ifndef GM_TERMINAL_H
#define GM_TERMINAL_H

#include <stdbool.h>
#include "../../kernels/status.h"

typedef struct gm_terminal gm_terminal;

/* Called when the user presses Tab. line: the text before the cursor. *insert receives the text to type for the user
 * (NULL: nothing), *list the lines to show (NULL: none). Both are malloc'd, and the terminal frees them. */
typedef void (*gm_completer)(void *context, const char *line, char **insert, char **list);

typedef enum gm_input { GM_INPUT_LINE, GM_INPUT_END, GM_INPUT_INTERRUPTED } gm_input;

/* Opens standard input. history: the file from which earlier lines are read, and to which new ones are appended; it is
 * made if it is missing; NULL: there is none. If standard input is not a terminal, there is no editing and no prompt.
 */
gm_status gm_terminal_open(const char *history, gm_completer completer, void *context, gm_terminal **out);
void      gm_terminal_close(gm_terminal *t); /* NULL is allowed */
bool      gm_terminal_is_interactive(const gm_terminal *t);

/* Sets the function that waits for input in place of gm_signals_wait_readable. It returns 1: fd is readable; 0: an
 * interrupt is pending, or the wait is over for another reason (the result is then GM_INPUT_END); -1: it failed. */
void gm_terminal_set_wait(gm_terminal *t, int (*wait)(void *context, int fd), void *context);
/* Reads one line, without its end. *line is set only with GM_INPUT_LINE; the terminal owns it until the next call.
 * GM_EIO: standard input failed. */
gm_status gm_terminal_read(gm_terminal *t, const char *prompt, gm_input *what, const char **line);
/* Adds an entry (it may hold several lines) to the history and its file. A failure to write is reported once. */
gm_status gm_terminal_remember(gm_terminal *t, const char *text);

#endif
