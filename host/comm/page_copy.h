/* page_copy.h - keeps a copy of a rank's page (page.h) in a folder that other machines see, too.
 *
 * A thread writes it anew every second, also while the rank computes, waits or hangs, and asks nobody. The folder is
 * that of a run, which all machines of a job share; `ganymede top` on the machine of rank 0 reads the copies of the
 * ranks elsewhere. A copy is replaced whole. Where it cannot be written, nothing is said, and the next second tries
 * again: the rank never depends on it. The trap: the folder may hang. gm_page_copy_stop waits for the thread two
 * seconds at most, and then leaves it behind with what it needs.
 */
#ifndef GM_PAGE_COPY_H
#define GM_PAGE_COPY_H

#include "page.h"

typedef struct gm_page_copy gm_page_copy;

/* Copies `page` to path; its folder is made if only that is missing. page stays until gm_page_copy_stop has returned
 * true. GM_ENOMEM; GM_EIO: there is no thread. */
gm_status gm_page_copy_start(const gm_page *page, const char *path, gm_page_copy **out);
/* Ends the thread and removes the file. false: it still hangs, and the page must stay. NULL is allowed. */
bool gm_page_copy_stop(gm_page_copy *c);

#endif
