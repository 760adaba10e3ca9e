/* text_server.h - serves one text over HTTP on 127.0.0.1, for Prometheus.
 *
 *     gm_text_server_open(0, "/metrics", "text/plain", &s);   // 0: any free port, gm_text_server_port(s)
 *     gm_text_server_set(s, text, n);                         // whenever there is a newer one
 *
 * A thread of its own answers, so that nobody waits for a step and no step for anybody: it holds the lock only to copy
 * the text. Bounded in everything: 8 connections at a time, 4 KB of a request, 5 seconds of each. It answers GET and
 * HEAD of its path and closes; anything else gets an error of HTTP, or nothing. The trap: every user of this machine
 * can connect. */
#ifndef GM_TEXT_SERVER_H
#define GM_TEXT_SERVER_H

#include <stddef.h>
#include "../../kernels/status.h"

typedef struct gm_text_server gm_text_server;

/* path: what is answered; type: of the text. Both are copied. GM_EIO: nobody can listen at that port. */
gm_status gm_text_server_open(int port, const char *path, const char *type, gm_text_server **out);
int       gm_text_server_port(const gm_text_server *s);
gm_status gm_text_server_set(gm_text_server *s, const char *text, size_t n); /* copies it */
void      gm_text_server_close(gm_text_server *s); /* ends the thread and what it serves; NULL is allowed */

#endif
