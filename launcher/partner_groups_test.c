/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of nodes: about as large as asked for, and none with two of a domain. */
#include <config.h>

#include "launcher/partner_groups.h"

#include "ckpt/parity.h"
#include "tests/lib/tap.h"

#include <string.h>

enum { MAX = 256 };

static const struct {
    const char *domains; /* one letter a node */
    unsigned size;
    const char *want, *what; /* one digit a node */
} cases[] = {
    {"", 4, "", "nobody"},
    {"a", 4, "0", "one alone"},
    {"abcd", 4, "0000", "a group"},
    {"abcde", 4, "00000", "one more joins"},
    {"abcdef", 4, "010101", "six are two groups"},
    {"abcdefgh", 4, "01010101", "neighbours are in different ones"},
    {"abc", 8, "000", "fewer than asked for"},
    {"aabbccdd", 4, "01010101", "two agents a host are in two"},
    {"abababab", 8, "00112233", "so they are wherever they are"},
    {"aaaa", 4, "0123", "one host alone has nobody to turn to"},
    {"aaab", 4, "0120", "nor has half of this one"},
    {"bacdefgh", 4, "01010101", "whatever domains are called"},
    {"zzyyxxww", 4, "01010101", "also where two are of each"},
};

static void test_cases(void)
{
    struct partners_node nodes[MAX];
    uint32_t ret[MAX];
    char text[MAX];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint32_t n = (uint32_t)strlen(cases[i].domains);

        for (uint32_t at = 0; at < n; at++) {
            nodes[at] = (struct partners_node){at, (uint32_t)cases[i].domains[at]};
        }
        if (partner_groups(nodes, n, cases[i].size, ret) < 0) {
            bail_out("no memory");
        }
        for (uint32_t at = 0; at < n; at++) {
            text[at] = (char)('0' + ret[at]);
        }
        text[n] = '\0';
        is_str(text, cases[i].want, "%s", cases[i].what);
    }
}

/* Of many nodes, in domains of any sizes. */
static void test_many(void)
{
    struct partners_node nodes[MAX];
    uint32_t ret[MAX], seed = 1, n_twice = 0, n_odd = 0;
    unsigned n_of[MAX];
    int n_groups;

    for (unsigned round = 0; round < 300; round++) {
        uint32_t n = 2 + round % 100;

        for (uint32_t i = 0; i < n; i++) {
            seed = seed * 1103515245 + 12345;
            nodes[i] = (struct partners_node){i * 3, (seed >> 16) % (n / 2 + 1)};
        }
        n_groups = partner_groups(nodes, n, 2 + round % 7, ret);
        memset(n_of, 0, sizeof(n_of));
        for (uint32_t i = 0; i < n; i++) {
            n_of[ret[i]]++;
            for (uint32_t j = 0; j < i; j++) {
                n_twice += ret[i] == ret[j] && nodes[i].domain == nodes[j].domain;
            }
        }
        for (int i = 0; i < n_groups; i++) {
            n_odd += n_of[i] < n / (unsigned)n_groups ||
                     n_of[i] > n / (unsigned)n_groups + 1;
        }
    }
    is_int((int)n_twice, 0, "no group has two of a domain");
    is_int((int)n_odd, 0, "and all are as large as others");
}

/* A set has room for so many, and a node beyond that would be in none. */
static void test_room(void)
{
    struct partners_node nodes[MAX];
    uint32_t ret[MAX], most = 0;

    for (unsigned size = 2; size <= 32; size++) { /* as of checkpoint.partnerGroup */
        for (uint32_t n = 1; n < MAX; n++) {
            unsigned n_of[MAX] = {0};

            for (uint32_t i = 0; i < n; i++) {
                nodes[i] = (struct partners_node){i, i};
            }
            (void)partner_groups(nodes, n, size, ret);
            for (uint32_t i = 0; i < n; i++) {
                most = ++n_of[ret[i]] > most ? n_of[ret[i]] : most;
            }
        }
    }
    ok(most > 32 && most <= PARITY_MAX_MEMBERS, "no group is larger than a set may be: %u",
       most);
}

int main(void)
{
    test_cases();
    test_room();
    test_many();
    return tap_done();
}
