/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "spec/node.h"
#include "tests/lib/tap.h"

#include <string.h>

static const struct place first = {"f", 1, 2}, second = {"f", 3, 4};

static void test_null(void)
{
    static const struct {
        const char *text;
        bool plain, is_null;
    } cases[] = {
        {"", true, true},      {"~", true, true},     {"null", true, true},
        {"Null", true, true},  {"NULL", true, true},  {"nULL", true, false},
        {"none", true, false}, {"", false, false},    {"null", false, false},
        {"~", false, false},   {"0", true, false},
    };
    _arena_ struct arena a = {0};
    struct node *map = node_map(&a, &first);

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct node *n =
            node_scalar(&a, &first, cases[i].text, cases[i].plain);

        node_set(&a, map, "k", n);
        ok(node_is_null(n) == cases[i].is_null, "'%s'%s", cases[i].text,
           cases[i].plain ? "" : " in quotes");
        ok(node_given(map, "k") == (cases[i].is_null ? NULL : n), "given");
    }
    ok(!node_is_null(map) && !node_given(map, "x"), "a map is something");
    ok(!node_given(NULL, "k"), "nothing has nothing");
}

static void test_arena(void)
{
    _arena_ struct arena a = {0};
    char *small = arena_alloc(&a, 10), *next = arena_alloc(&a, 1);

    ok(small && next && next > small && next - small < 64, "small ones");
    ok((uintptr_t)next % sizeof(max_align_t) == 0, "for any type");
    is_int(next[0], 0, "zeroed");
    ok(arena_alloc(&a, 100000) != NULL, "a large one");
    ok(!a.failed && a.total >= 100011, "are counted");
    ok(!arena_alloc(&a, ARENA_MAX), "more than there may be");
    ok(!arena_alloc(&a, 1), "a failure is remembered");
    ok(!node_map(&a, &first), "by all that makes nodes");
}

/* As large as they count, not as they are. */
static void test_weight(void)
{
    _arena_ struct arena a = {0};
    struct node *n = node_scalar(&a, &first, "x", true);

    for (int i = 0; i < 40; i++) {
        struct node *list = node_list(&a, &first);

        node_append(&a, list, n);
        node_append(&a, list, n);
        node_append(&a, list, n);
        if (i == 2) {
            is_int(list->weight, 40, "shared ones count each time");
            is_int(list->height, 3, "levels");
        }
        n = list;
    }
    ok(n->weight == UINT32_MAX, "never around");
    is_int(n->height, 40, "nor do levels end");
}

static void test_places(void)
{
    _arena_ struct arena a = {0};
    struct node *under = node_map(&a, &first), *over = node_map(&a, &second);
    struct node *merged;

    node_add(&a, under, "k", &first, node_scalar(&a, &first, "1", true));
    node_add(&a, under, "m", &first, node_map(&a, &first));
    node_add(&a, over, "k", &second, node_scalar(&a, &second, "2", true));
    merged = node_merge(&a, under, over);
    is_str(merged->pairs[0].value->text, "2", "the upper one counts");
    is_int(merged->pairs[0].place.line, 3, "with its place");
    is_str(under->pairs[0].value->text, "1", "those below stay");
    is_int(merged->n, 2, "what is in one is in both");
    node_set(&a, under, "k", node_scalar(&a, &second, "3", true));
    is_str(under->pairs[0].value->text, "3", "set");
    is_int(under->pairs[0].place.line, 3, "with its place too");
    ok(node_merge(&a, NULL, over) == over && node_merge(&a, under, NULL) == under,
       "one is enough");
}

static void test_paths(void)
{
    _arena_ struct arena a = {0};
    struct node *map = node_map(&a, &first);
    struct node *x = node_scalar(&a, &first, "x", true);

    node_set_path(&a, map, "a.b.c", x);
    ok(node_get_path(map, "a.b.c") == x, "maps are made");
    node_set_path(&a, map, "a.b.c.d", x);
    ok(node_get_path(map, "a.b.c.d") == x, "in place of text");
    node_set_path(&a, map, "labels.a.b/c", x);
    ok(node_get(node_get(map, "labels"), "a.b/c") == x, "names with dots");
    ok(!node_get_path(map, "a.x.c") && !node_get_path(map, "x"), "nothing");
    node_set_path(&a, map, "search.parameters.l.r", x);
    ok(node_get(node_get_path(map, "search.parameters"), "l.r") == x,
       "of parameters too");
}

int main(void)
{
    test_null();
    test_arena();
    test_weight();
    test_places();
    test_paths();
    return tap_done();
}
