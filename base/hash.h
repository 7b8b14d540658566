/* SPDX-License-Identifier: Apache-2.0 */
/* A quick hash of few bytes, for tables and for telling what is said again: FNV-1a. Who picks
 * the bytes can make any two of them alike. */
#ifndef MUSTER_BASE_HASH_H
#define MUSTER_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Of nothing. */
#define HASH_NONE UINT64_C(14695981039346656037)

/* Of those bytes behind others, of which `hash` is the hash. */
uint64_t hash_bytes(uint64_t hash, const void *data, size_t len);
uint64_t hash_text(uint64_t hash, const char *text);

#endif
