/* fields.h - reads objects of tokenizer.json, whose fields are all known or refused by name.
 *
 * `where` is the place of an object in the file, for messages: "tokenizer.json: pre_tokenizer.pretokenizers.1". */
#ifndef GM_TEXT_FIELDS_H
#define GM_TEXT_FIELDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include "../../kernels/status.h"

typedef struct gm_fields {
    char    where[240];
    json_t *object; /* borrowed */
} gm_fields;

/* The object v at where.name; GM_EINVAL: v is no object. name may be a number of a list, as text. */
gm_status gm_fields_of(const gm_fields *parent, const char *name, json_t *v, gm_fields *out);
/* GM_EINVAL: the object has a field that is not in `known`, names with a space between; or names it twice. */
gm_status gm_fields_only(const gm_fields *f, const char *known);
/* A text, with its bytes; *text is NULL if it is missing or null. GM_EINVAL: it is something else, or `must` be there
 * and is not. */
gm_status gm_fields_text(const gm_fields *f, const char *name, bool must, const char **text, size_t *n);
gm_status gm_fields_flag(const gm_fields *f, const char *name, bool otherwise, bool *out);
/* A whole number from low to high. */
gm_status gm_fields_number(const gm_fields *f, const char *name, long long otherwise, long long low, long long high,
                           long long *out);
/* A list or an object that must be there. */
gm_status gm_fields_list(const gm_fields *f, const char *name, json_t **out);
gm_status gm_fields_object(const gm_fields *f, const char *name, json_t **out);
/* Puts the place in front of the last message. */
gm_status gm_fields_wrong(const gm_fields *f, gm_status st);

#endif
