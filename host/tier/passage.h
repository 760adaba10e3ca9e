/* passage.h - bytes on their way between the ring of a tier on a GPU and the tier of the host below it (tier.h): copies
 * in two queues of the device, up and down, beside its kernels. On meta nothing moves, and the accounts are the same.
 *
 *     gm_passages_read(p, storage, at, bytes, &way);     // begins as soon as the storage's bytes are on the host
 *     gm_passages_settle(p, way);                        // the device's later work finds them
 *
 * Nobody waits for a copy: settling orders queues. The host waits for the disk below where bytes are needed that have
 * not come from there yet, and for copies where the page-locked ring below has no more room. Storages of the host are
 * open while a copy uses them; gm_passages_pump closes those whose copies are done, which is when the tier below begins
 * to write them to its disk. Inside of host/tier alone. */
#ifndef GM_PASSAGE_H
#define GM_PASSAGE_H

#include "tier.h"

typedef struct gm_passages gm_passages;
typedef struct gm_passage  gm_passage;

/* room: bytes of storages that may be open at once; 0: no limit. */
gm_status gm_passages_new(gm_device *dev, uint64_t room, gm_passages **out);
void      gm_passages_free(gm_passages *p); /* waits for what is under way; NULL is allowed */

/* Begin a way, between a storage of the host and `at` in the memory of the device, which stays taken until settled. */
gm_status gm_passages_read(gm_passages *p, gm_storage *from, void *at, size_t bytes, gm_passage **out);
gm_status gm_passages_write(gm_passages *p, gm_storage *to, void *at, size_t bytes, gm_passage **out);
/* Later work of the device and later ways come after it. Its handle ends in any case. */
gm_status gm_passages_settle(gm_passages *p, gm_passage *way);
gm_status gm_passages_pump(gm_passages *p);  /* goes on with what can go on; waits for nothing */
gm_status gm_passages_drain(gm_passages *p); /* waits until all that was begun is done */

#endif
