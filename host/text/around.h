/* around.h - the tokens around a text that tokenizer_config.json beside a tokenizer.model asks for.
 *
 * A file of SentencePiece does not say what a model wants around a text. add_bos_token and add_eos_token of
 * tokenizer_config.json do, as in transformers. A tokenizer.json says it itself, and its neighbour is not asked. */
#ifndef GM_TEXT_AROUND_H
#define GM_TEXT_AROUND_H

#include "tokenizer.h"

/* Sets the processor of t, which is of `file`. Without such a neighbour, or where it asks for nothing, nothing changes.
 * GM_ECORRUPT: the neighbour is no JSON. GM_EINVAL: it asks for a token that there is not. */
gm_status gm_text_around(const char *file, gm_tokenizer *t);

#endif
