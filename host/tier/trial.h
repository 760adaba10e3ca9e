/* trial.h - how fast a folder's disk is, measured through the disk module: an offloaded step takes no less. */
#ifndef GM_TIER_TRIAL_H
#define GM_TIER_TRIAL_H

#include "disk.h"

/* Bytes a second. */
typedef struct gm_disk_speed {
    double write, read;
    double both; /* of the sum, while one half is read and the other is written */
} gm_disk_speed;

/* Writes `bytes` to a file of the folder, which is gone afterwards, reads them, and does both at once. */
gm_status gm_disk_measure(const gm_disk_settings *settings, uint64_t bytes, gm_disk_speed *out);

#endif
