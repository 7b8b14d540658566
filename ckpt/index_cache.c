/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/index_cache.h"

#include <stdlib.h>

bool index_cache_knows(const struct index_cache *c, size_t n, size_t rank,
                       struct digest table)
{
    return c->index && c->n == n && rank < n && digest_equal(c->tables[rank], table);
}

struct index *index_cache_renew(struct index_cache *c, const struct part *parts, size_t n)
{
    return c->index && index_renew(c->index, parts, n) ? c->index : NULL;
}

void index_cache_put(struct index_cache *c, struct index *x, struct digest *tables, size_t n)
{
    index_cache_release(c);
    *c = (struct index_cache){x, n, tables};
}

void index_cache_trim(struct index_cache *c, size_t max_bytes)
{
    size_t len = 0;

    if (c->index) {
        index_bytes(c->index, &len);
    }
    if (len > max_bytes) {
        index_cache_release(c);
    }
}

void index_cache_release(struct index_cache *c)
{
    index_destroy(c->index);
    free(c->tables);
    *c = (struct index_cache){0};
}
