/* step_control.h - what decides about an update from the loss and the norm of the gradients: one rule for the CPU, the
 * GPU and the reference, which hosts of captured graphs never have to wait for.
 *
 * Clipping: Pascanu et al. 2013, with PyTorch's 1e-6. Scaling of losses: Micikevicius et al. 2018, as PyTorch's
 * GradScaler does it. The trap: gradients carry the loss scale as it was before the decision; the control tensor then
 * holds that of the next step, and its factor already divides by the old one.
 *
 * A step ends in one of five ways (GM_CAUSE_*): the update is made; or loss or norm is not finite, which means what
 * the attribute not_finite says (GM_NOT_FINITE_*); or losses are scaled, the gradients are not finite and the scale may
 * shrink: the update is left out, the scale shrinks, whatever the loss is (GradScaler looks at gradients alone; a scale
 * of 1 cannot shrink, so that NaN in every step ends the run); or a kernel has refused something; or ranks would make
 * different updates (apart is not 0: a sum over ranks, host/optim/step_control.h). After a halt nothing changes any
 * more until the host clears it, so that steps which are queued behind it do no harm. */
#ifndef GM_STEP_CONTROL_H
#define GM_STEP_CONTROL_H

#include <stdint.h>

#ifndef GM_INLINE
#define GM_INLINE static inline
#endif

/* Elements of the control tensor, f64. */
enum {
    GM_CONTROL_LOSS,
    GM_CONTROL_NORM,       /* of the gradients without the loss scale */
    GM_CONTROL_FACTOR,     /* gradients are multiplied by it: clipping over loss scale */
    GM_CONTROL_GO,         /* 1: make the update; 0: change nothing */
    GM_CONTROL_LOSS_SCALE, /* losses of the next step are multiplied by it */
    GM_CONTROL_GOOD,       /* updates in a row since the scale changed */
    GM_CONTROL_SKIPPED,    /* steps without an update so far: Adam's t leaves them out */
    GM_CONTROL_HALTED,     /* 1: until the host clears it there are no updates */
    GM_CONTROL_CAUSE,      /* GM_CAUSE_* of the last decision */
    GM_CONTROL_ASKED,      /* the sum of what ranks were asked for (lua/ganymede/train/engine_update.lua) */
    GM_CONTROL_TARGETS,    /* of the step; written by the host or by other ops, never here */
    GM_CONTROL_SIZE
};
#define GM_CONTROL_TERMS 64 /* tensors of squares that a decision can add up, at most */

enum { GM_CAUSE_NONE, GM_CAUSE_NOT_FINITE, GM_CAUSE_OVERFLOW, GM_CAUSE_REFUSED, GM_CAUSE_APART };
enum { GM_NOT_FINITE_HALT, GM_NOT_FINITE_SKIP, GM_NOT_FINITE_WARN };

typedef struct gm_control_rule {
    double max_norm;        /* of all gradients; 0: no clipping */
    double growth, backoff; /* factors of the loss scale */
    double growth_interval; /* updates in a row after which it grows; 0: it never changes */
    int    not_finite;      /* GM_NOT_FINITE_* */
} gm_control_rule;

GM_INLINE int gm_control_is_finite(double x) { return x - x == 0; }

/* Skips the update. */
GM_INLINE void gm_control_skip(double *c)
{
    c[GM_CONTROL_GO] = 0;
    c[GM_CONTROL_GOOD] = 0;
    c[GM_CONTROL_SKIPPED] += 1;
}

GM_INLINE void gm_control_update(double *c, const gm_control_rule *r)
{
    c[GM_CONTROL_GO] = 1;
    c[GM_CONTROL_GOOD] += 1;
    if (r->growth_interval <= 0 || c[GM_CONTROL_GOOD] < r->growth_interval) return;
    c[GM_CONTROL_GOOD] = 0;
    if (gm_control_is_finite(c[GM_CONTROL_LOSS_SCALE] * r->growth)) c[GM_CONTROL_LOSS_SCALE] *= r->growth;
}

/* c: the control tensor. norm: of the gradients as they are, with the loss scale in them. */
GM_INLINE void gm_control_apply(double *c, const gm_control_rule *r, double loss, double asked, double apart,
                                double norm, int refused)
{
    double scale = c[GM_CONTROL_LOSS_SCALE], clip = 1;
    int    scaled = r->growth_interval > 0 && scale > 1;
    if (c[GM_CONTROL_HALTED] != 0) {
        c[GM_CONTROL_GO] = 0;
        return;
    }
    norm = norm / scale;
    if (r->max_norm > 0) {
        double most = r->max_norm / (norm + 1e-6);
        if (!(most >= 1)) clip = most; /* NaN stays NaN */
    }
    c[GM_CONTROL_LOSS] = loss;
    c[GM_CONTROL_NORM] = norm;
    c[GM_CONTROL_FACTOR] = clip / scale;
    c[GM_CONTROL_ASKED] = asked;
    c[GM_CONTROL_CAUSE] = GM_CAUSE_NONE;
    if (refused || apart != 0) {
        c[GM_CONTROL_CAUSE] = apart != 0 ? GM_CAUSE_APART : GM_CAUSE_REFUSED;
        c[GM_CONTROL_HALTED] = 1;
        c[GM_CONTROL_GO] = 0;
    } else if (gm_control_is_finite(norm) && (gm_control_is_finite(loss) || scaled)) {
        gm_control_update(c, r);
    } else if (scaled) {
        c[GM_CONTROL_CAUSE] = GM_CAUSE_OVERFLOW;
        c[GM_CONTROL_LOSS_SCALE] = scale * r->backoff > 1 ? scale * r->backoff : 1;
        gm_control_skip(c);
    } else {
        c[GM_CONTROL_CAUSE] = GM_CAUSE_NOT_FINITE;
        if (r->not_finite == GM_NOT_FINITE_WARN) {
            gm_control_update(c, r);
        } else if (r->not_finite == GM_NOT_FINITE_SKIP) {
            gm_control_skip(c);
        } else {
            c[GM_CONTROL_HALTED] = 1;
            c[GM_CONTROL_GO] = 0;
        }
    }
}

/* What an update reads: from the control tensor c, whose elements are stride apart, or where there is none (NULL) from
 * the step block's numbers. missed: updates that were made without these parameters, which had no gradient; NULL: 0. */
typedef struct gm_control_step {
    int    go;     /* 0: change nothing */
    double factor; /* of the gradients */
    double t;      /* number of the update of these parameters, from 1: Adam's t */
} gm_control_step;

GM_INLINE gm_control_step gm_control_of_step(const double *c, int64_t stride, const double *missed, double step,
                                             double clip, double loss_scale)
{
    gm_control_step s = {1, clip / loss_scale, missed ? step - *missed : step};
    if (!c) return s;
    s.go = c[GM_CONTROL_GO * stride] != 0;
    s.factor = c[GM_CONTROL_FACTOR * stride];
    s.t -= c[GM_CONTROL_SKIPPED * stride];
    return s;
}

#endif
