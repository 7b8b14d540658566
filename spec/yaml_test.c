/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "spec/node.h"
#include "spec/yaml.h"
#include "tests/lib/tap.h"

#include <string.h>

struct loaded {
    struct arena arena;
    struct report report;
    struct yaml_docs docs;
    int rc;
};

static void loaded_release(struct loaded *l)
{
    arena_release(&l->arena);
    report_release(&l->report);
}
#define _loaded_ __attribute__((cleanup(loaded_release)))

static struct loaded load_bytes(const char *text, size_t len)
{
    struct loaded l = {0};

    l.rc = yaml_load(&l.arena, "f", text, len, NULL, &l.docs, &l.report);
    return l;
}

static struct loaded load(const char *text)
{
    return load_bytes(text, strlen(text));
}

static const char *text_at(const struct loaded *l, const char *path)
{
    const struct node *n =
        l->docs.n ? node_get_path(l->docs.docs[0], path) : NULL;

    return n && n->kind == NODE_SCALAR ? n->text : NULL;
}

static const char *first_error(const struct loaded *l)
{
    return l->report.n ? l->report.items[0].text : "";
}

static void test_values(void)
{
    _loaded_ struct loaded l = load("a: 1\n"
                                    "b: 'x'\n"
                                    "c: {d: \"e\\tf\"}\n"
                                    "g: |\n  one\n  two\n"
                                    "h: >-\n  one\n  two\n"
                                    "i: !!str 5\n"
                                    "j:\n");

    is_int(l.rc, 0, "loads");
    is_str(text_at(&l, "a"), "1", "plain");
    is_str(text_at(&l, "b"), "x", "quoted");
    is_str(text_at(&l, "c.d"), "e\tf", "escaped, in a flow map");
    is_str(text_at(&l, "g"), "one\ntwo\n", "literal");
    is_str(text_at(&l, "h"), "one two", "folded");
    ok(node_get(l.docs.docs[0], "a")->plain, "1 is plain");
    ok(!node_get(l.docs.docs[0], "b")->plain, "'x' is not");
    ok(!node_get(l.docs.docs[0], "i")->plain, "!!str is not");
    ok(node_is_null(node_get(l.docs.docs[0], "j")), "nothing is null");
    is_int(node_get_path(l.docs.docs[0], "c.d")->place.line, 3, "line");
    is_int(node_get_path(l.docs.docs[0], "c.d")->place.column, 8, "column");
}

static void test_documents(void)
{
    _loaded_ struct loaded l = load("---\na: 1\n---\nb: 2\n---\n");
    _loaded_ struct loaded empty = load("# nothing\n");

    is_int(l.rc, 0, "a stream loads");
    is_int((int)l.docs.n, 2, "the empty one at the end is dropped");
    is_int((int)empty.docs.n, 0, "a comment is no document");
}

static void test_aliases(void)
{
    _loaded_ struct loaded l = load("x: &x {a: 1, b: 2}\n"
                                    "y: *x\n"
                                    "z: {<<: *x, b: 3}\n"
                                    "w: {<<: [{a: 4}, *x]}\n"
                                    "q: {'<<': 5}\n");

    is_int(l.rc, 0, "anchors, aliases and merge keys load");
    is_str(text_at(&l, "y.b"), "2", "alias");
    is_str(text_at(&l, "z.a"), "1", "merged");
    is_str(text_at(&l, "z.b"), "3", "own key beats the merged one");
    is_str(text_at(&l, "w.a"), "4", "the first of several counts");
    is_str(text_at(&l, "w.b"), "2", "the second adds");
    is_str(text_at(&l, "q.<<"), "5", "a quoted << is a name");
}

static void test_bad(void)
{
    static const struct {
        const char *text;
        const char *error;
    } cases[] = {
        {"a: 1\nb: 2\na: 3\n",
         "f:3:1: key \"a\" again, first on line 1; expected it once"},
        {"a: {b: 1, b: 2}", "f:1:11: key \"b\" again, first on line 1"},
        {"a: *b\n", "f:1:4: alias *b; expected an anchor &b"},
        {"a: &a [*a]\n", "f:1:8: alias *a; expected an anchor &a"},
        {"a: !b c\n", "f:1:4: tag !b; expected a value without a tag"},
        {"a: !!binary aGk=\n", "f:1:4: tag tag:yaml.org,2002:binary"},
        {"a: !!python/object:os.system x\n", "expected a value without a tag"},
        {"{[a]: b}\n", "f:1:2: a list as a key; expected a name"},
        {"? {a: b}\n: c\n", "f:1:3: a map as a key"},
        {"a: b: c\n", "f:1:5: mapping values are not allowed"},
        {"a: [b\n", "expected YAML"},
        {"a: \"b\n", "expected YAML"},
        {"a:\n\tb: c\n", "f:2:1: found character that cannot start any token"},
        {"a: \"b\\0c\"\n", "f:1:4: a zero byte inside a value"},
        {"a: {<<: 5}\n", "f:1:9: text after `<<`; expected a map"},
        {"a: {<<: {b: 1}, <<: {c: 2}}\n", "f:1:17: a second `<<`"},
        {"%YAML 3.0\n---\na: b\n", "expected YAML"},
        {"a: b\xff\n", "f:1:5: byte 0xff"},
        {"a: b\n\xc3(\n", "f:2:2: byte 0x28"},
        {"a: \x01\n", "control characters are not allowed"},
        {"\xff\xfe" "a:", "UTF-16 text; expected UTF-8"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _loaded_ struct loaded l = load(cases[i].text);

        is_int(l.rc, -ERR_SPEC, "refused: %.20s", cases[i].text);
        like(first_error(&l), cases[i].error, "and says why");
    }

    _loaded_ struct loaded nul = load_bytes("a: b\0c\n", 7);

    is_int(nul.rc, -ERR_SPEC, "a zero byte");
    like(first_error(&nul), "f:1:5: byte 0x00", "is placed");
}

static void repeat(struct buf *b, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        buf_puts(b, s);
    }
}

static void number(struct buf *b, const char *before, const char *after,
                   unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        buf_printf(b, "%s%u%s", before, i, after);
    }
}

static void bomb(struct buf *b)
{
    buf_puts(b, "a: &a [x,x,x,x,x,x,x,x,x]\n");
    for (char c = 'b'; c < 'k'; c++) {
        buf_printf(b, "%c: &%c [", c, c);
        for (int i = 0; i < 9; i++) {
            buf_printf(b, "%s*%c", i ? "," : "", c - 1);
        }
        buf_puts(b, "]\n");
    }
}

/* Each is refused before it costs much. */
static void expect_refused(struct buf *text, const char *what,
                           const char *error)
{
    uint64_t start = clock_mono_ms();
    _loaded_ struct loaded l = load_bytes(text->data, text->len);

    is_int(l.rc, -ERR_SPEC, "%s is refused", what);
    like(first_error(&l), error, "with the reason");
    ok(clock_mono_ms() - start < 5000, "soon");
    ok(l.arena.total < 64u << 20, "and without much memory");
    buf_release(text);
}

static void test_hostile(void)
{
    struct buf b = {0};

    bomb(&b);
    expect_refused(&b, "an alias bomb", "more than 100000 values");
    repeat(&b, "[", 2000000);
    expect_refused(&b, "deep flow nesting", "nested deeper than 64");
    repeat(&b, "- ", 1000000);
    expect_refused(&b, "deep block nesting", "nested deeper than 64");
    repeat(&b, "? ", 1000000);
    expect_refused(&b, "deep keys", "nested deeper than 64");
    number(&b, "k", ": 1\n", 200000);
    expect_refused(&b, "a wide map", "more than 4096 keys");
    repeat(&b, "- a\n", 200000);
    expect_refused(&b, "a long list", "more than 100000 values");
    repeat(&b, "---\n", 200000);
    expect_refused(&b, "many documents", "more than 100 documents");
    number(&b, "- &a", " x\n", 100000);
    expect_refused(&b, "many anchors", "more than 1000 anchors");
    number(&b, "%TAG !", "! x\n", 200000);
    expect_refused(&b, "many directives", "more than 100 %TAG");
    number(&b, "%TAG !", "! x\r", 200000);
    expect_refused(&b, "many directives behind CR", "more than 100 %TAG");
    repeat(&b, "aaaaaaaa", (YAML_MAX_BYTES >> 3) + 1);
    expect_refused(&b, "a large text", "expected at most 4194304");
    buf_puts(&b, "x: &x {");
    number(&b, "k", ": 1, ", 4000);
    buf_puts(&b, "}\ny:\n");
    repeat(&b, "- {<<: [*x, *x]}\n", 40);
    expect_refused(&b, "merge keys", "more than 100000 values");
    buf_puts(&b, "a0: &a0 [x]\n");
    for (int i = 1; i < 80; i++) {
        buf_printf(&b, "a%d: &a%d [*a%d]\n", i, i, i - 1);
    }
    expect_refused(&b, "nesting by aliases", "nested too deep");
}

int main(void)
{
    test_values();
    test_documents();
    test_aliases();
    test_bad();
    test_hostile();
    return tap_done();
}
