/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of the tree. */
#include <config.h>

#include "base/cleanup.h"
#include "rendezvous/tree_msg.h"
#include "tests/lib/tap.h"

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

int main(void)
{
    test_messages();
    return tap_done();
}
