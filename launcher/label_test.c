/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "launcher/label.h"
#include "tests/lib/tap.h"

/* Two nodes of three workers each. */
static struct run_status *make_status(void)
{
    struct run_status *s = run_status_create();

    if (!s || run_status_set_nodes(s, 2) < 0 ||
        run_status_set_workers(s, 6) < 0) {
        bail_out("no memory");
    }
    for (int i = 0; i < 6; i++) {
        s->workers[i].node = i / 3;
    }
    str_copy(s->nodes[1].host, sizeof(s->nodes[1].host), "n1");
    return s;
}

static void test_label(void)
{
    static const struct {
        const char *prefix, *with, *without;
    } cases[] = {
        {"rank", "[5] ", "[5] "},
        {"host", "[n1:5] ", "[?:5] "},
        {"none", "", ""},
        {"{local_rank}/{node} ", "2/1 ", "?/1 "},
        {"{stream} {run}.{generation}: ", "stderr tiny.4: ",
         "stderr tiny.4: "},
        {"{time} ", "2026-11-22T00:00:01.250Z ", "2026-11-22T00:00:01.250Z "},
    };
    _cleanup_(run_status) struct run_status *s = make_status();

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct label l = {.prefix = cases[i].prefix, .run = "tiny",
                          .wall_ns = UINT64_C(1795305601250000000),
                          .generation = 4, .node = 1, .rank = 5,
                          .is_err = true};
        _buf_ struct buf without = {0}, with = {0};

        label_write(&l, &without);
        is_str(buf_str(&without), cases[i].without, "%s before a status",
               l.prefix);
        l.status = s;
        label_write(&l, &with);
        is_str(buf_str(&with), cases[i].with, "%s with one", l.prefix);
    }
}

static void test_set(void)
{
    static const struct {
        const char *prefix, *one_node, *many;
    } cases[] = {
        {"rank", "[0,3-5] ", "[0,3-5] "},
        {"host", "[n1:0,3-5] ", "[*:0,3-5] "},
        {"none", "(x4) ", "(x4) "},
        {"{node}.{local_rank}: ", "1.*: (x4) ", "*.*: (x4) "},
    };
    _cleanup_(run_status) struct run_status *s = make_status();

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct label l = {.prefix = cases[i].prefix, .run = "tiny",
                          .status = s, .node = 1, .rank = 5,
                          .ranks = "0,3-5", .n_ranks = 4};
        _buf_ struct buf one = {0}, many = {0};

        label_write(&l, &one);
        is_str(buf_str(&one), cases[i].one_node, "%s of a set", l.prefix);
        l.has_many_nodes = true;
        label_write(&l, &many);
        is_str(buf_str(&many), cases[i].many, "%s of many nodes", l.prefix);
    }
}

int main(void)
{
    test_label();
    test_set();
    return tap_done();
}
