/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keys of a rendezvous over HTTP, as Horovod's gloo uses one: values under
 * SCOPE/KEY, which are set, read until they are there, and in the end finished
 * with. Every process of a scope sets a key before anybody can be done with it,
 * and says so by removing its own. Others may still be reading that key: so a key
 * is only marked, and the scope goes with the last of them.
 *
 * Pure: no sockets, no clock. Memory is bounded by the limits.
 */
#ifndef MUSTER_RENDEZVOUS_KV_H
#define MUSTER_RENDEZVOUS_KV_H

#include "base/cleanup.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zero means the default. */
struct kv_limits {
    size_t path_bytes;   /* SCOPE/KEY: 512 */
    size_t value_bytes;  /* one value: 4 MiB */
    size_t memory_bytes; /* all of it together: 1 GiB */
};

/* Bytes that live as long as somebody holds them. */
struct kv_value {
    unsigned n_refs;
    size_t len;
    char data[];
};

struct kv;

/* `seed` keys the hash table: random bytes in production. NULL without
 * memory. */
struct kv *kv_create(const struct kv_limits *limits, const uint8_t seed[16]);
void kv_destroy(struct kv *kv);
DEFINE_CLEANUP(kv);

/* Whether a path is SCOPE/KEY, within its limit. */
bool kv_is_path(const struct kv *kv, const char *path);

/* -EINVAL: no path; -EFBIG: too large a value; -ENOMEM: too much together, or no
 * memory. */
int kv_put(struct kv *kv, const char *path, const void *data, size_t len);

/* With a reference for the caller; NULL: nothing there. */
struct kv_value *kv_get(struct kv *kv, const char *path);
void kv_value_unref(struct kv_value *v);

/* Done with a key, which may be none. */
void kv_finish(struct kv *kv, const char *path);

size_t kv_n_keys(const struct kv *kv);
size_t kv_used_bytes(const struct kv *kv);
const struct kv_limits *kv_limits(const struct kv *kv);

#endif
