/* callback.h - calls from C back to its user, without knowing Lua.
 *
 * bindings/ makes callbacks, whose calls go through lua_pcall. The struct that stores a callback owns it and calls
 * release once, never in a place where Lua could not run. */
#ifndef GM_CALLBACK_H
#define GM_CALLBACK_H

#include <stdbool.h>
#include "../../kernels/status.h"

struct gm_value;

typedef struct gm_callback {
    /* in[n_in] are borrowed; NULL entries are allowed. out[n_out] starts as NULL and receives references where
     * want[n_out] asks for them (want NULL: the callee is not told). GM_ELUA, with the message in gm_last_error(): the
     * callee raised an error. */
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
