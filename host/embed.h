/* embed.h - run the command line, which is written in Lua; no Lua type appears here. */
#ifndef GM_EMBED_H
#define GM_EMBED_H

#include "rank/rank.h"

/* Opens a Lua state, loads ganymede.cli from <root>/lua and calls its main with argv[1..argc-1]. The state is closed
 * again, but not that of one of several ranks that fails: the process is to end at once, then.
 * *exit_code receives what main returns. GM_ELUA when Lua itself failed (the message says why). */
gm_status gm_embed_run(gm_rank *rank, const char *root, int argc, char **argv, int *exit_code);

#endif
