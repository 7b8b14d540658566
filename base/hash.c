/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/hash.h"

#include <string.h>

uint64_t hash_bytes(uint64_t hash, const void *data, size_t len)
{
    const uint8_t *bytes = data;

    for (size_t i = 0; i < len; i++) {
        hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
    }
    return hash;
}

uint64_t hash_text(uint64_t hash, const char *text)
{
    return hash_bytes(hash, text, strlen(text));
}
