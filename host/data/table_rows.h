/* table_rows.h - the rows of the file of a table, whatever its form: the fields of some columns as texts. */
#ifndef GM_TABLE_ROWS_H
#define GM_TABLE_ROWS_H

#include <stdbool.h>
#include "names.h"

typedef enum gm_table_form {
    GM_TABLE_SEPARATED, /* csv.h: columns by the names in the first row; without a header by their numbers from 1 */
    GM_TABLE_JSON       /* json_lines.h: columns by keys; what an object lacks is missing, and so is null */
} gm_table_form;

typedef struct gm_table_rows gm_table_rows;

typedef struct gm_table_rows_options {
    gm_table_form form;
    char          delimiter; /* of GM_TABLE_SEPARATED */
    bool          header;    /* of GM_TABLE_SEPARATED */
} gm_table_rows_options;

/* Opens a file for n columns, whose names the caller keeps; the caller closes it. GM_EIO; GM_ECORRUPT: it is empty;
 * GM_EINVAL: it has no such column, or two of them. */
gm_status gm_table_rows_open(const char *path, const gm_table_rows_options *o, const char *const *names, int n,
                             gm_table_rows **out);
/* Reads the next row; *end: there is none. GM_ECORRUPT names file and line; then reading may go on, unless *end. */
gm_status gm_table_rows_next(gm_table_rows *r, bool *end);
/* The field of column k in the last row; valid until the next is read. */
const char *gm_table_rows_field(const gm_table_rows *r, int k);
int64_t     gm_table_rows_line(const gm_table_rows *r); /* on which the last row began, from 1 */
void        gm_table_rows_close(gm_table_rows *r);      /* NULL is allowed */

#endif
