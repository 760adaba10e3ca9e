/* damage.c - which samples of a dataset were left out, see dataset.h. A bit for each sample, and messages that wait. */
#include "dataset.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAITING 16
#define LONGEST 512

struct gm_damage {
    pthread_mutex_t lock;
    int64_t         count;
    int             first, waiting;
    char            text[WAITING][LONGEST];
    unsigned char   seen[]; /* a bit for each sample */
};

gm_status gm_damage_new(int64_t length, gm_damage **out)
{
    gm_damage *m = calloc(1, sizeof *m + (size_t)length / 8 + 1);
    if (!m) return GM_FAIL(GM_ENOMEM, "no memory for the marks of %lld samples", (long long)length);
    pthread_mutex_init(&m->lock, NULL);
    *out = m;
    return GM_OK;
}

void gm_damage_free(gm_damage *m)
{
    if (!m) return;
    pthread_mutex_destroy(&m->lock);
    free(m);
}

void gm_damage_note(gm_damage *m, int64_t i, const char *why)
{
    unsigned char bit = (unsigned char)(1u << i % 8);
    pthread_mutex_lock(&m->lock);
    bool known = m->seen[i / 8] & bit;
    if (!known) {
        m->seen[i / 8] |= bit;
        m->count++;
        if (m->waiting < WAITING) snprintf(m->text[(m->first + m->waiting++) % WAITING], LONGEST, "%s", why);
    }
    pthread_mutex_unlock(&m->lock);
}

int64_t gm_damage_count(gm_damage *m)
{
    pthread_mutex_lock(&m->lock);
    int64_t n = m->count;
    pthread_mutex_unlock(&m->lock);
    return n;
}

bool gm_damage_take(gm_damage *m, char *text, size_t room)
{
    pthread_mutex_lock(&m->lock);
    bool some = m->waiting > 0;
    if (some) {
        snprintf(text, room, "%s", m->text[m->first]);
        m->first = (m->first + 1) % WAITING, m->waiting--;
    }
    pthread_mutex_unlock(&m->lock);
    return some;
}
