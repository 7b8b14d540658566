/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a run configuration: what decodes can be encoded, and is then the
 * same again. */
#include <config.h>

#include "base/cleanup.h"
#include "launcher/run_config.h"
#include "tests/lib/fuzz.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    _run_config_ struct run_config c = {0}, again = {0};
    _buf_ struct buf a = {0}, b = {0};
    struct error e = {0};

    if (run_config_decode(data, size, &c, &e) < 0) {
        expect(e.text[0] && !c.job);
        return 0;
    }
    run_config_encode(&c, &a);
    expect(!a.failed);
    expect(run_config_decode(a.data, a.len, &again, &e) == 0);
    run_config_encode(&again, &b);
    expect(a.len == b.len && memcmp(a.data, b.data, a.len) == 0);
    return 0;
}
