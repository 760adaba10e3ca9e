/* optimizer.c - sum of squares, and the optimizers over many tensors in one parallel region.
 *
 * The tensors are one long list of elements, cut evenly over threads whatever their sizes. Gradients carry the
 * loss scale and are not yet clipped: g counts as g clip / loss_scale, or as the control tensor says. Contiguous
 * tensors are updated where they lie; others pass through small buffers, element by element. Constants of the step are
 * worked out once, in double. Tensors of 16 bits pass through buffers of f32, too; their moments and masters are f32.
 * Sums of squares are taken of pieces of one size, and added up in order of the pieces and tensors. So they have the
 * same bits whatever the number of threads, and the sum of some tensors plus that of one more is the sum of all.
 * ref/optimizer.c has the references. */
#include "../states.h"
#include "../trust.h"

#define OPTIMIZER_CHUNK   512                /* elements of a tensor that is not contiguous or of 16 bits, at a time */
#define OPTIMIZER_PIECE   ((int64_t)1 << 14) /* elements of a tensor whose squares are one sum */
#define OPTIMIZER_MOMENTS 3

enum { ROLE_G, ROLE_P, ROLE_MOMENT, ROLE_MASTER = ROLE_MOMENT + OPTIMIZER_MOMENTS, ROLES };

typedef struct optimizer_part optimizer_part;
typedef struct optimizer_job  optimizer_job;
typedef void optimizer_row(const optimizer_job *j, const optimizer_part *part, int64_t n, void *const *t);

struct optimizer_job {
    int               count, width; /* tensors; outputs of each: p, moments, master, trust; 0: it has none */
    gm_tensor *const *in, *const *out;
    int64_t *start;   /* count + 1: the first element, or block, of each tensor in the list of all; of sums: piece */
    int      sums;    /* of each piece: 1 for sum_squares, 2 for measure, 0 for updates */
    double  *partial; /* the sums of all pieces */
    bool     measure, of_update; /* of_update: the second square is that of the update, else of the gradient */
    /* the step's constants: g = (scale g + l2 w) before, u = direction(g) + outside w, w = decay w - lr after u */
    double         scale, l2, outside, lr, decay;
    double         b1, b2, root, first, eps; /* b1: SGD's momentum too; Adam: first m / (root sqrt(v) + eps) */
    double         fresh;                    /* SGD: buffer = b1 buffer + fresh g */
    gm_trust_rule  trust;
    bool           nesterov, amsgrad, buffer; /* buffer: it holds something already */
    bool           stochastic;                /* parameters of 16 bits are rounded by chance */
    uint64_t       key, step;                 /* of the random words, and */
    const gm_box  *box;                       /* the place of the tensor in the global one */
    int64_t        states;                    /* GM_STATES_*; in blocks, tensors are lists of blocks here */
    unsigned       squares;                   /* bit k: moment k is never below 0 */
    optimizer_row *row[2];                    /* f32, f64 */
};

/* What a thread does of a tensor. */
struct optimizer_part {
    int     tensor;
    int64_t piece;         /* where its sums go; unused by updates */
    double  before, after; /* the trust ratio, on one side of the direction */
};

#define AS 32
#include "as.h"
#include "optimizer_t.h"
#define AS 64
#include "as.h"
#include "optimizer_t.h"
#define AS 0
#include "as.h"

/* The tensor of a role, NULL where there is none. */
static gm_tensor *tensor_of(const optimizer_job *j, int k, int role)
{
    gm_tensor *const *out = j->out + k * j->width;
    if (role == ROLE_G) return j->in[k];
    if (!j->width) return NULL;
    if (role == ROLE_P) return out[0];
    if (role == ROLE_MASTER) return out[j->width - 2];
    return role - ROLE_MOMENT < j->width - 3 ? out[role - ROLE_P] : NULL;
}

/* n elements from the first on, in row-major order, between t and a buffer. */
static void move_elements(const gm_tensor *t, int64_t first, int64_t n, char *buffer, bool out)
{
    size_t size = gm_dtype_size(t->dtype);
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = first + i, offset = 0;
        for (int d = t->ndim - 1; d >= 0; d--) {
            offset += rest % t->shape[d] * t->stride[d];
            rest /= t->shape[d];
        }
        char *at = (char *)gm_tensor_data(t) + (size_t)offset * size, *b = buffer + (size_t)i * size;
        memcpy(out ? at : b, out ? b : at, size);
    }
}

/* The index in the global tensor of element i of a block of this shape; *run: as many elements from there on have
 * indices that follow one another. */
static uint64_t global_index(const gm_box *box, const gm_tensor *t, int64_t i, int64_t *run)
{
    uint64_t index = 0, step = 1;
    int64_t  inner = 1, rest = i;
    bool     whole = true; /* the dimensions so far are, so that rows follow one another */
    *run = INT64_MAX;
    if (!box->ndim) return (uint64_t)i;
    for (int d = t->ndim - 1; d >= 0; d--) {
        index += (uint64_t)(rest % t->shape[d] + box->offset[d]) * step;
        step *= (uint64_t)box->shape[d];
        rest /= t->shape[d];
        if (whole) inner *= t->shape[d];
        whole = whole && t->shape[d] == box->shape[d];
    }
    *run = inner - i % inner;
    return index;
}

/* The random words of elements [first, first + n) of tensor k, n <= OPTIMIZER_CHUNK, into room. */
static const uint32_t *words_of(const optimizer_job *j, int k, uint64_t key, int64_t first, int64_t n, uint32_t *room)
{
    uint32_t made[WORDS];
    int64_t  run;
    uint64_t index = global_index(j->box, j->in[k], first, &run);
    if (run >= n) return philox_words(key, j->step, index, n, room);
    for (int64_t i = 0, m; i < n; i += m) {
        index = global_index(j->box, j->in[k], first + i, &run);
        m = run < n - i ? run : n - i;
        memcpy(room + i, philox_words(key, j->step, index, m, made), (size_t)m * sizeof *room);
    }
    return room;
}

/* As gm_round_by_chance, without branches. */
CPU_INLINE uint16_t bf16_by_chance(float f, uint32_t chance)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    uint32_t size = u & 0x7fffffffu, quiet = size > 0x7f800000u ? 0x00400000u : 0;
    return (uint16_t)(((size >= 0x7f800000u ? u | quiet : u + chance)) >> 16);
}

/* n elements of 16 bits, from number `first` of tensor k on, rounded from f32 by chance. */
static void round_by_chance(const optimizer_job *j, int k, int64_t first, int64_t n, const float *from, uint16_t *to)
{
    uint32_t        room[WORDS];
    const uint32_t *words = words_of(j, k, j->key, first, n, room);
    gm_dtype        dtype = j->in[k]->dtype;
    if (dtype == GM_BF16)
        for (int64_t i = 0; i < n; i++) to[i] = bf16_by_chance(from[i], words[i] >> 16);
    else
        for (int64_t i = 0; i < n; i++) to[i] = gm_round_by_chance(dtype, from[i], words[i]);
}

/* m elements of t, of 16 bits in room, by the row of f32: the parameter is the master, where there is one. The other
 * roles are f32 already. */
static void update_narrow(const optimizer_job *j, const optimizer_part *part, int64_t first, int64_t m, void *const *t)
{
    float    g[OPTIMIZER_CHUNK], p[OPTIMIZER_CHUNK], *master = t[ROLE_MASTER];
    void    *wide[ROLES] = {g};
    gm_dtype dtype = j->in[part->tensor]->dtype;
    cast_row widen = find_cast(dtype, GM_F32), round = find_cast(GM_F32, dtype);
    if (!j->width && dtype == GM_BF16) { /* the bits of sum_squares_row_f32 */
        j->partial[part->piece] += square_row_bf16(m, t[ROLE_G]);
        return;
    }
    widen(m, t[ROLE_G], g);
    if (j->width && !master) widen(m, t[ROLE_P], p);
    if (j->width) wide[ROLE_P] = master ? master : p;
    for (int role = ROLE_MOMENT; role < ROLE_MASTER; role++) wide[role] = t[role];
    j->row[0](j, part, m, wide);
    if (!j->width || j->measure) return;
    if (j->stochastic) round_by_chance(j, part->tensor, first, m, p, t[ROLE_P]);
    else round(m, wide[ROLE_P], t[ROLE_P]);
}

/* Elements [first, first + n) of a tensor through buffers where one is not contiguous or of 16 bits. */
static void update_strided(const optimizer_job *j, const optimizer_part *part, int64_t first, int64_t n)
{
    char     room[ROLES][OPTIMIZER_CHUNK * 8] __attribute__((aligned(64)));
    void    *t[ROLES] = {0};
    int      k = part->tensor;
    gm_dtype dtype = j->in[k]->dtype;
    for (int64_t i = 0; i < n; i += OPTIMIZER_CHUNK) {
        int64_t m = n - i < OPTIMIZER_CHUNK ? n - i : OPTIMIZER_CHUNK;
        for (int role = 0; role < ROLES; role++)
            if (tensor_of(j, k, role)) move_elements(tensor_of(j, k, role), first + i, m, t[role] = room[role], false);
        if (gm_dtype_is_narrow(dtype)) update_narrow(j, part, first + i, m, t);
        else j->row[dtype == GM_F64](j, part, m, t);
        for (int role = ROLE_P; role < ROLES && !j->measure; role++)
            if (t[role]) move_elements(tensor_of(j, k, role), first + i, m, room[role], true);
    }
}

/* The same without moving anything but the numbers of 16 bits: every tensor is contiguous. */
static void update_dense_narrow(const optimizer_job *j, const optimizer_part *part, int64_t first, int64_t n,
                                void *const *t)
{
    for (int64_t i = 0; i < n; i += OPTIMIZER_CHUNK) {
        void *at[ROLES] = {0};
        for (int role = 0; role < ROLES; role++)
            if (t[role]) at[role] = (char *)t[role] + i * (role < ROLE_MOMENT ? 2 : 4);
        update_narrow(j, part, first + i, n - i < OPTIMIZER_CHUNK ? n - i : OPTIMIZER_CHUNK, at);
    }
}

#include "states.c"

static void update_span(const optimizer_job *j, const optimizer_part *part, int64_t first, int64_t n)
{
    void    *t[ROLES] = {0};
    int      k = part->tensor;
    gm_dtype dtype = j->in[k]->dtype;
    if (j->states) {
        update_states(j, part, first, n);
        return;
    }
    for (int role = 0; role < ROLES; role++) {
        gm_tensor *x = tensor_of(j, k, role);
        if (!x) continue;
        if (!gm_tensor_is_contiguous(x)) {
            update_strided(j, part, first, n);
            return;
        }
        t[role] = (char *)gm_tensor_data(x) + (size_t)first * gm_dtype_size(x->dtype);
    }
    if (gm_dtype_is_narrow(dtype)) update_dense_narrow(j, part, first, n, t);
    else j->row[dtype == GM_F64](j, part, n, t);
}

/* A small f64 tensor of one dimension at most, element i. */
static double *control_at(const gm_tensor *t, int64_t i)
{
    return (double *)gm_tensor_data(t) + (t->ndim ? i * t->stride[0] : 0);
}

static optimizer_part part_of(const optimizer_job *j, int k, int64_t piece)
{
    gm_tensor     *trust = j->width && !j->measure ? j->out[(k + 1) * j->width - 1] : NULL;
    double         ratio = trust ? gm_trust_ratio(&j->trust, *control_at(trust, 0), *control_at(trust, 1)) : 1;
    optimizer_part part = {k, piece, 1, 1};
    *(j->trust.kind == GM_TRUST_LARS ? &part.before : &part.after) = ratio;
    return part;
}

/* The last tensor that starts at or before place `at` of the list. */
static int tensor_at(const optimizer_job *j, int64_t at)
{
    int low = 0, high = j->count - 1;
    while (low < high) {
        int mid = (low + high + 1) / 2;
        if (j->start[mid] <= at) low = mid;
        else high = mid - 1;
    }
    return low;
}

/* Elements [begin, end) of the list. */
static void update_part(void *context, int64_t begin, int64_t end, int thread)
{
    const optimizer_job *j = context;
    (void)thread;
    for (int k = tensor_at(j, begin); k < j->count && begin < end; k++) {
        int64_t stop = j->start[k + 1] < end ? j->start[k + 1] : end;
        if (stop > begin) {
            optimizer_part part = part_of(j, k, 0);
            update_span(j, &part, begin - j->start[k], stop - begin);
        }
        begin = stop;
    }
}

/* What threads share out of a tensor: elements, or blocks. */
static int64_t units_of(const optimizer_job *j, const gm_tensor *g)
{
    return j->states == GM_STATES_BLOCKS ? gm_state_rows_of(g->ndim, g->shape).blocks : gm_tensor_numel(g);
}

/* Units of a piece. */
static int64_t piece_of(const optimizer_job *j)
{
    return j->states == GM_STATES_BLOCKS ? OPTIMIZER_PIECE / GM_STATE_BLOCK : OPTIMIZER_PIECE;
}

/* Pieces [begin, end) of the list. */
static void sum_part(void *context, int64_t begin, int64_t end, int thread)
{
    const optimizer_job *j = context;
    (void)thread;
    for (int64_t piece = begin; piece < end; piece++) {
        int            k = tensor_at(j, piece);
        int64_t        most = piece_of(j), first = (piece - j->start[k]) * most, rest = units_of(j, j->in[k]) - first;
        optimizer_part part = part_of(j, k, piece);
        update_span(j, &part, first, rest < most ? rest : most);
    }
}

/* Sum i of a tensor: of all its pieces. */
static double add_up(const optimizer_job *j, int k, int64_t i)
{
    double sum = 0;
    for (int64_t piece = j->start[k]; piece < j->start[k + 1]; piece++) sum += j->partial[piece * j->sums + i];
    return sum;
}

static void store_squares(const gm_call *call, const optimizer_job *j)
{
    double all = 0;
    for (int k = 0; k < j->count; k++) {
        if (!j->measure) all += add_up(j, k, 0);
        for (int64_t i = 0; i < 2 && j->measure; i++) *control_at(j->out[(k + 1) * j->width - 1], i) = add_up(j, k, i);
    }
    if (!j->measure) *(double *)gm_tensor_data(call->out[0]) = all;
}

/* Places of tensor k in the list. */
static int64_t length_of(const optimizer_job *j, int k)
{
    int64_t n = units_of(j, j->in[k]);
    return j->sums ? (n + piece_of(j) - 1) / piece_of(j) : n;
}

/* first: the first input that is a gradient. */
static gm_status update_all(gm_device *dev, const gm_call *call, int first, optimizer_job *j)
{
    gm_block *block;
    int64_t   starts = call->n_in + 1, bytes = 8 * (j->width ? j->width : 1), sums = 0;
    j->stochastic = call->attrs->stochastic;
    j->key = call->attrs->stream.key;
    j->box = &call->attrs->box;
    j->count = call->n_in - first;
    j->in = call->in + first;
    j->out = call->out;
    for (int k = 0; k < j->count; k++) sums += j->sums * length_of(j, k);
    GM_TRY(cpu_scratch(dev, (size_t)(starts + sums) * 8, &j->start, &block));
    j->partial = (double *)(j->start + starts);
    memset(j->partial, 0, (size_t)sums * sizeof(double));
    j->start[0] = 0;
    for (int k = 0; k < j->count; k++) j->start[k + 1] = j->start[k] + length_of(j, k);
    if (j->sums) cpu_parallel(dev, j->start[j->count], bytes * OPTIMIZER_PIECE, sum_part, j);
    else cpu_parallel(dev, j->start[j->count], bytes * OPTIMIZER_PIECE / piece_of(j), update_part, j);
    if (j->sums) store_squares(call, j);
    gm_pool_release(dev->pool, block);
    return GM_OK;
}

static gm_status cpu_sum_squares(gm_device *dev, const gm_call *call)
{
    optimizer_job j = {.row = {sum_squares_row_f32, sum_squares_row_f64}, .sums = 1};
    return update_all(dev, call, 0, &j);
}

static gm_status cpu_step_control(gm_device *dev, const gm_call *call)
{
    const gm_attrs *at = call->attrs;
    gm_control_rule rule = {at->max_norm, at->growth, at->backoff, (double)at->growth_interval, (int)at->not_finite};
    double          c[GM_CONTROL_SIZE], total = 0;
    (void)dev;
    for (int k = 2; k < call->n_in; k++) {
        double sum = 0;
        for (int64_t i = 0, n = gm_tensor_numel(call->in[k]); i < n; i++) sum += *control_at(call->in[k], i);
        total += sum;
    }
    for (int i = 0; i < GM_CONTROL_SIZE; i++) c[i] = *control_at(call->out[0], i);
    gm_control_apply(c, &rule, *control_at(call->in[0], 0), *control_at(call->in[0], 1), *control_at(call->in[0], 2),
                     call->in[1] ? *control_at(call->in[1], 0) : sqrt(total), 0);
    for (int i = 0; i < GM_CONTROL_SIZE; i++) *control_at(call->out[0], i) = c[i];
    return GM_OK;
}

/* What the step is, by the control tensor where there is one, and the updates missed. */
static gm_control_step control_of(const gm_device *dev, const gm_call *call)
{
    const gm_step_block *b = &dev->step;
    const gm_tensor     *c = call->in[0], *missed = call->in[1];
    return gm_control_of_step(c ? gm_tensor_data(c) : NULL, c ? c->stride[0] : 0,
                              missed ? gm_tensor_data(missed) : NULL, (double)b->step, b->clip, b->loss_scale);
}

/* What the updates of optimizer_t.h read, worked out once, in double. As torch.optim.SGD: at step 1 the buffer becomes
 * the gradient, without dampening. */
static gm_status cpu_update(gm_device *dev, const gm_call *call, double momentum, optimizer_job *j)
{
    const gm_attrs      *at = call->attrs;
    const gm_step_block *step = &dev->step;
    gm_control_step      control = control_of(dev, call);
    double               lr = step->lr * at->lr_scale / (1 + (control.t - 1) * at->lr_decay);
    bool                 first = control.t == 1, outside = at->decoupled && at->trust == GM_TRUST_LAMB;
    j->measure = at->measure;
    j->sums = at->measure ? 2 : 0;
    j->states = at->states;
    if (at->states == GM_STATES_BLOCKS) prepare_codes();
    if (!control.go && !j->measure) return GM_OK;
    j->of_update = at->trust == GM_TRUST_LAMB;
    j->width = gm_op_gives(call->op)->n;
    j->scale = at->maximize ? -control.factor : control.factor;
    j->step = (uint64_t)control.t;
    j->lr = lr;
    j->l2 = at->decoupled ? 0 : at->weight_decay;
    j->decay = at->decoupled && !outside ? 1 - lr * at->weight_decay : 1;
    j->outside = outside ? at->weight_decay : 0;
    j->fresh = first ? 1 : 1 - at->dampening;
    j->nesterov = at->nesterov;
    j->buffer = !first;
    j->b1 = step->has_momentum ? step->momentum : momentum;
    j->b2 = at->beta2;
    j->first = at->bias_correction ? 1 / (1 - pow(j->b1, control.t)) : 1;
    j->root = at->bias_correction ? 1 / sqrt(1 - pow(at->beta2, control.t)) : 1;
    j->eps = at->early_eps ? at->eps * j->root : at->eps;
    j->amsgrad = at->amsgrad;
    j->trust = (gm_trust_rule){at->trust,        at->trust_coefficient, at->eps,
                               at->weight_decay, at->trust_min,         at->trust_max};
    return update_all(dev, call, 2, j);
}

#define GM_OPTIMIZER(name, moments, there, positive, momentum, ...)                             \
    static gm_status cpu_##name(gm_device *dev, const gm_call *call)                            \
    {                                                                                           \
        optimizer_job j = {.squares = positive, .row = {name##_apply_f32, name##_apply_f64}};   \
        if (call->attrs->measure) j.row[0] = name##_measure_f32, j.row[1] = name##_measure_f64; \
        return cpu_update(dev, call, call->attrs->momentum, &j);                                \
    }
#include "../optimizers.def"
#undef GM_OPTIMIZER
