/* base64.h - bytes that a JSON text holds as letters. */
#ifndef GM_TEXT_BASE64_H
#define GM_TEXT_BASE64_H

#include "grow.h"

/* Adds the bytes to out. GM_EINVAL: a character that is none of the 64, or bits left over. */
gm_status gm_base64_read(const char *text, size_t n, gm_text_bytes *out);

#endif
