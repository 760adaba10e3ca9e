/* op.c - names of ops and functions, default attributes, the slots of ops.def, and gm_run, which runs an op. */
#include "op.h"

#include <pthread.h>
#include <string.h>
#include "device.h"
#include "graph.h"
#include "graph_host.h"
#include "infer.h"
#include "profile.h"
#include "journal.h"

static const struct {
    const char *name, *in, *out, *attrs;
} ops[GM_OP_COUNT] = {
#define GM_OP(name, rule, in, out, attrs) {#name, in, out, attrs},
#include "ops.def"
#undef GM_OP
};

static const char *const functions[GM_FN_COUNT] = {
    "none",
#define GM_UNARY(name)   #name,
#define GM_BINARY(name)  #name,
#define GM_COMPARE(name) #name,
#include "functions.def"
#undef GM_UNARY
#undef GM_BINARY
#undef GM_COMPARE
};

static const bool op_keeps_zero[GM_OP_COUNT] = {
#define GM_OP(name, rule, in, out, attrs)
#define GM_KEEPS_ZERO(name) [GM_OP_##name] = true,
#include "ops.def"
#undef GM_OP
};

static const bool function_keeps_zero[GM_FN_COUNT] = {
#define GM_UNARY(name)
#define GM_BINARY(name)
#define GM_COMPARE(name)
#define GM_KEEPS_ZERO(name) [GM_FN_##name] = true,
#include "functions.def"
#undef GM_UNARY
#undef GM_BINARY
#undef GM_COMPARE
};

bool gm_keeps_zero(gm_op op, const gm_attrs *attrs)
{
    if (op == GM_OP_unary || op == GM_OP_binary || op == GM_OP_compare) return function_keeps_zero[attrs->function];
    if (op == GM_OP_affine && (attrs->beta != 0 || attrs->alpha - attrs->alpha != 0)) return false;
    return op_keeps_zero[op];
}

const char *gm_op_name(gm_op op) { return ops[op].name; }
const char *gm_op_inputs(gm_op op) { return ops[op].in; }
const char *gm_op_outputs(gm_op op) { return ops[op].out; }
const char *gm_op_attrs(gm_op op) { return ops[op].attrs; }
const char *gm_function_name(gm_function f) { return functions[f]; }

bool gm_op_parse(const char *name, gm_op *op)
{
    for (int i = 0; i < GM_OP_COUNT; i++)
        if (!strcmp(ops[i].name, name)) {
            *op = (gm_op)i;
            return true;
        }
    return false;
}

bool gm_function_parse(const char *name, gm_function *f)
{
    for (int i = 0; i < GM_FN_COUNT; i++)
        if (!strcmp(functions[i], name)) {
            *f = (gm_function)i;
            return true;
        }
    return false;
}

const char *gm_op_called(gm_op op, const gm_attrs *attrs)
{
    bool elementwise = op == GM_OP_unary || op == GM_OP_binary || op == GM_OP_compare;
    if (attrs && attrs->name) return attrs->name;
    if (!attrs || !elementwise || attrs->function <= GM_FN_none || attrs->function >= GM_FN_COUNT)
        return gm_op_name(op);
    return gm_function_name(attrs->function);
}

gm_attrs gm_attrs_default(void)
{
    return (gm_attrs){
#define GM_ATTR(type, name, initial, text) .name = initial,
#include "attrs.def"
#undef GM_ATTR
    };
}

static gm_content content_of(const char *name)
{
    static const struct {
        const char *name;
        gm_content  content;
    } names[] = {{"index", GM_HOLDS_INDICES},  {"target", GM_HOLDS_INDICES}, {"condition", GM_HOLDS_FLAGS},
                 {"key_mask", GM_HOLDS_FLAGS}, {"count", GM_HOLDS_WHOLE},    {"order", GM_HOLDS_WHOLE},
                 {"before", GM_HOLDS_WHOLE},   {"choice", GM_HOLDS_WHOLE},   {"row", GM_HOLDS_WHOLE},
                 {"codes", GM_HOLDS_FLAGS},    {"limits", GM_HOLDS_WHOLE},   {"segment", GM_HOLDS_INDICES},
                 {"bounds", GM_HOLDS_WHOLE},   {"turned", GM_HOLDS_FLAGS},   {"a_codes", GM_HOLDS_FLAGS},
                 {"b_codes", GM_HOLDS_FLAGS}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i].name)) return names[i].content;
    return GM_HOLDS_FLOATS;
}

void gm_slots_parse(const char *list, gm_slots *out)
{
    *out = (gm_slots){.list = list};
    while (*list) {
        if (*list == '|') {
            out->fixed = out->n;
            list += strspn(list, "| ");
            continue;
        }
        size_t   length = strcspn(list, "^&?. ");
        gm_slot *slot = &out->slot[out->n++];
        memcpy(slot->name, list, length < sizeof slot->name ? length : sizeof slot->name - 1);
        slot->content = content_of(slot->name);
        for (list += length; *list && *list != ' '; list++) {
            if (*list == '?') slot->optional = true;
            if (*list == '&') slot->inout = true;
            if (*list == '^') slot->wide = true;
            if (*list == '.') out->repeats = true;
        }
        while (*list == ' ') list++;
    }
}

static gm_slots       takes[GM_OP_COUNT], gives[GM_OP_COUNT];
static pthread_once_t parsed = PTHREAD_ONCE_INIT;

static void parse_all(void)
{
    for (int op = 0; op < GM_OP_COUNT; op++) {
        gm_slots_parse(ops[op].in, &takes[op]);
        gm_slots_parse(ops[op].out, &gives[op]);
    }
}

const gm_slots *gm_op_takes(gm_op op)
{
    pthread_once(&parsed, parse_all);
    return &takes[op];
}

const gm_slots *gm_op_gives(gm_op op)
{
    pthread_once(&parsed, parse_all);
    return &gives[op];
}

const gm_slot *gm_slots_at(const gm_slots *s, int i)
{
    return &s->slot[i < s->fixed ? i : s->fixed + (i - s->fixed) % (s->n - s->fixed)];
}

/* ---- tensors whose bytes rest elsewhere are brought for the call ---- */

static gm_tensor *argument(const gm_call *call, int i)
{
    return i < call->n_in ? call->in[i] : call->out[i - call->n_in];
}

static bool has_home(const gm_call *call)
{
    for (int i = 0; i < call->n_in + call->n_out; i++) {
        const gm_tensor *t = argument(call, i);
        if (t && t->storage && t->storage->home) return true;
    }
    return false;
}

static gm_status run_with(gm_device *dev, const gm_backend *backend, const gm_call *call);

static gm_status run_opened(gm_device *dev, const gm_backend *backend, const gm_call *call)
{
    int       n = 0;
    gm_status st = GM_OK;
    for (; n < call->n_in + call->n_out && st == GM_OK; n++)
        if (argument(call, n)) st = gm_storage_open(argument(call, n)->storage);
    if (st != GM_OK) n--;
    else st = run_with(dev, backend, call);
    while (n-- > 0)
        if (argument(call, n)) gm_storage_close(argument(call, n)->storage, n >= call->n_in);
    return st;
}

gm_status gm_run_with(gm_device *dev, const gm_backend *backend, const gm_call *call)
{
    if (!has_home(call)) return run_with(dev, backend, call);
    GM_TRY(gm_host_is_free(dev, "to bring bytes that rest elsewhere"));
    return run_opened(dev, backend, call);
}

static gm_status compute(gm_device *dev, const gm_backend *backend, const gm_call *call, double flops, double bytes)
{
    if (backend == dev->backend && gm_profile_runs(dev)) return gm_profile_call(dev, call, flops, bytes);
    return backend->kernel[call->op](dev, call);
}

static gm_status run_recorded(gm_device *dev, const gm_backend *backend, const gm_call *call, double flops,
                              double bytes)
{
    gm_journal *journal = dev->journal;
    gm_journal_call(journal, dev, call, flops, bytes);
    int64_t at = journal->n - 1;
    journal->inside++;
    gm_status st = compute(dev, backend, call, flops, bytes);
    journal->inside--;
    gm_journal_took(journal, at);
    return st;
}

static gm_status run_with(gm_device *dev, const gm_backend *backend, const gm_call *call)
{
    gm_spec  room[GM_MAX_OUT];
    gm_spec *spec = call->n_out <= GM_MAX_OUT ? room : NULL; /* more: all in-out, checked by inference */
    GM_TRY(gm_infer(call, spec));
    GM_TRY(gm_check_outputs(call, spec));
    double flops, bytes;
    gm_cost(call, &flops, &bytes);
    gm_op_counter *c = &dev->counters[call->op];
    c->calls++;
    c->flops += flops;
    c->bytes += bytes;
    c->products += gm_cost_products(call);
    if (dev->capture) GM_TRY(gm_graph_keep(dev->capture, call));
    if (dev->capture && backend->on_host) return gm_host_record(dev, backend->kernel[call->op], call);
    if (dev->journal && !dev->journal->inside) return run_recorded(dev, backend, call, flops, bytes);
    return compute(dev, backend, call, flops, bytes);
}

gm_status gm_run(gm_device *dev, const gm_call *call) { return gm_run_with(dev, dev->backend, call); }

gm_status gm_run_one(gm_device *dev, gm_op op, const gm_attrs *attrs, gm_tensor *in, gm_tensor *out)
{
    gm_attrs defaults = gm_attrs_default();
    gm_call  c = {.op = op, .n_in = in ? 1 : 0, .n_out = 1, .in = &in, .out = &out, .attrs = attrs ? attrs : &defaults};
    return gm_run(dev, &c);
}
