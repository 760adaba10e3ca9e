/* where.h - reports what a rank that does not answer is doing: the kernel's view of its process, and its stack.
 *
 * A rank is asked by a signal, gm_where_signal() (`kill -s RTMIN+3 PID` does it by hand), and then writes the functions
 * that its main thread is in to its stderr, the innermost first, and goes on. `addr2line -e ganymede OFFSET` names
 * those of ours. The trap: code that LuaJIT compiled ends the list; lines of Lua follow when the rank is told to stop
 * (gm_raise_stop). */
#ifndef GM_WHERE_H
#define GM_WHERE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

int gm_where_signal(void);
/* Answers this signal from now on, for the calling thread. The answers name this rank. */
void gm_where_open(int rank);

/* Tells whether the text of a failure says that other ranks wait for this rank, and that it does not answer or
 * computes. The texts are those of waits (comm/operation.c). */
bool gm_where_is_silent(const char *failure, int rank);
/* Tells whether this address lies in no library, so that it is code which LuaJIT compiled. Safe in a handler. */
bool gm_where_is_compiled(const void *address);

/* Writes "process 4711 sleeps in futex_do_wait, after 0.31 s of CPU time" into buf; returns buf. */
char *gm_where_is(pid_t pid, char *buf, size_t size);

#endif
