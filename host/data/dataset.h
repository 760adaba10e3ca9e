/* dataset.h - numbered samples: (x, y) pairs that the loader batches.
 *
 * A sample is a pure function of its number, 0 <= i < length, and of the epoch if samples are drawn again in each epoch
 * (pairs of texts). The loader's threads call `sample` or `image`, several at a time; these touch no tensor, no pool
 * and no Lua. x is raw: bytes of an image, doubles, or i64 tokens; transforms and the loader make the model's input of
 * it. y is i64: one label (y_ndim 0) or the targets of shape y_shape; or, where y_real says so, doubles in the same
 * places. Only one thread, the owner's, counts references.
 *
 * Pictures differ in size: x_shape is (channels, GM_ANY_SIZE, GM_ANY_SIZE), and `image` is there, not `sample`. */
#ifndef GM_DATASET_H
#define GM_DATASET_H

#include "../../kernels/tensor.h"
#include "../files/bytes.h"
#include "table_rows.h"
#include "transform.h"

typedef struct gm_damage  gm_damage;
typedef struct gm_dataset gm_dataset;
struct gm_dataset {
    int      refs;
    int64_t  length;
    gm_dtype x_dtype; /* of raw samples: GM_U8 (0 to 255, becomes 0 to 1), GM_F64, GM_I64 (tokens, unchanged) */
    int      x_ndim, y_ndim;
    int64_t  x_shape[GM_MAX_DIMS], y_shape[GM_MAX_DIMS]; /* of one sample */
    int64_t  classes; /* the number of classes, or the size of the vocabulary; y is below it */
    bool     y_real;  /* y holds doubles; batches have them in the dtype of x */
    gm_status (*sample)(const gm_dataset *d, uint64_t epoch, int64_t i, void *x, int64_t *y);
    gm_status (*image)(const gm_dataset *d, uint64_t epoch, int64_t i, const gm_window_rule *rule, gm_image *x,
                       int64_t *y);
    gm_status (*checksum)(const gm_dataset *d, uint32_t *sum); /* NULL: that of samples, which are read */
    const char *(*file)(const gm_dataset *d, int64_t i);       /* that sample i is in, for messages; NULL: not known */
    gm_damage *damage;           /* of pictures that may be left out; NULL: a damaged one is an error */
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

/* Folders of classes: root/CLASS/.../NAME.png, .jpg or .jpeg, of any case. Classes are the folders of root in the order
 * of their names (bytes), or those that the caller names, in its order; samples are in the order of classes, then of
 * paths. Hidden files, and names that end otherwise, are left out. Files are opened when a sample is read. */
typedef struct gm_folder_options {
    int64_t            channels; /* 1 or 3 */
    const char *const *classes;  /* NULL: all folders of root */
    int                n_classes;
    bool               skip_damaged;
} gm_folder_options;
/* GM_EIO: root cannot be read. GM_EINVAL: a class that the caller has not named has no pictures; there are none at all;
 * root has a folder that is none of the classes. */
gm_status gm_folder_dataset_new(const char *root, const gm_folder_options *o, gm_dataset **out);
/* The name of a class, its pictures, and the number of files that were left out because of how their names end. */
const char *gm_folder_class(const gm_dataset *d, int64_t k);
int64_t     gm_folder_count(const gm_dataset *d, int64_t k); /* pictures of class k */
int64_t     gm_folder_left_out(const gm_dataset *d);

/* Tar files whose members are pictures and labels (WebDataset): STEM.png, .jpg or .jpeg, and STEM.cls with the number
 * of the class as text. The stem ends before the first dot of the last part of the name; the members of a sample follow
 * one another. Samples are numbered through the shards in the given order. Other members are left out, gm_tar_others of
 * them. GM_ECORRUPT: a shard is cut off, or a header is wrong. GM_EINVAL: a sample lacks its picture or label. */
typedef struct gm_tar_options {
    int64_t channels, classes;
    bool    skip_damaged;
} gm_tar_options;
gm_status gm_tar_dataset_new(const char *const *paths, int n, const gm_tar_options *o, gm_dataset **out);
int64_t   gm_tar_others(const gm_dataset *d);

/* Samples along the first dimension of arrays in files (host/arrays): x, and y if it is not NULL, else y is 0. A name
 * NULL is that of the only array. Bytes stay bytes, (height, width) of them get one channel; other x are numbers, or
 * tokens; whole numbers in y are labels, below `classes` if that is not 0, others are targets. */
typedef struct gm_array_options {
    int64_t classes;
    bool    tokens;
} gm_array_options;
gm_status gm_array_dataset_new(const char *x, const char *x_name, const char *y, const char *y_name,
                               const gm_array_options *o, gm_dataset **out);

/* Rows of files of separated values or of JSON (table_rows.h): x is numbers of chosen columns, y one column. The
 * numbers of a column are written, or the places of texts in its list of values. A field is missing if it is empty, NA,
 * N/A, NaN, nan or null; its column's rule says what then stands there. All rows are read when the dataset is
 * opened. */
typedef enum gm_missing { GM_MISSING_REFUSE, GM_MISSING_VALUE, GM_MISSING_MEAN, GM_MISSING_DROP } gm_missing;
typedef struct gm_column {
    const char        *name;   /* as table_rows.h finds it */
    const char *const *values; /* NULL: numbers */
    int                n_values;
    gm_missing         missing; /* MEAN: of the rows that have one; DROP: the row is left out */
    double             value;
} gm_column;
typedef struct gm_table_options {
    const gm_column      *x, *y; /* y NULL: 0 */
    int                   n_x;
    int64_t               classes; /* y is a label below it; 0: y is real */
    gm_table_rows_options rows;
    bool                  skip_damaged; /* rows that cannot be read are left out */
} gm_table_options;
typedef struct gm_column_report {
    int64_t present, missing; /* in the rows that were kept */
    double  least, most, mean;
} gm_column_report;
typedef struct gm_table_report {
    int64_t dropped, refused; /* rows that lack a value, rows that cannot be read */
    char    first[256];       /* what was wrong with the first that was refused */
} gm_table_report;
/* GM_ECORRUPT names file, line and column: a field is no number, none of the values, no class, or missing without a
 * rule; a row has another number of fields. GM_EINVAL: there is no such column; no row is left. */
gm_status        gm_table_dataset_new(const char *const *paths, int n, const gm_table_options *o, gm_dataset **out);
void             gm_table_report_of(const gm_dataset *d, gm_table_report *out);
gm_column_report gm_table_column(const gm_dataset *d, int k); /* of x, then y; k counts from 0 */
bool             gm_is_missing(const char *field);
bool             gm_field_is_number(const char *field, double *value);

/* Clicks: x (dense + tables), i64: counts, then for each table a row of it; y is 1 for a click, else 0. click_dataset.c
 * reads logs as Criteo publishes them: lines of tab-separated fields, the label, `dense` whole numbers, and `tables`
 * numbers in hexadecimal, of which the remainder by the rows of the table is taken. An empty field is 0. All lines are
 * read when the dataset is opened: 4 bytes a field. GM_ECORRUPT names file and line. Made-up clicks are functions of
 * (seed, split) and read no file. */
typedef struct gm_click_options {
    int            dense, tables;
    const int64_t *rows; /* of each table, 1 to 2^31 - 1 */
    bool           skip_damaged;
} gm_click_options;
typedef struct gm_click_report {
    int64_t refused; /* lines that were left out */
    char    first[256];
} gm_click_report;
gm_status gm_click_log_new(const char *const *paths, int n, const gm_click_options *o, gm_click_report *report,
                           gm_dataset **out);
/* signal: the standard deviation of the log-odds of a click. */
gm_status gm_made_click_new(int64_t length, const gm_click_options *o, double signal, uint64_t seed, uint64_t split,
                            gm_dataset **out);

/* Samples of n datasets of equal shapes and dtypes, `length` of them in an epoch, shared out by weights (above 0). Each
 * part is walked through in a random order, from where the epoch before has stopped, so that no sample comes again
 * before all have come. GM_ESHAPE: samples differ. */
gm_status gm_mix_dataset_new(gm_dataset *const *parts, const double *weights, int n, int64_t length, uint64_t seed,
                             gm_dataset **out);
int64_t   gm_mix_count(const gm_dataset *d, int k); /* samples of part k in an epoch */

/* Reads sample i, as it is in an epoch, after checking it against the dataset's length. */
gm_status gm_dataset_read(const gm_dataset *d, uint64_t epoch, int64_t i, void *x, int64_t *y);
/* The same of a dataset of pictures: the part of x that the rule chooses (NULL: all). If damaged pictures may be left
 * out, the next undamaged one behind it stands for a damaged one, the first behind the last; GM_ECORRUPT: 100 in a row
 * are damaged. Which one it is depends on the files alone. */
gm_status gm_dataset_image(const gm_dataset *d, uint64_t epoch, int64_t i, const gm_window_rule *rule, gm_image *x,
                           int64_t *y);
/* damage.c: what was left out. It may be asked while threads read. */
gm_status gm_damage_new(int64_t length, gm_damage **out);
void      gm_damage_free(gm_damage *m);                             /* NULL is allowed */
void      gm_damage_note(gm_damage *m, int64_t i, const char *why); /* a sample counts once, however often it is met */
int64_t   gm_damage_count(gm_damage *m);
/* Takes the oldest message that nobody has taken; false: there is none. Of more than 16 that wait the rest are lost. */
bool gm_damage_take(gm_damage *m, char *text, size_t room);

/* Gives a checksum of the samples of epoch 0, or what stands for one: names and sizes of picture files. If all samples
 * are more than 16 MB, it takes 1024 of them, spread evenly. Equal datasets have equal checksums. GM_ECORRUPT and
 * others: a sample cannot be read. */
gm_status gm_dataset_checksum(const gm_dataset *d, uint32_t *sum);
int64_t   gm_dataset_x_numel(const gm_dataset *d);
int64_t   gm_dataset_y_numel(const gm_dataset *d); /* 1 for a label */
void      gm_dataset_retain(gm_dataset *d);
void      gm_dataset_release(gm_dataset *d); /* NULL is allowed */

#endif
