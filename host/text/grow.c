/* grow.c - see grow.h. */
#include "grow.h"

#include <stdlib.h>
#include <string.h>

#include "unicode.h"

static gm_status grow(void **data, size_t *room, size_t n, size_t more, size_t size)
{
    if (more <= *room - n) return GM_OK;
    size_t wanted = *room ? *room : 64;
    while (wanted - n < more) {
        if (wanted > SIZE_MAX / 4 / size) return GM_FAIL(GM_ENOMEM, "no memory for a text of this length");
        wanted *= 2;
    }
    void *p = realloc(*data, wanted * size);
    if (!p) return GM_FAIL(GM_ENOMEM, "no memory for %zu bytes of text", wanted * size);
    *data = p, *room = wanted;
    return GM_OK;
}

gm_status gm_text_room(gm_text_bytes *b, size_t more)
{
    if (b->most && (b->n > b->most || more > b->most - b->n))
        return GM_FAIL(GM_EINVAL, "a text grows to more than %zu bytes by the steps of its tokenizer", b->most);
    return grow((void **)&b->data, &b->room, b->n, more, 1);
}

gm_status gm_text_add(gm_text_bytes *b, const char *text, size_t n)
{
    GM_TRY(gm_text_room(b, n + 1));
    if (n) memcpy(b->data + b->n, text, n);
    b->n += n;
    return GM_OK;
}

gm_status gm_text_add_char(gm_text_bytes *b, uint32_t c)
{
    GM_TRY(gm_text_room(b, 4));
    b->n += (size_t)gm_char_write(c, b->data + b->n);
    return GM_OK;
}

gm_status gm_ids_room(gm_text_ids *b, size_t more)
{
    return grow((void **)&b->data, &b->room, b->n, more, sizeof *b->data);
}

gm_status gm_ids_add(gm_text_ids *b, uint32_t id)
{
    GM_TRY(gm_ids_room(b, 1));
    b->data[b->n++] = id;
    return GM_OK;
}

gm_status gm_text_copy(const char *text, size_t n, char **out)
{
    if (!(*out = malloc(n + 1))) return GM_FAIL(GM_ENOMEM, "no memory for a tokenizer");
    if (n) memcpy(*out, text, n);
    (*out)[n] = 0;
    return GM_OK;
}

void gm_text_free(gm_text_bytes *b)
{
    free(b->data);
    *b = (gm_text_bytes){0};
}

void gm_ids_free(gm_text_ids *b)
{
    free(b->data);
    *b = (gm_text_ids){0};
}
