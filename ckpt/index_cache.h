/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index of the save before. A program saves the same pieces in the same places time and
 * again, and then all that the next index has of its own are digests: of 10^5 tensors it is
 * there in no time, and not in 10 ms, for which whoever waits for the save would wait.
 * As long as it stays it takes the memory of that index.
 *
 * For one thread at a time.
 */
#ifndef MUSTER_CKPT_INDEX_CACHE_H
#define MUSTER_CKPT_INDEX_CACHE_H

#include "ckpt/digest.h"
#include "ckpt/index.h"
#include "ckpt/part.h"

#include <stdbool.h>
#include <stddef.h>

enum { INDEX_CACHE_MAX_BYTES = 128 << 20 }; /* as index_bytes() says */

struct index_cache {
    struct index *index; /* NULL: there is none */
    size_t n;
    struct digest *tables; /* of the parts that it was made of (part_decode_brief()) */
};

/* Whether it was made of `n` parts, of which that one had this table. */
bool index_cache_knows(const struct index_cache *c, size_t n, size_t rank,
                       struct digest table);

/* That of parts of which it knows each: the same one with their digests. It stays the cache's.
 * NULL: they are of other files. */
struct index *index_cache_renew(struct index_cache *c, const struct part *parts, size_t n);

/* Another one in its place, of parts with these `n` tables; takes both. */
void index_cache_put(struct index_cache *c, struct index *x, struct digest *tables, size_t n);

/* One that takes more goes. */
void index_cache_trim(struct index_cache *c, size_t max_bytes);
void index_cache_release(struct index_cache *c);
#define _index_cache_ __attribute__((cleanup(index_cache_release)))

#endif
