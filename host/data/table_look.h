/* table_look.h - what is in a file of separated values or of JSON, column by column, for `ganymede data`. */
#ifndef GM_TABLE_LOOK_H
#define GM_TABLE_LOOK_H

#include <stdbool.h>
#include "table_rows.h"

#define GM_LOOK_TEXTS 24 /* different texts of a column that are kept */

typedef struct gm_column_look {
    int64_t  missing, numbers, texts; /* fields that are missing, numbers, neither */
    double   least, most, sum;        /* of the numbers */
    gm_names different;               /* the first GM_LOOK_TEXTS different fields */
    int64_t  counts[GM_LOOK_TEXTS];   /* of each */
    bool     more;                    /* there are more different fields */
} gm_column_look;

typedef struct gm_table_look {
    int64_t         rows, columns, uneven; /* uneven: rows with another number of fields than the first */
    int64_t         uneven_line;           /* where the first of them is */
    gm_names        names;                 /* the first row's fields; of JSON: keys in the order in which they come */
    gm_column_look *each;
} gm_table_look;

#define GM_LOOK_KEYS 4096 /* columns of a file of JSON */

/* Reads a whole file; the first row names the columns. Of JSON these are the keys of all objects, those of inner
 * objects behind dots; a list is the text "list of N". The caller frees *out. GM_ECORRUPT as gm_csv_next and
 * gm_json_lines_next, and where objects have more than GM_LOOK_KEYS keys. */
gm_status gm_table_look_at(const char *path, gm_table_form form, char delimiter, gm_table_look *out);
void      gm_table_look_free(gm_table_look *t); /* a zeroed one is allowed */

#endif
