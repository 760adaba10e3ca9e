/* dataset.h - numbered samples: (x, y) pairs that the loader batches.
 *
 * A sample is a pure function of its number, 0 <= i < length, and of the epoch if samples are drawn again in each epoch
 * (pairs of texts). The prefetch thread calls `sample`, which touches no tensor, no pool and no Lua. x is raw: bytes of
 * an image, doubles, or i64 tokens; transforms and the loader make the model's input of it. y is i64: one label
 * (y_ndim 0) or the targets of shape y_shape. Only one thread, the owner's, counts references. */
#ifndef GM_DATASET_H
#define GM_DATASET_H

#include "../../kernels/tensor.h"
#include "bytes.h"

typedef struct gm_dataset gm_dataset;
struct gm_dataset {
    int      refs;
    int64_t  length;
    gm_dtype x_dtype; /* of raw samples: GM_U8 (0-255 becomes 0-1), GM_F64, GM_I64 (tokens, as they are) */
    int      x_ndim, y_ndim;
    int64_t  x_shape[GM_MAX_DIMS], y_shape[GM_MAX_DIMS]; /* of one sample */
    int64_t  classes; /* y is below it: number of classes or size of the vocabulary */
    gm_status (*sample)(const gm_dataset *d, uint64_t epoch, int64_t i, void *x, int64_t *y);
    void (*free)(gm_dataset *d); /* what the kind of dataset holds, and d itself */
};

/* Images from an IDX file (n, ...) and labels from another (n). x: (h, w) becomes (1, h, w).
 * GM_ESHAPE: the numbers of samples differ; labels >= classes are GM_ECORRUPT when they are read. */
gm_status gm_idx_dataset_new(const char *images, const char *labels, int64_t classes, gm_dataset **out);

/* Files of fixed records, such as CIFAR's: a label byte at label_offset, then bytes of an image of
 * x_shape at x_offset. Samples count through the files in the order given. Each file must hold `records` of them
 * (0: any number), else it is GM_ECORRUPT: a file that was cut between two records shows it in nothing else. */
typedef struct gm_record_layout {
    size_t  record, label_offset, x_offset;
    int     x_ndim;
    int64_t x_shape[GM_MAX_DIMS];
    int64_t classes;
    size_t  records;
} gm_record_layout;
gm_status gm_record_dataset_new(const char *const *paths, int n, const gm_record_layout *layout, gm_dataset **out);

/* Windows of a stream of tokens: x = tokens [i * stride, + length), y the same one further on. */
typedef struct gm_token_options {
    int     width;          /* bytes of a token in a file without header: 1, 2, 4; 0: read the header */
    int64_t vocab_size;     /* 0: what the header tells, else 2^(8 width); others are GM_ECORRUPT when read */
    int64_t length, stride; /* of a window, and from one to the next; in tokens */
    double  begin, end;     /* the part of the stream to use, as fractions of it: 0 and 1 for all */
} gm_token_options;
gm_status gm_token_dataset_new(const char *path, const gm_token_options *o, gm_dataset **out);

/* Pairs of pieces of text with hidden tokens (Devlin et al. 2019). Tokens are the files' bytes and four special ones.
 * A sample of s = length tokens is [class] a [separator] b [separator] and, where it is shorter, padding; a is the
 * text from where the sample begins, b what follows it or, in half of the samples, text from any other place of the
 * files.
 *     x (3, s): tokens; segments, 1 for b and its separator, else 0; the key mask, 0 for padding, else 1
 *     y (s + 1): the tokens that are asked for, GM_PAIR_IGNORED elsewhere; then 0 if b follows a, 1 if it does not
 * Which tokens are hidden, which b and which length are functions of (seed, epoch, sample) alone. */
enum { GM_PAIR_PADDING = 256, GM_PAIR_CLASS, GM_PAIR_SEPARATOR, GM_PAIR_MASK, GM_PAIR_VOCABULARY };
#define GM_PAIR_IGNORED  (-100)
#define GM_PAIR_SHORTEST 5 /* tokens */
typedef struct gm_pair_options {
    int64_t  length, stride; /* tokens of a sample; bytes from where one begins to where the next does */
    double   begin, end;     /* the part of every file to use, as fractions of it */
    double   mask, shorter;  /* probabilities: that a byte is asked for; that a sample is not of full length */
    uint64_t seed;
} gm_pair_options;
/* GM_EINVAL: the part of a file is shorter than one sample. */
gm_status gm_pair_dataset_new(const char *const *paths, int n, const gm_pair_options *o, gm_dataset **out);

/* Made-up data that can be learned, a pure function of seed: nothing is read. */
gm_status gm_cluster_dataset_new(int64_t length, int x_ndim, const int64_t *x_shape, int64_t classes, double noise,
                                 uint64_t seed, uint64_t split, gm_dataset **out);
gm_status gm_chain_dataset_new(int64_t length, int64_t sequence_length, int64_t vocab_size, double noise, uint64_t seed,
                               uint64_t split, gm_dataset **out);

/* Reads sample i, as it is in an epoch, after checking it against the dataset's length. */
gm_status gm_dataset_read(const gm_dataset *d, uint64_t epoch, int64_t i, void *x, int64_t *y);
/* A checksum of what the samples are in epoch 0: of all, or of 1024 that are spread evenly where all are more than
 * 16 MB. Equal datasets have equal ones. GM_ECORRUPT and others: a sample cannot be read. */
gm_status gm_dataset_checksum(const gm_dataset *d, uint32_t *sum);
int64_t   gm_dataset_x_numel(const gm_dataset *d);
int64_t   gm_dataset_y_numel(const gm_dataset *d); /* 1 for a label */
void      gm_dataset_retain(gm_dataset *d);
void      gm_dataset_release(gm_dataset *d); /* NULL is allowed */

#endif
