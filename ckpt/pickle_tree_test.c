/* SPDX-License-Identifier: Apache-2.0 */
/* What pickles of all protocols say, as a tree; and those that nobody could go through. */
#include <config.h>

#include "ckpt/pickle_tree.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES(text) text, sizeof(text) - 1

static void show(struct buf *b, const struct pickle_node *n, int depth);

static void show_items(struct buf *b, const struct pickle_node *n, const char *ends, bool is_pairs,
                       int depth)
{
    bool is_value = false;

    buf_putc(b, ends[0]);
    for (const struct pickle_item *i = n->first; i; i = i->next) {
        buf_puts(b, i == n->first ? "" : is_value ? ": " : ", ");
        show(b, i->node, depth);
        is_value = is_pairs && !is_value;
    }
    buf_putc(b, ends[1]);
}

static void show_object(struct buf *b, const struct pickle_node *n, int depth)
{
    show(b, n->made_by, depth);
    buf_putc(b, '<');
    show(b, n->args, depth);
    buf_putc(b, '>');
    if (n->first) {
        show_items(b, n, n->has_pairs ? "{}" : "[]", n->has_pairs, depth);
    }
    if (n->state) {
        buf_puts(b, "=");
        show(b, n->state, depth);
    }
}

/* As Python would write it, more or less: f<args>{items}=state for an object, @id for what is
 * persistent, ? for others. */
static void show(struct buf *b, const struct pickle_node *n, int depth)
{
    if (depth == 0) {
        buf_puts(b, "...");
        return;
    }
    switch (n->kind) {
    case PICKLE_OTHER:
        buf_puts(b, "?");
        break;
    case PICKLE_NONE:
        buf_puts(b, "None");
        break;
    case PICKLE_BOOL:
        buf_puts(b, n->number ? "True" : "False");
        break;
    case PICKLE_INT:
        buf_printf(b, "%" PRId64, n->number);
        break;
    case PICKLE_TEXT:
        buf_printf(b, "'%.*s'", (int)n->len, n->text);
        break;
    case PICKLE_CLASS:
        buf_printf(b, "%.*s.%.*s", (int)n->module_len, n->module, (int)n->len, n->text);
        break;
    case PICKLE_TUPLE:
        show_items(b, n, "()", false, depth - 1);
        break;
    case PICKLE_LIST:
        show_items(b, n, "[]", false, depth - 1);
        break;
    case PICKLE_DICT:
        show_items(b, n, "{}", true, depth - 1);
        break;
    case PICKLE_OBJECT:
        show_object(b, n, depth - 1);
        break;
    case PICKLE_PERSISTENT:
        buf_puts(b, "@");
        if (n->args) {
            show(b, n->args, depth - 1);
        }
        break;
    }
}

static void test_values(void)
{
    static const struct {
        const char *data;
        size_t len;
        const char *want;
    } cases[] = {
        {BYTES("N."), "None"},
        {BYTES("\x80\2\x88."), "True"},
        {BYTES("\x80\2\x89."), "False"},
        {BYTES("I01\n."), "True"},
        {BYTES("I00\n."), "False"},
        {BYTES("I1\n."), "1"},
        {BYTES("I-12\n."), "-12"},
        {BYTES("I\n."), "?"},
        {BYTES("I-\n."), "?"},
        {BYTES("I1x\n."), "?"},
        {BYTES("L123L\n."), "123"},
        {BYTES("L123456789012345678L\n."), "123456789012345678"},
        {BYTES("L1234567890123456789L\n."), "?"},
        {BYTES("K\xff."), "255"},
        {BYTES("M\x01\x02."), "513"},
        {BYTES("J\xff\xff\xff\xff."), "-1"},
        {BYTES("J\x00\x00\x00\x7f."), "2130706432"},
        {BYTES("\x8a\x00."), "0"},
        {BYTES("\x8a\x01\xff."), "-1"},
        {BYTES("\x8a\x02\xff\x00."), "255"},
        {BYTES("\x8a\x08\1\0\0\0\0\0\0\x80."), "-9223372036854775807"},
        {BYTES("\x8a\x09\1\0\0\0\0\0\0\0\0."), "?"},
        {BYTES("\x8b\2\0\0\0\1\1."), "257"},
        {BYTES("G\0\0\0\0\0\0\0\0."), "?"},
        {BYTES("F1.5\n."), "?"},
        {BYTES("U\2ab."), "'ab'"},
        {BYTES("T\2\0\0\0ab."), "'ab'"},
        {BYTES("X\2\0\0\0ab."), "'ab'"},
        {BYTES("\x8c\2ab."), "'ab'"},
        {BYTES("\x8d\2\0\0\0\0\0\0\0ab."), "'ab'"},
        {BYTES("Vab\n."), "'ab'"},
        {BYTES("Va\\u0041\n."), "?"},
        {BYTES("S'ab'\n."), "'ab'"},
        {BYTES("S'a\\n'\n."), "?"},
        {BYTES("S\n."), "?"},
        {BYTES("C\2ab."), "?"},
        {BYTES("B\2\0\0\0ab."), "?"},
        {BYTES("\x8e\2\0\0\0\0\0\0\0ab."), "?"},
        {BYTES("\x96\2\0\0\0\0\0\0\0ab\x98."), "?"},
        {BYTES("\x82\1."), "?"},
        {BYTES("Pid\n."), "@"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _pickle_tree_ struct pickle_tree t = {0};
        _buf_ struct buf b = {0};
        struct error e = {0};

        is_int(pickle_tree_read(cases[i].data, cases[i].len, &t, &e), 0, "value %zu %s", i, e.text);
        show(&b, t.root, 8);
        is_str(buf_str(&b), cases[i].want, "is what it says");
    }
}

static void test_containers(void)
{
    static const struct {
        const char *data;
        size_t len;
        const char *want;
    } cases[] = {
        {BYTES("\x80\2)."), "()"},
        {BYTES("\x80\2]."), "[]"},
        {BYTES("\x80\2}."), "{}"},
        {BYTES("(t."), "()"},
        {BYTES("(K\1K\2t."), "(1, 2)"},
        {BYTES("K\1\x85."), "(1)"},
        {BYTES("K\1K\2\x86."), "(1, 2)"},
        {BYTES("K\1K\2K\3\x87."), "(1, 2, 3)"},
        {BYTES("(K\1K\2l."), "[1, 2]"},
        {BYTES("]K\1a."), "[1]"},
        {BYTES("](K\1K\2e."), "[1, 2]"},
        {BYTES("](ea."), NULL},
        {BYTES("](e."), "[]"},
        {BYTES("(K\1K\2d."), "{1: 2}"},
        {BYTES("}K\1K\2s."), "{1: 2}"},
        {BYTES("}(K\1K\2K\3K\4u."), "{1: 2, 3: 4}"},
        {BYTES("}(u."), "{}"},
        {BYTES("\x8f(K\1\x90."), "[1]"},
        {BYTES("(K\1\x91."), "[1]"},
        {BYTES("K\1]a."), NULL},  /* a list into a number: nobody looks at that */
        {BYTES("K\1K\2""0."), "1"},
        {BYTES("K\1(K\2K\3""1."), "1"},
        {BYTES("K\1(0."), "1"},
        {BYTES("K\1""2\x86."), "(1, 1)"},
        /* What was kept is one node, wherever it is fetched. */
        {BYTES("]q\0h\0K\1aa."), "[1, [..., ...]]"},
        {BYTES("]p0\n(g0\nK\1ee."), NULL},
        {BYTES("\x80\4]\x94K\7\x94\x86(h\1h\0t."), "(7, [])"},
        {BYTES("K\7r\1\0\0\0""0j\1\0\0\0."), "7"},
        {BYTES("K\7p12\n0g12\n."), "7"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _pickle_tree_ struct pickle_tree t = {0};
        _buf_ struct buf b = {0};
        struct error e = {0};
        int rc = pickle_tree_read(cases[i].data, cases[i].len, &t, &e);

        if (!cases[i].want) {
            ok(rc == 0 || rc == -ERR_FORMAT, "container %zu is no matter", i);
            continue;
        }
        is_int(rc, 0, "container %zu %s", i, e.text);
        if (rc == 0) {
            show(&b, t.root, 2);
        }
        is_str(buf_str(&b), cases[i].want, "is what it says");
    }
}

static void test_objects(void)
{
    static const struct {
        const char *data;
        size_t len;
        const char *want;
    } cases[] = {
        {BYTES("cos\nsystem\n."), "os.system"},
        {BYTES("\x8c\2os\x8c\6system\x93."), "os.system"},
        {BYTES("cos\nsystem\nU\2ls\x85R."), "os.system<('ls')>"},
        {BYTES("cm\nC\n)\x81."), "m.C<()>"},
        {BYTES("cm\nC\n)}\x92."), "m.C<()>"},
        {BYTES("cm\nC\n)\x81}U\1aK\1sb."), "m.C<()>={'a': 1}"},
        {BYTES("cm\nC\n)\x81K\1b."), "m.C<()>=1"},
        {BYTES("cm\nC\n)R(U\1aK\1u."), "m.C<()>{'a': 1}"},
        {BYTES("cm\nC\n)RU\1aK\1s."), "m.C<()>{'a': 1}"},
        {BYTES("cm\nC\n)RK\1a."), "m.C<()>[1]"},
        {BYTES("cm\nC\n)RK\1aU\1aK\1s."), "m.C<()>[1]"}, /* one of the two */
        {BYTES("(K\1im\nC\n."), "m.C<(1)>"},
        {BYTES("(cm\nC\nK\1o."), "m.C<(1)>"},
        {BYTES("(cm\nC\no."), "m.C<()>"},
        {BYTES("U\1aQ."), "@'a'"},
        {BYTES("(U\1aK\1tQ."), "@('a', 1)"},
        {BYTES("K\1K\2b."), "1"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _pickle_tree_ struct pickle_tree t = {0};
        _buf_ struct buf b = {0};
        struct error e = {0};

        is_int(pickle_tree_read(cases[i].data, cases[i].len, &t, &e), 0, "object %zu %s", i,
               e.text);
        show(&b, t.root, 8);
        is_str(buf_str(&b), cases[i].want, "is what it would be made of");
    }
}

static void test_wrong(void)
{
    static const struct {
        const char *data;
        size_t len;
        const char *why;
    } cases[] = {
        {BYTES(""), "the pickle is cut"},
        {BYTES("."), "it takes more than there is, at its byte 0"},
        {BYTES("N"), "the pickle is cut"},
        {BYTES("("), "the pickle is cut"},
        {BYTES("(."), "it takes more than there is"},
        {BYTES("\xff"), "no instruction"},
        {BYTES("0."), "it takes more than there is"},
        {BYTES("1."), "a mark that was never set"},
        {BYTES("2."), "it takes more than there is"},
        {BYTES("(2."), "it takes more than there is"},
        {BYTES("t."), "a mark that was never set"},
        {BYTES("NN(\x86."), "it takes more than there is"},
        {BYTES("N\x86."), "it takes more than there is"},
        {BYTES("Na."), "it takes more than there is"},
        {BYTES("](a."), "it takes more than there is"},
        {BYTES("(Na."), "it takes more than there is"},
        {BYTES("(Ne."), "it takes more than there is"},
        {BYTES("Ne."), "a mark that was never set"},
        {BYTES("}Ns."), "it takes more than there is"},
        {BYTES("}(Ns."), "it takes more than there is"},
        {BYTES("}(NNNu."), "a key is without a value"},
        {BYTES("(Nd."), "a key is without a value"},
        {BYTES("NR."), "it takes more than there is"},
        {BYTES("N\x81."), "it takes more than there is"},
        {BYTES("NN\x92."), "it takes more than there is"},
        {BYTES("Nb."), "it takes more than there is"},
        {BYTES("Q."), "it takes more than there is"},
        {BYTES("(o."), "an object has no class"},
        {BYTES("o."), "a mark that was never set"},
        {BYTES("Nim\nC\n."), "a mark that was never set"},
        {BYTES("N\x93."), "it takes more than there is"},
        {BYTES("NU\1a\x93."), "a class has no name"},
        {BYTES("U\1aN\x93."), "a class has no name"},
        {BYTES("q\0."), "it keeps what is not there"},
        {BYTES("(q\0."), "it keeps what is not there"},
        {BYTES("\x94."), "it keeps what is not there"},
        {BYTES("h\0."), "it fetches what was never kept"},
        {BYTES("Nq\1h\0."), "it fetches what was never kept"},
        {BYTES("Nq\xff."), "a place is none, or far away"},
        {BYTES("Nr\xff\xff\xff\xff."), "a place is none, or far away"},
        {BYTES("Npx\n."), "a place is none, or far away"},
        {BYTES("Np99999999999999999999\n."), "a place is none, or far away"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct pickle_tree t = {0};
        struct error e = {0};
        char *exact = malloc(cases[i].len + 1);

        memcpy(exact, cases[i].data, cases[i].len);
        is_int(pickle_tree_read(exact, cases[i].len, &t, &e), -ERR_FORMAT, "wrong %zu", i);
        like(e.text, cases[i].why, "and why");
        free(exact);
    }
    is_int(pickle_tree_read("", PICKLE_TREE_MAX_BYTES + 1, &(struct pickle_tree){0}, NULL), -EFBIG,
           "one that is too long is not looked at");
}

static void test_looking(void)
{
    static const char data[] = "}(U\1a(K\1K\2tU\1bcm\nC\n)\x81}(U\1xK\5U\1xK\6ubU\1c]K\3a"
                               "U\1dcm\nD\n)\x81N}U\1yK\7s\x86""bu.";
    _pickle_tree_ struct pickle_tree t = {0};
    struct error e = {0};
    const struct pickle_node *b, *d;

    is_int(pickle_tree_read(data, sizeof(data) - 1, &t, &e), 0, "a dict %s", e.text);
    is_int((int)pickle_node_item(pickle_node_value(t.root, "a"), 1)->number, 2,
           "an item of a tuple");
    ok(!pickle_node_item(pickle_node_value(t.root, "a"), 2), "there are no more");
    is_int((int)pickle_node_item(pickle_node_value(t.root, "c"), 0)->number, 3, "of a list");
    ok(!pickle_node_item(t.root, 0) && !pickle_node_item(NULL, 0), "of nothing else");
    ok(!pickle_node_value(t.root, "x") && !pickle_node_value(NULL, "a"), "no such key");
    b = pickle_node_value(t.root, "b");
    is_int((int)pickle_node_field(b, "x")->number, 6, "a field, as it was set last");
    ok(!pickle_node_field(b, "y") && !pickle_node_field(NULL, "x") &&
           !pickle_node_field(t.root, "a"),
       "no such field");
    d = pickle_node_value(t.root, "d");
    is_int((int)pickle_node_field(d, "y")->number, 7, "one in a slot");
    ok(pickle_node_is_class(b->made_by, "m", "C") && pickle_node_is_class(b->made_by, NULL, "C"),
       "its class");
    ok(!pickle_node_is_class(b->made_by, "n", "C") &&
           !pickle_node_is_class(b->made_by, "m", "CC") &&
           !pickle_node_is_class(b, "m", "C") && !pickle_node_is_class(NULL, "m", "C"),
       "no other");
    ok(pickle_node_is_text(t.root->first->node, "a") &&
           !pickle_node_is_text(t.root->first->node, "ab") &&
           !pickle_node_is_text(NULL, "a") && !pickle_node_is_text(t.root, "a"),
       "texts");
}

/* More than fits into one piece of memory, and each node in its place. */
static void test_many(void)
{
    enum { N = 20000 };
    _buf_ struct buf data = {0};
    _pickle_tree_ struct pickle_tree t = {0};
    struct error e = {0};
    int n = 0;

    buf_puts(&data, "](");
    for (int i = 0; i < N; i++) {
        buf_append(&data, (char[]){'M', (char)(i & 0xff), (char)(i >> 8)}, 3);
    }
    buf_puts(&data, "e.");
    is_int(pickle_tree_read(data.data, data.len, &t, &e), 0, "a long list %s", e.text);
    for (const struct pickle_item *i = t.root->first; i && i->node->number == n; i = i->next) {
        n++;
    }
    is_int(n, N, "in its order");
}

int main(void)
{
    test_values();
    test_containers();
    test_objects();
    test_wrong();
    test_looking();
    test_many();
    return tap_done();
}
