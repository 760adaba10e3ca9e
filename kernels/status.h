/* status.h - how every C function here reports failure.
 *
 * A function that can fail returns gm_status and writes its results through pointers. On failure it
 * has changed nothing its caller can see, and gm_last_error() holds one line for a person: what was
 * wrong, then where. Nothing below bindings/ exits, prints or longjmps. The message is kept per
 * thread; hand it over with gm_fail_again() when a worker's failure is reported by another thread. */
#ifndef GM_STATUS_H
#define GM_STATUS_H

typedef enum gm_status {
    GM_OK = 0,
    GM_EINVAL,     /* an argument is wrong, whatever the state */
    GM_ESHAPE,     /* shapes or dtypes do not fit together */
    GM_ENOMEM,     /* over the memory limit; free something and try again */
    GM_EIO,        /* a file could not be read or written */
    GM_ECORRUPT,   /* a data file or checkpoint is damaged: truncated, bad checksum, out of range */
    GM_ECOMM,      /* MPI or NCCL failed; the job cannot go on */
    GM_ELUA,       /* a callback into Lua raised; the message is Lua's */
    GM_EPEER,      /* another rank has failed; gm_comm_failure tells which */
    GM_EMISMATCH,  /* ranks made different calls where they must make the same */
    GM_EHANG,      /* a rank did not do its part of an operation in time */
    GM_EINTERRUPT, /* asked to stop while waiting for other ranks */
} gm_status;

/* Sets the message and returns s. The message is "what [file:line]". */
gm_status gm_fail(gm_status s, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5), cold));
/* Sets the message to text as it is (no place is added) and returns s. */
gm_status gm_fail_again(gm_status s, const char *text) __attribute__((cold));
/* The last failure on this thread; valid until the next one. Never NULL. */
const char *gm_last_error(void);

#define GM_FAIL(s, ...) gm_fail((s), __FILE__, __LINE__, __VA_ARGS__)
#define GM_TRY(expr)                  \
    do {                              \
        gm_status st_ = (expr);       \
        if (st_ != GM_OK) return st_; \
    } while (0)
/* For functions that hold something: set st, jump to the one cleanup label. */
#define GM_TRY_OR(expr, st, label)                \
    do {                                          \
        if (((st) = (expr)) != GM_OK) goto label; \
    } while (0)

#endif
