/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "launcher/slots.h"
#include "tests/lib/tap.h"

#include <string.h>

static void test_list(void)
{
    static const bool absent[] = {false, true, false};
    _host_list_ struct host_list hosts = {0};
    _strlist_ struct strlist l = {0}, none = {0};

    hosts_parse("a:1,b:2,c", &hosts, NULL);
    slots_list(&hosts, NULL, &l);
    ok(l.n == 3 && strcmp(l.items[0], "a:1") == 0 &&
       strcmp(l.items[2], "c") == 0, "as the list has them");
    strlist_release(&l);
    l = (struct strlist){0};
    slots_list(&hosts, absent, &l);
    ok(l.n == 3 && strcmp(l.items[0], "a:1") == 0 &&
       strcmp(l.items[1], "c") == 0 && strcmp(l.items[2], "b:2") == 0,
       "those that are not there come last");
    host_list_release(&hosts);
    hosts_parse("a,b", &hosts, NULL);
    slots_list(&hosts, NULL, &none);
    is_int(none.n, 0, "no slots, no list");
}

int main(void)
{
    static const char *const items[] = {"n1:1", "n2.example:2", "10.0.0.3:3",
                                        "alias:4", "n5", "n6:x",
                                        "n7:99999999999"};
    _strlist_ struct strlist list = {0}, addrs = {0};
    static const struct {
        const char *what, *host, *slurm_name;
        bool has_addrs;
        size_t place;
        int want; /* -1: not in the list */
    } cases[] = {
        {"by its name", "n1", NULL, false, 9, 1},
        {"whatever its place", "n1", NULL, false, 1, 1},
        {"by the short one of a longer one", "n1.example", NULL, false, 9, 1},
        {"by the longer one of a short one", "n2", NULL, false, 9, 2},
        {"not by that of another domain", "n2.elsewhere", NULL, false, 9, -1},
        {"not by its beginning", "n", NULL, false, 9, -1},
        {"not by a part of an address", "10", NULL, false, 9, -1},
        {"by its address", "other", NULL, true, 9, 3},
        {"by Slurm's name", "other", "n2", false, 9, 2},
        {"by its place", "other", NULL, false, 3, 4},
        {"one without slots", "n5", NULL, false, 0, 0},
        {"no number", "n6", NULL, false, 0, 0},
        {"too many", "n7", NULL, false, 0, 0},
        {"not at all", "other", NULL, false, 7, -1},
        {"without a name", "", "", false, 9, -1},
    };

    test_list();
    for (size_t i = 0; i < ARRAY_SIZE(items); i++) {
        strlist_add(&list, items[i]);
    }
    strlist_add(&addrs, "fd00::3");
    strlist_add(&addrs, "10.0.0.3");
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct slots_self self = {cases[i].host, cases[i].slurm_name,
                                  cases[i].has_addrs ? &addrs : NULL,
                                  cases[i].place};
        uint32_t n = 77;
        bool found = slots_find(&list, &self, &n);

        is_int(found ? (int)n : -1, cases[i].want, "%s", cases[i].what);
    }
    return tap_done();
}
