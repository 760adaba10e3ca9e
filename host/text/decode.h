/* decode.h - one step of a decoder: from texts of tokens to others. */
#ifndef GM_TEXT_DECODE_H
#define GM_TEXT_DECODE_H

#include "decoder.h"

gm_status gm_decode_step(const gm_decode *s, gm_regex_match *m, const gm_text_list *in, gm_text_list *out);

#endif
