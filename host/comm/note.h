/* note.h - the last call of a rank, in memory that it shares with its keeper, which reads it after the rank's end. */
#ifndef GM_COMM_NOTE_H
#define GM_COMM_NOTE_H

#include <stdint.h>

typedef struct gm_note {
    int64_t     step;      /* steps that were done when the last one began; -1: none has begun */
    const char *call;      /* the last operation between ranks; NULL: none. A text of the program, which both run */
    uint64_t    number;    /* of that call in its group, from 0 */
    char        group[32]; /* the group's name */
} gm_note;

#endif
