/* op.h - the uniform shape of every op: tensors in, tensors out, attributes.
 *
 * ops.def lists the ops, attrs.def the attributes, functions.def the scalar functions. For each op
 * there is one inference rule (infer.c: checks arguments, gives output shapes and dtypes), one cost
 * rule (cost.c: FLOPs and bytes), and one kernel per backend. The caller allocates the outputs as gm_infer
 * specifies them. Outputs never alias inputs, except the in-out outputs that ops.def marks with '&'.
 * Kernels may assume that gm_infer accepted the call. */
#ifndef GM_OP_H
#define GM_OP_H

#include "tensor.h"

#define GM_MAX_OUT 8 /* outputs of an op that is not one of the multi-tensor ops */

typedef enum gm_op {
#define GM_OP(name, rule, in, out, attrs) GM_OP_##name,
#include "ops.def"
#undef GM_OP
    GM_OP_COUNT
} gm_op;

typedef enum gm_function {
    GM_FN_none = 0,
#define GM_UNARY(name)   GM_FN_##name,
#define GM_BINARY(name)  GM_FN_##name,
#define GM_COMPARE(name) GM_FN_##name,
#include "functions.def"
#undef GM_UNARY
#undef GM_BINARY
#undef GM_COMPARE
    GM_FN_COUNT
} gm_function;

/* A random stream (philox.h). step < 0: take rng_step from the device's step block when run. */
typedef struct gm_stream {
    uint64_t key;
    int64_t  step;
} gm_stream;

/* Where a local block sits in the global tensor whose element indices random ops use.
 * ndim 0: the block is the whole tensor. Otherwise ndim equals the output's. */
typedef struct gm_box {
    int     ndim;
    int64_t shape[GM_MAX_DIMS];  /* of the global tensor */
    int64_t offset[GM_MAX_DIMS]; /* of the block's first element */
} gm_box;

/* A number for each of up to three dimensions of space. GM_SIZES: all alike. */
#define GM_SPACE 3
typedef struct gm_sizes {
    int64_t at[GM_SPACE];
} gm_sizes;
#define GM_SIZES(v) \
    {               \
        {           \
            v, v, v \
        }           \
    }

typedef struct gm_attrs {
#define GM_ATTR(type, name, initial, text) type name;
#include "attrs.def"
#undef GM_ATTR
    const char *name; /* what the user calls the op, for messages; never freed; NULL: gm_op_called finds one */
} gm_attrs;

gm_attrs gm_attrs_default(void); /* every attribute at its initial value */

typedef struct gm_call {
    gm_op             op;
    int               n_in, n_out;
    gm_tensor *const *in;  /* NULL entries: optional inputs not given */
    gm_tensor *const *out; /* NULL entries: optional outputs not wanted */
    const gm_attrs   *attrs;
} gm_call;

typedef gm_status (*gm_kernel)(gm_device *dev, const gm_call *call);
typedef struct gm_backend gm_backend;

/* The dtype and shape that an output must have. */
typedef struct gm_spec {
    gm_dtype dtype;
    int      ndim;
    int64_t  shape[GM_MAX_DIMS];
} gm_spec;

const char *gm_op_name(gm_op op); /* "matmul", ... */
/* The name that messages show: the name in attrs (which may be NULL), else the function of an elementwise op, else the
 * op's own name. */
const char *gm_op_called(gm_op op, const gm_attrs *attrs);
bool        gm_op_parse(const char *name, gm_op *op); /* false: no such op */
/* What a tensor holds. Its name in ops.def tells it: index, target and segment are i32 or i64 (INDICES), condition and
 * key_mask are u8 (FLAGS), integers that one op makes for another (count, order, limits, ...) are i64 (WHOLE), all
 * others are floats. */
typedef enum gm_content { GM_HOLDS_FLOATS, GM_HOLDS_INDICES, GM_HOLDS_FLAGS, GM_HOLDS_WHOLE } gm_content;
/* One name in a string of ops.def. */
typedef struct gm_slot {
    char       name[16];
    gm_content content;
    bool       optional, inout, wide;
} gm_slot;
/* Such a string as a list of slots. The first `fixed` names, those before a '|', come once. repeats: the names after
 * them are a group, which a call gives any number of times, one group after the other. */
#define GM_MAX_SLOTS 9
typedef struct gm_slots {
    const char *list;
    int         n, fixed;
    bool        repeats;
    gm_slot     slot[GM_MAX_SLOTS];
} gm_slots;
void            gm_slots_parse(const char *list, gm_slots *out);
const gm_slots *gm_op_takes(gm_op op); /* the slots of gm_op_inputs(op), parsed once for all calls */
const gm_slots *gm_op_gives(gm_op op); /* the slots of gm_op_outputs(op) */
/* The slot of tensor i (from 0) of a call. */
const gm_slot *gm_slots_at(const gm_slots *slots, int i);

/* The strings of ops.def: "q k v key_mask?" and so on. */
const char *gm_op_inputs(gm_op op);
const char *gm_op_outputs(gm_op op);
const char *gm_op_attrs(gm_op op);
/* Tells whether all results of the op are zeros if its inputs are zeros. */
bool        gm_keeps_zero(gm_op op, const gm_attrs *attrs);
const char *gm_function_name(gm_function f); /* "none", "gelu", ... */
bool        gm_function_parse(const char *name, gm_function *f);

/* Checks inputs and attributes, and writes the spec of each output. Of the outputs it reads only n_out and the in-out
 * ones. In-out outputs must be given; only in an op with the attribute `accumulate`, while it is false, they may be
 * NULL, if the caller allocates them from spec. spec has room for n_out specs, or is NULL to check only. GM_ESHAPE or
 * GM_EINVAL: the message names op and shapes. */
gm_status gm_infer(const gm_call *call, gm_spec *spec);
/* Gives the floating-point operations and the bytes of a call that gm_infer accepted and whose outputs are in place.
 * Each byte that is read or written counts once, also where strides of 0 repeat an element. */
void gm_cost(const gm_call *call, double *flops, double *bytes);
/* Gives the part of these operations that matrix products and attention do. Summed over all ranks of a job, it is the
 * work of a job of one rank. Elementwise operations are not: each rank repeats them on replicated values. */
double gm_cost_products(const gm_call *call);

#endif
