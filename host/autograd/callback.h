/* callback.h - how C calls back into whatever drives it, without knowing Lua.
 *
 * Made in bindings/ (where the call goes through lua_pcall) and owned by whoever stores it: release
 * is called once, when the owner lets go, and never from a place where Lua could not run. */
#ifndef GM_CALLBACK_H
#define GM_CALLBACK_H

#include <stdbool.h>
#include "../../kernels/status.h"

struct gm_value;

typedef struct gm_callback {
    /* in[n_in] are borrowed, NULL entries allowed; out[n_out] starts NULL and receives references, those that
     * want[n_out] asks for (NULL: it is not told). GM_ELUA with the message in gm_last_error() when the callee
     * raised. */
    gm_status (*call)(void *context, int n_in, struct gm_value *const *in, int n_out, const bool *want,
                      struct gm_value **out);
    void *context;
    void (*release)(void *context);
} gm_callback;

static inline void gm_callback_release(gm_callback *c)
{
    if (c->release) c->release(c->context);
    *c = (gm_callback){0};
}

#endif
