/* lua_kernel.c - transforms of users in C (host/data/kernel.h), as lua/ganymede/data/native_transform.lua describes
 * them: { name, dtype, shape, parameters, and library and symbol, or address; user }, where addresses are numbers. */
#include <string.h>

#include "lua_data.h"

static const char *text_of(lua_State *L, int at, const char *name)
{
    lua_getfield(L, at, name);
    const char *text = lua_tostring(L, -1);
    lua_pop(L, 1); /* the table keeps it */
    return text;
}

static void *address_of(lua_State *L, int at, const char *name)
{
    return (void *)(uintptr_t)gm_field_number(L, at, name, 0);
}

static int read_list(lua_State *L, int at, const char *name, int most, double *to)
{
    int n = gm_field_numbers(L, at, name, most, to);
    if (n > most) luaL_error(L, "NativeTransform: %s has at most %d numbers, not %d", name, most, n);
    return n;
}

gm_status gm_read_kernel(lua_State *L, int at, gm_kernel_use *k)
{
    double      shape[GM_KERNEL_DIMS];
    const char *library = text_of(L, at, "library"), *symbol = text_of(L, at, "symbol"), *name = text_of(L, at, "name");
    *k = (gm_kernel_use){.user = address_of(L, at, "user")};
    lua_getfield(L, at, "dtype");
    k->dtype = gm_check_dtype(L, lua_gettop(L));
    lua_pop(L, 1);
    k->n_parameters = read_list(L, at, "parameters", GM_KERNEL_PARAMETERS, k->parameters);
    k->ndim = read_list(L, at, "shape", GM_KERNEL_DIMS, shape);
    for (int d = 0; d < k->ndim; d++) k->shape[d] = (int64_t)shape[d];
    strncpy(k->name, name ? name : "kernel", sizeof k->name - 1);
    if (library) return gm_kernel_open(library, symbol ? symbol : "", &k->kernel);
    return gm_kernel_at(address_of(L, at, "address"), &k->kernel);
}
