/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC-64 as in xz (polynomial 0x42f0e1eba9ea3693, reflected). It finds damage,
 * not malice.
 */
#ifndef CHARLM_DIGEST_H
#define CHARLM_DIGEST_H

#include <stddef.h>
#include <stdint.h>

uint64_t digest_of(const void *data, size_t len);

#endif
