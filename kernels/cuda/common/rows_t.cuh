/* rows_t.cuh - rows of one dtype (each_dtype.cuh). Files of kernels of rows begin with it, and end with rows_t_end.cuh.
 */

#ifndef GM_PASTE
#define GM_PASTE_(a, b) a##_##b
#define GM_PASTE(a, b)  GM_PASTE_(a, b)
#endif
#ifndef GM_TEAM_JOINS
#define GM_TEAM_JOINS(type, name) \
    GM_DEVICE type gm_team_sum_##name(type v, int team, type *scratch) { return gm_team_sum(v, team, scratch); }
GM_TEAM_JOINS(float, f32)
GM_TEAM_JOINS(double, f64)
#endif
#undef GM_EACH_PART
#undef GM_EACH_PACK
#undef GM_PACK_PLACE
#undef GM_HELD_WHOLE
#define GM_V       GM_PASTE(GM_LANES, GM_D) /* elements of a pack of 16 bytes */
#define GM_E(base) GM_PASTE(base, GM_D)     /* by dtype */
#define GM_N(base) GM_PASTE(base, GM_S)     /* by type of arithmetic */

typedef union GM_E(gm_pack_of) {
    gm_vector v;
    GM_T      x[GM_V];
} GM_E(gm_pack_of);

/* Elements i .. i + GM_V of the row of n that begins at `start`; zeros behind its end. */
GM_DEVICE gm_vector GM_E(gm_row_load)(const gm_row_view *rows, int64_t start, int64_t i, int64_t n)
{
    const GM_T        *p = (const GM_T *)rows->data + start;
    GM_E(gm_pack_of) u = {{{0}}};
    if (rows->vectors && i + GM_V <= n) return gm_load_vector(p + i);
    GM_ROLLED for (int j = 0; j < GM_V; j++)
        GM_TURN(u.x, GM_V, i + j < n ? p[(i + j) * rows->step] : GM_E(gm_put)(0));
    return u.v;
}

GM_DEVICE void GM_E(gm_row_store)(const gm_row_view *rows, int64_t start, int64_t i, int64_t n, gm_vector v)
{
    GM_T *p = (GM_T *)rows->data + start;
    if (rows->vectors && i + GM_V <= n) {
        gm_store_vector(p + i, v);
    } else {
        GM_E(gm_pack_of) u;
        u.v = v;
        GM_ROLLED for (int j = 0; j < GM_V; j++)
        {
            if (i + j < n) p[(i + j) * rows->step] = u.x[0];
            GM_TURN(u.x, GM_V, u.x[0]);
        }
    }
}

GM_DEVICE void GM_E(gm_row_take)(const gm_row_view *rows, int64_t start, int64_t i, int64_t n, GM_R *x)
{
    GM_E(gm_unpack)(GM_E(gm_row_load)(rows, start, i, n), x);
}

GM_DEVICE void GM_E(gm_row_give)(const gm_row_view *rows, int64_t start, int64_t i, int64_t n, const GM_R *x)
{
    GM_E(gm_row_store)(rows, start, i, n, GM_E(gm_pack)(x));
}

/* The number of row r where each row is one element in the type of arithmetic: statistics, losses. */
GM_DEVICE GM_R GM_E(gm_row_number)(const gm_row_view *rows, int64_t r)
{
    return ((const GM_R *)rows->data)[gm_row_start(rows, r)];
}

GM_DEVICE void GM_E(gm_row_set_number)(const gm_row_view *rows, int64_t r, GM_R v)
{
    if (rows->data) ((GM_R *)rows->data)[gm_row_start(rows, r)] = v;
}

#ifdef GM_HELD
/* Packs of a row of a.width elements that this thread has: GM_HELD of them at a time, in registers, so that a row of
 * up to GM_HELD packs a thread is read once. c: the part's first element; i: the pack's. */
#define GM_EACH_PART(c)     for (int64_t c = 0; c < a.width; c += (int64_t)GM_HELD * team * GM_V)
#define GM_PACK_PLACE(c, k) ((c) + ((int64_t)(k) * team + lane) * GM_V)
#define GM_EACH_PACK(c, k, i)                    \
    GM_UNROLL for (int k = 0; k < GM_HELD; k++)  \
        for (int64_t i = GM_PACK_PLACE(c, k), once_ = 1; once_ && i < a.width; once_ = 0)
#define GM_HELD_WHOLE (a.width <= (int64_t)GM_HELD * team * GM_V)

/* The thread's packs of a part of the row of n that begins at `start`; zeros behind its end. All are under way before
 * the first is waited for: what is read between two loads would hold the second one up. */
GM_DEVICE void GM_E(gm_row_hold)(const gm_row_view *rows, int64_t start, int64_t c, int team, int lane, int64_t n,
                                 gm_vector *held)
{
    const gm_vector none = {{0, 0, 0, 0}};
    const GM_T     *p = (const GM_T *)rows->data + start;
    if (rows->vectors && n % GM_V == 0) {
        GM_UNROLL for (int k = 0; k < GM_HELD; k++)
            held[k] = GM_PACK_PLACE(c, k) < n ? gm_load_vector(p + GM_PACK_PLACE(c, k)) : none;
    } else {
        GM_UNROLL for (int k = 0; k < GM_HELD; k++) held[k] = none;
        GM_ROLLED for (int k = 0; k < GM_HELD; k++)
            GM_TURN(held, GM_HELD, GM_E(gm_row_load)(rows, start, GM_PACK_PLACE(c, k), n));
    }
}
#endif
