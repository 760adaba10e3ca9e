/* optimizer_table.h - the tables of tensors that multi-tensor kernels read, in device memory: written when the tensors
 * of a call are others than before, so that a steady step copies nothing. They are kept by the device (driver.h).
 *
 * GM_TABLES calls of different tensors keep theirs; one more takes the place of that used longest ago. A graph that is
 * being captured gets tables of its own, which live as long as it does (graph.h). */
#ifndef GM_CUDA_OPTIMIZER_TABLE_H
#define GM_CUDA_OPTIMIZER_TABLE_H

#include "../../runtime/driver.h"
#include "optimizer_args.h"

#define GM_TABLES 16

typedef struct gm_tables gm_tables;

/* The entries of n tensors on the device. Takes entries, which malloc gave, also when it fails. */
gm_status gm_table_take(gm_device *dev, gm_entry *entries, int64_t n, const gm_entry **on_device);
void      gm_tables_free(gm_device *dev); /* when the device closes, before its context */

#endif
