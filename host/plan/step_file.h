/* step_file.h - a record of a step (kernels/journal.h) with its rank and mesh, as a file.
 *
 * Text, a line for each thing, words with one blank between them:
 *
 *     ganymede-step 1                 the version of the format
 *     rank 3                          whose step it is
 *     axis data 2                     an axis of the mesh and its size, slowest first
 *     live 1048576                    bytes in use when the step began
 *     t linear                        text 0, 1, ... (the rest of the line); -1 stands for none
 *     o NAME ABOUT DTYPE PATH SIZE FLOPS PRODUCTS BYTES SECONDS             an op; r: one that runs again (recompute)
 *     b ID NAME ABOUT DTYPE PATH PHASE GROUP PEER BYTES SENT SECONDS        an operation between ranks begins
 *     w ID SECONDS                    the rank waits for it
 *     a BYTES SECONDS                 memory is taken; f: given back
 *     end 5120                        the number of events, so that a file that was cut is noticed
 *
 * Words in capitals up to GROUP (not ID, SIZE) are numbers of texts; see gm_event for all of them. Numbers have 17
 * digits where they need them, so that a file that is read and written again is the same. */
#ifndef GM_STEP_FILE_H
#define GM_STEP_FILE_H

#include "../../kernels/journal.h"
#include "../mesh/mesh.h"

typedef struct gm_step {
    int         rank;
    gm_mesh     mesh;
    gm_journal *journal; /* owned */
} gm_step;

/* Writes the file whole or not at all. GM_EIO; GM_ENOMEM, also if the record has failed. */
gm_status gm_step_write(const gm_step *step, const char *path);
/* Reads a file; free with gm_step_free. GM_EIO: it cannot be read; GM_EINVAL: it is damaged, with the line. */
gm_status gm_step_read(const char *path, gm_step *out);
void      gm_step_free(gm_step *step);
/* The most bytes in use during the step. */
double gm_step_peak(const gm_step *step);
/* FLOPs of products in the step. *again: of those, what runs again. */
double gm_step_products(const gm_step *step, double *again);
/* The places of the last op that makes products, and of the last op of a pass: that one, or one that makes a gradient
 * behind it; -1: there is none. */
void gm_step_last_ops(const gm_step *step, int64_t *product, int64_t *of_passes);

/* Do ranks of both steps do alike: the same ops on the same memory and the same operations between ranks, in one order?
 * Of messages, the distance to the other end counts, modulo the size of the group. What lies in memory before the step
 * may differ by a part GM_ALIKE_LIVE of it, and single numbers may be freed at other moments. */
#define GM_ALIKE_LIVE 0x1p-16
bool gm_step_alike(const gm_step *a, const gm_step *b);
/* Does the step have messages, or operations with a root, in a group along this axis? */
bool gm_step_has_places(const gm_step *step, const char *axis);

#endif
