/* convolution_ops.c - convolution, transposed_convolution and convolution_weight_grad, built on the products of
 * convolution.c, of which it is a part: sizes, scratch, and which images are taken together. */

/* A call whose tensors are contiguous, or have copies that are; of bf16 that is multiplied as it is, copies in f32. */
typedef struct conv_call {
    gm_device      *dev;
    gm_dtype        dtype;
    bool            pairs;
    const amx_kind *amx; /* not NULL, with pairs: in tiles (gemm_amx.c) */
    gm_tensor      *in[3], *out[2];
    gm_block       *block; /* scratch */
} conv_call;

static gm_status conv_open(gm_device *dev, const gm_call *call, const amx_kind *amx, conv_call *c)
{
    bool fill = call->attrs->accumulate;
    *c = (conv_call){.dev = dev, .dtype = call->in[0]->dtype, .pairs = gemm_takes_pairs(call), .amx = amx};
    if (c->pairs) c->dtype = GM_F32;
    for (int i = 0; i < call->n_in; i++) GM_TRY(cpu_plain(dev, c->dtype, cpu_in(call, i), true, &c->in[i]));
    for (int i = 0; i < call->n_out; i++) GM_TRY(cpu_plain(dev, c->dtype, cpu_out(call, i), fill, &c->out[i]));
    return GM_OK;
}

static gm_status conv_close(const gm_call *call, conv_call *c, gm_status st)
{
    if (c->block) gm_pool_release(c->dev->pool, c->block);
    for (int i = 0; i < 3; i++) gm_tensor_release(c->in[i]);
    for (int i = 0; i < call->n_out; i++) st = cpu_home(c->dev, c->out[i], cpu_out(call, i), st);
    return st;
}

static void *conv_data(const gm_tensor *t) { return t ? gm_tensor_data(t) : NULL; }

/* s and t: the tensors of both sides; kernel: its sizes. Dimensions of space end at the last of three. */
static conv_shape conv_shape_of(const gm_attrs *at, const gm_tensor *s, const gm_tensor *t, const int64_t *kernel)
{
    int        lack = 3 - (s->ndim - 2);
    conv_shape r = {.images = s->shape[0],
                    .groups = at->groups,
                    .channels = s->shape[1] / at->groups,
                    .outputs = t->shape[1] / at->groups};
    for (int d = 0; d < 3; d++) {
        bool there = d >= lack;
        r.s[d] = there ? s->shape[d - lack + 2] : 1;
        r.t[d] = there ? t->shape[d - lack + 2] : 1;
        r.kernel[d] = there ? kernel[d - lack] : 1;
        r.stride[d] = there ? at->stride.at[d - lack] : 1;
        r.dilation[d] = there ? at->dilation.at[d - lack] : 1;
        r.low[d] = there ? at->pad_low.at[d - lack] : 0;
    }
    return r;
}

/* Taps of all channels of a group and places of the kernel, as w has them. */
static void conv_taps(const conv_shape *s, const conv_fill *w, int64_t *tap)
{
    int64_t row = conv_row_of(w), plane = conv_plane_of(w);
    for (int64_t c = 0; c < s->channels; c++)
        for (int64_t k0 = 0; k0 < s->kernel[0]; k0++)
            for (int64_t k1 = 0; k1 < s->kernel[1]; k1++)
                for (int64_t k2 = 0; k2 < s->kernel[2]; k2++) {
                    int64_t reach = k2 * s->dilation[2];
                    *tap++ = c * plane + (k0 * s->dilation[0] * w->length[1] + k1 * s->dilation[1]) * row +
                             reach % w->phases * w->width + reach / w->phases;
                }
}

/* Of a convolution, or of the gradient of its weights: what both read of the planes. */
static conv_product conv_product_of(const conv_shape *s, const conv_fill *w, gm_dtype dtype, int64_t images)
{
    int64_t      plane = conv_plane_of(w);
    conv_product p = {.dtype = dtype,
                      .images = images,
                      .groups = s->groups,
                      .m = s->outputs,
                      .k = s->channels * conv_volume(s->kernel),
                      .image = s->groups * s->channels * plane,
                      .group = s->channels * plane,
                      .step = {s->stride[0] * w->length[1] * conv_row_of(w), s->stride[1] * conv_row_of(w)}};
    for (int d = 0; d < 3; d++) p.q[d] = s->t[d];
    conv_join(&p);
    return p;
}

/* Scratch in parts that begin at multiples of 64 bytes. */
static gm_status conv_take(conv_call *c, int n, const size_t *bytes, void **out)
{
    size_t all = 0;
    char  *data;
    for (int i = 0; i < n; i++) all += (bytes[i] + 127) & ~(size_t)63;
    GM_TRY(cpu_scratch(c->dev, all, &data, &c->block));
    for (int i = 0; i < n; i++) {
        out[i] = bytes[i] ? data : NULL;
        data += (bytes[i] + 127) & ~(size_t)63;
    }
    return GM_OK;
}

#include "winograd.c"

/* ---- convolution ---- */

static gm_status conv_forward(conv_call *c, const gm_attrs *at)
{
    gm_tensor *x = c->in[0], *w = c->in[1], *y = c->out[0];
    conv_shape s = conv_shape_of(at, x, y, w->shape + 2);
    if (!c->amx && wino_fits(c->dtype, &s, false)) return wino_convolution(c, at, &s, false);
    conv_fill    fill = conv_fill_of(&s);
    bool         plain = conv_is_plain(&fill);
    int64_t      size = (int64_t)gm_dtype_size(c->dtype), channels = s.groups * s.channels, places = conv_volume(s.t);
    int64_t      together = conv_together(s.images, channels * conv_plane_of(&fill) * size, places);
    conv_product p = conv_product_of(&s, &fill, c->dtype, together);
    conv_groups  all = {.w = &p, .of = conv_gemm};
    void        *room[4];
    p.pairs = c->pairs && p.m >= CONV_FEW;
    p.amx = c->amx;
    size_t each = 0, packed = p.m < CONV_FEW ? 0 : conv_scratch(c->dev, &all, &each);
    GM_TRY(conv_take(c, 4,
                     (size_t[]){(size_t)p.k * sizeof *p.tap,
                                plain ? 0 : (size_t)(together * channels * conv_plane_of(&fill) * size), packed,
                                p.pairs ? (size_t)gm_tensor_numel(w) * 2 : 0},
                     room));
    conv_taps(&s, &fill, room[0]);
    p.tap = room[0];
    p.a = conv_paired(c->dev, gm_tensor_data(w), room[3], gm_tensor_numel(w));
    p.bias = conv_data(c->in[2]);
    p.f = at->function;
    p.c_row = places;
    p.c_image = s.groups * s.outputs * places;
    for (int64_t i = 0; i < s.images; i += together) {
        p.images = s.images - i < together ? s.images - i : together;
        p.elements = p.images * p.image;
        p.planes = conv_planes(c->dev, c->dtype, &fill, gm_tensor_data(x), room[1], i, p.images, channels);
        p.y = (char *)gm_tensor_data(y) + i * p.c_image * size;
        p.c = c->out[1] ? (char *)gm_tensor_data(c->out[1]) + i * p.c_image * size : p.y;
        conv_run_product(c->dev, &p, room[2], each);
    }
    return GM_OK;
}

/* amx, here and below: not NULL, products of bf16 by its tiles (gemm_amx.c). */
static gm_status convolution_by(gm_device *dev, const gm_call *call, const amx_kind *amx)
{
    conv_call c;
    gm_status st = conv_open(dev, call, amx, &c);
    if (st == GM_OK && gm_tensor_numel(call->out[0])) st = conv_forward(&c, call->attrs);
    return conv_close(call, &c, st);
}

static gm_status cpu_convolution(gm_device *dev, const gm_call *call) { return convolution_by(dev, call, NULL); }

/* ---- transposed convolution ---- */

/* One call. Its phases lie in `phases`, their places, taps and weights in the arrays that they begin in. */
typedef struct conv_back {
    conv_call  *c;
    conv_shape  s;
    conv_fill   fill;
    bool        even;                  /* the stride is 1: results are written where they belong */
    int64_t     n_phases, along, most; /* along: the last dimension; most: results of an image in the largest phase */
    conv_phase *phases;
    void       *part, *scratch; /* part: the results of `along` phases, which follow one another */
    size_t      each;
    gm_function f;
    char       *to, *y; /* of the images that are taken together */
} conv_back;

/* How many results one behind the other belong to different phases. */
static int64_t conv_phases_along(const conv_shape *s, int d) { return s->s[d] < s->stride[d] ? s->s[d] : s->stride[d]; }

/* The places of the kernel that fall on the results of p, and the taps of these for all channels. */
static void conv_phase_taps(const conv_back *b, conv_phase *p, int64_t *place, int64_t *tap)
{
    const conv_shape *s = &b->s;
    int64_t           row = conv_row_of(&b->fill), step[3] = {b->fill.length[1] * row, row, 1};
    p->place = place;
    p->tap = tap;
    p->n = p->from = 0;
    for (int d = 0; d < 3; d++) p->from += (b->fill.low[d] + (p->first[d] + s->low[d]) / s->stride[d]) * step[d];
    for (int64_t k = 0; k < conv_volume(s->kernel); k++) {
        int64_t at[3] = {k / s->kernel[2] / s->kernel[1], k / s->kernel[2] % s->kernel[1], k % s->kernel[2]};
        int64_t back = 0;
        bool    falls = true;
        for (int d = 0; d < 3; d++) {
            falls = falls && (p->first[d] + s->low[d] - at[d] * s->dilation[d]) % s->stride[d] == 0;
            back += at[d] * s->dilation[d] / s->stride[d] * step[d];
        }
        if (!falls) continue;
        place[p->n] = k;
        tap[p->n++] = -back;
    }
    for (int64_t c = s->outputs - 1; c >= 0; c--) /* those of the first channel stay until the last */
        for (int64_t k = 0; k < p->n; k++) tap[c * p->n + k] = tap[k] + c * conv_plane_of(&b->fill);
}

/* All phases, and their weights: rows (channels that are made, channels that are summed over, places); as bf16 at
 * `paired`, where that is not NULL. */
static void conv_find_phases(conv_back *b, int64_t *place, int64_t *tap, char *a, char *paired)
{
    const conv_shape *s = &b->s;
    int64_t           n[3] = {conv_phases_along(s, 0), conv_phases_along(s, 1), conv_phases_along(s, 2)};
    int64_t           size = (int64_t)gm_dtype_size(b->c->dtype), made = s->groups * s->channels;
    for (int64_t i = 0; i < b->n_phases; i++) {
        conv_phase *p = &b->phases[i];
        *p = (conv_phase){.channels = s->outputs,
                          .outputs = s->channels,
                          .places = conv_volume(s->kernel),
                          .w = gm_tensor_data(b->c->in[1]),
                          .a = a,
                          .first = {i / n[2] / n[1], i / n[2] % n[1], i % n[2]}};
        for (int d = 0; d < 3; d++) {
            p->stride[d] = s->stride[d];
            p->size[d] = s->s[d];
            p->q[d] = (s->s[d] - p->first[d] + s->stride[d] - 1) / s->stride[d];
        }
        conv_phase_taps(b, p, place, tap);
        place += p->n;
        tap += s->outputs * p->n;
        a += made * s->outputs * p->n * size;
    }
    conv_phases all = {.phase = b->phases, .n = b->n_phases};
    cpu_parallel(b->c->dev, made, s->outputs * conv_volume(s->kernel) * size * 4,
                 CONV_JOB(b->c->dtype, conv_weights_part), &all);
    if (!paired) return;
    conv_paired(b->c->dev, all.phase->a, paired, gm_tensor_numel(b->c->in[1]));
    for (int64_t i = b->n_phases - 1; i >= 0; i--)
        b->phases[i].a = paired + ((char *)b->phases[i].a - (char *)b->phases[0].a) / 2;
}

static bool conv_back_pairs(const conv_back *b) { return b->c->pairs && b->s.channels >= CONV_FEW; }

/* The results of a phase of some images: to their places where they lie one behind the other, else to `part`. */
static void conv_one_phase(conv_back *b, conv_phase *p, void *part, const void *planes, int64_t images)
{
    const conv_shape *s = &b->s;
    int64_t           row = conv_row_of(&b->fill), plane = conv_plane_of(&b->fill), made = s->groups * s->channels;
    gm_dtype          dtype = b->c->dtype;
    int64_t           size = (int64_t)gm_dtype_size(dtype);
    conv_product      w = {.dtype = dtype,
                           .images = images,
                           .groups = s->groups,
                           .m = s->channels,
                           .k = s->outputs * p->n,
                           .planes = (const char *)planes + p->from * size,
                           .elements = images * s->groups * s->outputs * plane - p->from,
                           .image = s->groups * s->outputs * plane,
                           .group = s->outputs * plane,
                           .q = {p->q[0], p->q[1], p->q[2]},
                           .step = {b->fill.length[1] * row, row},
                           .tap = p->tap,
                           .a = p->a,
                           .bias = conv_data(b->c->in[2]),
                           .c = b->even ? b->to : part,
                           .y = b->even ? b->y : part,
                           .c_row = conv_volume(p->q),
                           .c_image = made * conv_volume(p->q),
                           .f = b->even ? b->f : GM_FN_none,
                           .amx = b->c->amx,
                           .pairs = conv_back_pairs(b)};
    conv_join(&w);
    p->part = p->n ? part : NULL;
    if (p->n) conv_run_product(b->c->dev, &w, b->scratch, b->each);
}

/* Phases that differ along the last dimension are computed together, so that whole rows are written. */
static void conv_all_phases(conv_back *b, const void *planes, int64_t images)
{
    int64_t     made = b->s.groups * b->s.channels, part = images * made * b->most;
    conv_rows   rows = {.from = b->to, .to = b->y, .n = conv_volume(b->s.s), .f = b->f};
    conv_phases all = {.n = b->along, .made = made, .bias = conv_data(b->c->in[2]), .to = b->to};
    for (int64_t i = 0; i < b->n_phases; i += b->along) {
        all.phase = &b->phases[i];
        for (int64_t j = 0; j < b->along; j++)
            conv_one_phase(b, &b->phases[i + j], (char *)b->part + j * part * (int64_t)gm_dtype_size(b->c->dtype),
                           planes, images);
        if (!b->even)
            cpu_parallel(b->c->dev, images * made, all.phase->q[0] * all.phase->q[1] * b->s.s[2] * 16,
                         CONV_JOB(b->c->dtype, conv_spread_part), &all);
    }
    if (b->even || (b->f == GM_FN_none && b->y == b->to)) return;
    cpu_parallel(b->c->dev, images * made, rows.n * 16, CONV_JOB(b->c->dtype, conv_activate_part), &rows);
}

/* Bytes of scratch for the products of the largest phase. */
static size_t conv_back_scratch(conv_back *b, int64_t images)
{
    const conv_shape *s = &b->s;
    conv_product      w = {.dtype = b->c->dtype,
                           .images = images,
                           .groups = s->groups,
                           .m = s->channels,
                           .k = s->outputs * conv_volume(s->kernel),
                           .amx = b->c->amx,
                           .pairs = conv_back_pairs(b)};
    conv_groups       all = {.w = &w, .of = conv_gemm};
    for (int d = 0; d < 3; d++) w.q[d] = (s->s[d] + s->stride[d] - 1) / s->stride[d];
    b->most = conv_volume(w.q);
    return w.m < CONV_FEW ? 0 : conv_scratch(b->c->dev, &all, &b->each);
}

static gm_status conv_transposed(conv_call *c, const gm_attrs *at)
{
    gm_tensor *x = c->in[0], *w = c->in[1], *y = c->out[0];
    conv_back  b = {.c = c, .s = conv_shape_of(at, y, x, w->shape + 2), .f = at->function};
    if (!c->amx && wino_fits(c->dtype, &b.s, true)) return wino_convolution(c, at, &b.s, true);
    b.fill = conv_fill_transposed(&b.s);
    bool    plain = conv_is_plain(&b.fill);
    int64_t size = (int64_t)gm_dtype_size(c->dtype), channels = b.s.groups * b.s.outputs;
    int64_t made = b.s.groups * b.s.channels, image = channels * conv_plane_of(&b.fill) * size;
    int64_t together = conv_together(b.s.images, image, conv_volume(b.s.s)), places = conv_volume(b.s.kernel);
    size_t  packed = conv_back_scratch(&b, together);
    void   *room[8];
    b.even = conv_volume(b.s.stride) == 1;
    b.along = conv_phases_along(&b.s, 2);
    b.n_phases = conv_phases_along(&b.s, 0) * conv_phases_along(&b.s, 1) * b.along;
    GM_TRY(conv_take(c, 8,
                     (size_t[]){(size_t)b.n_phases * sizeof *b.phases, (size_t)places * sizeof(int64_t),
                                (size_t)(b.s.outputs * places) * sizeof(int64_t), (size_t)(gm_tensor_numel(w) * size),
                                plain ? 0 : (size_t)(together * image),
                                b.even ? 0 : (size_t)(b.along * together * made * b.most * size), packed,
                                conv_back_pairs(&b) ? (size_t)gm_tensor_numel(w) * 2 : 0},
                     room));
    b.phases = room[0];
    b.part = room[5];
    b.scratch = room[6];
    conv_find_phases(&b, room[1], room[2], room[3], room[7]);
    for (int64_t i = 0; i < b.s.images; i += together) {
        int64_t images = b.s.images - i < together ? b.s.images - i : together;
        int64_t skipped = i * made * conv_volume(b.s.s) * size;
        b.y = (char *)gm_tensor_data(y) + skipped;
        b.to = c->out[1] ? (char *)gm_tensor_data(c->out[1]) + skipped : b.y;
        conv_all_phases(&b, conv_planes(c->dev, c->dtype, &b.fill, gm_tensor_data(x), room[4], i, images, channels),
                        images);
    }
    return GM_OK;
}

static gm_status transposed_convolution_by(gm_device *dev, const gm_call *call, const amx_kind *amx)
{
    conv_call c;
    gm_status st = conv_open(dev, call, amx, &c);
    if (st == GM_OK && gm_tensor_numel(call->out[0])) st = conv_transposed(&c, call->attrs);
    return conv_close(call, &c, st);
}

static gm_status cpu_transposed_convolution(gm_device *dev, const gm_call *call)
{
    return transposed_convolution_by(dev, call, NULL);
}

/* ---- gradient of weights ---- */

/* g of some images: the rows of each channel one behind the other. */
static const void *conv_gathered(conv_call *c, const void *g, void *room, int64_t images, int64_t channels, int64_t n)
{
    conv_rows rows = {.from = g, .to = room, .n = n, .images = images, .channels = channels};
    if (images == 1) return g;
    cpu_parallel(c->dev, channels, images * n * (int64_t)gm_dtype_size(c->dtype) * 2,
                 CONV_JOB(c->dtype, conv_gather_part), &rows);
    return room;
}

static gm_status conv_weights(conv_call *c, const gm_attrs *at, const conv_shape *s)
{
    conv_fill    fill = conv_fill_of(s);
    bool         plain = conv_is_plain(&fill);
    int64_t      size = (int64_t)gm_dtype_size(c->dtype), places = conv_volume(s->t);
    int64_t      channels = s->groups * s->channels;
    int64_t      outputs = s->groups * s->outputs, image = channels * conv_plane_of(&fill) * size;
    int64_t      together = conv_together(s->images, image, places);
    conv_product p = conv_product_of(s, &fill, c->dtype, together);
    conv_groups  all = {.w = &p, .of = conv_weight_gemm};
    bool         few = s->groups > 1 && p.m < CONV_FEW && s->channels < CONV_FEW;
    void        *room[5];
    p.pairs = c->pairs && !few;
    p.amx = c->amx;
    size_t packed = few ? 0 : conv_scratch(c->dev, &all, &all.each);
    GM_TRY(conv_take(c, 5,
                     (size_t[]){(size_t)p.k * sizeof *p.tap, plain ? 0 : (size_t)(together * image),
                                few || together == 1 ? 0 : (size_t)(together * outputs * places * size), packed,
                                p.pairs ? (size_t)(together * outputs * places) * 2 : 0},
                     room));
    conv_taps(s, &fill, room[0]);
    p.tap = room[0];
    p.c = gm_tensor_data(c->out[0]);
    p.a_row = places;
    p.a_image = outputs * places;
    all.scratch = room[3];
    for (int64_t i = 0; i < s->images; i += together) {
        const char *g = (const char *)gm_tensor_data(c->in[0]) + i * p.a_image * size;
        p.images = s->images - i < together ? s->images - i : together;
        p.planes = conv_planes(c->dev, c->dtype, &fill, gm_tensor_data(c->in[1]), room[1], i, p.images, channels);
        p.accumulate = at->accumulate || i > 0;
        p.a = few ? g : conv_gathered(c, g, room[2], p.images, outputs, places);
        p.a = conv_paired(c->dev, p.a, room[4], p.images * outputs * places);
        if (!few) conv_multiply(c->dev, &all);
        else
            cpu_parallel(c->dev, outputs * p.k, p.images * places * size * 2,
                         CONV_JOB(c->dtype, conv_direct_weight_part), &p);
    }
    return GM_OK;
}

static gm_status convolution_weight_grad_by(gm_device *dev, const gm_call *call, const amx_kind *amx)
{
    conv_call c;
    gm_status st = conv_open(dev, call, amx, &c);
    if (st == GM_OK) {
        gm_tensor *g = c.in[0], *dw = c.out[0], *db = c.out[1];
        conv_shape s = conv_shape_of(call->attrs, c.in[1], g, call->attrs->kernel.at);
        conv_rows  rows = {.from = gm_tensor_data(g),
                           .to = conv_data(db),
                           .n = conv_volume(s.t),
                           .images = s.images,
                           .channels = s.groups * s.outputs,
                           .accumulate = call->attrs->accumulate};
        size_t     size = gm_dtype_size(c.dtype);
        if (!c.amx && wino_fits(c.dtype, &s, false)) st = wino_weights(&c, call->attrs, &s);
        else if (rows.images > 0 && rows.n > 0) st = conv_weights(&c, call->attrs, &s);
        else if (!rows.accumulate) memset(gm_tensor_data(dw), 0, (size_t)gm_tensor_numel(dw) * size);
        if (db)
            cpu_parallel(dev, rows.channels, rows.images * rows.n * (int64_t)size, CONV_JOB(c.dtype, conv_sums_part),
                         &rows);
    }
    return conv_close(call, &c, st);
}

static gm_status cpu_convolution_weight_grad(gm_device *dev, const gm_call *call)
{
    return convolution_weight_grad_by(dev, call, NULL);
}
