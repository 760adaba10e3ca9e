/* fake_dnn.h - what the files of the emulation's cuDNN share: fake_dnn.c has the calls and the descriptors, which are
 * bags of attributes; fake_dnn_op.c has tensors and operations. */
#ifndef GM_FAKE_DNN_H
#define GM_FAKE_DNN_H

#include <cudnn_graph.h>

#include <stdbool.h>
#include <stdint.h>

#include "../../kernels/dtype.h"

#define MOST_ATTRIBUTES 16

typedef struct attribute {
    cudnnBackendAttributeName_t name;
    int64_t                     n;
    void                       *data;
    bool                        parts; /* descriptors */
} attribute;

typedef struct bag {
    cudnnBackendDescriptorType_t type;
    attribute                    list[MOST_ATTRIBUTES];
    int                          n;
    bool                         final;
    double                      *values; /* of a tensor while its graph runs */
} bag;

static inline const attribute *find(const bag *d, cudnnBackendAttributeName_t name)
{
    for (int i = 0; i < d->n; i++)
        if (d->list[i].name == name) return &d->list[i];
    return NULL;
}

static inline bag *part(const bag *d, cudnnBackendAttributeName_t name)
{
    const attribute *a = find(d, name);
    return a ? *(bag **)a->data : NULL;
}

static inline const int64_t *numbers(const bag *d, cudnnBackendAttributeName_t name) { return find(d, name)->data; }

static inline int choice(const bag *d, cudnnBackendAttributeName_t name) { return *(int *)find(d, name)->data; }

static inline bool is_virtual(const bag *t) { return find(t, CUDNN_ATTR_TENSOR_IS_VIRTUAL); }
static inline bool is_by_value(const bag *t) { return find(t, CUDNN_ATTR_TENSOR_IS_BY_VALUE); }

extern char gm_fake_dnn_words[512]; /* why the last call was refused */

/* Keeps the reason, and returns s. */
cudnnStatus_t gm_fake_dnn_refuse(cudnnStatus_t s, const char *why);

/* The entry of the pack for the tensor t, or NULL with a complaint. */
void **gm_fake_dnn_entry(const bag *pack, const bag *t);
/* May t be found where the pack says? */
bool     gm_fake_dnn_is_there(const bag *pack, const bag *t);
gm_dtype gm_fake_dnn_dtype(const bag *t);

/* Computes the results of an operation, whose operands the pack has or operations before it. False: refused. */
bool gm_fake_dnn_run(const bag *pack, const bag *op);
/* Operands and results of an operation forget their values. */
void gm_fake_dnn_forget(const bag *op);

#endif
