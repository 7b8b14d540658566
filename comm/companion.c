/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "comm/companion.h"

#include "base/wire.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void companion_claim(char *to, size_t size, const char *run_id,
                     uint64_t epoch)
{
    snprintf(to, size, "muster companion of %s in world %" PRIu64, run_id,
             epoch);
}

void companion_hello_encode(const struct companion_hello *h, struct buf *b)
{
    wire_put_u16(b, h->version);
    wire_put_u64(b, h->epoch);
    wire_put_str(b, h->muster_version);
    wire_put_bytes(b, h->proof, sizeof(h->proof));
}

int companion_hello_decode(const struct buf *b, struct companion_hello *ret)
{
    struct wire_reader r = wire_reader(b->data, b->len);
    const void *proof;
    size_t len;

    ret->version = wire_get_u16(&r);
    ret->epoch = wire_get_u64(&r);
    wire_get_str(&r, ret->muster_version, sizeof(ret->muster_version));
    proof = wire_get_bytes(&r, sizeof(ret->proof), &len);
    if (!proof || len != sizeof(ret->proof)) {
        return -ERR_FORMAT;
    }
    memcpy(ret->proof, proof, len);
    return wire_done(&r) ? 0 : -ERR_FORMAT;
}

void companion_info_encode(const struct companion_place *place,
                           const struct buf *entry, struct buf *b)
{
    wire_put_u32(b, place->rank);
    wire_put_u32(b, place->n_known);
    wire_put_bytes(b, entry->data, entry->len);
}

int companion_info_decode(const struct buf *b, struct companion_place *ret,
                          const void **ret_entry, size_t *ret_len)
{
    struct wire_reader r = wire_reader(b->data, b->len);

    ret->rank = wire_get_u32(&r);
    ret->n_known = wire_get_u32(&r);
    *ret_entry = wire_get_bytes(&r, b->len, ret_len);
    return wire_done(&r) ? 0 : -ERR_FORMAT;
}

void companion_world_encode(const struct companion_world *w, struct buf *b)
{
    const struct companion_run *run = &w->run;

    /* At once: one that grows leaves the key behind, where it was. */
    buf_reserve(b, sizeof(*w) + 256);
    wire_put_u64(b, w->epoch);
    wire_put_u32(b, w->mpi_rank);
    wire_put_str(b, run->id);
    wire_put_str(b, run->dir);
    wire_put_bytes(b, run->key, sizeof(run->key));
    wire_put_u8(b, run->agent_is_node);
    wire_put_u8(b, run->loopback);
    wire_put_u8(b, run->has_front);
    for (size_t i = 0; i < COMPANION_MAX_FRONT; i++) {
        wire_put_str(b, run->front_addrs[i]);
    }
    wire_put_u16(b, run->front_port);
}

int companion_world_decode(const struct buf *b, struct companion_world *ret)
{
    struct wire_reader r = wire_reader(b->data, b->len);
    struct companion_run *run = &ret->run;
    const void *key;
    size_t len;

    ret->epoch = wire_get_u64(&r);
    ret->mpi_rank = wire_get_u32(&r);
    wire_get_str(&r, run->id, sizeof(run->id));
    wire_get_str(&r, run->dir, sizeof(run->dir));
    key = wire_get_bytes(&r, sizeof(run->key), &len);
    if (!key || len != sizeof(run->key)) {
        return -ERR_FORMAT;
    }
    memcpy(run->key, key, len);
    run->agent_is_node = wire_get_u8(&r);
    run->loopback = wire_get_u8(&r);
    run->has_front = wire_get_u8(&r);
    for (size_t i = 0; i < COMPANION_MAX_FRONT; i++) {
        wire_get_str(&r, run->front_addrs[i], sizeof(run->front_addrs[i]));
    }
    run->front_port = wire_get_u16(&r);
    return wire_done(&r) ? 0 : -ERR_FORMAT;
}

void companion_attach_encode(const struct companion_attach *a, struct buf *b)
{
    wire_put_u32(b, a->tag);
    wire_put_u32(b, a->n_members);
    for (uint32_t i = 0; i < a->n_members; i++) {
        wire_put_u32(b, a->members[i]);
    }
}

int companion_attach_decode(const struct buf *b, struct companion_attach *ret)
{
    struct wire_reader r = wire_reader(b->data, b->len);
    uint32_t tag = wire_get_u32(&r), n = wire_get_u32(&r);
    uint32_t *members;

    if (r.bad || n == 0 || n != (b->len - r.at) / 4) {
        return -ERR_FORMAT;
    }
    members = calloc(n, sizeof(*members));
    if (!members) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < n; i++) {
        members[i] = wire_get_u32(&r);
    }
    if (!wire_done(&r)) {
        free(members);
        return -ERR_FORMAT;
    }
    *ret = (struct companion_attach){tag, n, members};
    return 0;
}

void companion_outcome_encode(const struct companion_outcome *o,
                              struct buf *b)
{
    wire_put_u32(b, o->tag);
    wire_put_u8(b, o->status);
    wire_put_u8(b, o->ok);
    wire_put_str(b, o->text);
}

int companion_outcome_decode(const struct buf *b,
                             struct companion_outcome *ret)
{
    struct wire_reader r = wire_reader(b->data, b->len);

    ret->tag = wire_get_u32(&r);
    ret->status = wire_get_u8(&r);
    ret->ok = wire_get_u8(&r);
    wire_get_str(&r, ret->text, sizeof(ret->text));
    return wire_done(&r) ? 0 : -ERR_FORMAT;
}
