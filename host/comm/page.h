/* page.h - what a rank does, in a file that it maps and that other processes of the same user read at any time, also
 * while the rank hangs (`ganymede top`).
 *
 * The rank writes with plain stores; nobody can hold it up. A reader takes a copy, again if the rank
 * has written meanwhile. Times are those of gm_now(), one clock on a machine. Only programs of one build read it:
 * `size` tells. The trap: nothing in a copy is to be trusted, because the file may be anybody's work. */
#ifndef GM_COMM_PAGE_H
#define GM_COMM_PAGE_H

#include <stdbool.h>
#include <stdint.h>
#include "../../kernels/dtype.h"
#include "../../kernels/status.h"
#include "../../kernels/tensor.h"

#define GM_PLACE_ROOM   96
#define GM_PAGE_STEPS   16 /* the last ends of steps, from which rates follow */
#define GM_PAGE_MEMBERS 32 /* of a group, at most so many are named */

/* One call. Sent to other ranks as these bytes, since all run the same build. -1: does not apply. */
typedef struct gm_call_record {
    uint64_t group, epoch, number; /* number: calls before it in this group and epoch, or channel of a group */
    uint64_t history;              /* hash of those calls */
    int32_t  call, dtype, reduction, root, dim, join;
    int32_t  ndim;
    int64_t  shape[GM_MAX_DIMS];
    char     place[GM_PLACE_ROOM];
} gm_call_record;

typedef struct gm_page_call {
    gm_call_record record; /* call -1: none */
    char           group[48];
    int32_t        size; /* of the group */
    int32_t        member[GM_PAGE_MEMBERS];
    int32_t        peer; /* the rank at the other end of a message; -1: of a collective */
    double         since;
} gm_page_call;

typedef struct gm_page_step {
    double ended, samples, tokens, waited; /* samples, tokens, and seconds of waiting for other ranks: so far */
} gm_page_step;

typedef struct gm_page {
    uint32_t     magic, size;
    uint32_t     changes; /* odd: being written */
    int32_t      rank, world, pid, phase;
    double       opened;
    int64_t      step;    /* steps made */
    uint64_t     n_steps; /* of this process: the newest is steps[(n_steps - 1) % GM_PAGE_STEPS] */
    gm_page_step steps[GM_PAGE_STEPS];
    uint64_t     live, peak, reserved; /* bytes of tensors after the last step */
    gm_page_call waiting, last;
    double       waited; /* seconds in which the rank waited for others, so far */
    char         host[64];
    double       copied;      /* gm_now() of that machine when this copy was made (page_copy.h); 0: the page itself */
    double       copied_wall; /* the same on the clock of the wall */
} gm_page;

/* Makes the file, which must not exist, and maps it. path NULL: a page without a file. GM_EIO: also where there is no
 * room for it. */
gm_status gm_page_make(const char *path, int rank, int world, gm_page **out);
void      gm_page_free(gm_page *page); /* the file stays; NULL is allowed */

/* What the rank does. */
struct gm_pending;
void gm_page_called(gm_page *page, const struct gm_pending *p);
void gm_page_waits(gm_page *page, const struct gm_pending *p, double since);
void gm_page_waited(gm_page *page, double seconds);                     /* it waits no more, after so long */
void gm_page_stepped(gm_page *page, int64_t step, gm_page_step totals); /* `waited` is added here */
void gm_page_memory(gm_page *page, uint64_t live, uint64_t peak, uint64_t reserved);

/* A copy for other machines, of the page of this process. */
void gm_page_snapshot(const gm_page *page, gm_page *copy);
/* Copies the page of a rank. GM_EIO: there is no such file of ours. GM_ECORRUPT: it is no page of this build. */
gm_status gm_page_read(const char *path, gm_page *copy);
/* "all_reduce f32 (4, 8) sum (call 17 of data), at blocks.3"; returns buf. The call is there (record.call >= 0). */
char *gm_page_describe(const gm_page_call *call, char *buf, size_t size);

#endif
