/* dataset.h - numbered samples: (x, y) pairs that the loader batches.
 *
 * A sample is a pure function of its number, 0 <= i < length, and of the epoch if samples are drawn again in each epoch
 * (pairs of texts). The prefetch thread calls `sample`, which touches no tensor, no pool and no Lua. x is raw: bytes of
 * an image, doubles, or i64 tokens; transforms and the loader make the model's input of it. y is i64: one label
 * (y_ndim 0) or the targets of shape y_shape. Only one thread, the owner's, counts references. */
#ifndef GM_DATASET_H
#define GM_DATASET_H

#include "../../kernels/tensor.h"
#include "../files/bytes.h"

typedef struct gm_dataset gm_dataset;
struct gm_dataset {
    int      refs;
    int64_t  length;
    gm_dtype x_dtype; /* of raw samples: GM_U8 (0 to 255, becomes 0 to 1), GM_F64, GM_I64 (tokens, unchanged) */
    int      x_ndim, y_ndim;
    int64_t  x_shape[GM_MAX_DIMS], y_shape[GM_MAX_DIMS]; /* of one sample */
    int64_t  classes; /* the number of classes, or the size of the vocabulary; y is below it */
    gm_status (*sample)(const gm_dataset *d, uint64_t epoch, int64_t i, void *x, int64_t *y);
    void (*free)(gm_dataset *d); /* frees what this kind of dataset holds, and d itself */
};

/* Each gm_*_dataset_new gives the caller a reference to a new dataset. */

/* Images from an IDX file (n, ...), and labels from another one (n). An image (h, w) becomes x (1, h, w). GM_ESHAPE:
 * the numbers of samples differ. A label that is not below `classes` is GM_ECORRUPT when it is read. */
gm_status gm_idx_dataset_new(const char *images, const char *labels, int64_t classes, gm_dataset **out);

/* Files of fixed records, such as CIFAR's. Each record has a label byte at label_offset, and the bytes of an image of
 * x_shape at x_offset. Samples are numbered through the files in the given order. GM_ECORRUPT: a file does not hold
 * `records` records (0: any number is allowed). Nothing else shows that a file was cut between two records. */
typedef struct gm_record_layout {
    size_t  record, label_offset, x_offset;
    int     x_ndim;
    int64_t x_shape[GM_MAX_DIMS];
    int64_t classes;
    size_t  records;
} gm_record_layout;
gm_status gm_record_dataset_new(const char *const *paths, int n, const gm_record_layout *layout, gm_dataset **out);

/* Windows of a stream of tokens: x is tokens i * stride to i * stride + length - 1, y the same window one token later.
 * With an end token, which stands behind each document of the stream, x is (2, length): the tokens, and for each the
 * number of its document, from 0 in the window. Where x is the end token, y is GM_TARGET_IGNORED: a document does not
 * foretell the next. */
#define GM_TARGET_IGNORED (-100)
#define GM_NO_END_TOKEN   (-1)
typedef struct gm_token_options {
    int     width;          /* bytes of a token in a file without header: 1, 2, 4; 0: read the header */
    int64_t vocab_size;     /* 0: as the header says, else 2^(8 width); a token beyond it is GM_ECORRUPT when read */
    int64_t length, stride; /* length of a window, and distance from one window to the next, in tokens */
    double  begin, end;     /* the part of the stream to use, as fractions of it; 0 and 1: all of it */
    int64_t end_token;      /* GM_NO_END_TOKEN: the stream is one document */
} gm_token_options;
/* GM_EINVAL: the part is too short for a window; the end token is none of the vocabulary. */
gm_status gm_token_dataset_new(const char *path, const gm_token_options *o, gm_dataset **out);

/* Pairs of pieces of text with hidden tokens (BERT: Devlin et al. 2019). Tokens are the bytes of the files, and special
 * tokens. A sample has s = length tokens: [class] a [separator] b [separator], then padding if the text is shorter. a
 * is the text from the place at which the sample begins. b is the text that follows a or, in half of the samples, text
 * from another place of the files.
 *     x (3, s): tokens; segments, 1 for b and its separator, else 0; the key mask, 0 for padding, else 1
 *     y (s + 1): the hidden tokens, which the model must predict, and GM_TARGET_IGNORED elsewhere; then 0 if b follows
 *                a, 1 if it does not
 * The hidden tokens, the choice of b and the length are functions of (seed, epoch, sample) alone. */
enum { GM_PAIR_PADDING = 256, GM_PAIR_CLASS, GM_PAIR_SEPARATOR, GM_PAIR_MASK, GM_PAIR_VOCABULARY };
#define GM_PAIR_SHORTEST 5 /* tokens */
typedef struct gm_pair_options {
    int64_t  length, stride; /* tokens of a sample; bytes from the begin of one sample to that of the next */
    double   begin, end;     /* the part of every file to use, as fractions of it */
    double   mask, shorter; /* probabilities: that the model must predict a byte; that a sample is not of full length */
    uint64_t seed;
} gm_pair_options;
/* GM_EINVAL: the part of a file is shorter than one sample. */
gm_status gm_pair_dataset_new(const char *const *paths, int n, const gm_pair_options *o, gm_dataset **out);

/* Synthetic data that a model can learn. They are pure functions of (seed, split) and read no file. */
gm_status gm_cluster_dataset_new(int64_t length, int x_ndim, const int64_t *x_shape, int64_t classes, double noise,
                                 uint64_t seed, uint64_t split, gm_dataset **out);
gm_status gm_chain_dataset_new(int64_t length, int64_t sequence_length, int64_t vocab_size, double noise, uint64_t seed,
                               uint64_t split, gm_dataset **out);

/* Reads sample i, as it is in an epoch, after checking it against the dataset's length. */
gm_status gm_dataset_read(const gm_dataset *d, uint64_t epoch, int64_t i, void *x, int64_t *y);
/* Gives a checksum of the samples of epoch 0. If all samples are more than 16 MB, it takes 1024 of them, spread evenly.
 * Equal datasets have equal checksums. GM_ECORRUPT and others: a sample cannot be read. */
gm_status gm_dataset_checksum(const gm_dataset *d, uint32_t *sum);
int64_t   gm_dataset_x_numel(const gm_dataset *d);
int64_t   gm_dataset_y_numel(const gm_dataset *d); /* 1 for a label */
void      gm_dataset_retain(gm_dataset *d);
void      gm_dataset_release(gm_dataset *d); /* NULL is allowed */

#endif
