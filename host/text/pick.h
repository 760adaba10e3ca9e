/* pick.h - chooses the next token from the scores (logits) of all tokens.
 *
 * The steps, in the order of transformers: the repetition penalty (Keskar et al. 2019), temperature, top_k, top_p
 * (Holtzman et al. 2020), min_p (Nguyen et al. 2024), and a draw. Equal scores stand in the order of their tokens. The
 * draw is a function of (seed, prompt, position) alone, so it is the same on every rank and in every layout. */
#ifndef GM_TEXT_PICK_H
#define GM_TEXT_PICK_H

#include <stdbool.h>
#include <stdint.h>
#include "../../kernels/status.h"

typedef struct gm_pick_rule {
    double   temperature;      /* 0: the token with the largest score; then nothing below matters but the penalty */
    int64_t  top_k;            /* only the k tokens with the largest scores; 0: all */
    double   top_p;            /* only the likeliest tokens that together reach this probability; 1: all */
    double   min_p;            /* only tokens with at least this part of the probability of the likeliest; 0: all */
    double   penalty;          /* the scores of tokens seen are divided by it, or multiplied where negative; 1: none */
    uint64_t seed;             /* of the draws */
    uint64_t prompt, position; /* which draw of them */
} gm_pick_rule;

/* score: of n tokens, which the call overwrites. seen: n_seen tokens that are in the text; one may come several times.
 * Tokens seen that are none of the n count for nothing. *token: the choice. GM_EINVAL: a value of the rule is out of
 * range, or the largest score is not finite. GM_ENOMEM. */
gm_status gm_pick(double *score, int64_t n, const gm_pick_rule *rule, const int64_t *seen, int64_t n_seen,
                  int64_t *token);

#endif
