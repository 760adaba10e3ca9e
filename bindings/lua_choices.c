/* lua_choices.c - the ways in which a device makes kinds of matrix products, as Lua moves them between ranks and files
 * (kernels/choices.h; ganymede.job.products). */
#include "../kernels/choices.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gm_lua.h"

/* The rank's device; where it has no choices, the one on which core.run_op ran last: specs look at the ways of a GPU
 * from a rank on the CPU. */
static gm_status choosing(lua_State *L, gm_device **out)
{
    gm_rank *r = gm_lua_rank(L);
    GM_TRY(gm_rank_device(r, out));
    if (!(*out)->backend->choices && r->other) *out = r->other;
    return GM_OK;
}

/* time_products(timing): "none", "alone" or "together" -> has it an effect here? */
static int time_products(lua_State *L)
{
    static const char *const names[] = {"none", "alone", "together", NULL};
    gm_device               *dev;
    bool                     effect;
    int                      timing = luaL_checkoption(L, 1, NULL, names);
    L_TRY(L, choosing(L, &dev));
    gm_device_time_products(dev, (gm_timing)timing, &effect);
    lua_pushboolean(L, effect);
    return 1;
}

/* ---- variants: "0000000000000007 00000000000000ff ...", without the zeros at its end ---- */

static void push_words(lua_State *L, const uint64_t *word)
{
    char text[GM_CHOICE_WORDS * 17 + 1] = "";
    int  n = GM_CHOICE_WORDS;
    while (n && !word[n - 1]) n--;
    for (int i = 0; i < n; i++) snprintf(text + strlen(text), 18, "%s%016" PRIx64, i ? " " : "", word[i]);
    lua_pushstring(L, text);
}

static void check_words(lua_State *L, int arg, uint64_t *word)
{
    const char *text = luaL_checkstring(L, arg);
    int         n = 0;
    for (; *text; text += *text == ' ') {
        size_t digits = strspn(text, "0123456789abcdef");
        gm_check_argument(L, n < GM_CHOICE_WORDS && digits == 16 && (text[16] == ' ' || !text[16]), arg,
                          "a variant is at most 8 words of 16 hexadecimal digits");
        word[n++] = strtoull(text, NULL, 16);
        text += 16;
    }
}

/* ---- choices ---- */

static void push_choice(lua_State *L, const gm_choice *c)
{
    lua_createtable(L, 0, 6);
    gm_set_text(L, "kind", c->kind);
    gm_set_text(L, "way", c->way);
    push_words(L, c->word);
    lua_setfield(L, -2, "variant");
    gm_set_number(L, "seconds", c->seconds);
    lua_pushboolean(L, c->counts);
    lua_setfield(L, -2, "counts");
    lua_createtable(L, c->n_tried, 0);
    for (int i = 0; i < c->n_tried; i++) {
        lua_createtable(L, 0, 2);
        gm_set_text(L, "way", c->tried[i].way);
        gm_set_number(L, "seconds", c->tried[i].seconds);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "tried");
}

/* choices() -> list of { kind, way, variant, seconds, counts, tried = list of { way, seconds } } */
static int choices(lua_State *L)
{
    gm_device *dev;
    gm_choice  c;
    L_TRY(L, choosing(L, &dev));
    lua_newtable(L);
    for (int i = 0; gm_choices_get(dev, i, &c); i++) {
        push_choice(L, &c);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* choices_waiting() -> how many choices do not count yet, how many there are */
static int choices_waiting(lua_State *L)
{
    gm_device *dev;
    gm_choice  c;
    int        waiting = 0, n = 0;
    L_TRY(L, choosing(L, &dev));
    for (; gm_choices_get(dev, n, &c); n++) waiting += !c.counts;
    lua_pushinteger(L, waiting);
    lua_pushinteger(L, n);
    return 2;
}

/* choices_take(kind, way, variant, seconds): products of this kind are made so from here on */
static int choices_take(lua_State *L)
{
    gm_device  *dev;
    gm_choice   c = {.kind = luaL_checkstring(L, 1), .seconds = luaL_checknumber(L, 4)};
    const char *way = luaL_checkstring(L, 2);
    gm_check_argument(L, strlen(way) < sizeof c.way, 2, "the name of a way has at most 15 letters");
    snprintf(c.way, sizeof c.way, "%s", way);
    check_words(L, 3, c.word);
    L_TRY(L, choosing(L, &dev));
    L_TRY(L, gm_choices_take(dev, &c));
    return 0;
}

/* choices_about() -> what choices depend on beside their kinds; "" where there are none */
static int choices_about(lua_State *L)
{
    gm_device *dev;
    char       about[640];
    L_TRY(L, choosing(L, &dev));
    lua_pushstring(L, gm_choices_about(dev, about, sizeof about));
    return 1;
}

int gm_open_choices(lua_State *L)
{
    static const gm_declaration functions[] = {
        GM_FUNCTION("time_products", time_products, "timing string"),
        GM_FUNCTION("choices", choices, ""),
        GM_FUNCTION("choices_waiting", choices_waiting, ""),
        GM_FUNCTION("choices_take", choices_take, "kind string, way string, variant string, seconds number"),
        GM_FUNCTION("choices_about", choices_about, ""),
        GM_LAST_FUNCTION};
    gm_declare(L, functions);
    return 0;
}
