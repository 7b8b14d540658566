/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether an unpickler could go through a pickle: its stack is modelled by its depth alone,
 * and of what is kept only where. So nothing is made or run, and there is at most a bit of
 * memory for each byte of it that keeps something, and a number for each mark.
 */
#include <config.h>

#include "ckpt/pickle.h"

#include "base/cleanup.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LAST_PROTOCOL = 5 };

/* What an instruction does to the stack: it takes so many, down to the last mark if it takes
 * that, and leaves so many. */
struct effect {
    uint8_t takes, leaves;
    bool is_marked; /* takes a mark and all above; `takes` are from below it */
    uint8_t least;  /* above the mark, at least */
    bool is_paired; /* above the mark they are keys and values */
};

static struct effect effect_of(uint8_t op)
{
    switch (op) {
    case 'Q': case 'p': case 'q': case 'r': case 0x94: case 0x85: case 0x98:
        return (struct effect){.takes = 1, .leaves = 1};
    case 'R': case 'a': case 'b': case 0x81: case 0x86: case 0x93:
        return (struct effect){.takes = 2, .leaves = 1};
    case 's': case 0x87: case 0x92:
        return (struct effect){.takes = 3, .leaves = 1};
    case '2':
        return (struct effect){.takes = 1, .leaves = 2};
    case '0': case '.':
        return (struct effect){.takes = 1};
    case '1':
        return (struct effect){.is_marked = true};
    case 'e': case 0x90:
        return (struct effect){.is_marked = true, .takes = 1, .leaves = 1};
    case 'u':
        return (struct effect){.is_marked = true, .takes = 1, .leaves = 1, .is_paired = true};
    case 'd':
        return (struct effect){.is_marked = true, .leaves = 1, .is_paired = true};
    case 'o':
        return (struct effect){.is_marked = true, .leaves = 1, .least = 1};
    case 'l': case 't': case 'i': case 0x91:
        return (struct effect){.is_marked = true, .leaves = 1};
    case '(': case 0x80: case 0x95:
        return (struct effect){0};
    default:
        return (struct effect){.leaves = 1};
    }
}

struct machine {
    const uint8_t *data;
    size_t len;
    size_t at; /* of the instruction */
    size_t depth; /* above the last mark */
    size_t *marks; /* owned: how deep it was below each */
    size_t n_marks, marks_room;
    uint8_t *kept; /* owned: a bit for each place */
    size_t kept_bytes;
    uint64_t n_kept;
    size_t frame_end; /* 0: it is in none */
    struct error *e;
};

static void machine_release(struct machine *m)
{
    free(m->marks);
    free(m->kept);
}

static int wrong(const struct machine *m, const char *what)
{
    return error_text(m->e, ERR_FORMAT, "no pickle: %s, at its byte %zu", what, m->at);
}

static int no_memory(const struct machine *m)
{
    return error_set(m->e, ENOMEM, "look through a pickle");
}

/* --- the stack --- */

static int put_mark(struct machine *m)
{
    if (m->n_marks == m->marks_room) {
        size_t room = m->marks_room ? 2 * m->marks_room : 64;
        size_t *fresh = reallocarray(m->marks, room, sizeof(*fresh));

        if (!fresh) {
            return no_memory(m);
        }
        m->marks = fresh;
        m->marks_room = room;
    }
    m->marks[m->n_marks++] = m->depth;
    m->depth = 0;
    return 0;
}

static int take_mark(struct machine *m, const struct effect *x)
{
    size_t n = m->depth;

    if (m->n_marks == 0) {
        return wrong(m, "it goes back to a mark that was never set");
    }
    if (n < x->least || (x->is_paired && n % 2)) {
        return wrong(m, "a key is without a value, or an object without a class");
    }
    m->depth = m->marks[--m->n_marks];
    return 0;
}

static int move(struct machine *m, uint8_t op)
{
    struct effect x = effect_of(op);
    int rc;

    if (op == '(') {
        return put_mark(m);
    }
    /* It takes a mark where that is uppermost. */
    x.is_marked = x.is_marked || (op == '0' && m->depth == 0);
    x.takes = x.is_marked && op == '0' ? 0 : x.takes;
    rc = x.is_marked ? take_mark(m, &x) : 0;
    if (rc == 0 && m->depth < x.takes) {
        rc = wrong(m, "it takes more than there is");
    }
    if (rc == 0) {
        m->depth = m->depth - x.takes + x.leaves;
    }
    return rc;
}

/* --- what is kept --- */

static uint64_t place_of(const struct machine *m, const struct pickle_op *op)
{
    return op->op == 0x94 ? m->n_kept : pickle_place(op);
}

static bool is_kept(const struct machine *m, uint64_t place)
{
    return place / 8 < m->kept_bytes && m->kept[place / 8] & 1 << place % 8;
}

/* Places are counted from 0 or 1 on: none is beyond what there are bytes to keep by. */
static int keep(struct machine *m, uint64_t place)
{
    if (place > m->len || is_kept(m, place)) {
        return wrong(m, "it keeps a value in a place that is taken, or far away");
    }
    if (place / 8 >= m->kept_bytes) {
        size_t want = 2 * (place / 8 + 32);
        uint8_t *fresh = realloc(m->kept, want);

        if (!fresh) {
            return no_memory(m);
        }
        memset(fresh + m->kept_bytes, 0, want - m->kept_bytes);
        m->kept = fresh;
        m->kept_bytes = want;
    }
    m->kept[place / 8] = (uint8_t)(m->kept[place / 8] | 1 << place % 8);
    m->n_kept++;
    return 0;
}

/* --- arguments --- */

/* UTF-8, and surrogates alone too, as Python writes them. */
static bool is_text(const uint8_t *s, size_t len)
{
    for (size_t i = 0; i < len;) {
        bool is_surrogate = len - i >= 3 && s[i] == 0xed && s[i + 1] >= 0xa0 &&
                            s[i + 1] <= 0xbf && (s[i + 2] & 0xc0) == 0x80;
        uint32_t c;
        size_t n = s[i] < 0x80    ? 1
                   : is_surrogate ? 3
                                  : utf8_next_of((const char *)s + i, len - i, &c);

        if (n == 0) {
            return false;
        }
        i += n;
    }
    return true;
}

static int check_text(const struct machine *m, const struct pickle_op *op, size_t prefix)
{
    return is_text(op->argument + prefix, op->len - prefix)
               ? 0 : wrong(m, "a text is no UTF-8");
}

/* 'text' or "text", to the end of the line. */
static int check_quoted(const struct machine *m, const struct pickle_op *op)
{
    const uint8_t *s = op->argument;

    return op->len >= 3 && s[0] == s[op->len - 2] && (s[0] == '\'' || s[0] == '"')
               ? 0 : wrong(m, "a text is not in quotes");
}

/* Digits, and the L behind those of a long one. */
static int check_integer(const struct machine *m, const struct pickle_op *op)
{
    const char *s = (const char *)op->argument;
    size_t sign = s[0] == '-' || s[0] == '+', n = strspn(s + sign, "0123456789");

    s += sign + n;
    return n > 0 && (*s == '\n' || (op->op == 'L' && s[0] == 'L' && s[1] == '\n'))
               ? 0 : wrong(m, "a number is none");
}

static int check_start(const struct machine *m, const struct pickle_op *op)
{
    if (m->at != 0) {
        return wrong(m, "it begins again");
    }
    return op->argument[0] <= LAST_PROTOCOL ? 0 : wrong(m, "it has a later protocol");
}

/* Instructions lie in a frame as a whole, and frames one after the other. */
static int begin_frame(struct machine *m, const struct pickle_op *op, size_t next)
{
    uint64_t n = pickle_number(op->argument, op->len);

    if (n > m->len - next) {
        return error_text(m->e, ERR_FORMAT, "the pickle is cut: a frame of %llu bytes, at its "
                          "byte %zu of %zu", (unsigned long long)n, m->at, m->len);
    }
    if (m->frame_end) {
        return wrong(m, "a frame is in another one");
    }
    m->frame_end = next + n;
    return 0;
}

static int check_argument(struct machine *m, const struct pickle_op *op, size_t next)
{
    switch (op->op) {
    case 0x80:
        return check_start(m, op);
    case 0x82: case 0x83: case 0x84:
        return wrong(m, "it names a class by a number of its program's");
    case 0x95:
        return begin_frame(m, op, next);
    case 'p': case 'q': case 'r': case 0x94:
        return keep(m, place_of(m, op));
    case 'g': case 'h': case 'j':
        return is_kept(m, place_of(m, op))
                   ? 0 : wrong(m, "it refers to what was never kept");
    case 'X':
        return check_text(m, op, 4);
    case 0x8c:
        return check_text(m, op, 1);
    case 0x8d:
        return check_text(m, op, 8);
    case 'c': case 'i':
        return check_text(m, op, 0);
    case 'S':
        return check_quoted(m, op);
    case 'I': case 'L':
        return check_integer(m, op);
    default:
        return 0;
    }
}

static int step(struct machine *m, const struct pickle_op *op, size_t next)
{
    size_t frame_end = m->frame_end;
    int rc = move(m, op->op);

    if (rc == 0 && op->op == PICKLE_STOP && (m->depth || m->n_marks)) {
        rc = wrong(m, "it ends with more than one value");
    }
    rc = rc < 0 ? rc : check_argument(m, op, next);
    if (rc == 0 && frame_end && (next > frame_end || (op->op == PICKLE_STOP && next < frame_end))) {
        rc = wrong(m, "a frame ends elsewhere");
    }
    m->frame_end = m->frame_end == next ? 0 : m->frame_end;
    return rc;
}

int pickle_check(const void *data, size_t len, size_t *ret_len,
                 struct error *e)
{
    struct machine m = {.data = data, .len = len, .e = e};
    struct pickle_op op = {0};
    size_t at = 0;
    int rc = 0;

    while (rc == 0 && op.op != PICKLE_STOP) {
        m.at = at;
        rc = pickle_next(data, len, &at, &op, e);
        rc = rc < 0 ? rc : step(&m, &op, at);
    }
    machine_release(&m);
    if (rc == 0) {
        *ret_len = at;
    }
    return rc;
}
