/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The values of a pickle without its stack: enough for what is written as a key, and
 * next its value. A pickle says a text once and refers to it from then on, by a
 * number; so it is kept where each of these was said.
 */
#include <config.h>

#include "ckpt/pickle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_KEPT = 1 << 24 };

struct kept {
    size_t *at; /* owned: twice the place of the instruction, and 1 more if it is a class */
    size_t n, room;
};

struct scan {
    const uint8_t *data;
    size_t len;
    struct kept kept;
    size_t last_at; /* the instruction that the last value comes from */
    bool is_class;  /* the last value */
    size_t text_at; /* likewise, of the last text */
};

static void take_text(const struct pickle_op *op, size_t prefix,
                      struct pickle_value *ret)
{
    ret->text = (const char *)op->argument + prefix;
    ret->len = op->len - prefix;
}

/* Of two lines, module and name, the second. */
static void take_name(const struct pickle_op *op, struct pickle_value *ret)
{
    const char *text = (const char *)op->argument;
    const char *line = memchr(text, '\n', op->len);

    ret->text = line + 1;
    ret->len = op->len - (size_t)(line + 1 - text) - 1;
}

/* "12", or "12L", to the end of the line. "01", as text protocols write True, is a
 * number to whoever asks for one: they are the same to Python. */
static void take_line_number(const struct pickle_op *op, struct pickle_value *ret)
{
    enum { MAX_DIGITS = 18 }; /* which fit into 64 bits */
    const char *text = (const char *)op->argument;
    size_t n = 0;

    while (n < op->len && text[n] >= '0' && text[n] <= '9' && n <= MAX_DIGITS) {
        ret->number = ret->number * 10 + (uint64_t)(text[n] - '0');
        n++;
    }
    ret->is_number = n > 0 && n <= MAX_DIGITS && (text[n] == '\n' || text[n] == 'L');
}

/* What Python 2 says of a text without such signs: in quotes. */
static void take_quoted(const struct pickle_op *op, struct pickle_value *ret)
{
    if (op->len >= 3) {
        ret->text = (const char *)op->argument + 1;
        ret->len = op->len - 3;
    }
}

/* Of so many bytes, little-endian; below 0 it is none for us. */
static void take_number(const uint8_t *at, size_t bytes, bool is_signed,
                        struct pickle_value *ret)
{
    if (bytes > 0 && is_signed && at[bytes - 1] & 0x80) {
        return;
    }
    while (bytes > 8 && at[bytes - 1] == 0) {
        bytes--;
    }
    ret->is_number = bytes <= 8;
    ret->number = ret->is_number ? pickle_number(at, bytes) : 0;
}

static struct pickle_value value_of(const struct pickle_op *op)
{
    struct pickle_value v = {0};

    switch (op->op) {
    case 'U': case 0x8c:
        take_text(op, 1, &v);
        break;
    case 'X': case 'T':
        take_text(op, 4, &v);
        break;
    case 0x8d:
        take_text(op, 8, &v);
        break;
    case 'V': case 'P':
        take_text(op, 0, &v);
        v.len--;
        break;
    case 'S':
        take_quoted(op, &v);
        break;
    case 'I': case 'L':
        take_line_number(op, &v);
        break;
    case 'c':
        take_name(op, &v);
        break;
    case 'K': case 'M':
        take_number(op->argument, op->len, false, &v);
        break;
    case 'J':
        take_number(op->argument, op->len, true, &v);
        break;
    case 0x8a:
        take_number(op->argument + 1, op->len - 1, true, &v);
        break;
    case 'Q':
        v.is_persistent = true;
        break;
    case 'N':
        v.is_none = true;
        break;
    default:
        break;
    }
    return v;
}

/* Where text protocols keep, and fetch from; UINT64_MAX: it says no place. */
static uint64_t place_of(const struct pickle_op *op)
{
    struct pickle_value v = {0};

    if (op->op != 'p' && op->op != 'g') {
        return pickle_number(op->argument, op->len);
    }
    take_line_number(op, &v);
    return v.is_number ? v.number : UINT64_MAX;
}

static int keep(struct kept *k, uint64_t place, size_t at)
{
    if (place >= MAX_KEPT) {
        return -EFBIG;
    }
    if (place >= k->room) {
        size_t room = k->room ? k->room : 64;
        size_t *fresh;

        while (room <= place) {
            room *= 2;
        }
        fresh = reallocarray(k->at, room, sizeof(*fresh));
        if (!fresh) {
            return -ENOMEM;
        }
        memset(fresh + k->room, 0xff, (room - k->room) * sizeof(*fresh));
        k->at = fresh;
        k->room = room;
    }
    k->at[place] = at;
    k->n = place >= k->n ? place + 1 : k->n;
    return 0;
}

/* True: the instruction only keeps, or says something of the pickle itself. */
static bool keeps(struct scan *s, const struct pickle_op *op, int *ret_rc)
{
    switch (op->op) {
    case 0x94:
        *ret_rc = keep(&s->kept, s->kept.n, 2 * s->last_at + s->is_class);
        return true;
    case 'p': case 'q': case 'r':
        *ret_rc = keep(&s->kept, place_of(op), 2 * s->last_at + s->is_class);
        return true;
    case 0x80: case 0x95:
        return true;
    default:
        return false;
    }
}

static struct pickle_value fetch(struct scan *s, const struct pickle_op *op)
{
    uint64_t place = place_of(op);
    struct pickle_op from = {0};
    size_t kept = place < s->kept.n ? s->kept.at[place] : SIZE_MAX, at = kept / 2;

    if (kept == SIZE_MAX || pickle_next(s->data, s->len, &at, &from, NULL) < 0) {
        return (struct pickle_value){0};
    }
    s->last_at = kept / 2;
    s->is_class = kept % 2;
    return value_of(&from);
}

static struct pickle_value next(struct scan *s, const struct pickle_op *op,
                                size_t from)
{
    struct pickle_value v;
    size_t at = s->text_at;
    struct pickle_op named = {0};

    s->last_at = from;
    s->is_class = op->op == 'c' || op->op == 0x93;
    if (op->op == 'h' || op->op == 'j' || op->op == 'g') {
        v = fetch(s, op);
    } else if (op->op == 0x93 &&
               pickle_next(s->data, s->len, &at, &named, NULL) == 0) {
        s->last_at = s->text_at; /* of module and name, the last two texts */
        v = value_of(&named);
    } else {
        v = value_of(op);
    }
    if (v.text) {
        s->text_at = s->last_at;
    }
    v.is_class = v.text && s->is_class;
    return v;
}

int pickle_values(const void *data, size_t len,
                  int (*each)(void *arg, const struct pickle_value *v),
                  void *arg, struct error *e)
{
    struct scan s = {.data = data, .len = len};
    struct pickle_op op = {0};
    size_t at = 0;
    int rc = 0;

    while (rc == 0) {
        size_t from = at;
        struct pickle_value v;

        rc = pickle_next(data, len, &at, &op, e);
        if (rc < 0 || op.op == PICKLE_STOP) {
            break;
        }
        if (keeps(&s, &op, &rc)) {
            rc = rc < 0 ? error_set(e, -rc, "look through a pickle") : 0;
            continue;
        }
        v = next(&s, &op, from);
        rc = each(arg, &v);
    }
    free(s.kept.at);
    return rc;
}

bool pickle_is_text(const struct pickle_value *v, const char *text)
{
    return v->text && v->len == strlen(text) && memcmp(v->text, text, v->len) == 0;
}
