/* transform_check.c - names of transforms, and which of their numbers are possible; see transform.h. */
#include "transform.h"

const char *gm_transform_name(gm_transform_kind kind)
{
    static const char *const names[] = {"normalize",    "random crop",  "flip",
                                        "resize",       "center crop",  "resized crop",
                                        "color jitter", "rand augment", "native transform"};
    return names[kind];
}

gm_status gm_transform_check(const gm_transform *t)
{
    if (t->padding < 0 || t->padding > 1 << 20)
        return GM_FAIL(GM_EINVAL, "%s: padding is 0 to %d, not %lld", gm_transform_name(t->kind), 1 << 20,
                       (long long)t->padding);
    if (t->kind == GM_RAND_AUGMENT) {
        if (t->among && t->strength >= 0 && t->strength <= 1 && t->ops >= 0 && t->ops <= GM_AUGMENT_OPS_MAX)
            return GM_OK;
        return GM_FAIL(GM_EINVAL, "rand augment: %d operations of strength %g", t->ops, t->strength);
    }
    if (t->kind != GM_RANDOM_FLIP && t->kind != GM_COLOR_JITTER) {
        int64_t wide = t->width || t->kind != GM_RESIZE ? t->width : t->height;
        if (t->height < 1 || wide < 1 || t->height > 1 << 20 || wide > 1 << 20)
            return GM_FAIL(GM_ESHAPE, "%s: sizes are 1 to %d, not %lld x %lld", gm_transform_name(t->kind), 1 << 20,
                           (long long)t->height, (long long)wide);
    }
    if (t->kind == GM_RESIZED_CROP && !(0 < t->scale[0] && t->scale[0] <= t->scale[1] && t->scale[1] <= 1))
        return GM_FAIL(GM_EINVAL,
                       "resized crop: scale %g to %g; two numbers from above 0 to 1 are needed, the smaller "
                       "first",
                       t->scale[0], t->scale[1]);
    if (t->kind == GM_RESIZED_CROP && !(0 < t->ratio[0] && t->ratio[0] <= t->ratio[1]))
        return GM_FAIL(GM_EINVAL, "resized crop: ratio %g to %g; two numbers above 0 are needed, the smaller first",
                       t->ratio[0], t->ratio[1]);
    return GM_OK;
}
