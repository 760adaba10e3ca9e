/* choices.h - which way makes each kind of matrix product on a device, as the host reads it, moves it between ranks and
 * keeps it in files.
 *
 * A kind is all that the speed of a product depends on: sizes, strides, dtypes, alignments, and what is done to the
 * result. A choice names one way for one kind. Devices without ways to choose from (all but GPUs) have no choices.
 *
 * With GM_TIMING_TOGETHER, what was timed does not count until gm_choices_take is called. So ranks can time kinds
 * whenever they meet them, and go over to the same ways at the same time. */
#ifndef GM_CHOICES_H
#define GM_CHOICES_H

#include <stddef.h>

#include "device.h"

#define GM_CHOICE_WORDS 8
#define GM_CHOICE_TRIED 24

typedef struct gm_choice {
    const char *kind;                  /* text without spaces at its ends; from get: the device's */
    char        way[16];               /* the name of the way */
    uint64_t    word[GM_CHOICE_WORDS]; /* which variant of it; what that means is known to the way alone */
    double      seconds;               /* what it took; 0: not known */
    bool        counts;                /* products of this kind are made so. false: it was timed, and nobody took it */
    int         n_tried;               /* all that was timed, in the order in which the ways were offered */
    struct gm_tried {
        char   way[16];
        double seconds;
    } tried[GM_CHOICE_TRIED];
} gm_choice;

/* What a backend with choices offers (gm_backend.choices). */
typedef struct gm_choices {
    bool (*get)(gm_device *dev, int i, gm_choice *out);
    gm_status (*take)(gm_device *dev, const gm_choice *c);
    char *(*about)(const gm_device *dev, char *buf, size_t size);
} gm_choices;

/* Gives choice i, from 0, of those that the device has made or was given. false: there are no more. */
bool gm_choices_get(gm_device *dev, int i, gm_choice *out);
/* From the next product of the kind on, the choice counts, whatever counted before. `tried` is not read. GM_EINVAL: the
 * device has no choices, or there is no way of this name. Whether the way can make the kind is found when the kind is
 * met: that product then fails with GM_EINVAL. */
gm_status gm_choices_take(gm_device *dev, const gm_choice *c);
/* Writes what choices depend on beside their kinds: the device and the library. "": the device has no choices. Returns
 * buf. */
char *gm_choices_about(const gm_device *dev, char *buf, size_t size);

#endif
