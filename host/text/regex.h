/* regex.h - the regular expressions of tokenizers, by PCRE2 with its compiler (UTF, UCP).
 *
 * Python's `tokenizers` reads them with Oniguruma in Ruby's syntax. Where PCRE2 means something else by the same text,
 * the pattern is translated (\s, \w, \p{Han}, ^ and $ at lines); what cannot be is refused. A pattern that is compiled
 * may be used by several threads, each with a gm_regex_match of its own. */
#ifndef GM_TEXT_REGEX_H
#define GM_TEXT_REGEX_H

#include "fields.h"
#include "grow.h"

typedef struct gm_regex       gm_regex;
typedef struct gm_regex_match gm_regex_match;

/* Compiles a pattern of n bytes of valid UTF-8; literal: it means itself. GM_EINVAL: it cannot be understood. */
gm_status gm_regex_new(const char *pattern, size_t n, bool literal, gm_regex **out);
void      gm_regex_free(gm_regex *r); /* NULL is allowed */
gm_status gm_regex_match_new(gm_regex_match **out);
void      gm_regex_match_free(gm_regex_match *m); /* NULL is allowed */

/* Finds the first match that begins at `from` or later in n bytes of valid UTF-8. An empty match at `last_end` is
 * passed over (SIZE_MAX: none is). *found false: there is none. GM_EINVAL: matching needs too many steps. */
gm_status gm_regex_find(const gm_regex *r, gm_regex_match *m, const char *text, size_t n, size_t from, size_t last_end,
                        bool *found, size_t *begin, size_t *end);

/* Reads the field `pattern`: { "String": text } gives a literal, { "Regex": text } a pattern. */
gm_status gm_pattern_read(const gm_fields *f, gm_regex **pattern, char **literal, size_t *n);

#endif
