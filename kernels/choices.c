/* choices.c - see choices.h. */
#include "choices.h"

bool gm_choices_get(gm_device *dev, int i, gm_choice *out)
{
    return dev->backend->choices && dev->backend->choices->get(dev, i, out);
}

gm_status gm_choices_take(gm_device *dev, const gm_choice *c)
{
    if (!dev->backend->choices)
        return GM_FAIL(GM_EINVAL, "%s has one way to make products, and nothing to choose from", dev->backend->name);
    return dev->backend->choices->take(dev, c);
}

char *gm_choices_about(const gm_device *dev, char *buf, size_t size)
{
    buf[0] = 0;
    return dev->backend->choices ? dev->backend->choices->about(dev, buf, size) : buf;
}
