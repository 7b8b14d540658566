/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as manifest.json. What is taken keeps what manifest.h says, and encodes to
 * a manifest that says the same.
 */
#include <config.h>

#include "base/cleanup.h"
#include "ckpt/manifest.h"
#include "tests/lib/fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    _manifest_ struct manifest m = {0}, again = {0};
    _buf_ struct buf b = {0}, same = {0};

    if (manifest_decode(data, size, &m, NULL) < 0) {
        return 0;
    }
    expect(m.n_files <= MANIFEST_MAX_FILES && m.index < m.n_files);
    for (size_t i = 0; i < m.n_files; i++) {
        expect(manifest_is_name(m.files[i].name));
    }
    for (size_t i = 0; i < m.n_blobs; i++) {
        expect(m.blobs[i].name && m.blobs[i].n > 0);
    }
    expect(manifest_encode(&m, &b, NULL) == 0);
    expect(manifest_decode(b.data, b.len, &again, NULL) == 0);
    expect(again.n_files == m.n_files && again.n_blobs == m.n_blobs);
    expect(manifest_encode(&again, &same, NULL) == 0);
    expect(same.len == b.len && memcmp(same.data, b.data, b.len) == 0);
    return 0;
}
