/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of the tree. */
#include <config.h>

#include "base/cleanup.h"
#include "rendezvous/tree_msg.h"
#include "tests/lib/tap.h"

#include <string.h>

/* Frames of the tree that are cut, have a tail, or make no sense. */
static void test_messages(void)
{
    static const struct tree_hello hello = {3, "run", "v", 2};
    struct tree_output o = {.node = 1, .which = 1, .data = "text", .len = 4};
    struct tree_hello h;
    _buf_ struct buf b = {0}, c = {0};
    int n_hellos = 0, n_outputs = 0;

    tree_hello_encode(&hello, &b);
    tree_output_encode(&o, &c);
    is_int(tree_hello_decode(b.data, b.len, &h, NULL), 0, "a hello");
    is_int(tree_output_decode(c.data, c.len, &o), 0, "a piece of output");
    for (size_t len = 0; len < b.len; len++) {
        n_hellos += tree_hello_decode(b.data, len, &h, NULL) == 0;
    }
    for (size_t len = 0; len < c.len; len++) {
        n_outputs += tree_output_decode(c.data, len, &o) == 0;
    }
    is_int(n_hellos + n_outputs, 0, "no part of one is one");
    buf_putc(&b, '\0');
    buf_putc(&c, '\0');
    is_int(tree_hello_decode(b.data, b.len, &h, NULL), -ERR_FORMAT,
           "nor is a hello with a byte too many");
    is_int(tree_output_decode(c.data, c.len, &o), -ERR_FORMAT,
           "nor output with one");
    c.data[12] = 2;
    is_int(tree_output_decode(c.data, c.len - 1, &o), -ERR_FORMAT,
           "nor of a third stream");
}

/* What a subtree has heard: no more are silent than there are. */
static void test_seen(void)
{
    static const struct {
        uint32_t n, n_suspect, n_quiet;
        bool is_good;
    } cases[] = {
        {3, 3, 3, true}, {3, 4, 0, false}, {3, 0, 4, false},
        {TREE_MAX_SEEN, 0, 0, true}, {TREE_MAX_SEEN + 1, 0, 0, false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct tree_seen seen = {.view = 1, .n = cases[i].n,
                                       .n_suspect = cases[i].n_suspect,
                                       .n_quiet = cases[i].n_quiet};
        struct wire_reader r;
        struct tree_seen got;
        _buf_ struct buf b = {0};

        tree_seen_put(&b, &seen);
        r = wire_reader(b.data, b.len);
        tree_seen_get(&r, &got);
        is_int(wire_done(&r), cases[i].is_good, "%u of %u suspect, %u quiet",
               seen.n_suspect, seen.n, seen.n_quiet);
    }
}

static void test_losses(void)
{
    static const struct tree_loss loss = {.dead = true, .quiet_ms = 7, .why = "gone"};
    struct tree_loss got;
    _buf_ struct buf b = {0};

    tree_loss_encode(&loss, &b);
    is_int(tree_loss_decode(b.data, b.len, &got), 0, "a loss");
    ok(got.dead && got.quiet_ms == 7 && strcmp(got.why, "gone") == 0, "as it was");
    is_int(tree_loss_decode(b.data, b.len - 1, &got), -ERR_FORMAT, "one that is cut");
    b.data[0] = 2;
    is_int(tree_loss_decode(b.data, b.len, &got), -ERR_FORMAT,
           "of one who is neither dead nor alive");
}

int main(void)
{
    test_messages();
    test_seen();
    test_losses();
    return tap_done();
}
