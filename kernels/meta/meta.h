/* meta.h - the backend without data: it knows shapes, FLOPs and bytes only. It counts memory and takes none. */
#ifndef GM_META_H
#define GM_META_H
#include "../device.h"
extern const gm_backend gm_meta;
/* The kernel of every op: values where all inputs are known and little work is to be done; else outputs are
 * forgotten. */
gm_status gm_meta_known(gm_device *dev, const gm_call *call);
#endif
