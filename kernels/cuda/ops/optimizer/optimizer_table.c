/* optimizer_table.c - see optimizer_table.h. */
#include "optimizer_table.h"

#include <stdlib.h>
#include <string.h>
#include "../../runtime/graph.h"

struct gm_tables {
    uint64_t clock;
    struct gm_table {
        gm_entry *entries; /* what the device has */
        int64_t   n;
        void     *device;
        size_t    bytes; /* of room there */
        uint64_t  used;
    } table[GM_TABLES];
};

/* The table with these entries, or the one used longest ago. */
static struct gm_table *find(gm_tables *t, const gm_entry *entries, int64_t n, bool *same)
{
    struct gm_table *oldest = &t->table[0];
    for (int i = 0; i < GM_TABLES; i++) {
        struct gm_table *at = &t->table[i];
        *same = at->entries && at->n == n && !memcmp(at->entries, entries, (size_t)n * sizeof *entries);
        if (*same) return at;
        if (at->used < oldest->used) oldest = at;
    }
    return oldest;
}

static void forget(gm_device *dev, struct gm_table *t)
{
    if (t->device) gm_cuda_give(dev, t->device, t->bytes);
    free(t->entries);
    *t = (struct gm_table){0};
}

/* Takes entries. */
static gm_status fill(gm_device *dev, struct gm_table *t, gm_entry *entries, int64_t n)
{
    size_t    bytes = (size_t)n * sizeof *entries;
    gm_status st = GM_OK;
    if (t->bytes < bytes) {
        forget(dev, t);
        st = gm_cuda_take(dev, bytes, &t->device);
        t->bytes = st == GM_OK ? bytes : 0;
    }
    free(t->entries);
    t->entries = entries;
    t->n = n;
    if (st == GM_OK) st = gm_cuda_write(dev, t->device, entries, bytes);
    if (st != GM_OK) forget(dev, t);
    return st;
}

/* A graph has tables of its own: those of the device come and go. */
static gm_status take_for_graph(gm_device *dev, gm_entry *entries, int64_t n, const gm_entry **on_device)
{
    const void *table = NULL;
    gm_status   st = gm_cuda_graph_constant(dev, entries, (size_t)n * sizeof *entries, &table);
    free(entries);
    *on_device = table;
    return st;
}

gm_status gm_table_take(gm_device *dev, gm_entry *entries, int64_t n, const gm_entry **on_device)
{
    gm_cuda *cu = gm_cuda_of(dev);
    bool     same;
    if (cu->graph) return take_for_graph(dev, entries, n, on_device);
    if (!cu->tables) cu->tables = calloc(1, sizeof *cu->tables);
    if (!cu->tables) {
        free(entries);
        return GM_FAIL(GM_ENOMEM, "no memory for the tables of tensors");
    }
    struct gm_table *t = find(cu->tables, entries, n, &same);
    if (same) free(entries);
    else GM_TRY(fill(dev, t, entries, n));
    t->used = ++cu->tables->clock;
    *on_device = t->device;
    return GM_OK;
}

void gm_tables_free(gm_device *dev)
{
    gm_cuda *cu = gm_cuda_of(dev);
    for (int i = 0; cu->tables && i < GM_TABLES; i++) forget(dev, &cu->tables->table[i]);
    free(cu->tables);
    cu->tables = NULL;
}
