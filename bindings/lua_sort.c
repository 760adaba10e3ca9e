/* lua_sort.c - sort along the last dimension; ganymede.tensor.composed makes ops.sort of it. */
#include "gm_lua.h"

/* sort_rows(x, descending) -> values, places from 0, both of the shape of x */
static int sort_rows(lua_State *L)
{
    gm_rank  *r = gm_lua_rank(L);
    gm_attrs  a = gm_attrs_default();
    gm_value *x = gm_check_value(L, 1), *out[2];
    a.descending = lua_toboolean(L, 2);
    gm_handle *y = gm_push_handle(L), *index = gm_push_handle(L);
    L_TRY(L, gm_apply(r, GM_OP_sort, 1, &x, &a, 2, NULL, out));
    gm_handle_fill(r, y, out[0], "sort");
    gm_handle_fill(r, index, out[1], "sort");
    return 2;
}

int gm_open_sort(lua_State *L)
{
    static const gm_declaration functions[] = {GM_FUNCTION("sort_rows", sort_rows, "x tensor, descending boolean"),
                                               GM_LAST_FUNCTION};
    gm_declare(L, functions);
    return 0;
}
