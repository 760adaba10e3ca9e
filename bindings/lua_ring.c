/* lua_ring.c - the Lua face of host/parallel/sharded/ring.h: attention over a sequence that is cut. */
#include "gm_lua.h"

#include "../host/parallel/sharded/ring.h"

/* Field `balance` of the options: nil, true or false. */
static gm_ring_balance balance_of(lua_State *L, int arg)
{
    if (lua_isnoneornil(L, arg)) return GM_RING_AUTO;
    lua_getfield(L, arg, "balance");
    gm_ring_balance b = lua_isnil(L, -1) ? GM_RING_AUTO : lua_toboolean(L, -1) ? GM_RING_ZIGZAG : GM_RING_CONTIGUOUS;
    lua_pop(L, 1);
    return b;
}

/* ring_attention(q (b, s, h, d), k, v (b, t, hk, d), { causal, scale, dropout, key_mask, balance }) -> (b, s, h, d);
 * collective over the axes that cut the sequence. balance: are the queries of a causal attention shared out anew? nil:
 * where it pays */
static int ring_attention(lua_State *L)
{
    gm_attrs        a;
    gm_rank        *r = gm_lua_rank(L);
    gm_value       *q = gm_check_value(L, 1), *k = gm_check_value(L, 2), *v = gm_check_value(L, 3), *o;
    bool            four = q->ndim == 4 && k->ndim == 4;
    gm_ring_balance balance = balance_of(L, 4);
    gm_value  *mask = gm_attention_options(L, 4, four ? q->shape[0] : 0, four ? q->shape[2] : 0, four ? q->shape[1] : 0,
                                          four ? k->shape[1] : 0, &a);
    gm_handle *h = gm_push_handle(L);
    L_TRY(L, gm_ring_attention(r, q, k, v, mask, &a, balance, &o));
    gm_handle_fill(r, h, o, "ring_attention");
    return 1;
}

int gm_open_ring(lua_State *L)
{
    static const gm_lua_option ring_options[] = {
        GM_ATTENTION_OPTIONS,
        {"balance", "boolean", "where it pays", NULL, "share the queries of a causal attention out anew?"},
        GM_LAST_OPTION};
    static const gm_declaration functions[] = {
        {"ring_attention", ring_attention, "q tensor, k tensor, v tensor, options options?", ring_options, NULL, 0, 0},
        GM_LAST_FUNCTION};
    gm_declare(L, functions);
    return 0;
}
