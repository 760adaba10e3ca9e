/* unicode.h - UTF-8 and what tokenizers ask of characters, by libutf8proc.
 *
 * Python's `tokenizers` takes its classes from several Rust crates; each function here says whose words it follows. */
#ifndef GM_TEXT_UNICODE_H
#define GM_TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The first byte that is no part of valid UTF-8 (no surrogates, nothing beyond U+10FFFF); n: all is valid. */
size_t gm_utf8_valid(const char *text, size_t n);
/* The bytes of the character that begins with byte c of valid UTF-8. */
static inline int gm_char_bytes(unsigned char c) { return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4; }
/* Reads a character of valid UTF-8 and gives its bytes. */
static inline int gm_char_read(const char *text, uint32_t *c)
{
    const unsigned char *p = (const unsigned char *)text;
    if (p[0] < 0x80) return *c = p[0], 1;
    if (p[0] < 0xe0) return *c = (p[0] & 31u) << 6 | (p[1] & 63u), 2;
    if (p[0] < 0xf0) return *c = (p[0] & 15u) << 12 | (p[1] & 63u) << 6 | (p[2] & 63u), 3;
    return *c = (p[0] & 7u) << 18 | (p[1] & 63u) << 12 | (p[2] & 63u) << 6 | (p[3] & 63u), 4;
}
/* Reads the character that ends before text + n, n > 0, and gives its bytes. */
int gm_char_before(const char *text, size_t n, uint32_t *c);
/* Writes c as UTF-8, at most 4 bytes, and gives their number. */
int gm_char_write(uint32_t c, char *to);

bool gm_char_space(uint32_t c);         /* White_Space: Rust's char::is_whitespace, \s of regular expressions */
bool gm_char_word(uint32_t c);          /* \w of Rust's regex */
bool gm_char_number(uint32_t c);        /* Rust's char::is_numeric: Nd, Nl, No */
bool gm_char_punctuation(uint32_t c);   /* of BERT: ASCII's, and categories P */
bool gm_char_control(uint32_t c);       /* of BERT: categories C, aside from tab and line ends */
bool gm_char_mark(uint32_t c);          /* categories M */
bool gm_char_mark_no_space(uint32_t c); /* category Mn */
bool gm_char_chinese(uint32_t c);       /* of BERT: ideographs */
/* Does `tokenizers` leave c as and where it is in normal forms, because its tables are of Unicode 13? compatible: NFKC
 * and NFKD. */
bool gm_char_formless(uint32_t c, bool compatible);
/* Rust's to_lowercase: at most 3 characters; gives their number. */
int gm_char_lower(uint32_t c, uint32_t *to);

/* The character that stands for byte b in byte-level tokenizers (GPT-2): U+0021 to U+0143. */
uint32_t gm_byte_char(unsigned char b);
/* The byte for which character c stands, or -1. */
int gm_char_byte(uint32_t c);

#endif
