/* tcp.h - frames between the ranks of a job over TCP: what comm_tcp.c is made of.
 *
 * A frame is a head and then the bytes of a message. Messages of up to GM_TCP_EAGER bytes are sent at once, and wait at
 * the receiver if no receive is posted. Longer ones are offered; their bytes follow when the receiver grants them,
 * straight into its buffer. Sockets never block. The trap: a request that is not done stands in a list of its peer, or
 * is where the bytes of an outgoing or incoming frame belong; whoever frees it must look in all of these. */
#ifndef GM_TCP_H
#define GM_TCP_H

#include "transport.h"

#define GM_TCP_EAGER (64u << 10) /* bytes */

typedef enum gm_tcp_kind { KIND_NOTICE = 1, KIND_DATA, KIND_OFFER, KIND_GRANT, KIND_BODY } gm_tcp_kind;

typedef struct gm_tcp_head {
    int32_t  kind, tag;
    uint64_t n;  /* bytes of the message */
    uint64_t id; /* of an offer: the sender's */
} gm_tcp_head;

typedef struct gm_tcp_request {
    struct gm_tcp_request *next;           /* in a list of its peer */
    struct gm_tcp_request *before, *after; /* among all that were not tested to their end */
    bool                   done, cancelled;
    int                    peer, tag;
    char                  *bytes;
    size_t                 room, n; /* n: of the message, once it is known */
    uint64_t               id;
} gm_tcp_request;

typedef struct gm_tcp_early { /* a message that came before its receive */
    struct gm_tcp_early *next;
    int                  tag;
    size_t               n;
    uint64_t             id;
    bool                 offered, whole; /* offered: its bytes are still at the sender */
    gm_tcp_request      *wanted;         /* by a receive that was posted meanwhile */
    char                 bytes[];
} gm_tcp_early;

typedef struct gm_tcp_outgoing {
    struct gm_tcp_outgoing *next;
    gm_tcp_head             head;
    size_t                  at; /* bytes that are gone, of the head and what follows */
    const char             *bytes;
    size_t                  n;
    gm_tcp_request         *of; /* done when all is gone; NULL: own holds the bytes */
    char                    own[];
} gm_tcp_outgoing;

typedef struct gm_tcp_peer {
    int              fd;
    bool             gone;
    int              why; /* errno; 0: it closed the connection */
    gm_tcp_outgoing *out, **out_end;
    gm_tcp_request  *posted, *offered, *granted; /* receives that wait; sends that wait; receives whose bytes come */
    gm_tcp_early    *early;
    gm_tcp_head      in; /* the frame that arrives */
    size_t           in_at;
    gm_tcp_request  *into; /* where its bytes go: one of the three */
    gm_tcp_early    *into_early;
    char             notice[GM_NOTICE_MAX];
} gm_tcp_peer;

typedef struct gm_tcp_note {
    struct gm_tcp_note *next;
    int                 from;
    size_t              n;
    char                bytes[];
} gm_tcp_note;

typedef struct gm_tcp {
    int             epoll, world;
    gm_tcp_peer    *peers;
    gm_tcp_note    *notes, **notes_end;
    uint64_t        ids;
    int             sending;  /* peers with something in `out` */
    gm_tcp_request *requests; /* all */
} gm_tcp;

/* Ends the use of a connection. why: errno, or 0 if the other side closed it. */
void gm_tcp_lose(gm_tcp *c, gm_tcp_peer *p, int why);
/* Sends a frame after those that wait. The bytes are those of the request `of`, or are copied. False: no memory. */
bool gm_tcp_put(gm_tcp *c, gm_tcp_peer *p, gm_tcp_head h, const void *bytes, size_t n, gm_tcp_request *of);
/* Moves what can be moved now. */
void gm_tcp_progress(gm_tcp *c);
/* Answers an offer: its bytes go into q. False: no memory. */
bool gm_tcp_grant(gm_tcp *c, gm_tcp_peer *p, gm_tcp_request *q, uint64_t id);
/* Finishes a receive with a message that is here. */
void gm_tcp_give(gm_tcp_request *q, const gm_tcp_early *e);
void gm_tcp_append(gm_tcp_request **list, gm_tcp_request *q);
bool gm_tcp_unlink(gm_tcp_request **list, const gm_tcp_request *q);
void gm_tcp_unlink_early(gm_tcp_early **list, const gm_tcp_early *e);

#endif
