/* executor_traffic_test.c - what an executor sends: messages, headers, bytes, slices; the same on the meta transport.
 * Bytes of f64 and i64 elements: a step of m micro-batches of 3 rows of 5 sends (15 + 15 + 3) x 8 bytes forward and
 * (15 + 15) x 8 back for each, on each border. */
#include "executor_job.h"

#define HEAD 1024

static void sends(const chain *c, int rank, uint64_t messages, uint64_t bytes)
{
    assert_int_equal(c->messages[rank], messages);
    assert_int_equal(c->bytes[rank], bytes);
}

/* The first message of each signature has a header, later ones have none. */
void gm_test_executor_headers(void **state)
{
    (void)state;
    chain c = make_chain(ONE_F_ONE_B, 3, 4);
    run_chain(&c);
    sends(&c, 0, 3 * 4 + 1, 4 * 33 * 8 + HEAD);
    sends(&c, 1, 5 * 4 + 1, 4 * 63 * 8 + HEAD);
    sends(&c, 2, 2 * 4, 4 * 30 * 8);
    c.steps = 2;
    run_chain(&c);
    sends(&c, 0, 3 * 4, 4 * 33 * 8);
    c.variable_shapes = true;
    run_chain(&c);
    sends(&c, 0, 3 * 4 + 4, 4 * 33 * 8 + 4 * HEAD);
    c.variable_shapes = false;
    c.unsigned_ = true;
    run_chain(&c);
    sends(&c, 0, 3 * 4 + 4, 4 * 33 * 8 + 4 * HEAD);
    c.unsigned_ = false;
    c.forward_only = true;
    run_chain(&c);
    sends(&c, 0, 3 * 4, 4 * 33 * 8);
    sends(&c, 2, 0, 0);
}

/* What does not fit a header's first message goes in a second: its bytes are all that is more. */
void gm_test_executor_long_headers(void **state)
{
    (void)state;
    chain c = make_chain(ONE_F_ONE_B, 2, 2);
    c.text = 700;
    run_chain(&c);
    uint64_t some = c.bytes[0];
    assert_int_equal(c.messages[0], 3 * 2 + 2);
    c.text = 5000;
    run_chain(&c);
    sends(&c, 0, 3 * 2 + 2, some + 4300);
}

/* Batches of several shapes: a header for each new one. In step s micro-batch m has rows[(m + s) % MICRO]. */
void gm_test_executor_shapes(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        chain c = make_chain(ONE_F_ONE_B, 3, 4);
        for (int m = 0; m < MICRO; m++) c.rows[m] = 1 + m / 2;
        c.variable_shapes = how == 1;
        c.unsigned_ = how == 2;
        run_chain(&c);
        assert_int_equal(c.messages[0], 3 * 4 + (how ? 4 : 2)); /* of 1 and of 2 rows */
        c.steps = 2;
        run_chain(&c);
        assert_int_equal(c.messages[0], 3 * 4 + (how ? 4 : 1)); /* of 3 */
        c.steps = 8;
        run_chain(&c);
        assert_int_equal(c.messages[0], 3 * 4 + (how ? 4 : 0));
    }
}

/* More signatures than a border remembers: both ends forget at once, and it goes on. */
void gm_test_executor_many_signatures(void **state)
{
    (void)state;
    chain c = make_chain(LOOPED, 2, 8);
    c.fresh = true;
    c.steps = 40;
    run_chain(&c);
    assert_int_equal(c.messages[0], 2 * 8 * 3 + 2 * 8 + 2 * 8); /* two borders out, one gradient back; headers */
}

/* A part without parameters to train gets no gradient back. */
void gm_test_executor_frozen(void **state)
{
    (void)state;
    for (kind k = ONE_F_ONE_B; k <= SPLIT; k++) {
        chain c = make_chain(k, 3, 4);
        c.frozen = true;
        run_chain(&c);
        sends(&c, 1, 3 * 4 + 1, 4 * 33 * 8 + HEAD);
        sends(&c, 2, 4, 4 * 15 * 8); /* of the first value alone: the second comes from the frozen part */
    }
}

/* Two ranks a stage: each sends half of what both hold, rounded up, and gathers the rest. */
void gm_test_executor_scatter(void **state)
{
    (void)state;
    for (kind k = GPIPE; k <= SPLIT; k++) {
        chain c = make_wide_chain(k, 2, 4);
        c.steps = 2;
        run_chain(&c);
        for (int rank = 0; rank < 2; rank++) {
            sends(&c, rank, 3 * 4, 4 * (8 + 8 + 2) * 8);
            sends(&c, 2 + rank, 2 * 4, 4 * (8 + 8) * 8);
            assert_int_equal(c.gathers[rank], 4 * 2);
            assert_int_equal(c.gathers[2 + rank], 4 * 3);
        }
        c.scatter = 0;
        run_chain(&c);
        for (int rank = 0; rank < 2; rank++) {
            sends(&c, rank, 3 * 4, 4 * 33 * 8);
            sends(&c, 2 + rank, 2 * 4, 4 * 30 * 8);
            assert_int_equal(c.gathers[rank] + c.gathers[2 + rank], 0);
        }
    }
}

/* A value cut by the axis crosses as it is, blocks of 2 rows: the executor gathers the two others only. The part before
 * gathers the gradient of its own cut, and the part behind what it was given cut. */
void gm_test_executor_cut(void **state)
{
    (void)state;
    chain c = make_wide_chain(ONE_F_ONE_B, 2, 4);
    c.lie = CUT;
    c.steps = 2;
    run_chain(&c);
    for (int rank = 0; rank < 2; rank++) {
        sends(&c, rank, 3 * 4, 4 * (10 + 8 + 2) * 8);
        sends(&c, 2 + rank, 2 * 4, 4 * (10 + 8) * 8);
        assert_int_equal(c.gathers[rank], 4 * (1 + 1));
        assert_int_equal(c.gathers[2 + rank], 4 * (2 + 1));
    }
}

/* Terms of a sum cross as they are; their gradient is what all have alike, and goes in slices. Gradients that come back
 * as terms are summed before they are sent, into the slices: the last stage gathers halves of 16, 16 and 4 elements and
 * makes one reduce_scatter of 16. */
void gm_test_executor_terms(void **state)
{
    (void)state;
    chain c = make_wide_chain(ONE_F_ONE_B, 2, 4);
    c.lie = PARTIAL;
    c.steps = 2;
    run_chain(&c);
    for (int rank = 0; rank < 2; rank++) {
        sends(&c, rank, 3 * 4, 4 * (8 + 15 + 2) * 8);
        sends(&c, 2 + rank, 2 * 4, 4 * (8 + 8) * 8);
    }
    for (kind k = GPIPE; k <= V_SHAPED; k++) {
        chain t = make_wide_chain(k, 2, 3);
        t.lie = TERMS;
        t.steps = 2;
        run_chain(&t);
        if (k != ONE_F_ONE_B) continue;
        for (int rank = 0; rank < 2; rank++) {
            sends(&t, 2 + rank, 2 * 3, 3 * (8 + 8) * 8);
            assert_int_equal(t.gathers[2 + rank], 3 * 4);
            assert_int_equal(t.shared[2 + rank], 3 * (8 + 8 + 2 + 8) * 8);
        }
    }
}

/* A rank that pretends, on meta, counts what the real one sends, whatever comes over its borders. */
void gm_test_executor_meta(void **state)
{
    (void)state;
    for (kind k = GPIPE; k <= V_SHAPED; k++)
        for (int steps = 1; steps <= 2; steps++) {
            chain real = make_wide_chain(k, 2, 3), meta = real;
            real.lie = meta.lie = CUT;
            real.steps = meta.steps = steps;
            real.text = meta.text = 2000;
            run_chain(&real);
            pretend_chain(&meta);
            for (int rank = 0; rank < 4; rank++) {
                sends(&meta, rank, real.messages[rank], real.bytes[rank]);
                if (steps == 2) assert_int_equal(meta.gathers[rank], real.gathers[rank]); /* describing gathers, once */
                assert_int_equal(meta.peak[rank], real.peak[rank]);
            }
        }
}
