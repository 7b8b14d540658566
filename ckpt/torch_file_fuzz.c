/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a file of torch.save, and as a pickle. */
#include <config.h>

#include "ckpt/bytes_io.h"
#include "ckpt/pickle.h"
#include "ckpt/torch_file.h"
#include "ckpt/zip.h"
#include "tests/lib/fuzz.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes_io b = bytes_io(data, size);
    struct torch_file facts = {0};
    _zip_ struct zip z = {0};
    size_t len = 0;

    if (zip_read(&b.io, 0, &z, NULL) == 0) {
        for (size_t i = 0; i < z.n; i++) {
            expect(z.entries[i].begin <= z.entries[i].end &&
                   z.entries[i].end <= size);
        }
    }
    if (torch_file_check(&b.io, 0, true, &facts, NULL) == 0) {
        expect(facts.bytes <= size);
    }
    if (pickle_check(data, size, &len, NULL) == 0) {
        expect(len <= size && data[len - 1] == '.');
    }
    return 0;
}
