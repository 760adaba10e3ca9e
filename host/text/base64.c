/* base64.c - see base64.h. */
#include "base64.h"

#include <string.h>

gm_status gm_base64_read(const char *text, size_t n, gm_text_bytes *out)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t          bits = 0;
    int               have = 0;
    for (int i = 0; i < 2 && n && text[n - 1] == '='; i++) n--;
    GM_TRY(gm_text_room(out, n / 4 * 3 + 4));
    for (size_t i = 0; i < n; i++) {
        const char *p = text[i] ? strchr(letters, text[i]) : NULL;
        if (!p) return GM_FAIL(GM_EINVAL, "character %zu is not of base64", i);
        bits = bits << 6 | (uint32_t)(p - letters), have += 6;
        if (have >= 8) out->data[out->n++] = (char)(bits >> (have -= 8));
    }
    return have < 6 ? GM_OK : GM_FAIL(GM_EINVAL, "the base64 text is cut");
}
