/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pairs of nodes: of different domains whenever there are two, three in a circle, the
 * same for everybody, and near to each other's places as nodes are lost and come.
 */
#include <config.h>

#include "launcher/partners.h"

#include "tests/lib/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX = 64 };

/* "place:domain ..." to "place>place ...": whose copies are where. */
static void partners_text(const char *from, char *to, size_t size)
{
    struct partners_node nodes[MAX];
    uint32_t ret[MAX], n = 0;
    size_t at = 0;

    for (int len; sscanf(from, "%u:%u %n", &nodes[n].place, &nodes[n].domain,
                         &len) == 2; from += len) {
        n++;
    }
    if (partners_find(nodes, n, ret) < 0) {
        bail_out("no memory");
    }
    to[0] = '\0';
    for (uint32_t i = 0; i < n; i++) {
        at += (size_t)(ret[i] == PARTNERS_NONE
                           ? snprintf(to + at, size - at, "%u>- ", nodes[i].place)
                           : snprintf(to + at, size - at, "%u>%u ",
                                      nodes[i].place, nodes[ret[i]].place));
    }
}

static const struct {
    const char *nodes, *want, *what;
} cases[] = {
    {"", "", "nobody"},
    {"3:0 ", "3>- ", "one alone has none"},
    {"0:0 1:1 ", "0>1 1>0 ", "two"},
    {"0:0 1:0 ", "0>- 1>- ", "of one host: none"},
    {"0:0 1:1 2:2 ", "0>1 1>2 2>0 ", "three, in a circle"},
    {"0:0 1:1 2:2 3:3 ", "0>1 1>0 2>3 3>2 ", "four, in pairs"},
    {"0:0 1:1 2:2 3:3 4:4 ", "0>1 1>0 2>3 3>4 4>2 ", "five"},
    {"0:0 2:2 3:3 ", "0>2 2>3 3>0 ", "one of four is lost"},
    {"0:0 1:1 2:2 4:4 ", "0>1 1>0 2>4 4>2 ", "a spare in its place: one pair is new"},
    {"0:0 1:0 2:1 3:1 ", "0>2 1>3 2>0 3>1 ", "two agents a host"},
    {"0:0 1:0 2:1 ", "0>2 1>2 2>0 ", "one host keeps copies of two"},
    {"0:0 1:0 2:0 3:1 4:2 5:3 ", "0>4 1>5 2>3 3>2 4>5 5>0 ", "half on one host"},
};

static void test_cases(void)
{
    char text[1024];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        partners_text(cases[i].nodes, text, sizeof(text));
        is_str(text, cases[i].want, "%s", cases[i].what);
    }
}

/* Whatever nodes there are: a partner is of another domain, and everybody has one
 * where there is another domain. */
static void test_any(void)
{
    int n_wrong = 0;

    for (unsigned seed = 0; seed < 20000; seed++) {
        struct partners_node nodes[MAX];
        uint32_t ret[MAX], n = 0, n_domains;
        unsigned at = seed;

        n_domains = 1 + (unsigned)rand_r(&at) % 9;
        for (uint32_t place = 0; n < MAX && place < 70; place++) {
            if (rand_r(&at) % 3) {
                nodes[n++] = (struct partners_node){
                    place, (uint32_t)rand_r(&at) % n_domains};
            }
        }
        n_wrong += partners_find(nodes, n, ret) < 0;
        for (uint32_t i = 0; i < n; i++) {
            int others = 0;

            for (uint32_t k = 0; k < n; k++) {
                others += nodes[k].domain != nodes[i].domain;
            }
            n_wrong += ret[i] == PARTNERS_NONE
                           ? others > 0
                           : ret[i] >= n ||
                                 nodes[ret[i]].domain == nodes[i].domain;
        }
    }
    is_int(n_wrong, 0, "20000 runs: of another domain, wherever there is one");
}

int main(void)
{
    test_cases();
    test_any();
    return tap_done();
}
