/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a status.json. What is taken can be written, read again, and is
 * then the same. */
#include <config.h>

#include "launcher/status.h"
#include "tests/lib/fuzz.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    _cleanup_(run_status) struct run_status *s = NULL, *back = NULL;
    _buf_ struct buf a = {0}, b = {0};
    struct error e = {0};

    if (run_status_from_json((const char *)data, size, &s, &e) < 0) {
        expect(e.text[0] && !s);
        return 0;
    }
    run_status_to_json(s, &a);
    expect(!a.failed);
    expect(run_status_from_json(a.data, a.len, &back, &e) == 0);
    run_status_to_json(back, &b);
    expect(a.len == b.len && memcmp(a.data, b.data, a.len) == 0);
    return 0;
}
