/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a hello or a piece of output of the control tree: what decodes
 * encodes to the same bytes. */
#include <config.h>

#include "base/cleanup.h"
#include "rendezvous/tree_msg.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect_same(const struct buf *b, const uint8_t *data, size_t size)
{
    if (b->failed || b->len != size || memcmp(b->data, data, size) != 0) {
        abort();
    }
}

static void try_hello(const uint8_t *data, size_t size)
{
    struct tree_hello h;
    _buf_ struct buf b = {0};

    if (tree_hello_decode(data, size, &h, NULL) == 0) {
        tree_hello_encode(&h, &b);
        expect_same(&b, data, size);
    }
}

static void try_output(const uint8_t *data, size_t size)
{
    struct tree_output o;
    _buf_ struct buf b = {0};

    if (tree_output_decode(data, size, &o) == 0) {
        tree_output_encode(&o, &b);
        expect_same(&b, data, size);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 0) {
        (data[0] & 1 ? try_output : try_hello)(data + 1, size - 1);
    }
    return 0;
}
