/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "spec/shell_line.h"
#include "tests/lib/tap.h"

#include <stdlib.h>
#include <string.h>

/* "a b$ / c": what expands has a $ behind it, / is between commands; NULL where it
 * is not simple. */
static char *read_line(const char *text)
{
    _arena_ struct arena a = {0};
    struct shell_line line;
    struct buf b = {0};

    if (!shell_line_read(&a, text, &line)) {
        return NULL;
    }
    for (size_t i = 0; i < line.n; i++) {
        const struct shell_word *w = &line.words[i];

        buf_printf(&b, "%s%s<%s>%s", i ? " " : "",
                   w->is_first && i ? "/ " : "", w->text,
                   w->expands ? "$" : "");
        if (!strstr(text, w->raw)) {
            ok(false, "%s: %s is not in it", text, w->raw);
        }
    }
    if (!line.words[line.last].is_first ||
        !strstr(text + line.last_at, line.words[line.last].raw)) {
        ok(false, "%s: the last command", text);
    }
    return buf_take(&b);
}

static void test_simple(void)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"a", "<a>"},
        {"  a\tb  \n", "<a> <b>"},
        {"a 'b c' \"d e\" f\\ g", "<a> <b c> <d e> <f g>"},
        {"a'b'\"c\"d ''", "<abcd> <>"},
        {"a \"x\\\"y\\\\z\\q\" '\\'", "<a> <x\"y\\z\\q> <\\>"},
        {"a \\\n  b\\\nc", "<a> <bc>"},
        {"a \"b\\\nc\"", "<a> <bc>"},
        {"a && b;c\nd ;", "<a> / <b> / <c> / <d>"},
        {"a &&\n\n b # no & more > here\n", "<a> / <b>"},
        {"# all\na#b c", "<a#b> <c>"},
        {"$A ${B:-x y} \"$C\" '$D' \\$E", "<$A>$ <${B:-x y}>$ <$C>$ <$D> <$E>"},
        {"a $(b \"c)\" (d)) $((1+2)) $", "<a> <$(b \"c)\" (d))>$ <$((1+2))>$ <$>"},
        {"a \"$(b)\" $1 $@ $$ $?", "<a> <$(b)>$ <$1>$ <$@>$ <$$>$ <$?>$"},
        {"a *.py [x] ~/b {c,d} 'e*' \"f?\"",
         "<a> <*.py>$ <[x]>$ <~/b>$ <{c,d}>$ <e*> <f?>"},
        {"A=1 B='2 3' c a=b~", "<A=1> <B=2 3> <c> <a=b~>"},
        {"echo if done", "<echo> <if> <done>"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _free_ char *got = read_line(cases[i].text);

        is_str(got, cases[i].want, "%s", cases[i].text);
    }
}

static void test_refused(void)
{
    static const char *const cases[] = {
        "", " ", "\n", "#x", "a | b", "a || b", "a & b", "a &", "a > b", "a 2>&1",
        "a < b", "a <<E\nx\nE", "(a)", "a )", "a `b`", "a \"`b`\"", "a 'b", "a \"b",
        "a \"b\\", "a \\", "a $(b", "a ${b", "a $(b 'c)", "a $'b'", "a $\"b\"",
        "a \"$(b\"", ";", "a ;; b", "; a", "&& a", "a ; && b", "a && && b", "a &&",
        "if a; then b; fi", "for x in y; do z; done", "while a; do b; done",
        "! a", "time a", "{ a; }", "f() { a; }", "case x in y) z ;; esac",
        "a && if b; then c; fi", "[[ a ]]",
    };
    _buf_ struct buf b = {0};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _free_ char *got = read_line(cases[i]);

        ok(!got, "not simple: %s", cases[i]);
    }
    for (int i = 0; i <= SHELL_LINE_MAX_WORDS; i++) {
        buf_puts(&b, "a ");
    }
    ok(!read_line(buf_str(&b)), "more words than there may be");
    b.data[b.len - 2] = '\0';
    free(read_line(b.data));
    ok(true, "as many as there may be");
}

/* Every beginning of a text full of everything, and every byte in every place. */
static void test_hostile(void)
{
    static const char all[] = "a 'b' \"c $d ${e} $(f 'g' (h))\" \\i && j;k\n$(( 1 ))";

    for (size_t len = 0; len < sizeof(all); len++) {
        char *cut = strndup(all, len);

        free(read_line(cut));
        free(cut);
    }
    for (size_t at = 0; at < sizeof(all) - 1; at++) {
        for (int c = 1; c < 256; c++) {
            char *odd = strdup(all);

            odd[at] = (char)c;
            free(read_line(odd));
            free(odd);
        }
    }
    ok(true, "nothing is read beyond its end");
}

int main(void)
{
    test_simple();
    test_refused();
    test_hostile();
    return tap_done();
}
