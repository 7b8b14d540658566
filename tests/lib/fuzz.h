/* SPDX-License-Identifier: Apache-2.0 */
/* What all fuzz targets have: their entry, and what is to hold whatever comes. */
#ifndef MUSTER_TESTS_LIB_FUZZ_H
#define MUSTER_TESTS_LIB_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void expect(bool fact)
{
    if (!fact) {
        abort();
    }
}

#endif
