/* frames.h - messages over streams of bytes between two ranks: what the transports over TCP (comm_tcp.c) and over
 * windows of shared memory (comm_windows.c) are made of.
 *
 * A frame is a head and then the bytes of a message. Messages of up to `eager` bytes are sent at once, and wait at
 * the receiver if no receive is posted. Longer ones are offered. The receiver reads them where they lie, or where the
 * sender has put a copy, if it maps that memory (the sender's arena). Else it copies them out of the sender's memory.
 * Then it says that this is done. Where it can do neither, it grants them, and their bytes follow, straight into its
 * buffer.
 * Streams never block. A fold is a receive from several ranks at once, whose bytes are read
 * where they lie in their streams: it grants all messages together, so that no stream waits for another one for ever.
 * The trap: a request that is not done stands in a list of its peer, or is where the bytes of an outgoing or incoming
 * frame belong; whoever frees it must look in all of these (gm_frames_test does). */
#ifndef GM_FRAMES_H
#define GM_FRAMES_H

#include <sys/types.h>
#include <sys/uio.h>
#include "transport.h"

typedef enum gm_frame_kind {
    FRAME_NOTICE = 1,
    FRAME_DATA,
    FRAME_OFFER,
    FRAME_GRANT,
    FRAME_BODY,
    FRAME_DONE
} gm_frame_kind;

typedef struct gm_frame_head {
    int32_t  kind, tag;
    uint64_t n;  /* bytes of the message */
    uint64_t id; /* of an offer: the sender's */
    uint64_t at; /* of an offer: where its bytes are, in the memory of the sender; of a done: were they replaced? */
} gm_frame_head;

struct gm_fold;

typedef struct gm_frame_request {
    struct gm_frame_request *next;           /* in a list of its peer */
    struct gm_frame_request *before, *after; /* among all that were not tested to their end */
    bool                     done, cancelled;
    int                      peer, tag;
    char                    *bytes;
    size_t                   room, n; /* n: of the message, once it is known */
    uint64_t                 id, at;
    char                    *staged; /* of a send: the copy that the receiver reads; NULL: the bytes themselves */
    bool                    *filled; /* of a send: set when a fold has replaced its bytes; NULL: none may */
    struct gm_fold          *fold;   /* that this is one of the messages of, or all of (peer -1); NULL: of none */
} gm_frame_request;

typedef struct gm_frame_early { /* a message that came before its receive */
    struct gm_frame_early *next;
    int                    tag;
    size_t                 n;
    uint64_t               id, at;
    bool                   offered, whole; /* offered: its bytes are still at the sender */
    gm_frame_request      *wanted;         /* by a receive that was posted meanwhile */
    char                   bytes[];
} gm_frame_early;

typedef struct gm_frame_outgoing {
    struct gm_frame_outgoing *next;
    gm_frame_head             head;
    size_t                    at; /* bytes that are gone, of the head and what follows */
    const char               *bytes;
    size_t                    n;
    gm_frame_request         *of; /* done when all is gone; NULL: own holds the bytes */
    char                      own[];
} gm_frame_outgoing;

typedef struct gm_frame_peer {
    bool               gone;
    bool               deaf; /* it takes nothing more; what it sent before is still read */
    int                why;  /* of both: errno; 0: it closed the stream */
    gm_frame_outgoing *out, **out_end;
    gm_frame_request  *posted, *offered, *granted; /* receives that wait; sends that wait; receives whose bytes come */
    gm_frame_early    *early, **early_end;         /* messages that nobody has asked for, the oldest first */
    gm_frame_head      in;                         /* the frame that arrives */
    size_t             in_at;
    gm_frame_request  *into; /* where its bytes go: one of the three; none: of a message, nowhere */
    gm_frame_early    *into_early;
    char               notice[GM_NOTICE_MAX];
} gm_frame_peer;

typedef struct gm_frame_note {
    struct gm_frame_note *next;
    int                   from;
    size_t                n;
    char                  bytes[];
} gm_frame_note;

#define FRAME_LINE_MOST 64

typedef struct gm_frames gm_frames;

/* How bytes move between this rank and a peer. Numbers of bytes; -1: none, and errno says why (EAGAIN: not now). */
typedef struct gm_stream {
    ssize_t (*put)(gm_frames *f, int peer, const struct iovec *parts, int n);
    ssize_t (*get)(gm_frames *f, int peer, void *to, size_t n); /* 0: the peer has closed the stream */
    void (*lost)(gm_frames *f, int peer);                       /* the stream is used no more */
    /* What has arrived, in one piece, at least a multiple of `pad`; it stays until skip. NULL: there are no folds. */
    const char *(*look)(gm_frames *f, int peer, size_t *n);
    void (*skip)(gm_frames *f, int peer, size_t n);
    /* Where n bytes that the peer has at `at` in its memory lie in this process, to be read and, until the peer is told
     * that they are no longer needed, written. NULL: nowhere. The function NULL: never. */
    char *(*reach)(gm_frames *f, int peer, uint64_t at, size_t n);
    /* Copies n bytes that the peer has at `at` in its memory. False: it cannot. NULL: it never can. */
    bool (*pull)(gm_frames *f, int peer, void *to, uint64_t at, size_t n);
    /* Copies bytes that are offered with this tag to where the peer reads them; alone: it may write there. NULL: they
     * are read where they are. The function NULL: always. */
    char *(*stage)(gm_frames *f, const void *bytes, size_t n, int tag, bool alone);
    void (*unstage)(gm_frames *f, char *copy); /* the peer needs it no more */
    size_t eager;                              /* bytes of a message that is sent unasked */
    size_t pad;                                /* what look gives is a multiple of it, at most 8 */
    size_t line;                               /* frames are as long as a multiple of it, at most FRAME_LINE_MOST */
} gm_stream;

struct gm_frames {
    const gm_stream  *stream;
    void             *context; /* of the stream */
    int               n;
    gm_frame_peer    *peers;
    gm_frame_note    *notes, **notes_end;
    uint64_t          ids;
    int               sending; /* peers with something in `out` */
    int               early;   /* messages that nobody has asked for */
    char             *room;    /* of folds: what was pulled */
    size_t            room_size;
    bool              again;    /* a fold has freed the way for frames behind it */
    gm_frame_request *requests; /* all */
    gm_frame_request *spare;    /* ended ones, for new ones; as many as were ever under way together */
};

/* ---- frames.c: what travels ---- */

/* Ends the use of a stream. why: errno, or 0 if the other side closed it. */
void gm_frames_lose(gm_frames *f, gm_frame_peer *p, int why);
/* Sends a frame after those that wait. The bytes are those of the request `of`, or are copied. False: no memory. */
bool gm_frames_put(gm_frames *f, gm_frame_peer *p, gm_frame_head h, const void *bytes, size_t n, gm_frame_request *of);
/* Sends what waits and can go now. */
void gm_frames_flush(gm_frames *f, gm_frame_peer *p);
/* One read. False: there is nothing to read now, or never again. */
bool gm_frames_read(gm_frames *f, gm_frame_peer *p);
/* After the bytes of a frame have been taken up to p->in_at: ends it if that is all. False: the stream is lost. */
bool gm_frames_taken(gm_frames *f, gm_frame_peer *p);
/* Answers an offer: its bytes go into q, now or when they come. False: no memory. */
bool gm_frames_accept(gm_frames *f, gm_frame_peer *p, gm_frame_request *q, const gm_frame_head *h);
bool gm_frames_grant(gm_frames *f, gm_frame_peer *p, gm_frame_request *q, uint64_t id);
/* The copy of a send is no longer needed. */
void gm_frames_unstage(gm_frames *f, gm_frame_request *q);
/* Says that the bytes of an offer are no longer needed; filled: a result is in their place. False: no memory. */
bool gm_frames_have(gm_frames *f, gm_frame_peer *p, uint64_t id, bool filled);
/* Keeps a message that nobody waits for; room: for its bytes. NULL: no memory. */
gm_frame_early *gm_frames_keep(gm_frames *f, gm_frame_peer *p, const gm_frame_head *h, size_t room);
/* Finishes a receive with a message that is here. */
void gm_frames_give(gm_frame_request *q, const gm_frame_early *e);
void gm_frames_append(gm_frame_request **list, gm_frame_request *q);
bool gm_frames_unlink(gm_frame_request **list, const gm_frame_request *q);
/* Takes such a message out of its list, and frees it. */
void gm_frames_free_early(gm_frames *f, gm_frame_peer *p, gm_frame_early *e);

/* ---- frame_requests.c: the messages of a transport, as transport.h says. t: for what went wrong ---- */

/* Makes n peers of f, which is zeroed but for stream and context. False: no memory. */
bool gm_frames_make(gm_frames *f, int n);
void gm_frames_free(gm_frames *f); /* all but f itself, also what is under way */
int  gm_frames_no_memory(gm_transport *t);
/* filled: see gm_frame_request */
int gm_frames_send(gm_frames *f, gm_transport *t, int peer, int tag, const void *bytes, size_t n, bool *filled,
                   void **out);
int gm_frames_receive(gm_frames *f, gm_transport *t, int peer, int tag, void *bytes, size_t n, void **out);
/* 1: done; 0: not yet; -1: its peer, *lost, is gone. The request is gone unless it is not done yet. */
int gm_frames_test(gm_frames *f, gm_frame_request *q, size_t *n, int *lost);
/* Has a message come for q, so that what is behind it in its stream can stay there? Perhaps nobody has asked for that
 * yet: it would have to be copied twice, while its sender went on and on. To copy a few short ones costs less than a
 * look. False for no request. */
bool gm_frames_serve(const gm_frames *f, const gm_frame_request *q);
int  gm_frames_cancel(gm_frames *f, gm_transport *t, gm_frame_request *q);
int  gm_frames_drain(gm_frames *f, gm_transport *t, int *peer);
int  gm_frames_tell(gm_frames *f, gm_transport *t, int peer, const void *bytes, size_t n);
int  gm_frames_hear(gm_frames *f, void *bytes, size_t *n, int *from);

/* ---- fold.c ---- */

int gm_frames_fold(gm_frames *f, gm_transport *t, const gm_fold_call *call, const int *peers, void **out);
/* An offer for q, a message of a fold, has come. False: no memory, or another number of bytes. */
bool gm_fold_offered(gm_frames *f, gm_frame_request *q, const gm_frame_head *h);
/* Takes what has come of all messages, if the bytes of each are next in its stream. True: something moved. */
bool gm_fold_advance(gm_frames *f, gm_frame_request *q);
/* The peer that is gone and of which something is missing; -1: none. */
int  gm_fold_lost(const gm_frames *f, const gm_frame_request *whole);
bool gm_fold_lacks(const gm_frames *f, const gm_frame_request *whole, int peer);
/* Takes the fold back unless it was granted. */
int gm_fold_cancel(gm_frames *f, gm_transport *t, gm_frame_request *whole);
/* Frees it; bytes that still come for it go nowhere. */
void gm_fold_free(gm_frames *f, gm_frame_request *whole);

#endif
