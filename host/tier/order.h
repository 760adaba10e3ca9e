/* order.h - the order in which things were needed in one step, which tells the next step what comes next.
 *
 *     gm_order_note(&o, place, most);   // this is needed now
 *     gm_order_next(&o, k);             // the k-th that comes behind it, as in the step before; -1: none
 *     gm_order_end(&o);                 // a step has ended
 *
 * Things are small whole numbers (places in a list of the owner). Passes that the step before did not have, such as
 * those of an evaluation, are followed as far as they are alike. */
#ifndef GM_ORDER_H
#define GM_ORDER_H

#include <stdbool.h>

typedef struct gm_order_list {
    int *place;
    int  n, room;
} gm_order_list;

typedef struct gm_order {
    gm_order_list last, now; /* of the step before, and of this one */
    int           at;        /* in `last`: behind what was needed last */
} gm_order;

/* Remembers at most `most` needs of a step, and fewer without memory: the order then ends there. */
void gm_order_note(gm_order *o, int place, int most);
int  gm_order_next(const gm_order *o, int k); /* k from 0 */
void gm_order_end(gm_order *o);
void gm_order_free(gm_order *o); /* a zeroed one is allowed */

#endif
