/* redistribute_plan_test.c - plans against every walk there is: the least bytes and messages of a search that
 * tries all steps of all axes, with costs worked out from block sizes alone. */
#include <stdlib.h>

#include "../../host/life.h"
#include "../../host/parallel/redistribute.h"
#include "redistribute_blocks.h"
#include "sums.h"

#define AXES  3
#define DIMS  3
#define CODES (1 << (AXES + 2 * AXES * DIMS)) /* partial, then up to AXES cuts of 2 bits for each dimension */

/* A layout as a number: the brute force knows nothing of gm_layout but this. */
typedef struct walk {
    int      size[AXES];
    int64_t  shape[DIMS];
    int      ndim, world;
    unsigned moving;
} walk;

typedef struct best {
    unsigned round;
    uint64_t bytes;
    int      messages;
} best;

static unsigned cut_at(unsigned code, int d, int k) { return code >> (AXES + 2 * (AXES * d + k)) & 3; }

static int cuts(unsigned code, int d)
{
    int n = 0;
    while (n < AXES && cut_at(code, d, n)) n++;
    return n;
}

static unsigned with_cut(unsigned code, int d, int axis)
{
    return code | (unsigned)(axis + 1) << (AXES + 2 * (AXES * d + cuts(code, d)));
}

static unsigned without_last(unsigned code, int d)
{
    return code & ~(3u << (AXES + 2 * (AXES * d + cuts(code, d) - 1)));
}

static int64_t side(const walk *w, unsigned code, int d)
{
    int64_t n = w->shape[d];
    for (int k = 0; k < cuts(code, d); k++) {
        int64_t p = w->size[cut_at(code, d, k) - 1];
        n = n / p + (n % p != 0);
    }
    return n;
}

static uint64_t block(const walk *w, unsigned code)
{
    uint64_t n = 8; /* bytes of f64 */
    for (int d = 0; d < w->ndim; d++) n *= (uint64_t)side(w, code, d);
    return n;
}

static unsigned code_of(const gm_layout *l)
{
    unsigned code = l->partial;
    for (int d = 0; d < DIMS; d++)
        for (int k = 0; k < l->n_cuts[d]; k++) code = with_cut(code, d, l->cut[d][k]);
    return code;
}

static unsigned axes_of(unsigned code)
{
    unsigned axes = 0;
    for (int d = 0; d < DIMS; d++)
        for (int k = 0; k < cuts(code, d); k++) axes |= 1u << (cut_at(code, d, k) - 1);
    return axes;
}

static best     *table;
static unsigned *queue, n_queue, round_now;

static void offer(unsigned code, const best *from, uint64_t bytes, int messages)
{
    best *b = &table[code];
    bytes += from->bytes;
    messages += from->messages;
    if (b->round == round_now && (b->bytes < bytes || (b->bytes == bytes && b->messages <= messages))) return;
    *b = (best){round_now, bytes, messages};
    queue[n_queue++ % CODES] = code;
}

/* Everything that can be done to `code` in one step. */
static void offer_all(const walk *w, unsigned code)
{
    best     from = table[code];
    unsigned partial = code & ((1u << AXES) - 1) & w->moving, world = (unsigned)w->world;
    for (unsigned set = partial; set; set = (set - 1) & partial) {
        unsigned p = 1;
        for (int a = 0; a < AXES; a++) p *= set & 1u << a ? (unsigned)w->size[a] : 1;
        offer(code & ~set, &from, world / p * 2 * (p - 1) * block(w, code), 2 * (int)(p - 1));
    }
    for (int a = 0; a < AXES; a++) {
        unsigned bit = 1u << a, p = (unsigned)w->size[a];
        if (!(w->moving & bit)) continue;
        for (int d = 0; d < w->ndim; d++) {
            unsigned to = with_cut(code & ~bit, d, a);
            if (code & bit) offer(to, &from, world * (p - 1) * block(w, to), (int)(p - 1));
            else if (!(axes_of(code) & bit)) offer(to, &from, 0, 0);
            int n = cuts(code, d);
            if (!n || cut_at(code, d, n - 1) != (unsigned)a + 1) continue;
            unsigned parent = without_last(code, d);
            offer(parent, &from, world * (p - 1) * block(w, code), (int)(p - 1));
            offer(parent | bit, &from, 0, 0);
            for (int e = 0; e < w->ndim; e++) {
                if (e == d) continue;
                to = with_cut(parent, e, a);
                /* what moves: a p-th of the block after its side e was filled up to p pieces */
                uint64_t moved = block(w, code) / (uint64_t)side(w, code, e) * (uint64_t)side(w, to, e);
                offer(to, &from, world * (p - 1) * moved, (int)(p - 1));
            }
        }
        if (!(code & bit) && !(axes_of(code) & bit)) offer(code | bit, &from, 0, 0);
    }
}

/* What counts of an all_reduce over p members of what lies as `code`: the bytes of two rounds, also where it takes one
 * and sends others. */
static uint64_t counted(const walk *w, unsigned p, unsigned code, uint64_t sent)
{
    uint64_t groups = (uint64_t)w->world / p, n = block(w, code);
    assert_int_equal(sent, groups * sum_bytes(p, n));
    return groups * 2 * (p - 1) * n;
}

static best search(const walk *w, unsigned from, unsigned to)
{
    unsigned head = 0;
    n_queue = 0;
    round_now++;
    offer(from, &(best){0}, 0, 0);
    while (head != n_queue) offer_all(w, queue[head++ % CODES]);
    assert_int_equal(table[to].round, round_now);
    return table[to];
}

/* Axes that are not in the same place of the same list, or partial on one side only. */
static unsigned differing(unsigned a, unsigned b)
{
    unsigned axes = (a ^ b) & ((1u << AXES) - 1);
    for (int d = 0; d < DIMS; d++) {
        bool same = true;
        for (int k = 0; k < AXES; k++) {
            unsigned x = cut_at(a, d, k), y = cut_at(b, d, k);
            same = same && x == y;
            if (!same) axes |= (x ? 1u << (x - 1) : 0) | (y ? 1u << (y - 1) : 0);
        }
    }
    return axes;
}

static gm_layout draw_layout(unit_random *r, int ndim)
{
    gm_layout l = gm_layout_replicated();
    for (int start = (int)unit_below(r, AXES), i = 0; i < AXES; i++) {
        int a = (start + i) % AXES, d = (int)unit_below(r, ndim + 2);
        if (d == ndim) l.partial |= 1u << a;
        else if (d < ndim) l.cut[d][l.n_cuts[d]++] = (uint8_t)a;
    }
    return l;
}

/* Gather everything from the inside out, reduce axis by axis, slice: what anybody would write first. */
static uint64_t naive(const walk *w, unsigned code)
{
    uint64_t bytes = 0;
    for (int d = 0; d < w->ndim; d++)
        while (cuts(code, d)) {
            uint64_t p = (uint64_t)w->size[cut_at(code, d, cuts(code, d) - 1) - 1];
            bytes += (uint64_t)w->world * (p - 1) * block(w, code);
            code = without_last(code, d);
        }
    for (int a = 0; a < AXES; a++)
        if (code & 1u << a) bytes += (uint64_t)(w->world / w->size[a] * 2 * (w->size[a] - 1)) * block(w, code);
    return bytes;
}

void gm_test_redistribute_plan_is_cheapest(void **state)
{
    (void)state;
    static const char *const names[AXES] = {"a", "b", "c"};
    unit_random              r = {23};
    table = calloc(CODES, sizeof *table);
    queue = calloc(CODES, sizeof *queue);
    for (int round = 0; round < 300; round++) {
        walk    w = {.ndim = 1 + (int)unit_below(&r, DIMS), .world = 1};
        gm_mesh mesh = gm_mesh_of_one();
        for (int a = 0; a < AXES; a++) {
            w.size[a] = 2 + (int)unit_below(&r, 3);
            w.world *= w.size[a];
            OK(gm_mesh_add_axis(&mesh, names[a], w.size[a]));
        }
        for (int d = 0; d < w.ndim; d++) w.shape[d] = 2 + unit_below(&r, 30);
        gm_layout            from = draw_layout(&r, w.ndim), to = draw_layout(&r, w.ndim), at = from;
        gm_redistribute_step steps[GM_MAX_REDISTRIBUTE_STEPS];
        uint64_t             bytes = 0;
        int                  n, messages = 0;
        OK(gm_redistribute_plan(&mesh, &from, &to, w.ndim, w.shape, 8, steps, &n));
        for (int i = 0; i < n; i++) {
            unsigned p = 1;
            for (int a = 0; a < AXES; a++) p *= steps[i].axes & 1u << a ? (unsigned)w.size[a] : 1;
            bool sum = steps[i].kind == GM_STEP_REDUCE;
            bytes += sum ? counted(&w, p, code_of(&at), steps[i].bytes) : steps[i].bytes;
            if (sum) messages += 2 * (int)(p - 1);
            else if (steps[i].kind == GM_STEP_GATHER || steps[i].kind == GM_STEP_SCATTER ||
                     steps[i].kind == GM_STEP_EXCHANGE)
                messages += (int)(p - 1);
            at = steps[i].after;
        }
        assert_true(gm_layout_equal(&at, &to));
        w.moving = differing(code_of(&from), code_of(&to));
        best b = search(&w, code_of(&from), code_of(&to));
        if (bytes != b.bytes || messages != b.messages) {
            char x[100], y[100];
            fail_msg("%s to %s: %d bytes in %d messages, %d in %d are enough",
                     gm_layout_describe(&mesh, &from, w.ndim, x, sizeof x),
                     gm_layout_describe(&mesh, &to, w.ndim, y, sizeof y), (int)bytes, messages, (int)b.bytes,
                     b.messages);
        }
        assert_true(bytes <= naive(&w, code_of(&from)));
    }
    free(table);
    free(queue);
}

void gm_test_redistribute_plan_refuses(void **state)
{
    (void)state;
    gm_mesh              mesh = gm_mesh_of_one();
    gm_layout            whole = gm_layout_replicated(), cut = gm_layout_cut(0, 1), bad;
    gm_redistribute_step steps[GM_MAX_REDISTRIBUTE_STEPS];
    int                  n;
    OK(gm_mesh_add_axis(&mesh, "row", 2));
    OK(gm_mesh_add_axis(&mesh, "col", 3));
    OK(gm_redistribute_plan(&mesh, &cut, &cut, 1, (int64_t[]){6}, 4, steps, &n));
    assert_int_equal(n, 0);
    bad = cut;
    bad.partial = 1;
    FAILS(GM_EINVAL, "'row' is used twice", gm_redistribute_plan(&mesh, &whole, &bad, 1, (int64_t[]){6}, 4, steps, &n));
    bad = gm_layout_cut(1, 2);
    FAILS(GM_EINVAL, "cuts dimension 2 of a tensor with 1",
          gm_redistribute_plan(&mesh, &bad, &whole, 1, (int64_t[]){6}, 4, steps, &n));
    bad = gm_layout_cut(0, 4);
    FAILS(GM_EINVAL, "axis that the mesh does not have",
          gm_redistribute_plan(&mesh, &bad, &whole, 1, (int64_t[]){6}, 4, steps, &n));
}

/* Six axes that all change at once still find a way, and quickly enough to be used. */
void gm_test_redistribute_plan_many_axes(void **state)
{
    (void)state;
    gm_mesh              mesh = gm_mesh_of_one();
    gm_layout            from = gm_layout_replicated(), to = from;
    gm_redistribute_step steps[GM_MAX_REDISTRIBUTE_STEPS];
    int                  n;
    for (int a = 0; a < 6; a++) {
        char name[2] = {(char)('a' + a), 0};
        OK(gm_mesh_add_axis(&mesh, name, 2));
        from.cut[a / 3][from.n_cuts[a / 3]++] = (uint8_t)a;
        to.cut[1 - a / 3][to.n_cuts[1 - a / 3]++] = (uint8_t)a;
    }
    OK(gm_redistribute_plan(&mesh, &from, &to, 4, (int64_t[]){64, 64, 64, 64}, 4, steps, &n));
    assert_true(n > 0);
    assert_true(gm_layout_equal(&steps[n - 1].after, &to));
}

/* ---- plans that are remembered ---- */

static void expect_remembered(gm_rank *r, const gm_layout *from, const gm_layout *to, int ndim, const int64_t *shape)
{
    gm_redistribute_step        found[GM_MAX_REDISTRIBUTE_STEPS];
    const gm_redistribute_step *kept;
    int                         n, m;
    OK(gm_redistribute_plan(&r->mesh, from, to, ndim, shape, 8, found, &n));
    for (int twice = 0; twice < 2; twice++) {
        OK(gm_redistribute_plan_of(r, from, to, ndim, shape, 8, &kept, &m));
        assert_int_equal(n, m);
        for (int i = 0; i < n; i++) {
            assert_int_equal(found[i].kind, kept[i].kind);
            assert_int_equal(found[i].axes, kept[i].axes);
            assert_int_equal(found[i].dim, kept[i].dim);
            assert_int_equal(found[i].bytes, kept[i].bytes);
            assert_true(gm_layout_equal(&found[i].after, &kept[i].after));
        }
    }
}

/* More keys than there is room for, some that differ in one number only; and another mesh of as many ranks. */
void gm_test_redistribute_plan_memory(void **state)
{
    static const int sizes[2][2] = {{2, 4}, {4, 2}};
    unit_random      draw = {11};
    gm_rank         *r = NULL;
    (void)state;
    OK(gm_rank_new(&r));
    OK(gm_rank_pretend(r, 5, 8));
    for (int k = 0; k < 2; k++) {
        gm_mesh   mesh = gm_mesh_of_one();
        gm_layout bad = gm_layout_cut(2, 1), whole = gm_layout_replicated();
        OK(gm_mesh_add_axis(&mesh, "row", sizes[k][0]));
        OK(gm_mesh_add_axis(&mesh, "col", sizes[k][1]));
        OK(gm_rank_set_mesh(r, &mesh));
        for (int i = 0; i < 1500; i++) {
            int64_t   shape[2] = {1 + (int64_t)unit_below(&draw, 9), 1 + (int64_t)unit_below(&draw, 9)};
            gm_layout from = draw_layout_of(&draw, &mesh, 2, true), to = draw_layout_of(&draw, &mesh, 2, true);
            expect_remembered(r, &from, &to, 2, shape);
        }
        const gm_redistribute_step *steps;
        int                         n;
        for (int twice = 0; twice < 2; twice++)
            assert_int_equal(GM_EINVAL, gm_redistribute_plan_of(r, &whole, &bad, 2, (int64_t[]){4, 4}, 8, &steps, &n));
    }
    gm_rank_free(r);
}
