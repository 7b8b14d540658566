/* SPDX-License-Identifier: Apache-2.0 */
/* Whole lines from pieces, of several streams at once; what is given is put down as
 * one string. --wrap=reallocarray takes the memory away. */
#include <config.h>

#include "launcher/line_join.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "launcher/output.h"
#include "tests/lib/tap.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 64 << 10 }; /* so much is held of a line, less one byte */

static bool has_no_memory;

void *__wrap_reallocarray(void *p, size_t n, size_t size);
void *__real_reallocarray(void *p, size_t n, size_t size);

void *__wrap_reallocarray(void *p, size_t n, size_t size)
{
    return has_no_memory ? NULL : __real_reallocarray(p, n, size);
}

struct taken {
    struct line_join *j;
    struct buf text; /* "[generation.rank which] line" each; "+" for a part */
    int n_with_data;
    size_t last_len;
};

static void take(void *arg, const struct tree_output *from, const char *line,
                 size_t len, bool is_part)
{
    struct taken *t = arg;

    t->n_with_data += from->data || from->len;
    t->last_len = len;
    buf_printf(&t->text, "[%u.%u %s%s] ", from->generation, from->rank,
               from->which == OUTPUT_STDOUT ? "out" : "err", is_part ? "+" : "");
    buf_append(&t->text, line, len < 100 ? len : 10);
    buf_putc(&t->text, '\n');
}

static void start(struct taken *t)
{
    *t = (struct taken){0};
    t->j = line_join_create(take, t);
    if (!t->j) {
        bail_out("no memory");
    }
}

static void finish(struct taken *t)
{
    is_int(t->n_with_data, 0, "who it is from comes without data");
    line_join_destroy(t->j);
    buf_release(&t->text);
}

static void put_bytes(struct taken *t, struct tree_output from, const void *data,
                      size_t len)
{
    from.data = data;
    from.len = len;
    line_join_put(t->j, &from);
}

static void put(struct taken *t, struct tree_output from, const char *text)
{
    put_bytes(t, from, text, strlen(text));
}

#define check(t, want, ...)                          \
    do {                                             \
        is_str(buf_str(&(t)->text), want, __VA_ARGS__); \
        buf_clear(&(t)->text);                       \
    } while (0)

/* A stream and a piece of it. */
static struct tree_output of(uint32_t rank, enum output_which which,
                             enum output_piece piece)
{
    return (struct tree_output){.node = 9, .generation = 1, .rank = rank,
                                .which = (uint8_t)which, .piece = (uint8_t)piece};
}

static void test_lines(void)
{
    struct tree_output lines = of(3, OUTPUT_STDOUT, OUTPUT_LINES);
    struct tree_output cut = of(3, OUTPUT_STDOUT, OUTPUT_CUT);
    struct tree_output end = of(3, OUTPUT_STDOUT, OUTPUT_END);
    struct taken t;

    start(&t);
    put(&t, lines, "one\n\ntwo\n");
    check(&t, "[1.3 out] one\n[1.3 out] \n[1.3 out] two\n", "whole lines, an empty one");
    put(&t, cut, "thr");
    check(&t, "", "part of one is held");
    put(&t, cut, "e");
    put(&t, cut, "");
    check(&t, "", "and what comes behind it");
    put(&t, lines, "e\nfour\n");
    check(&t, "[1.3 out] three\n[1.3 out] four\n", "until its end");
    put(&t, cut, "fi");
    put(&t, lines, "\n");
    check(&t, "[1.3 out] fi\n", "which may be all that comes");
    put(&t, end, "la");
    check(&t, "[1.3 out] la\n", "the last one has no newline");
    put(&t, cut, "mo");
    put(&t, end, "re");
    check(&t, "[1.3 out] more\n", "nor with what was held");
    put(&t, cut, "most");
    put(&t, end, "");
    check(&t, "[1.3 out] most\n", "nor where nothing else comes");
    put(&t, lines, "a\n");
    check(&t, "[1.3 out] a\n", "each is given once");
    put_bytes(&t, lines, "a\0b\n", 4);
    is_int((intmax_t)t.last_len, 3, "any bytes but a newline");
    line_join_flush(t.j);
    buf_clear(&t.text);
    finish(&t);
}

/* However their pieces come. */
static void test_streams(void)
{
    struct tree_output out = of(3, OUTPUT_STDOUT, OUTPUT_CUT);
    struct tree_output err = of(3, OUTPUT_STDERR, OUTPUT_CUT);
    struct tree_output other = of(4, OUTPUT_STDOUT, OUTPUT_CUT);
    struct taken t;

    start(&t);
    put(&t, out, "out");
    put(&t, err, "err");
    put(&t, other, "other");
    check(&t, "", "three are held");
    put(&t, out, " of 3\n");
    check(&t, "[1.3 out] out of 3\n", "the first one ends");
    put(&t, other, " of 4");
    put(&t, err, " of 3\n");
    check(&t, "[1.3 err] err of 3\n", "another one");
    put(&t, out, "again");
    line_join_flush(t.j);
    check(&t, "[1.4 out+] other of 4\n[1.3 out+] again\n",
          "what is held at the end is given as parts");
    line_join_flush(t.j);
    check(&t, "", "once");
    put(&t, other, "left");
    finish(&t);
}

/* The node of a rank is lost in the middle of a line. */
static void test_generations(void)
{
    struct tree_output before = of(3, OUTPUT_STDOUT, OUTPUT_CUT), now = before;
    struct taken t;

    start(&t);
    now.generation = 2;
    put(&t, before, "ste");
    put(&t, now, "sta");
    check(&t, "[1.3 out+] ste\n", "the rest of it never comes");
    put(&t, now, "rt\n");
    check(&t, "[2.3 out] start\n", "and is not what the next one says");
    finish(&t);
}

static void test_long_line(void)
{
    struct tree_output cut = of(3, OUTPUT_STDOUT, OUTPUT_CUT);
    _free_ char *x = malloc(MOST);
    struct taken t;

    if (!x) {
        bail_out("no memory");
    }
    memset(x, 'x', MOST);
    start(&t);
    put_bytes(&t, cut, x, MOST - 1);
    check(&t, "", "a byte less than 64 KiB is held");
    put(&t, cut, "y");
    check(&t, "[1.3 out+] xxxxxxxxxx\n", "with that byte it is given");
    is_int((intmax_t)t.last_len, MOST, "all of it");
    put(&t, cut, "z\n");
    check(&t, "[1.3 out] z\n", "and no more held");
    finish(&t);
}

static void test_no_memory(void)
{
    struct tree_output cut = of(3, OUTPUT_STDOUT, OUTPUT_CUT);
    struct tree_output other = of(4, OUTPUT_STDOUT, OUTPUT_CUT);
    struct taken t;

    start(&t);
    put(&t, cut, "held");
    has_no_memory = true;
    put(&t, other, "lost?");
    has_no_memory = false;
    check(&t, "[1.4 out+] lost?\n", "what cannot be held is given at once");
    put(&t, cut, "\n");
    check(&t, "[1.3 out] held\n", "others stay");
    finish(&t);
}

/* What is left of a line, and of an earlier one, goes with it. */
static void live_once(void *arg)
{
    struct tree_output cut = of(3, OUTPUT_STDOUT, OUTPUT_CUT);
    struct taken t;

    (void)arg;
    start(&t);
    put(&t, cut, "one");
    put(&t, cut, "\n");
    put(&t, cut, "two");
    line_join_destroy(t.j);
    buf_release(&t.text);
}

int main(void)
{
    test_lines();
    test_streams();
    test_generations();
    test_long_line();
    test_no_memory();
    is_int(tap_leak(live_once, NULL), 0, "no memory is left behind");
    line_join_destroy(NULL);
    return tap_done();
}
