/* folder_dataset.c - pictures in folders of classes, see dataset.h. Opening lists names; no picture is opened. */
#include "dataset.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <zlib.h>

#include "names.h"

#define DEEPEST 16      /* folders in folders, so that a link to a folder above ends */
#define CLASSES 1000000 /* most of them */
#define STATTED 1024    /* files whose sizes are in the checksum */

typedef struct folder_dataset {
    gm_dataset base;
    char      *root;
    gm_names   paths;   /* of the pictures, from root */
    gm_names   classes; /* in order */
    int64_t   *ends;    /* number of the first sample behind each class */
    int64_t    left_out;
} folder_dataset;

/* ---- listing ---- */

static bool is_picture(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && (!strcasecmp(dot, ".png") || !strcasecmp(dot, ".jpg") || !strcasecmp(dot, ".jpeg"));
}

typedef enum kind { A_FILE, A_FOLDER, SOMETHING_ELSE } kind;

static kind kind_of(const char *folder, const struct dirent *e)
{
    char        path[PATH_MAX];
    struct stat s;
    if (e->d_type == DT_REG) return A_FILE;
    if (e->d_type == DT_DIR) return A_FOLDER;
    if (e->d_type != DT_LNK && e->d_type != DT_UNKNOWN) return SOMETHING_ELSE;
    if (snprintf(path, sizeof path, "%s/%s", folder, e->d_name) >= (int)sizeof path || stat(path, &s))
        return SOMETHING_ELSE;
    return S_ISREG(s.st_mode) ? A_FILE : S_ISDIR(s.st_mode) ? A_FOLDER : SOMETHING_ELSE;
}

/* Adds the pictures of root/inner and below, as paths from root. */
static gm_status walk(folder_dataset *d, const char *inner, int depth)
{
    char           folder[PATH_MAX], path[PATH_MAX];
    struct dirent *e;
    gm_status      st = GM_OK;
    if (depth > DEEPEST) return GM_FAIL(GM_EINVAL, "%s/%s: more than %d folders deep", d->root, inner, DEEPEST);
    if (snprintf(folder, sizeof folder, "%s/%s", d->root, inner) >= (int)sizeof folder)
        return GM_FAIL(GM_EINVAL, "%s/%s: the path is too long", d->root, inner);
    DIR *dir = opendir(folder);
    if (!dir) return GM_FAIL(GM_EIO, "%s: cannot be read: %s", folder, strerror(errno));
    while (st == GM_OK && (e = readdir(dir))) {
        if (e->d_name[0] == '.') continue;
        int  length = snprintf(path, sizeof path, "%s/%s", inner, e->d_name);
        kind k = kind_of(folder, e);
        if (length >= (int)sizeof path) st = GM_FAIL(GM_EINVAL, "%s/%s: the path is too long", folder, e->d_name);
        else if (k == A_FOLDER) st = walk(d, path, depth + 1);
        else if (k == A_FILE && is_picture(e->d_name)) st = gm_names_add(&d->paths, path, (size_t)length);
        else d->left_out++;
    }
    closedir(dir);
    return st;
}

static bool is_class(const folder_dataset *d, const char *name)
{
    for (int64_t k = 0; k < d->classes.n; k++)
        if (!strcmp(gm_names_get(&d->classes, k), name)) return true;
    return false;
}

/* Finds the folders of root: the classes, or folders that must be among them. */
static gm_status find_classes(folder_dataset *d, const gm_folder_options *o)
{
    struct dirent *e;
    gm_status      st = GM_OK;
    DIR           *dir = opendir(d->root);
    if (!dir) return GM_FAIL(GM_EIO, "%s: cannot be read: %s", d->root, strerror(errno));
    for (int k = 0; st == GM_OK && o->classes && k < o->n_classes; k++)
        st = gm_names_add(&d->classes, o->classes[k], strlen(o->classes[k]));
    while (st == GM_OK && (e = readdir(dir))) {
        if (e->d_name[0] == '.') continue;
        if (kind_of(d->root, e) != A_FOLDER) d->left_out++;
        else if (!o->classes) st = gm_names_add(&d->classes, e->d_name, strlen(e->d_name));
        else if (!is_class(d, e->d_name))
            st = GM_FAIL(GM_EINVAL, "%s: has the folder '%s', which is none of the classes", d->root, e->d_name);
    }
    closedir(dir);
    if (st == GM_OK && !o->classes) gm_names_sort(&d->classes, 0);
    if (st == GM_OK && (d->classes.n < 1 || d->classes.n > CLASSES))
        st = GM_FAIL(GM_EINVAL, "%s: has %lld folders, and each is a class; from 1 to %d are possible", d->root,
                     (long long)d->classes.n, CLASSES);
    return st;
}

/* Lists the pictures of each class. A class that the caller has named may have none. */
static gm_status list(folder_dataset *d, bool named)
{
    d->ends = malloc((size_t)d->classes.n * sizeof *d->ends);
    if (!d->ends) return GM_FAIL(GM_ENOMEM, "no memory for %lld classes", (long long)d->classes.n);
    for (int64_t k = 0; k < d->classes.n; k++) {
        int64_t first = d->paths.n;
        GM_TRY(walk(d, gm_names_get(&d->classes, k), 1));
        if (d->paths.n == first && !named)
            return GM_FAIL(
                GM_EINVAL,
                "%s/%s: has no pictures (.png, .jpg, .jpeg); only a class that `classes` names may have none", d->root,
                gm_names_get(&d->classes, k));
        gm_names_sort(&d->paths, first);
        d->ends[k] = d->paths.n;
    }
    if (d->paths.n == 0) return GM_FAIL(GM_EINVAL, "%s: has no pictures (.png, .jpg, .jpeg)", d->root);
    d->base.length = d->paths.n, d->base.classes = d->classes.n;
    return GM_OK;
}

/* ---- samples ---- */

static int64_t label_of(const folder_dataset *d, int64_t i)
{
    int64_t low = 0, high = d->classes.n - 1;
    while (low < high) {
        int64_t half = (low + high) / 2;
        if (i < d->ends[half]) high = half;
        else low = half + 1;
    }
    return low;
}

static gm_status folder_image(const gm_dataset *base, uint64_t epoch, int64_t i, const gm_window_rule *rule,
                              gm_image *x, int64_t *y)
{
    (void)epoch;
    const folder_dataset *d = (const folder_dataset *)base;
    char                  path[2 * PATH_MAX], name[2 * PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/%s", d->root, gm_names_get(&d->paths, i));
    snprintf(name, sizeof name, "%s (sample %lld)", path, (long long)i + 1);
    GM_TRY(gm_image_load(path, x));
    *y = label_of(d, i);
    return gm_image_decode(&(gm_encoded){x->file, x->file_size, name}, base->x_shape[0], rule, x);
}

/* All names, and the sizes of some files: what tells two folders apart without reading them. */
static gm_status folder_checksum(const gm_dataset *base, uint32_t *sum)
{
    const folder_dataset *d = (const folder_dataset *)base;
    char                  path[2 * PATH_MAX];
    struct stat           s;
    int64_t               n = base->length < STATTED ? base->length : STATTED;
    *sum = 0;
    for (int64_t i = 0; i < base->length; i++) {
        const char *name = gm_names_get(&d->paths, i);
        *sum = (uint32_t)crc32_z(*sum, (const unsigned char *)name, strlen(name) + 1);
    }
    for (int64_t k = 0; k < n; k++) {
        snprintf(path, sizeof path, "%s/%s", d->root, gm_names_get(&d->paths, k * base->length / n));
        int64_t size = stat(path, &s) ? -1 : (int64_t)s.st_size;
        *sum = (uint32_t)crc32_z(*sum, (const unsigned char *)&size, sizeof size);
    }
    return GM_OK;
}

static void folder_free(gm_dataset *base)
{
    folder_dataset *d = (folder_dataset *)base;
    gm_damage_free(base->damage);
    gm_names_free(&d->paths);
    gm_names_free(&d->classes);
    free(d->ends);
    free(d->root);
    free(d);
}

const char *gm_folder_class(const gm_dataset *d, int64_t k)
{
    return gm_names_get(&((const folder_dataset *)d)->classes, k);
}

int64_t gm_folder_count(const gm_dataset *base, int64_t k)
{
    const folder_dataset *d = (const folder_dataset *)base;
    return d->ends[k] - (k ? d->ends[k - 1] : 0);
}

int64_t gm_folder_left_out(const gm_dataset *d) { return ((const folder_dataset *)d)->left_out; }

gm_status gm_folder_dataset_new(const char *root, const gm_folder_options *o, gm_dataset **out)
{
    gm_status       st = GM_OK;
    folder_dataset *d = calloc(1, sizeof *d);
    if (!d) return GM_FAIL(GM_ENOMEM, "no memory for a dataset");
    d->base = (gm_dataset){.refs = 1,
                           .x_dtype = GM_U8,
                           .x_ndim = 3,
                           .x_shape = {o->channels, GM_ANY_SIZE, GM_ANY_SIZE},
                           .image = folder_image,
                           .checksum = folder_checksum,
                           .free = folder_free};
    if (strlen(root) >= PATH_MAX) st = GM_FAIL(GM_EINVAL, "%.100s...: the path is too long", root);
    else if (!(d->root = strdup(root))) st = GM_FAIL(GM_ENOMEM, "no memory for a dataset");
    if (st == GM_OK) st = find_classes(d, o);
    if (st == GM_OK) st = list(d, o->classes != NULL);
    if (st == GM_OK && o->skip_damaged) st = gm_damage_new(d->base.length, &d->base.damage);
    if (st == GM_OK) *out = &d->base;
    else folder_free(&d->base);
    return st;
}
