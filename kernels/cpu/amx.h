/* amx.h - may this process compute with the tiles of AMX?
 *
 * The processor must have AMX-TILE and AMX-BF16, the system must keep the state of tiles (XCR0), and Linux (5.16 and
 * later) must permit a process to use it, because each thread that does then has 8 KB more of state. The permission is
 * the process's: it holds for threads that exist and for those that come, and a fork inherits it. */
#ifndef GM_CPU_AMX_H
#define GM_CPU_AMX_H

#include <stdbool.h>
#include <stddef.h>

/* NULL: products may use tiles. Else why not, in words that stay. The first call asks the system for the permission;
 * any thread may call it. */
const char *gm_amx_refusal(void);

/* Has the processor AMX-TILE and AMX-BF16, whatever the system says? */
bool gm_amx_exists(void);

/* The same from what was found out; apart for its test. exists: as above. kept: XCR0 has the bits of tiles. error: what
 * the system answered, an errno, 0 where it gave the permission. Writes words into text, or nothing: usable. */
void gm_amx_judge(bool exists, bool kept, int error, char *text, size_t room);

#endif
