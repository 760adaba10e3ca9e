/* lua_recurrent.c - core.recurrent: LSTM and GRU along a whole sequence, for ganymede.nn.recurrent. */
#include "../host/parallel/sharded/recurrent.h"

#include <string.h>
#include "lua_ops.h"

/* recurrent(kind, x, w, b, h, c, reverse) -> y, and of an LSTM the last c; kind: "LSTM" or "GRU" */
static int recurrent(lua_State *L)
{
    gm_rank    *r = gm_lua_rank(L);
    const char *kind = luaL_checkstring(L, 1);
    bool        lstm = !strcmp(kind, "LSTM");
    gm_value   *in[GM_RNN_INPUTS] = {gm_check_value(L, 2), gm_check_value(L, 3)}, *y, *last;
    if (!lstm && strcmp(kind, "GRU") != 0) gm_bad_argument(L, 1, "should be LSTM or GRU");
    for (int i = GM_RNN_B; i < GM_RNN_INPUTS; i++) in[i] = gm_opt_value(L, 2 + i);
    bool       reverse = lua_toboolean(L, 7);
    gm_handle *h = gm_push_handle(L), *c = lstm ? gm_push_handle(L) : NULL;
    L_TRY(L, gm_recurrent(r, lstm ? GM_OP_lstm_cell : GM_OP_gru_cell, in, reverse, &y, &last));
    gm_handle_fill(r, h, y, "recurrent");
    if (lstm) gm_handle_fill(r, c, last, "recurrent");
    return lstm ? 2 : 1;
}

int gm_open_recurrent(lua_State *L)
{
    static const gm_declaration functions[] = {
        GM_FUNCTION("recurrent", recurrent,
                    "kind string, x tensor, w tensor, b tensor|boolean?, h tensor|boolean?, c tensor|boolean?, "
                    "reverse boolean?"),
        GM_LAST_FUNCTION};
    gm_declare(L, functions);
    return 0;
}
