/* status.h - how every C function here reports failure.
 *
 * A function that can fail returns gm_status and writes its results through pointers. On failure it has changed
 * nothing that its caller can see, and gm_last_error() gives one line for a person: what was wrong, and where in the
 * source. Nothing below bindings/ exits, prints or calls longjmp. Each thread has a message of its own. If another
 * thread reports the failure of a worker, it sets the worker's message by gm_fail_again(). */
#ifndef GM_STATUS_H
#define GM_STATUS_H

typedef enum gm_status {
    GM_OK = 0,
    GM_EINVAL,     /* an argument is wrong, whatever the state */
    GM_ESHAPE,     /* shapes or dtypes do not fit together */
    GM_ENOMEM,     /* there is not enough memory, or a limit is reached; free something and try again */
    GM_EIO,        /* a file could not be read or written */
    GM_ECORRUPT,   /* a data file or checkpoint is damaged: truncated, bad checksum, out of range */
    GM_ECOMM,      /* MPI or NCCL failed; the job cannot go on */
    GM_ELUA,       /* a callback into Lua raised an error; the message is that error's */
    GM_EPEER,      /* another rank has failed; gm_comm_failure tells which */
    GM_EMISMATCH,  /* ranks made different calls where all must make the same call */
    GM_EHANG,      /* a rank did not do its part of an operation in time */
    GM_ENOTFINITE, /* an op has made NaN or an infinity, and such are looked for (host/autograd/anomaly.h) */
    GM_EINTERRUPT, /* this rank was asked to stop while it waited for other ranks */
} gm_status;

/* Sets the message and returns s. The message is "what [file:line]". */
gm_status gm_fail(gm_status s, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5), cold));
/* Sets the message to `text`, without a place, and returns s. */
gm_status gm_fail_again(gm_status s, const char *text) __attribute__((cold));
/* The last failure on this thread; valid until the next one. Never NULL. */
const char *gm_last_error(void);

#define GM_FAIL(s, ...) gm_fail((s), __FILE__, __LINE__, __VA_ARGS__)
#define GM_TRY(expr)                  \
    do {                              \
        gm_status st_ = (expr);       \
        if (st_ != GM_OK) return st_; \
    } while (0)
/* For functions that must release something on failure: sets st and jumps to the one cleanup label. */
#define GM_TRY_OR(expr, st, label)                \
    do {                                          \
        if (((st) = (expr)) != GM_OK) goto label; \
    } while (0)

#endif
