/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/buf.h"
#include "base/cleanup.h"
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
                                    "k: ! 5\n"
                                    "m: !!int 5\n"
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
    ok(!node_get(l.docs.docs[0], "k")->plain, "nor is !");
    ok(node_get(l.docs.docs[0], "m")->plain, "!!int is");
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
                                    "q: {'<<': 5}\n"
                                    "x2: &x 7\n"
                                    "r: *x\n");

    is_int(l.rc, 0, "anchors, aliases and merge keys load");
    is_str(text_at(&l, "y.b"), "2", "alias");
    is_str(text_at(&l, "z.a"), "1", "merged");
    is_str(text_at(&l, "z.b"), "3", "own key beats the merged one");
    is_str(text_at(&l, "w.a"), "4", "the first of several counts");
    is_str(text_at(&l, "w.b"), "2", "the second adds");
    is_str(text_at(&l, "q.<<"), "5", "a quoted << is a name");
    is_str(text_at(&l, "r"), "7", "an anchor may be set again");
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
        {"a: &a b\n---\nc: *a\n", "f:3:4: alias *a; expected an anchor &a"},
        {"a: [b\n", "f:2:1: did not find expected ',' or ']' (while parsing a "
                    "flow sequence from line 1); expected YAML"},
        {"a: [b}\n", "f:1:6: did not find expected ',' or ']' (while parsing a "
                     "flow sequence); expected YAML"},
        {"a: !b c\n", "f:1:4: tag !b; expected a value without a tag"},
        {"a: !!binary aGk=\n", "f:1:4: tag tag:yaml.org,2002:binary"},
        {"a: !!python/object:os.system x\n", "expected a value without a tag"},
        {"{[a]: b}\n", "f:1:2: a list as a key; expected a name"},
        {"? {a: b}\n: c\n", "f:1:3: a map as a key"},
        {"a: b: c\n", "f:1:5: mapping values are not allowed"},
        {"a: [b\n", "expected YAML"},
        {"a: \"b\n", "expected YAML"},
        {"a:\n\tb: c\n", "f:2:1: a tab before a value; expected blanks"},
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

/* Line ends, marks of byte order, encodings, the end of the file. */
static void test_bytes(void)
{
    static const struct {
        const char *text;
        const char *want; /* of a, or the error */
        unsigned line, column;
    } cases[] = {
        {"b: 2\na: x", "x", 2, 4},
        {"b: 2\r\na: x\r\n", "x", 2, 4},
        {"b: 2\ra: x\r", "x", 2, 4},
        {"\xef\xbb\xbf" "a: x\n", "x", 1, 4},
        {"\xef\xbb\xbf" "b: 2\r\na: |\r\n  x\r\n  y\r\n", "x\ny\n", 2, 4},
        {"\xc3\xa4: 2\n\xc3\xa4\xc3\xa4: {a: 1}\na: \xe2\x82\xac\n",
         "\xe2\x82\xac", 3, 4},
        {"{\xc3\xa4: 1, a: x}", "x", 1, 11},
        {"{\"a\": \"x\\u0041\", \"b\": [1, 2.5e3, null, true]}", "xA", 1, 7},
        {"a: 'it''s'", "it's", 1, 4},
        {"a: x # b\n", "x", 1, 4},
        {"a:\n  x\n  y\n", "x y", 2, 3},
        {"# c\n%YAML 1.1\n---\na: x\n", "x", 4, 4},
        {"%YAML 1.2\n--- {a: x}\n", "x", 2, 9},
        {"a: \"\\x1b[31m\"", "\x1b[31m", 1, 4},
        {"a: b\n\xef\xbb\xbf" "c: d\n", "f:2:2: ", 0, 0},
        {"\xef\xbb\xbf" "a: @x\n", "f:1:4: @ at the start of a value; "
                                    "expected text that begins so in quotes",
         0, 0},
        {"\xef\xbb\xbf" "\xc3\xa4: 1\na: `x`\n", "f:2:4: ` at the start", 0, 0},
        {"a: 1\n\t\n\tb: 2\n", "f:2:1: found a tab character", 0, 0},
        {"a: 1\n\n\tb: 2\n", "f:3:1: found a tab character", 0, 0},
        {"a: \tx\n", "x", 1, 5},
        {"a: 1\n b: 2\n", "f:2:3: mapping values are not allowed", 0, 0},
        {"a: 1\nb\n", "expected YAML", 0, 0},
        {"a: \"x\\q\"\n", "expected YAML", 0, 0},
        {"a: %x\n", "f:1:4: % at the start of a value", 0, 0},
        {"\xfe\xff" "\0a\0:", "f: UTF-16 text; expected UTF-8", 0, 0},
        {"a: \xed\xa0\x80\n", "f:1:4: byte 0x", 0, 0},
        {"a: \xc2\x9b\n", "f:1:4: byte 0x9b", 0, 0},
        {"a: \x7f\n", "f:1:4: byte 0x7f", 0, 0},
        {"a: \xc3\xa4\xc3\xa4 \xff\n", "f:1:7: byte 0xff", 0, 0},
        {"\xef\xbb\xbf" "a: \x01\n", "f:1:4: byte 0x01", 0, 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _loaded_ struct loaded l = load(cases[i].text);
        const struct node *n = l.docs.n ? node_get(l.docs.docs[0], "a") : NULL;

        if (cases[i].line) {
            is_str(n ? n->text : first_error(&l), cases[i].want, "case %zu", i);
            is_int(n ? n->place.line : 0, cases[i].line, "line");
            is_int(n ? n->place.column : 0, cases[i].column, "column");
        } else {
            is_int(l.rc, -ERR_SPEC, "case %zu is refused", i);
            like(first_error(&l), cases[i].want, "and says why");
        }
    }
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

/* `text` loads; with `more` at its end it has one too much of something. */
static void expect_limit(struct buf *text, const char *more, const char *what,
                         const char *error)
{
    _loaded_ struct loaded l = load_bytes(text->data, text->len);
    _loaded_ struct loaded m = {0};

    is_str(first_error(&l), "", "%s", what);
    buf_puts(text, more);
    m = load_bytes(text->data, text->len);
    is_int(m.rc, -ERR_SPEC, "but not one more");
    like(first_error(&m), error, "which is told");
    buf_clear(text);
}

static void test_limits(void)
{
    _buf_ struct buf b = {0};
    size_t n_levels = YAML_MAX_DEPTH - 1;

    repeat(&b, "- ", YAML_MAX_DEPTH);
    buf_puts(&b, "x");
    expect_limit(&b, "\n---\n[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["
                     "[[[[[[[[[[[[[", "64 levels", "nested deeper than 64");
    buf_puts(&b, "x");
    repeat(&b, "\n---\nx", 99);
    expect_limit(&b, "\n---\nx", "100 documents", "more than 100 documents");
    number(&b, "k", ": &a 1\n", 1000);
    number(&b, "m", ": 1\n", 3096);
    expect_limit(&b, "x: 1\n", "4096 keys", "f:4097:1: more than 4096 keys");
    number(&b, "k", ": &a 1\n", 1000);
    expect_limit(&b, "x: &a 1\n", "1000 anchors", "f:1001:4: more than 1000");
    repeat(&b, "- x\n", 99999);
    expect_limit(&b, "- x\n", "100000 values", "more than 100000 values");
    number(&b, "%TAG !a", "! x\n", 100);
    buf_puts(&b, "--- x\n");
    expect_limit(&b, "# %TAG", "100 %TAG", "more than 100 %TAG");
    buf_puts(&b, "x: &x ");
    repeat(&b, "[", n_levels);
    buf_puts(&b, "x");
    repeat(&b, "]", n_levels);
    buf_puts(&b, "\ny: *x\n");
    expect_limit(&b, "z: [*x]\n", "64 levels by an alias", "nested too deep");
    buf_puts(&b, "x: &x {");
    number(&b, "k", ": 1, ", 4000);
    buf_puts(&b, "}\n");
    buf_puts(&b, "y: {<<: *x, ");
    number(&b, "m", ": 1, ", 96);
    buf_puts(&b, "}\n");
    expect_limit(&b, "z: {<<: *x, a: 1, <<: 2}", "4096 keys by a merge",
                 "a second `<<`");
    buf_puts(&b, "a: &a {k: v}\nb: {<<: [");
    repeat(&b, "*a, ", 100);
    buf_puts(&b, "]}\n");
    expect_limit(&b, "c: {<<: [x]}", "100 maps in a merge", "text after `<<`");
}

/* Work is what there is to do: events, and names that are compared. */
static void test_work(void)
{
    _loaded_ struct loaded l = load("a: 1\n");
    _loaded_ struct loaded m = load("a: &a {k: 1, l: 2}\nb: {<<: *a, m: 3}\n");

    is_int((int)l.docs.work, 8, "stream, document, map, key, value and ends");
    is_int((int)m.docs.work, 20 + 1 + 2 + 3,
           "20 events, one anchor, and two keys for a map of one and two");
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

/* Each is refused before it costs much: work is counted, not timed. */
static void expect_work(struct buf *text, const char *what, const char *error,
                        size_t most)
{
    _loaded_ struct loaded l = load_bytes(text->data, text->len);

    is_int(l.rc, -ERR_SPEC, "%s is refused", what);
    like(first_error(&l), error, "with the reason");
    ok(l.docs.work <= most, "after %zu steps of work", l.docs.work);
    ok(l.arena.total < 64u << 20, "and without much memory");
    buf_release(text);
}

static void expect_refused(struct buf *text, const char *what,
                           const char *error)
{
    expect_work(text, what, error, 2 * YAML_MAX_NODES);
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
    expect_work(&b, "merge keys", "f:5:3: more aliases and `<<` than can be "
                "followed; expected fewer", YAML_MAX_WORK + 5000);
    buf_puts(&b, "x: &x {");
    number(&b, "k", ": 1, ", 1000);
    buf_puts(&b, "}\ny:\n");
    repeat(&b, "- {<<: *x}\n", 100);
    expect_work(&b, "merge keys of many maps", "more than 100000 values",
                YAML_MAX_WORK);
    number(&b, "- &a", " x\n", 999);
    repeat(&b, "- *a0\n", 60000);
    expect_work(&b, "aliases among many anchors",
                "more aliases and `<<` than can be followed",
                YAML_MAX_WORK + 1000);
    buf_puts(&b, "a: &a {k: v}\nb: {<<: [");
    repeat(&b, "*a, ", 101);
    buf_puts(&b, "]}\n");
    expect_refused(&b, "a merge of many maps", "f:2:9: more than 100 maps after");
    buf_puts(&b, "a: &a {");
    number(&b, "k", ": 1, ", 4000);
    buf_puts(&b, "}\nb: {<<: *a, ");
    number(&b, "m", ": 1, ", 97);
    buf_puts(&b, "}\n");
    expect_work(&b, "a map that a merge makes wide", "too many keys after",
                YAML_MAX_WORK);
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
    test_bytes();
    test_limits();
    test_work();
    test_hostile();
    return tap_done();
}
