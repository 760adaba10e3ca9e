/* processor.h - the special tokens around one text or two: the `post_processor` of a tokenizer.json. */
#ifndef GM_TEXT_PROCESSOR_H
#define GM_TEXT_PROCESSOR_H

#include "fields.h"
#include "grow.h"

#define GM_SEQUENCE_A (UINT32_MAX - 1)
#define GM_SEQUENCE_B (UINT32_MAX - 2)

/* Numbers of tokens, with GM_SEQUENCE_A and GM_SEQUENCE_B where the texts go. */
typedef struct gm_processor {
    gm_text_ids one, two;
} gm_processor;

/* Reads the object `post_processor`; NULL object: the texts alone. GM_EINVAL: it has what is not known here. */
gm_status gm_processor_read(const gm_fields *f, gm_processor *p);
gm_status gm_processor_plain(gm_processor *p);
void      gm_processor_free(gm_processor *p);

#endif
