/* region.h - parts of a forward pass that keep nothing but their inputs, and run again in backward (Chen et al. 2016,
 * arXiv:1604.06174: rematerialization, activation checkpointing).
 *
 *     gm_region_begin(r, name, ..., &region);        // what is recorded from here on is a sketch: it holds nothing
 *     ... forward of detached inputs ...
 *     gm_region_end(region, ..., again, results);    // one node stands for it
 *
 * The node keeps the inputs, by slot, and the moment of its first run: how many random calls each module had made in
 * the step, and which rows of the batch it has. Its rule runs `again` under a tape of its own, then backward through
 * that, so gradients have the bits that they have without a region, if inputs and parameters go into it once. Leaves
 * that the region read are edges of the node that get nothing from it: so they are awaited until the inner backward has
 * added its terms.
 *
 * The traps: `again` must do what the first run did, whatever has changed since. Results of other dtypes or shapes are
 * refused, other random calls (modules, number, kind, seed), and inputs and parameters that were written in between.
 * Other causes of other numbers are not noticed. A region reads tensors that were computed outside of it only as
 * inputs. */
#ifndef GM_REGION_H
#define GM_REGION_H

#include "tape.h"

#define GM_REGION_INPUTS  64
#define GM_REGION_OUTPUTS 32

typedef struct gm_region gm_region;

/* Sets the rank's tape aside for a sketch (gm_tape_sketch) and remembers the moment. name: of what runs, in messages;
 * copied. in: the inputs. GM_EINVAL: too many of them. */
gm_status gm_region_begin(gm_rank *r, const char *name, int n_in, gm_value *const *in, gm_region **out);
/* The first run is over. in: the same inputs; inner: the leaves that stood for them. out: results that require a
 * gradient. again.call gets values that stand for the inputs and gives n_out results. results[n_out] receives the
 * results as values that depend on the inputs and on the parameters that were read. Takes the region, and `again`, also
 * on failure. GM_EINVAL: the region read a tensor that was computed outside of it, or wrote into an input. */
gm_status gm_region_end(gm_region *g, gm_value *const *in, gm_value *const *inner, int n_out, gm_value *const *out,
                        gm_callback again, gm_value **results);
/* It has failed: forgets what was recorded. NULL is allowed. */
void gm_region_cancel(gm_region *g);

#endif
