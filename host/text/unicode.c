/* unicode.c - see unicode.h. */
#include "unicode.h"

#include <utf8proc.h>

size_t gm_utf8_valid(const char *text, size_t n)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t               i = 0;
    while (i < n) {
        unsigned c = p[i];
        if (c < 0x80) {
            i++;
            continue;
        }
        size_t k = c >= 0xc2 && c < 0xe0 ? 2 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xf0 && c < 0xf5 ? 4 : 0;
        if (!k || k > n - i) return i;
        for (size_t j = 1; j < k; j++)
            if ((p[i + j] & 0xc0) != 0x80) return i;
        if ((c == 0xe0 && p[i + 1] < 0xa0) || (c == 0xed && p[i + 1] > 0x9f) || (c == 0xf0 && p[i + 1] < 0x90) ||
            (c == 0xf4 && p[i + 1] > 0x8f))
            return i;
        i += k;
    }
    return n;
}

int gm_char_before(const char *text, size_t n, uint32_t *c)
{
    size_t at = n - 1;
    while (at && ((unsigned char)text[at] & 0xc0) == 0x80) at--;
    return gm_char_read(text + at, c);
}

int gm_char_write(uint32_t c, char *to)
{
    unsigned char *p = (unsigned char *)to;
    if (c < 0x80) return p[0] = (unsigned char)c, 1;
    if (c < 0x800) return p[0] = (unsigned char)(0xc0 | c >> 6), p[1] = (unsigned char)(0x80 | (c & 63)), 2;
    if (c < 0x10000) {
        p[0] = (unsigned char)(0xe0 | c >> 12), p[1] = (unsigned char)(0x80 | (c >> 6 & 63));
        return p[2] = (unsigned char)(0x80 | (c & 63)), 3;
    }
    p[0] = (unsigned char)(0xf0 | c >> 18), p[1] = (unsigned char)(0x80 | (c >> 12 & 63));
    p[2] = (unsigned char)(0x80 | (c >> 6 & 63)), p[3] = (unsigned char)(0x80 | (c & 63));
    return 4;
}

enum later_class {
    later_punctuation,
    later_control,
    later_mark,
    later_mark_no_space,
    later_canonical, /* of normal forms: neither decomposed nor moved */
    later_compatible /* not decomposed in NFKC and NFKD */
};

static const struct {
    enum later_class class;
    uint32_t first, last;
} later[] = {
#define GM_LATER(class, first, last) {later_##class, first, last},
#include "unicode_later.def"
#undef GM_LATER
};

static bool is_later(enum later_class class, uint32_t c)
{
    for (size_t i = 0; c >= 0x370 && i < sizeof later / sizeof *later; i++)
        if (later[i].class == class && later[i].first <= c && c <= later[i].last) return true;
    return false;
}

bool gm_char_formless(uint32_t c, bool compatible)
{
    if (c < 0x7fd || (c > 0x32ff && c < 0xa7f2) || (c > 0xabff && c < 0x10781)) return false; /* the most frequent */
    return is_later(later_canonical, c) || (compatible && is_later(later_compatible, c));
}

static int category(uint32_t c) { return utf8proc_category((utf8proc_int32_t)c); }

bool gm_char_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == 32 || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
           c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool gm_char_mark(uint32_t c)
{
    int  k = category(c);
    bool mark = k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_ME;
    return (mark && !is_later(later_mark, c)) || c == 0x1cf2 || c == 0x1cf3; /* two that were marks then */
}

bool gm_char_mark_no_space(uint32_t c)
{
    return (category(c) == UTF8PROC_CATEGORY_MN && !is_later(later_mark_no_space, c)) || c == 0x1734;
}

/* Alphabetic, M, Nd, Pc, Join_Control. Alphabetic beyond L and Nl: circled letters and the like (Other_Alphabetic). */
bool gm_char_word(uint32_t c)
{
    if (c < 0x80) return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    int  k = category(c);
    bool letter = k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_NL; /* Lu Ll Lt Lm Lo Mn Mc Me Nd Nl */
    return letter || k == UTF8PROC_CATEGORY_PC || c == 0x200c || c == 0x200d || (c >= 0x24b6 && c <= 0x24e9) ||
           (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
}

bool gm_char_number(uint32_t c)
{
    int k = category(c);
    return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

bool gm_char_punctuation(uint32_t c)
{
    if (c < 0x80) return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
    int  k = category(c);
    bool mark = k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
    return (mark && !is_later(later_punctuation, c)) || c == 0x166d ||
           c == 0x111c9; /* two that were punctuation then */
}

bool gm_char_control(uint32_t c)
{
    if (c == '\t' || c == '\n' || c == '\r') return false;
    int k = category(c);
    return (k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF || k == UTF8PROC_CATEGORY_CO) &&
           !is_later(later_control, c);
}

bool gm_char_chinese(uint32_t c)
{
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) || (c >= 0x20000 && c <= 0x2a6df) ||
           (c >= 0x2a700 && c <= 0x2b73f) || (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
           (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

int gm_char_lower(uint32_t c, uint32_t *to)
{
    if (c == 0x130) return to[0] = 'i', to[1] = 0x307, 2;
    to[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
    return 1;
}

/* Printable bytes of Latin-1 stand for themselves; the 68 others for U+0100 and on, in their order. */
uint32_t gm_byte_char(unsigned char b)
{
    if ((b >= 33 && b <= 126) || (b >= 161 && b != 173)) return b;
    if (b < 33) return 256u + b;
    if (b < 161) return 256u + 33 + (b - 127u);
    return 256u + 67; /* 173 */
}

int gm_char_byte(uint32_t c)
{
    if (c < 256) return (c >= 33 && c <= 126) || (c >= 161 && c != 173) ? (int)c : -1;
    if (c < 256 + 33) return (int)c - 256;
    if (c < 256 + 67) return (int)c - 256 - 33 + 127;
    return c == 256 + 67 ? 173 : -1;
}
