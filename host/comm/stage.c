/* stage.c - see stage.h. */
#include "stage.h"

#include <stdint.h>
#include <stdlib.h>

#define BLOCKS  64
#define LEAST   ((size_t)64 << 10) /* bytes of a block */
#define LARGEST ((size_t)1 << 20)  /* bytes of a message: a longer one is read as fast where it lies */
#define SUMMED  ((size_t)8 << 20)  /* of one that a sum replaces, where it is slow to write to its lines at once */
#define ALL     ((size_t)32 << 20) /* of all blocks together */
#define SEVERAL 2 /* ranks that read the same bytes: one copy for all of them costs less than theirs by the system */

typedef struct block {
    char       *at;
    size_t      room;
    int         uses, tag;
    const void *of; /* n bytes that it is a copy of */
    size_t      n;
} block;

struct gm_stage {
    gm_arena      *arena;
    bool           messages;
    gm_line_stores stores;
    int            n;
    size_t         all;
    int            telling; /* of the operation that told most lately how much it sends: its tag, */
    size_t         told;    /* as many bytes (0: none has), */
    int            ranks;   /* and to how many ranks the same ones go */
    block          block[BLOCKS];
};

gm_status gm_stage_new(gm_arena *arena, bool messages, gm_line_stores stores, gm_stage **out)
{
    gm_stage *s = calloc(1, sizeof *s);
    if (!s) return GM_FAIL(GM_ENOMEM, "no memory for copies of messages");
    s->arena = arena;
    s->messages = messages;
    s->stores = stores;
    *out = s;
    return GM_OK;
}

void gm_stage_free(gm_stage *s)
{
    if (!s) return;
    for (int i = 0; i < s->n; i++) gm_arena_give(s->arena, s->block[i].at, s->block[i].room);
    free(s);
}

static bool lies_in_arena(const gm_stage *s, const void *bytes)
{
    return (uintptr_t)bytes - (uintptr_t)gm_arena_base(s->arena) < gm_arena_size(s->arena);
}

/* While an operation is under way nobody changes the bytes. What one that failed has left may be in use for long. */
static block *copy_of(gm_stage *s, const void *bytes, size_t n, int tag)
{
    for (int i = 0; i < s->n; i++) {
        block *b = &s->block[i];
        if (b->uses && b->tag == tag && b->of == bytes && b->n == n) return b;
    }
    return NULL;
}

static block *make_block(gm_stage *s, size_t n)
{
    size_t room = LEAST;
    void  *at;
    while (room < n) room *= 2;
    if (s->n == BLOCKS || s->all + room > ALL || gm_arena_take(s->arena, room, &at) != GM_OK) return NULL;
    s->all += room;
    s->block[s->n] = (block){.at = at, .room = room};
    return &s->block[s->n++];
}

/* The smallest one that is free and large enough, or a new one. */
static block *free_block(gm_stage *s, size_t n)
{
    block *best = NULL;
    for (int i = 0; i < s->n; i++) {
        block *b = &s->block[i];
        if (!b->uses && b->room >= n && (!best || b->room < best->room)) best = b;
    }
    return best ? best : make_block(s, n);
}

void gm_stage_tell(gm_stage *s, int tag, size_t bytes, int ranks)
{
    s->telling = tag;
    s->told = bytes;
    s->ranks = ranks;
}

/* Does the operation of this tag send more than is worth a copy? */
static bool sends_much(const gm_stage *s, int tag) { return s->telling == tag && s->told > LARGEST; }

static bool goes_to_several(const gm_stage *s, int tag) { return s->telling == tag && s->ranks >= SEVERAL; }

/* Is it better to copy such a message than to let others read it where it lies? */
static bool is_worth_it(const gm_stage *s, size_t n, int tag)
{
    if (sends_much(s, tag)) return false;
    if (tag == GM_STAGE_ALONE) return n <= (s->stores == GM_STORES_PLAIN ? LARGEST : SUMMED);
    return (s->messages || goes_to_several(s, tag)) && n <= LARGEST;
}

char *gm_stage_put(gm_stage *s, const void *bytes, size_t n, int tag)
{
    if (!is_worth_it(s, n, tag) || lies_in_arena(s, bytes)) return NULL;
    block *b = tag == GM_STAGE_ALONE ? NULL : copy_of(s, bytes, n, tag);
    if (!b) {
        if (!(b = free_block(s, n))) return NULL;
        gm_copy_for_others(b->at, bytes, n, s->stores);
        b->of = bytes;
        b->n = n;
        b->tag = tag;
    }
    b->uses++;
    return b->at;
}

void gm_stage_drop(gm_stage *s, const char *copy)
{
    for (int i = 0; i < s->n; i++)
        if (s->block[i].at == copy) s->block[i].uses--;
}
