/* gm_lua.h - what the files of bindings/ share: the rank, handles, arguments, errors.
 *
 * A binding checks its arguments, makes one C call, and pushes the result. The order matters: it makes the userdata
 * first, because lua_newuserdata may raise an error, and then there is no value yet that could leak. It makes the value
 * second:
 *
 *     gm_handle *h = gm_push_handle(L);
 *     gm_value  *v;
 *     L_TRY(L, gm_something(r, x, &v));
 *     gm_handle_fill(r, h, v, "something"); */
#ifndef GM_LUA_H
#define GM_LUA_H

#include <lauxlib.h>
#include <lua.h>
#include "../host/autograd/apply.h"
#include "../host/autograd/scope.h"
#include "../host/tier/tier.h"
#include "declare.h"

gm_rank *gm_lua_rank(lua_State *L);

/* Tensors. */
gm_handle *gm_push_handle(lua_State *L);          /* pushes an empty handle */
gm_handle *gm_test_handle(lua_State *L, int arg); /* NULL: not a tensor */
gm_handle *gm_check_handle(lua_State *L, int arg);
gm_value  *gm_check_value(lua_State *L, int arg); /* raises for a released tensor; the message names what made it */
/* Raises an error, with the name of op, if v cannot be written in place: it is partial, or it requires a gradient and
 * recording is on (gm_value_write). */
void      gm_check_written(lua_State *L, const gm_value *v, const char *op);
gm_value *gm_opt_value(lua_State *L, int arg); /* NULL for nil, none and false */
/* Gives a list of tensors as an array, which it pushes and the garbage collector owns. */
gm_value **gm_push_values(lua_State *L, int arg, int *n);

/* The length of the list at stack index `table`, which is part of argument arg. Raises if the table has any other key:
 * sum{dim=1} would otherwise be a list without entries. */
size_t gm_check_list(lua_State *L, int table, int arg);
/* Arguments. Shapes are lists of integers, or (when `rest` allows) the arguments from arg on. */
int      gm_check_shape(lua_State *L, int arg, int64_t *shape); /* table; returns ndim */
int      gm_check_sizes(lua_State *L, int arg, int64_t *shape); /* table, or numbers from arg to the top */
int64_t  gm_check_integer(lua_State *L, int arg);               /* a whole number within 2^53 */
int      gm_check_dim_arg(lua_State *L, int arg, int ndim);     /* 1-based or negative -> 0-based */
uint32_t gm_opt_dims(lua_State *L, int arg, int ndim);          /* nil, number or list -> bit mask */
gm_dtype gm_check_dtype(lua_State *L, int arg);
gm_dtype gm_opt_dtype(lua_State *L, int arg, gm_dtype otherwise);
/* Reads attributes by the names of attrs.def, with dimensions as in C. Unknown names raise. nil: the defaults. */
void gm_read_attrs(lua_State *L, int arg, gm_attrs *attrs);
/* Reads a layout; lua_layout.c describes its form. */
void gm_check_layout(lua_State *L, int arg, const gm_mesh *mesh, gm_layout *out);
/* Pops the value at the top of the stack, a list of axes or nil, and returns the mask of these axes. */
uint32_t gm_pop_axis_set(lua_State *L);
/* A field of the table at arg, or the default if it is missing; arg may be nil. */
double gm_field_number(lua_State *L, int arg, const char *name, double otherwise);
bool   gm_field_flag(lua_State *L, int arg, const char *name);

/* Sets table[name] = v, for the table at the top of the stack. */
void gm_set_number(lua_State *L, const char *name, double v);
void gm_set_text(lua_State *L, const char *name, const char *text);

/* Pushes { parameter = i + 1, name, tensor }: a state of parameter i, laid out so. The tensor shares t's memory. */
void gm_push_state(lua_State *L, int i, const char *name, gm_tensor *t, const gm_value *parameter,
                   const gm_layout *layout);
/* A tier, which its userdata owns; and "host" or "disk". */
gm_tier     *gm_check_tier(lua_State *L, int arg);
gm_tier_kind gm_check_tier_kind(lua_State *L, int arg);
/* The function at arg as a callback, which its receiver owns. */
gm_callback gm_check_callback(lua_State *L, int arg);

/* What the table at arg says of one update: { lr, clip = 1, loss_scale = 1, control = of core.step_control or nil }. */
typedef struct gm_update {
    double     lr, clip, loss_scale;
    gm_tensor *control; /* borrowed; NULL: none */
} gm_update;
gm_update gm_check_update(lua_State *L, int arg);

struct gm_control    *gm_check_control(lua_State *L, int arg);  /* of core.step_control; raises for a closed one */
struct gm_supervisor *gm_lua_supervisor(lua_State *L, int arg); /* the job of core.job_start; raises for a closed one */

/* For callbacks of C. Calls the function that lies below its n_args arguments on the stack, without results, in a scope
 * of its own. Pops function and arguments in any case. handler: stack index for lua_pcall, or 0. GM_ELUA: the function
 * raised an error. The error is kept for gm_raise; gm_last_error() has its message, and C may add the place to it. */
gm_status gm_call_from_c(lua_State *L, int n_args, int handler);
/* Raises gm_last_error(): as a string behind the user's line, or as an object of ganymede.base.failure if other ranks
 * have a part in it. For GM_ELUA it raises the error of the callback again, unchanged; to a string it adds what C has
 * added to the message. */
int gm_raise(lua_State *L, gm_status st);
/* Pushes "recipe.lua:7: ", the innermost line that is not in Ganymede's own Lua, for messages; and two other values. */
const char *gm_push_users_line(lua_State *L);
/* Raises the error of the pending stop (Ctrl-C, a time limit, the end of another rank), after a call that the stop has
 * ended early (GM_EINTERRUPT). Returns if nothing is pending. */
void gm_raise_stop(lua_State *L);
/* Pushes an object of ganymede.base.failure, which its function `maker` makes: "new", or "new_peer" for a rank that
 * ends because another rank has failed. */
void gm_push_failure_object(lua_State *L, const char *maker, int exit_code, const char *text);

/* Runs a call that may allocate. If memory is short, collects garbage and tries once more. This may be done only in a
 * lua_CFunction: a full collection under an FFI call from a trace never returns. */
#define L_TRY(L, expr)                               \
    do {                                             \
        gm_status st_ = (expr);                      \
        if (st_ == GM_ENOMEM) {                      \
            lua_gc((L), LUA_GCCOLLECT, 0);           \
            st_ = (expr);                            \
        }                                            \
        if (st_ != GM_OK) return gm_raise((L), st_); \
    } while (0)

/* Pushes nil, gm_last_error() and its kind ("corrupt", "io", "memory", "invalid"), and returns 3. For calls on files;
 * ganymede.base.failure turns their failures into an exit status. */
int gm_push_failure(lua_State *L, gm_status st);
#define L_OR_NIL(L, expr)                                   \
    do {                                                    \
        gm_status st_ = (expr);                             \
        if (st_ != GM_OK) return gm_push_failure((L), st_); \
    } while (0)

/* Makes the metatable called `name` for userdata with these methods. gc is called for each userdata that is collected.
 */
void gm_new_class(lua_State *L, const char *name, const gm_declaration *methods, lua_CFunction gc);

/* Each file has such a function, which adds the file's functions to the table at the top of the stack. */
int gm_open_handles(lua_State *L);
int gm_open_tensor(lua_State *L);
int gm_open_in_place(lua_State *L);
int gm_open_pages(lua_State *L);
int gm_open_parameter(lua_State *L);
int gm_open_ops(lua_State *L);
int gm_open_views(lua_State *L);       /* after gm_open_ops: adds to core.ops */
int gm_open_few_bits(lua_State *L);    /* after gm_open_ops: adds to core.ops */
int gm_open_float8(lua_State *L);      /* after gm_open_ops: adds to core.ops */
int gm_open_images(lua_State *L);      /* after gm_open_ops: adds to core.ops */
int gm_open_convolution(lua_State *L); /* after gm_open_ops: adds to core.ops */
int gm_open_tables(lua_State *L);      /* after gm_open_ops: adds to core.ops */
int gm_open_recurrent(lua_State *L);
int gm_open_autograd(lua_State *L);
int gm_open_tape(lua_State *L);
int gm_open_region(lua_State *L);
int gm_open_optim(lua_State *L);
int gm_open_muon(lua_State *L);
int gm_open_whiten(lua_State *L);
int gm_open_average(lua_State *L);
int gm_open_step_control(lua_State *L);
int gm_open_rank(lua_State *L);
int gm_open_run_op(lua_State *L);
int gm_open_sort(lua_State *L);
int gm_open_json(lua_State *L);
int gm_open_control(lua_State *L);
int gm_open_launch(lua_State *L);
int gm_open_terminal(lua_State *L);
int gm_open_data(lua_State *L);
int gm_open_tier(lua_State *L);
int gm_open_checkpoint(lua_State *L);
int gm_open_apart(lua_State *L);
int gm_open_arrays(lua_State *L);
int gm_open_text(lua_State *L);
int gm_open_tokenize(lua_State *L);
int gm_open_pick(lua_State *L);
int gm_open_layout(lua_State *L);
int gm_open_comm(lua_State *L);
int gm_open_traffic(lua_State *L);
int gm_open_collective(lua_State *L);
int gm_open_sharded(lua_State *L);
int gm_open_experts(lua_State *L);
int gm_open_pipeline(lua_State *L);
int gm_open_energy(lua_State *L);
int gm_open_process(lua_State *L);
int gm_open_live(lua_State *L);
int gm_open_plan(lua_State *L);
int gm_open_copy(lua_State *L);
int gm_open_simulate(lua_State *L);
int gm_open_graph(lua_State *L);
int gm_open_step_end(lua_State *L);
int gm_open_choices(lua_State *L);
int gm_open_files(lua_State *L);
int gm_open_modules(lua_State *L);

/* gm_declare alone registers functions, and gm_bad_argument says what is wrong, with their names. */
#pragma GCC poison luaL_register luaL_openlib luaL_Reg lua_pushcclosure luaL_argerror luaL_typerror

#endif
