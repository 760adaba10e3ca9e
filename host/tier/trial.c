/* trial.c - see trial.h. */
#define _GNU_SOURCE
#include "trial.h"

#include <stdlib.h>
#include <string.h>
#include "../../kernels/clock.h"

#define PART ((size_t)8 << 20) /* of a transfer */

typedef struct trial {
    gm_disk *disk;
    char    *memory[2]; /* two transfers are under way at once */
    uint64_t at, bytes;
} trial;

static gm_status begin(trial *t, bool write, uint64_t part, char *memory, gm_disk_transfer **out)
{
    uint64_t at = t->at + part * PART;
    return write ? gm_disk_write(t->disk, at, memory, PART, out) : gm_disk_read(t->disk, at, memory, PART, out);
}

/* Two transfers at a time over the whole range: even parts one way, odd parts the other. */
static gm_status pass(trial *t, bool even_writes, bool odd_writes, double *speed)
{
    gm_disk_transfer *under_way[2] = {NULL, NULL};
    gm_status         st = GM_OK;
    double            begun = gm_now();
    for (uint64_t part = 0; part < t->bytes / PART && st == GM_OK; part++) {
        int k = (int)(part % 2);
        if (under_way[k]) st = gm_disk_wait(t->disk, under_way[k]);
        under_way[k] = NULL;
        if (st == GM_OK) st = begin(t, k ? odd_writes : even_writes, part, t->memory[k], &under_way[k]);
    }
    for (int k = 0; k < 2; k++) {
        gm_status last = under_way[k] ? gm_disk_wait(t->disk, under_way[k]) : GM_OK;
        if (st == GM_OK) st = last;
    }
    *speed = (double)t->bytes / (gm_now() - begun);
    return st;
}

gm_status gm_disk_measure(const gm_disk_settings *settings, uint64_t bytes, gm_disk_speed *out)
{
    trial     t = {.bytes = (bytes + 2 * PART - 1) / (2 * PART) * 2 * PART};
    gm_status st = GM_OK;
    for (int k = 0; k < 2; k++) {
        t.memory[k] = aligned_alloc(GM_DISK_ALIGN, PART);
        if (t.memory[k]) memset(t.memory[k], 0x5a, PART);
        else st = GM_FAIL(GM_ENOMEM, "no memory for a trial of the disk");
    }
    if (st == GM_OK) st = gm_disk_open(settings, &t.disk);
    if (st == GM_OK) st = gm_disk_reserve(t.disk, t.bytes, &t.at);
    double first; /* blocks that are written for the first time take longer */
    if (st == GM_OK) st = pass(&t, true, true, &first);
    if (st == GM_OK) st = pass(&t, true, true, &out->write);
    if (st == GM_OK) st = pass(&t, false, false, &out->read);
    if (st == GM_OK) st = pass(&t, false, true, &out->both);
    gm_disk_close(t.disk);
    free(t.memory[0]);
    free(t.memory[1]);
    return st;
}
