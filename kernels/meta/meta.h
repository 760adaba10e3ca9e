/* meta.h - the backend without data: shapes, FLOPs and bytes only. Memory is counted, never taken. */
#ifndef GM_META_H
#define GM_META_H
#include "../device.h"
extern const gm_backend gm_meta;
#endif
