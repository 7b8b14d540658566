/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "rendezvous/view.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <string.h>

enum { N = 4 };

static void set(struct view *v, const char *who)
{
    bool in[8] = {0};
    uint32_t n = (uint32_t)strlen(who);

    for (uint32_t i = 0; i < n; i++) {
        in[i] = who[i] == 'x';
    }
    if (view_set(v, in, n) < 0) {
        bail_out("no memory");
    }
}

static void test_members(void)
{
    _view_ struct view v = {.number = 3}, copy = {0};

    set(&v, "x-x-");
    ok(view_has(&v, 0) && !view_has(&v, 1) && view_has(&v, 2) &&
           !view_has(&v, 3) && !view_has(&v, 4), "members, and nobody else");
    is_int(view_copy(&copy, &v), 0, "a copy");
    ok(copy.out != v.out && copy.number == 3 && !view_has(&copy, 3),
       "of its own");
    is_int(view_next_number(3, 2, true), 4, "the arbiter counts views");
    ok(view_next_number(view_next_number(1, 2, false), 1, false) !=
           view_next_number(view_next_number(1, 2, false), 3, false),
       "elsewhere no two ranks have the same number");
}

/* Who could go on, of the members marked x in `in`. */
static void test_sides(void)
{
    static const uint32_t pairs[] = {0, 0, 2, 2};
    static const struct {
        const char *what, *members, *in;
        uint32_t min_nodes;
        const uint32_t *node_of;
        bool shared, majority;
    } cases[] = {
        {"all", "xxxx", "xxxx", 2, NULL, true, true},
        {"enough", "xxxx", "-xx-", 2, NULL, true, false},
        {"too few for the job", "xxxx", "---x", 2, NULL, false, false},
        {"half, with the lowest", "xxxx", "x--x", 1, NULL, true, true},
        {"half, without", "xxxx", "--xx", 1, NULL, true, false},
        {"more than half", "xxxx", "-xxx", 3, NULL, true, true},
        {"the lowest is no member", "-xxx", "-x--", 1, NULL, true, false},
        {"one who is no member", "-xxx", "xx--", 2, NULL, false, false},
        {"agents of a node", "xxxx", "xx--", 1, pairs, true, true},
        {"of halves of nodes", "xxxx", "-xx-", 1, pairs, false, false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _view_ struct view v = {.number = 1};
        struct view_rule rule = {.on = true, .min_nodes = cases[i].min_nodes,
                                 .node_of = cases[i].node_of};
        bool in[N];

        set(&v, cases[i].members);
        for (uint32_t k = 0; k < N; k++) {
            in[k] = cases[i].in[k] == 'x';
        }
        ok(view_may_go_on(&rule, &v, in) == cases[i].majority,
           "%s: where a majority decides", cases[i].what);
        v.shared = true;
        ok(view_may_go_on(&rule, &v, in) == cases[i].shared,
           "%s: where the directory does", cases[i].what);
    }
}

static void test_rivals(void)
{
    static const struct {
        const char *what;
        uint32_t lead, min_nodes;
        const char *dead;
        uint32_t shared, majority;
    } cases[] = {
        {"one is enough", 0, 1, "----", 1, 3},
        {"three are", 0, 3, "----", 3, 3},
        {"all are needed", 0, 4, "----", VIEW_NO_SIDE, 3},
        {"the lowest may be with them", 1, 1, "----", 1, 2},
        {"one is dead", 0, 3, "---x", VIEW_NO_SIDE, VIEW_NO_SIDE},
        {"two are dead", 0, 1, "--xx", 1, VIEW_NO_SIDE},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _view_ struct view v = {.number = 1, .lead = cases[i].lead};
        struct view_rule rule = {.on = true,
                                 .min_nodes = cases[i].min_nodes};
        bool dead[N];

        set(&v, "xxxx");
        for (uint32_t k = 0; k < N; k++) {
            dead[k] = cases[i].dead[k] == 'x';
        }
        is_int(view_rival_size(&rule, &v, dead), cases[i].majority,
               "%s: where a majority decides", cases[i].what);
        v.shared = true;
        is_int(view_rival_size(&rule, &v, dead), cases[i].shared,
               "%s: where the directory does", cases[i].what);
        rule.on = false;
        is_int(view_rival_size(&rule, &v, dead), VIEW_NO_SIDE,
               "%s: and nobody else may lead", cases[i].what);
    }
}

int main(void)
{
    test_members();
    test_sides();
    test_rivals();
    return tap_done();
}
