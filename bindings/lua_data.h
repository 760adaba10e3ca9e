/* lua_data.h - what the bindings of host/data share. */
#ifndef GM_LUA_DATA_H
#define GM_LUA_DATA_H

#include "gm_lua.h"

#include "../host/data/dataset.h"
#include "../host/data/loader.h"

typedef struct gm_dataset_box {
    gm_dataset *dataset;
} gm_dataset_box;

gm_dataset_box *gm_push_dataset(lua_State *L);                /* an empty one, to be filled */
gm_dataset     *gm_check_dataset(lua_State *L, int arg);      /* raises for anything else */
gm_loader      *gm_check_loader(lua_State *L, int arg);       /* raises for a loader that was closed */
int             gm_open_batches(lua_State *L);                /* lua_batches.c; gm_open_data opens it */
int             gm_open_pictures(lua_State *L);               /* lua_pictures.c; likewise */
int             gm_open_table(lua_State *L);                  /* lua_table.c; likewise */
int             gm_open_clicks(lua_State *L);                 /* lua_clicks.c; likewise */
const char    **gm_push_texts(lua_State *L, int arg, int *n); /* a list of texts as a userdata; the list owns them */
int             gm_push_image_sample(lua_State *L, const gm_dataset *d, int64_t epoch,
                                     int64_t i); /* dataset_get of pictures: x, y */

/* The kernel of the user that the table at `at` describes: as gm_kernel_open and gm_kernel_at. lua_kernel.c */
gm_status gm_read_kernel(lua_State *L, int at, gm_kernel_use *k);

/* Fields of the table `arg`. */
int64_t gm_field_whole(lua_State *L, int arg, const char *name, int64_t otherwise);
/* Reads a list of numbers into to[most] -> how many it has, 0 where there is none. More than `most`: none is read. */
int gm_field_numbers(lua_State *L, int arg, const char *name, int most, double *to);

#endif
