/* checkpoint_stages_test.c - checkpoints of pipelines, whose stages hold different tensors: the union is saved, each
 * box once and by a rank that holds it, and any other mesh reads it. */
#include "checkpoint_world.h"

#include "../../host/checkpoint/plan.h"
#include "../../host/checkpoint/union.h"

typedef struct pipeline {
    world w;
    int   axis, stages;
    bool  held[MOST][MOST]; /* by tensor, by stage */
} pipeline;

/* Up to six ranks with an axis pipeline of one to three stages somewhere among others. */
static void draw_pipeline(unit_random *r, pipeline *p)
{
    static const char *const names[] = {"data", "row", "col"};
    *p = (pipeline){.axis = (int)unit_below(r, 3)};
    p->w.mesh = gm_mesh_of_one();
    for (int a = 0; a < 3; a++) {
        int size = 1 + (int)unit_below(r, 3);
        if (gm_mesh_size(&p->w.mesh) * size > MOST) size = 1;
        if (a == p->axis) p->stages = size;
        OK(gm_mesh_add_axis(&p->w.mesh, a == p->axis ? GM_AXIS_PIPELINE : names[a], size));
    }
    p->w.ranks = gm_mesh_size(&p->w.mesh);
}

/* Tensors that the pipeline does not cut, each on at least one stage. */
static void draw_held(unit_random *r, pipeline *p)
{
    static const gm_dtype dtypes[] = {GM_F32, GM_F64, GM_I32};
    p->w.tensors = MOST;
    for (int t = 0; t < MOST; t++) {
        int       ndim = t == 0 ? 0 : 1 + (int)unit_below(r, 3);
        int64_t   shape[3] = {unit_below(r, 8), 1 + unit_below(r, 7), 1 + unit_below(r, 5)};
        gm_layout layout = gm_layout_replicated();
        for (int a = 0; a < 3; a++) {
            int64_t d = unit_below(r, ndim + 2);
            if (a != p->axis && d < ndim) layout.cut[d][layout.n_cuts[d]++] = (uint8_t)a;
        }
        make_tensor(&p->w, t, dtypes[unit_below(r, 3)], ndim, shape, &layout, unit_below(r, 2));
        for (int s = 0; s < p->stages; s++) p->held[t][s] = unit_below(r, 2);
        p->held[t][unit_below(r, p->stages)] = true;
    }
}

static int stage_of(const pipeline *p, int rank)
{
    int c[GM_MAX_AXES];
    gm_mesh_coordinates(&p->w.mesh, rank, c);
    return c[p->axis];
}

/* What the rank holds, on odd stages the last first -> how many. */
static int own_pieces(const pipeline *p, int rank, gm_piece *to)
{
    int n = 0, stage = stage_of(p, rank);
    for (int i = 0; i < p->w.tensors; i++) {
        int t = stage % 2 ? p->w.tensors - 1 - i : i;
        if (p->held[t][stage]) to[n++] = p->w.pieces[rank][t];
    }
    return n;
}

/* What the ranks that share the rank's other coordinates say. */
static void hear(const pipeline *p, int rank, gm_stage_list *lists)
{
    int members[MOST];
    assert_int_equal(gm_mesh_members(&p->w.mesh, 1u << p->axis, rank, members), p->stages);
    for (int s = 0; s < p->stages; s++) {
        gm_piece own[MOST];
        char    *bytes;
        int      n = own_pieces(p, members[s], own);
        OK(gm_save_list(own, n, &bytes, &lists[s].size));
        lists[s].bytes = bytes;
    }
}

static void forget(const pipeline *p, gm_stage_list *lists)
{
    for (int s = 0; s < p->stages; s++) free((char *)(uintptr_t)lists[s].bytes);
}

static gm_status save_as(const pipeline *p, int rank, int64_t step, bool background, gm_save **out)
{
    gm_piece      own[MOST];
    gm_stage_list lists[MOST];
    hear(p, rank, lists);
    gm_save_as as = {.folder = folder,
                     .spared = -1,
                     .step = step,
                     .pieces = own,
                     .n = own_pieces(p, rank, own),
                     .lists = lists,
                     .meta = "{\"step\":1}",
                     .rank = rank,
                     .mesh = &p->w.mesh,
                     .background = background};
    gm_status  st = gm_save_new(&as, out);
    forget(p, lists);
    return st;
}

static void drop(pipeline *p)
{
    drop_tensors(&p->w);
    gm_device_free(p->w.dev);
}

/* The rank's share of the work: every element that it writes is counted, and it holds what it writes. */
static uint32_t count_share(const pipeline *p, int rank, int times[MOST][512], int *empty)
{
    gm_piece      own[MOST];
    gm_planned    planned[MOST];
    gm_union      all;
    gm_stage_list lists[MOST];
    int           n = own_pieces(p, rank, own);
    hear(p, rank, lists);
    OK(gm_union_make(&p->w.mesh, rank, lists, own, n, &all));
    assert_int_equal(all.n, p->w.tensors);
    OK(gm_plan(&p->w.mesh, rank, all.pieces, all.n, planned));
    for (int t = 0; t < all.n; t++) {
        const gm_piece *piece = &all.pieces[t], *block = &p->w.pieces[rank][t];
        assert_string_equal(piece->name, p->w.names[t]);
        assert_true(piece->tensor == (p->held[t][stage_of(p, rank)] ? block->tensor : NULL));
        for (int s = 0; s < p->stages; s++) assert_int_equal(piece->stages[s], p->held[t][s]);
        if (!planned[t].mine) continue;
        assert_true(p->held[t][stage_of(p, rank)]);
        counting c = {&planned[t].extent, times[t], block};
        each(&p->w, rank, block, count_one, &c);
        empty[t] += gm_extent_numel(c.box) == 0;
    }
    uint32_t digest = gm_plan_digest(&p->w.mesh, all.pieces, all.n);
    gm_union_free(&all);
    forget(p, lists);
    return digest;
}

/* Every element of every tensor is written by exactly one rank, which holds it; all ranks plan the same. */
void gm_test_checkpoint_stages_cover(void **state)
{
    (void)state;
    unit_random r = {11};
    for (int round = 0; round < 200; round++) {
        pipeline p;
        int      times[MOST][512] = {0}, empty[MOST] = {0};
        draw_pipeline(&r, &p);
        OK(gm_device_new("cpu", 1, &p.w.dev));
        draw_held(&r, &p);
        uint32_t digest = 0;
        for (int rank = 0; rank < p.w.ranks; rank++) {
            uint32_t mine = count_share(&p, rank, times, empty);
            if (rank) assert_int_equal(mine, digest);
            digest = mine;
        }
        for (int t = 0; t < p.w.tensors; t++) {
            int64_t n = 1;
            for (int d = 0; d < p.w.pieces[0][t].ndim; d++) n *= p.w.pieces[0][t].shape[d];
            for (int64_t i = 0; i < n; i++) assert_int_equal(times[t][i], 1);
            assert_int_equal(empty[t], n == 0);
        }
        drop(&p);
    }
}

/* What the stages of a random pipeline save, another mesh, with or without stages, reads into other layouts. */
void gm_test_checkpoint_stages_reshard(void **state)
{
    (void)state;
    unit_random r = {31};
    new_folder();
    for (int round = 0; round < 40; round++) {
        pipeline       p, q;
        gm_save       *saves[MOST];
        gm_checkpoint *c;
        char           token[GM_SAVE_TOKEN];
        draw_pipeline(&r, &p);
        draw_pipeline(&r, &q);
        OK(gm_device_new("cpu", 1, &p.w.dev));
        q.w.dev = p.w.dev, q.w.tensors = MOST;
        draw_held(&r, &p);
        for (int rank = 0; rank < p.w.ranks; rank++) OK(save_as(&p, rank, 7, unit_below(&r, 2), &saves[rank]));
        OK(gm_save_prepare(saves[0], token));
        for (int rank = p.w.ranks - 1; rank >= 0; rank--) OK(gm_save_start(saves[rank], token));
        for (int rank = 0; rank < p.w.ranks; rank++) gm_save_wait(saves[rank], GM_SAVE_DONE, -1);
        OK(gm_save_result(saves[0]));
        for (int rank = 0; rank < p.w.ranks; rank++) gm_save_free(saves[rank]);
        char *path = gm_steps_path(folder, 7, "");
        OK(gm_checkpoint_open(path, 0, 1, &c));
        assert_int_equal(gm_checkpoint_count(c), p.w.tensors);
        for (int t = 0; t < p.w.tensors; t++) {
            gm_layout       layout;
            const gm_piece *from = &p.w.pieces[0][t];
            uint64_t        bytes = gm_dtype_size(from->dtype);
            for (int d = 0; d < from->ndim; d++) bytes *= (uint64_t)from->shape[d];
            assert_int_equal(gm_checkpoint_at(c, t).bytes, bytes); /* once, however many stages hold it */
            draw_layout(&r, &q.w.mesh, from->ndim, &layout);
            make_tensor(&q.w, t, from->dtype, from->ndim, from->shape, &layout, false);
            for (int rank = 0; rank < q.w.ranks; rank++) {
                filling f = {&q.w.pieces[rank][t], t};
                for (int64_t i = 0; i < gm_tensor_numel(f.p->tensor); i++)
                    gm_store(f.p->dtype, gm_tensor_data(f.p->tensor), i, -3);
                OK(gm_checkpoint_read(c, &q.w.mesh, rank, f.p, NULL, false));
                each(&q.w, rank, f.p, judge_one, &f);
            }
        }
        gm_checkpoint_close(c);
        free(path);
        drop_tensors(&q.w);
        drop(&p);
    }
    drop_folder();
}

/* data 2 x pipeline 2: "tensor.0" on both stages, 1 on the first, 2 on the last. */
static void two_stages(pipeline *p)
{
    gm_layout copies = gm_layout_replicated(), cut = gm_layout_cut(0, 1);
    *p = (pipeline){.axis = 1, .stages = 2, .held = {{true, true}, {true, false}, {false, true}}};
    p->w = (world){.ranks = 4, .tensors = 3};
    OK(gm_device_new("cpu", 1, &p->w.dev));
    OK(gm_mesh_add_axis(&p->w.mesh, "data", 2));
    OK(gm_mesh_add_axis(&p->w.mesh, GM_AXIS_PIPELINE, 2));
    make_tensor(&p->w, 0, GM_F32, 1, (int64_t[]){4}, &copies, false);
    make_tensor(&p->w, 1, GM_F32, 2, (int64_t[]){4, 3}, &cut, false);
    make_tensor(&p->w, 2, GM_F64, 1, (int64_t[]){5}, &copies, false);
}

static void refuses(const pipeline *p, const char *message)
{
    for (int rank = 0; rank < p->w.ranks; rank++) {
        gm_save *s = NULL;
        FAILS(GM_EINVAL, message, save_as(p, rank, 1, false, &s));
    }
}

/* All ranks refuse, with the same words, stages that do not agree on a tensor, and tensors that no stage may have. */
void gm_test_checkpoint_stages_disagree(void **state)
{
    (void)state;
    pipeline  p;
    gm_layout copies = gm_layout_replicated(), cut = gm_layout_cut(0, 1), staged = gm_layout_cut(0, 2);
    gm_piece  kept[2];
    two_stages(&p);
    for (int rank = 1, i = 0; rank < 4; rank += 2, i++) {
        kept[i] = p.w.pieces[rank][0];
        p.w.pieces[rank][0].shape[0] = 6;
    }
    refuses(&p, "tensor 'tensor.0' is f32 (4) replicated on stage 0, f32 (6) replicated on stage 1");
    for (int rank = 1; rank < 4; rank += 2) p.w.pieces[rank][0].shape[0] = 4, p.w.pieces[rank][0].layout = cut;
    refuses(&p, "tensor 'tensor.0' is f32 (4) replicated on stage 0, f32 (4) (data) on stage 1");
    for (int rank = 1; rank < 4; rank += 2) p.w.pieces[rank][0].layout = copies, p.w.pieces[rank][0].dtype = GM_I32;
    refuses(&p, "is f32 (4) replicated on stage 0, i32 (4) replicated on stage 1");
    for (int rank = 1, i = 0; rank < 4; rank += 2, i++) p.w.pieces[rank][0] = kept[i];
    for (int rank = 0; rank < 4; rank++) p.w.pieces[rank][2].layout.partial = 1;
    refuses(&p, "'tensor.2' is still a sum over ranks ((-) partial data)");
    for (int rank = 0; rank < 4; rank++) p.w.pieces[rank][2].layout = staged;
    refuses(&p, "'tensor.2' is cut over the axis pipeline");
    for (int rank = 0; rank < 4; rank++) p.w.pieces[rank][2].layout = copies;
    for (int rank = 0; rank < 4; rank++) p.w.pieces[rank][2].name = "tensor.0", p.held[2][0] = true;
    refuses(&p, "two tensors are called 'tensor.0'");
    drop(&p);
}

/* Ranks of one stage that list different tensors plan differently, which rank 0 finds when it reads the parts. */
void gm_test_checkpoint_stages_digest(void **state)
{
    (void)state;
    pipeline p;
    gm_save *saves[4];
    char     token[GM_SAVE_TOKEN];
    new_folder();
    two_stages(&p);
    for (int rank = 0; rank < 4; rank++) {
        p.held[1][1] = rank >= 2; /* as the ranks of data 1 list it, on the last stage too */
        OK(save_as(&p, rank, 2, true, &saves[rank]));
    }
    OK(gm_save_prepare(saves[0], token));
    for (int rank = 0; rank < 4; rank++) OK(gm_save_start(saves[rank], token));
    gm_save_wait(saves[0], GM_SAVE_DONE, -1);
    FAILS(GM_EINVAL, "rank 2 saves other tensors, or cuts them otherwise, than rank 0", gm_save_result(saves[0]));
    for (int rank = 0; rank < 4; rank++) gm_save_free(saves[rank]);
    drop(&p);
    drop_folder();
}

/* Lists that are none: cut short, of another mesh, of a rank of another stage. */
void gm_test_checkpoint_stages_lists(void **state)
{
    (void)state;
    pipeline      p;
    gm_piece      own[MOST];
    gm_union      all;
    gm_stage_list lists[MOST];
    two_stages(&p);
    hear(&p, 0, lists);
    int     n = own_pieces(&p, 0, own);
    gm_mesh flat = gm_mesh_of_one(), *mesh = &p.w.mesh;
    OK(gm_mesh_add_axis(&flat, "data", 4));
    FAILS(GM_EINVAL, "the mesh has no axis pipeline", gm_union_make(&flat, 0, lists, own, n, &all));
    FAILS(GM_EINVAL, "the list of stage 1 is not that of this rank", gm_union_make(mesh, 1, lists, own, n, &all));
    for (size_t size = lists[1].size - 1; size > 0; size--) {
        gm_stage_list cut[] = {lists[0], {lists[1].bytes, size}};
        gm_status     st = gm_union_make(mesh, 0, cut, own, n, &all);
        if (st == GM_OK) { /* between its two records: "tensor.2" is there, "tensor.0" stage 0 holds too */
            assert_int_equal(all.n, 3);
            assert_false(all.held[1]); /* "tensor.0" on stage 1 */
            gm_union_free(&all);
        } else FAILS(GM_EINVAL, "what stage 1 says it holds is no list of tensors", st);
    }
    OK(gm_union_make(mesh, 0, lists, own, n, &all));
    assert_int_equal(all.n, 3);
    gm_union_free(&all);
    forget(&p, lists);
    drop(&p);
}
