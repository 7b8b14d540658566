/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/torch_storages.h"

#include "base/cleanup.h"
#include "ckpt/pickle.h"

#include <string.h>

struct scan {
    int (*each)(void *arg, const struct torch_storage *s);
    void *arg;
    unsigned after; /* how many values ago the word `storage` came */
    struct torch_storage now;
};

enum { NEVER = 100 }; /* ago; it is none, or was given */

static unsigned element_of(const struct pickle_value *v)
{
    static const struct {
        const char *name;
        unsigned bytes;
    } classes[] = {
        {"DoubleStorage", 8}, {"FloatStorage", 4}, {"HalfStorage", 2},
        {"BFloat16Storage", 2}, {"LongStorage", 8}, {"IntStorage", 4},
        {"ShortStorage", 2}, {"CharStorage", 1}, {"ByteStorage", 1},
        {"BoolStorage", 1}, {"UntypedStorage", 1}, {"ComplexFloatStorage", 8},
        {"ComplexDoubleStorage", 16}, {"QInt8Storage", 1}, {"QUInt8Storage", 1},
        {"QInt32Storage", 4},
    };

    for (size_t i = 0; i < ARRAY_SIZE(classes); i++) {
        if (pickle_is_text(v, classes[i].name)) {
            return classes[i].bytes;
        }
    }
    return 0;
}

/* The part of `v` from the next place on where `begin` is, up to `end`; and `v` goes
 * on behind that. */
static bool take_between(struct pickle_value *v, const char *begin, const char *end,
                         struct pickle_value *ret)
{
    const char *from = memmem(v->text, v->len, begin, strlen(begin));
    size_t at = from ? (size_t)(from - v->text) + strlen(begin) : 0;
    const char *to = from ? memmem(v->text + at, v->len - at, end, strlen(end)) : NULL;

    if (!to) {
        return false;
    }
    *ret = (struct pickle_value){.text = v->text + at,
                                 .len = (size_t)(to - v->text) - at};
    v->len -= (size_t)(to - v->text);
    v->text = to;
    return true;
}

/* All of it in one line, of protocol 0:
 *   ('storage', <class 'torch.FloatStorage'>, '7', 'cpu', 2, None) */
static int take_line(struct scan *s, struct pickle_value v)
{
    struct pickle_value name, key;

    if (!take_between(&v, "<class 'torch.", "'>", &name) ||
        !take_between(&v, ", '", "'", &key)) {
        return 0;
    }
    s->now = (struct torch_storage){.key = key.text, .len = key.len,
                                    .element = element_of(&name)};
    return s->each(s->arg, &s->now);
}

/* By protocols from 4 on a class is three values: module, name, and what the two make. */
static bool is_of_class(const struct scan *s, const struct pickle_value *v)
{
    return (s->after == 0 && pickle_is_text(v, "torch")) ||
           (s->after == 1 && element_of(v) > 0);
}

static int take_value(void *arg, const struct pickle_value *v)
{
    static const char line[] = "('storage', ";
    struct scan *s = arg;
    unsigned after = s->after;

    if (v->is_persistent) {
        s->after = NEVER;
        return after != NEVER && s->now.key ? s->each(s->arg, &s->now) : 0;
    }
    if (pickle_is_text(v, "storage")) {
        s->after = 0;
        s->now = (struct torch_storage){0};
        return 0;
    }
    if (v->text && v->len > strlen(line) && memcmp(v->text, line, strlen(line)) == 0) {
        s->after = NEVER;
        return take_line(s, *v);
    }
    if (s->after == NEVER || is_of_class(s, v)) {
        return 0;
    }
    s->after++;
    if (s->after == 1) {
        s->now = (struct torch_storage){.element = element_of(v)};
    } else if (s->after == 2) {
        s->now.key = v->text;
        s->now.len = v->len;
    } else if (s->after == 4) {
        s->now.has_n = v->is_number;
        s->now.n = v->number;
    }
    return 0;
}

int torch_storages(const void *pickle, size_t len,
                   int (*each)(void *arg, const struct torch_storage *s), void *arg,
                   struct error *e)
{
    struct scan s = {.each = each, .arg = arg, .after = NEVER};

    return pickle_values(pickle, len, take_value, &s, e);
}
