/* lua_sort.c - sort along the last dimension; ganymede.tensor.composed makes ops.sort of it. */
#include "lua_ops.h"

/* sort_rows(x, descending) -> values, places from 0, both of the shape of x */
static int sort_rows(lua_State *L)
{
    gm_attrs  a = gm_attrs_default();
    gm_value *x = gm_check_value(L, 1);
    a.descending = lua_toboolean(L, 2);
    return gm_apply_two(L, GM_OP_sort, x, &a, "sort");
}

int gm_open_sort(lua_State *L)
{
    static const gm_declaration functions[] = {GM_FUNCTION("sort_rows", sort_rows, "x tensor, descending boolean"),
                                               GM_LAST_FUNCTION};
    gm_declare(L, functions);
    return 0;
}
