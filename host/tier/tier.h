/* tier.h - a place below the device's pool where the bytes of tensors rest until they are needed: the host's memory, or
 * a file on a disk. It has a limit and exact accounts.
 *
 *     gm_tier_new(dev, &(gm_tier_settings){.kind = GM_TIER_DISK, .ring = n, .disk = {.folder = "/scratch"}}, &tier);
 *     gm_tier_prepare(tier, all);       // space for all that will rest there: a full disk is an error here
 *     gm_tier_take(tier, t->storage);   // from now on its bytes rest in the tier
 *     gm_tier_begin(tier, t->storage);  // optional: they begin to come
 *     gm_storage_open(t->storage);      // they are here, and stay until the close
 *     ...
 *     gm_storage_close(t->storage, changed);   // they begin to go back, or are dropped if nothing changed
 *
 * gm_run and gm_host_open open and close the storages that they touch, so ops, checkpoints and reading single elements
 * need not know of tiers. Bytes that are here lie in the ring: memory of the device's pool that is taken once. So a
 * tier holds `ring` bytes of memory whatever rests in it. Bytes stay in the ring until their place is needed. What was
 * used least recently leaves first. Bytes that are wanted before that are not read again.
 *
 * The tier remembers the order in which storages were opened in a step (gm_tier_end_step), and fetches what comes next
 * in the step that follows. What forward keeps for backward is pushed instead of taken: it comes back in reverse order.
 *
 * A device with memory of its own (a GPU) has the ring in its memory. Below it is a tier of the host, of the same kind,
 * where the bytes rest in page-locked memory or pass through another ring of that on their way to the disk. Copies run
 * beside the device's work (passage.h), so a storage is open when its copy is queued.
 *
 * The host's tier of a device whose memory is the host's own is accounts alone: the bytes stay where they are. On meta
 * a tier is accounts alone, too, and takes the same ring from the pool, so that `check` counts what a run holds.
 * One thread. */
#ifndef GM_TIER_H
#define GM_TIER_H

#include "../../kernels/device.h"
#include "disk.h"

typedef struct gm_tier gm_tier;

typedef enum gm_tier_kind { GM_TIER_HOST, GM_TIER_DISK } gm_tier_kind;

typedef struct gm_tier_settings {
    gm_tier_kind kind;
    uint64_t     limit; /* bytes that may rest here; 0: no limit */
    /* Bytes of memory of a tier on a disk or below a GPU, at least twice those of the tensors of an op that are open
     * together. */
    size_t           ring;
    gm_disk_settings disk;
    gm_device       *beside; /* of a device with memory of its own: that of the host below it (gm_device_new_beside) */
} gm_tier_settings;

typedef struct gm_tier_stats {
    gm_tier_kind kind;
    uint64_t     objects;             /* storages that rest here */
    uint64_t     placed, placed_peak; /* their bytes, as gm_tier_room counts them */
    uint64_t     limit;
    uint64_t     ring, resident, resident_peak; /* memory: taken, and of this used by bytes that are here */
    uint64_t     fetched, stored, kept;         /* storages that were read, written, and that were still here */
    uint64_t     read, written;                 /* bytes */
    double       waited;                        /* seconds in which the program did nothing else */
} gm_tier_stats;

/* GM_EIO: the disk's folder takes no file. GM_ENOMEM: no memory for the ring. GM_EINVAL: the device has memory of
 * its own, and settings name no device beside it. */
gm_status gm_tier_new(gm_device *dev, const gm_tier_settings *settings, gm_tier **out);
void      gm_tier_retain(gm_tier *t); /* one more owner */
/* An owner lets go: the tier ends with the last owner and storage that rests in it. NULL is allowed. */
void gm_tier_release(gm_tier *t);

uint64_t gm_tier_room(gm_tier_kind kind, uint64_t bytes); /* what a storage of so many bytes takes of it */
/* Space for so many bytes beside those that rest here already. GM_ENOMEM: over the limit; GM_EIO: the disk is full. */
gm_status gm_tier_prepare(gm_tier *t, uint64_t bytes);
/* The bytes of a storage come to rest here. A storage without a block (gm_tensor_new_absent) has no bytes yet: what
 * they are is undefined until they are written. On failure all stays as it was. GM_EINVAL: the storage is open. */
gm_status gm_tier_take(gm_tier *t, gm_storage *s);
/* A new tensor whose bytes rest here from the beginning; they are undefined until they are written. */
gm_status gm_tier_new_tensor(gm_tier *t, gm_device *dev, gm_dtype dtype, int ndim, const int64_t *shape,
                             gm_tensor **out);
/* The same as gm_tier_take for what is needed again in reverse order: the storages that were pushed are a stack. */
gm_status  gm_tier_push(gm_tier *t, gm_storage *s);
gm_device *gm_tier_device(const gm_tier *t);     /* of the storages that rest in it */
bool       gm_tier_holds(const gm_storage *s);   /* does it rest in a tier with a ring: not in the device's memory? */
bool       gm_tier_is_here(const gm_storage *s); /* can it be opened without a wait for a disk? */
/* Calls that touch many storages take them in units: the ring has to hold what is open at once, what comes, and what
 * goes. The bytes of a unit (t NULL: no limit), and what of them an open storage takes: 0 if it rests in no ring. */
uint64_t gm_tier_unit(const gm_tier *t);
uint64_t gm_tier_needs(const gm_storage *s);
/* Its bytes begin to come, if it rests in a tier and there is a place in the ring now; else nothing happens. */
gm_status gm_tier_begin(gm_storage *s);
/* Its bytes are of no use any more, and undefined: they are neither written nor read until something writes them.
 * Nothing happens to a storage that rests in no tier, or is open. */
void gm_tier_discard(gm_storage *s);
/* A step of training has ended: the order of its opens tells the next step what comes. */
void          gm_tier_end_step(gm_tier *t);
gm_status     gm_tier_settle(gm_tier *t); /* waits until all that goes back is written */
gm_tier_stats gm_tier_stats_of(const gm_tier *t);
/* When its disk moved bytes, if that is recorded (gm_disk_spans_set); NULL: it has no disk. Borrowed. */
gm_disk_spans *gm_tier_spans(gm_tier *t);

#endif
