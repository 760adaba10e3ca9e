/* life.h - a rank with everything that the floors above rank.h hang on it: made first, freed last. */
#ifndef GM_LIFE_H
#define GM_LIFE_H

#include "rank/rank.h"

gm_status gm_rank_new(gm_rank **out); /* with its outermost scope; GM_ENOMEM */
void      gm_rank_free(gm_rank *r);   /* drops tape and scopes; NULL is allowed */

#endif
