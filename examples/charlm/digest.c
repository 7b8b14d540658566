/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "digest.h"

/* The polynomial with its bits in reverse. */
static const uint64_t polynomial = 0xc96c5795d7870f42;

uint64_t digest_of(const void *data, size_t len)
{
    const uint8_t *byte = data;
    uint64_t table[256];
    uint64_t crc = ~UINT64_C(0);

    for (uint64_t i = 0; i < 256; i++) {
        uint64_t value = i;

        for (int bit = 0; bit < 8; bit++) {
            value = value & 1 ? (value >> 1) ^ polynomial : value >> 1;
        }
        table[i] = value;
    }
    for (size_t i = 0; i < len; i++) {
        crc = table[(crc ^ byte[i]) & 0xff] ^ (crc >> 8);
    }
    return ~crc;
}
