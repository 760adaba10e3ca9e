/* drop_t.h - dropout over rows for one element type (as.h), bf16 included; see random.c. */

#if E_BITS == T_BITS
/* LANES numbers of 16 bits, each in the place of an element */
CPU_INLINE VI F(numbers_at)(const uint16_t *numbers)
{
    typedef uint16_t some __attribute__((vector_size(2 * LANES)));
    typedef some     any_some __attribute__((aligned(2), may_alias));
    return __builtin_convertvector(*(const any_some *)numbers, VI);
}

#endif

/* The buffer of numbers reaches beyond n. */
static void M(kept_row)(const random_job *j, int64_t n, const uint16_t *numbers, const void *in, void *out)
{
    E       *y = out;
    const E *x = in;
    const V  keep = F(splat)((T)gm_drop_keep(j->drop.threshold));
    const TI threshold = (TI)j->drop.threshold;
    bool     past = j->direct;
    MAP1(F(select)(F(numbers_at)(numbers + i) < threshold, F(splat)(0), a * keep));
}
