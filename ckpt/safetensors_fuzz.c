/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a safetensors file. What is taken can be written again, and reads
 * as the same tensors then.
 */
#include <config.h>

#include "ckpt/safetensors.h"
#include "tests/lib/fuzz.h"

#include <stdlib.h>
#include <string.h>

static bool read_file(const void *data, uint64_t size, struct st_file *ret)
{
    uint64_t n;

    return size >= ST_PREFIX_BYTES &&
           st_header_bytes(data, size, &n, NULL) == 0 &&
           st_read((const char *)data + ST_PREFIX_BYTES, n, size, ret,
                   NULL) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    _st_file_ struct st_file f = {0}, again = {0};
    _buf_ struct buf b = {0};
    uint64_t bytes;

    if (!read_file(data, size, &f)) {
        return 0;
    }
    bytes = st_file_bytes(&f);
    expect(bytes == size);
    expect(st_write(&f, 8, &b, NULL) == 0);
    bytes = st_file_bytes(&f);
    expect(buf_reserve(&b, bytes - f.data_at + 1) != NULL);
    expect(read_file(b.data, bytes, &again));
    expect(again.n_tensors == f.n_tensors && again.n_meta == f.n_meta);
    for (size_t i = 0; i < f.n_tensors; i++) {
        expect(again.tensors[i].begin == f.tensors[i].begin &&
               again.tensors[i].end == f.tensors[i].end);
    }
    return 0;
}
