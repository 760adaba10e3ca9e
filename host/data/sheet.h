/* sheet.h - a contact sheet: samples of a dataset as small pictures in rows, in one PNG. */
#ifndef GM_SHEET_H
#define GM_SHEET_H

#include "dataset.h"

#define GM_SHEET_MOST 4096 /* pictures */

/* Each picture is resized to fit into size x size pixels (a smaller one grows a whole number of times) and stands in
 * the middle of its place; 2 pixels of white part them. Samples of numbers are drawn from their least (black) to their
 * largest (white) value. GM_ESHAPE: samples are not (1 or 3, height, width), nor (height, width). */
gm_status gm_sheet_write(const char *path, const gm_dataset *d, const int64_t *samples, int64_t n, int64_t columns,
                         int64_t size);

#endif
