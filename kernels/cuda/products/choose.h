/* choose.h - which way makes each kind of product: what was timed on this device, or given to it (choices.h).
 *
 * A kind is timed when it is first met outside of a capture, if dev->timing asks for it and more than one way is
 * offered. Each variant makes the product a few times, into memory of its own, while the host waits. */
#ifndef GM_CUDA_CHOOSE_H
#define GM_CUDA_CHOOSE_H

#include "kind.h"

typedef struct gm_products gm_products; /* a device's choices */

/* Times the kind if it is due. *way: what was chosen for it, with *variant and the text of the kind, all borrowed until
 * the next call; NULL: nothing was, and the rule of product.c decides. */
gm_status gm_products_choose(gm_device *dev, const gm_product *p, const gm_way **way, const gm_variant **variant,
                             const char **kind);
void      gm_products_free(gm_products *products); /* NULL is allowed */

#endif
