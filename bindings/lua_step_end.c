/* lua_step_end.c - what the host knows at the end of a training step, kept for whoever makes such a step without its
 * Lua code (ganymede.train.graph): userdata "gm.step_end". These are the gradients of parameters
 * (host/autograd/left.h), and how many random numbers were drawn where, and for which rows of the batch
 * (gm_rank_moment): what a program draws next depends on them. */
#include "../host/autograd/left.h"
#include "gm_lua.h"

#define STEP_END "gm.step_end"

typedef struct box {
    gm_left       *left; /* NULL: closed */
    gm_rank_moment moment;
} box;

/* step_end(parameters) -> an object that keeps how the step has ended that has just been made */
static int step_end(lua_State *L)
{
    int n;
    lua_settop(L, 1);
    gm_value **parameters = gm_push_values(L, 1, &n);
    box       *b = lua_newuserdata(L, sizeof *b);
    *b = (box){0};
    luaL_getmetatable(L, STEP_END);
    lua_setmetatable(L, -2);
    L_TRY(L, gm_rank_remember(gm_lua_rank(L), &b->moment));
    L_TRY(L, gm_left_new(n, parameters, &b->left));
    return 1;
}

/* e:put_back(): all that is as it was then */
static int put_back(lua_State *L)
{
    box           *b = gm_check_object(L, 1, STEP_END);
    gm_rank_moment moment;
    if (!b->left) gm_bad_argument(L, 1, "this end of a step was closed");
    L_TRY(L, gm_rank_copy_moment(&b->moment, &moment));
    gm_rank_exchange(gm_lua_rank(L), &moment);
    gm_rank_forget(&moment);
    gm_left_put_back(b->left);
    return 0;
}

static int close(lua_State *L)
{
    box *b = gm_check_object(L, 1, STEP_END);
    gm_rank_forget(&b->moment);
    gm_left_free(b->left);
    b->left = NULL;
    return 0;
}

int gm_open_step_end(lua_State *L)
{
    static const gm_declaration methods[] = {GM_FUNCTION("put_back", put_back, "end object"),
                                             GM_FUNCTION("close", close, "end object"), GM_LAST_FUNCTION};
    static const gm_declaration functions[] = {GM_FUNCTION("step_end", step_end, "parameters table"), GM_LAST_FUNCTION};
    gm_new_class(L, STEP_END, methods, close);
    gm_declare(L, functions);
    return 0;
}
