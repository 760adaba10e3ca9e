/* apart.h - parts of a checkpoint whose ranks share no folder: each lies in the memory of a machine, and its copy in
 * that of a neighbour (lua/ganymede/checkpoint/neighbours.lua).
 *
 *     FOLDER/step-00001200/rank-00003.safetensors   the boxes of rank 3: its own, or a copy
 *     FOLDER/step-00001200/rank-00003.json          the index of that file; written last (parts.h)
 *
 * Any folder that has the .json files of all ranks of one save can be joined: it then has an index.json, and is a
 * checkpoint of which files may be missing (gm_checkpoint_open_partly).
 * A file travels between machines as a tensor of bytes that is the file (gm_apart_send, gm_apart_receive). The trap:
 * a file of /dev/shm whose memory the system does not have ends the process at the first write to its mapping, so that
 * the room is taken before. */
#ifndef GM_CHECKPOINT_APART_H
#define GM_CHECKPOINT_APART_H

#include <stdint.h>
#include "../../kernels/tensor.h"

#define GM_APART_TOKEN 64

/* What a part says of itself. */
typedef struct gm_apart {
    int      world;                 /* ranks that saved */
    char     token[GM_APART_TOKEN]; /* of the save */
    char     digest[16];            /* of what was saved, and how it was cut */
    uint64_t bytes;                 /* of its file of data */
} gm_apart;

/* Reads what the part of a rank says, and checks that its file of data fits. data: its checksums, too. GM_ECORRUPT: it
 * does not fit, or is the part of another rank. GM_EIO: there is none. */
gm_status gm_apart_look(const char *folder, int rank, bool data, gm_apart *out);
/* Writes index.json from the .json files of ranks 0 .. world - 1, which lie in the folder. GM_ECORRUPT: they are not of
 * one save, or do not cover each tensor once. GM_EIO: one is missing. */
gm_status gm_apart_join(const char *folder, int world);

/* A file as a tensor u8 (bytes), in memory of the host; the caller has the reference. dev: on_host. GM_EIO. */
gm_status gm_apart_send(gm_device *dev, const char *path, gm_tensor **out);
/* The same of a new file of so many bytes, which replaces one of that name. GM_EIO: also where there is no room. */
gm_status gm_apart_receive(gm_device *dev, const char *path, uint64_t bytes, gm_tensor **out);

#endif
