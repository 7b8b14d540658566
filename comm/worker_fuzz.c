/* SPDX-License-Identifier: Apache-2.0 */
/* The worker socket's bytes, from either side: whatever decodes must encode to
 * the same bytes again. */
#include <config.h>

#include "comm/worker_proto.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_frame(const uint8_t *frame, size_t len)
{
    _buf_ struct buf again = {0};
    struct worker_msg m;
    struct error e;

    if (worker_msg_decode(frame, len, &m, &e) < 0 ||
        m.type == WORKER_UNKNOWN ||
        (m.type == WORKER_HELLO && m.hello.version != WORKER_PROTO_VERSION)) {
        return;
    }
    worker_msg_encode(&again, &m);
    if (again.failed || again.len != len ||
        memcmp(again.data, frame, len) != 0) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error e;
    size_t len;

    while (worker_frame_next(data, size, &len, &e) == 1) {
        if (len > size) {
            abort();
        }
        check_frame(data, len);
        data += len;
        size -= len;
    }
    return 0;
}
