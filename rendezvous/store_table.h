/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keys of a store. A slot is there as long as its key has a value, a queue
 * with something in it, or somebody who waits for either. The hash is keyed, so
 * that no choice of keys makes the table slow. `used_bytes` counts what the
 * slots hold; the caller bounds it.
 */
#ifndef MUSTER_RENDEZVOUS_STORE_TABLE_H
#define MUSTER_RENDEZVOUS_STORE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kept;
struct share;
struct slot;
struct store_conn;

/* One awaited key of a connection; the connection owns it. */
struct wait {
    struct slot *slot; /* NULL once it is answered */
    struct store_conn *conn;
    struct wait *prev;
    struct wait *next;
};

struct item {
    struct item *next;
    size_t len;
    char data[];
};

struct slot {
    struct slot *next; /* in its bucket */
    uint64_t hash;
    size_t key_len; /* here, where a look-up reads */
    bool has_value;
    char *value;
    size_t value_len;
    size_t value_cap;
    struct item *items; /* the queue, oldest first */
    struct item *last_item;
    size_t n_items;
    struct wait *waits; /* in the order in which they began */
    struct wait *last_wait;
    union { /* what of it trunks keep (store_share.h); the slot stays meanwhile */
        struct share *share;
        struct kept *kept;
    };
    uint8_t n_changes; /* while it was kept */
    char key[];
};

struct table {
    uint8_t seed[16];
    struct slot **buckets;
    /* Of each bucket a bit for each slot that has been in it since it was empty,
     * by its hash: these lie close together, and a new key most often needs no
     * look at bucket and slots, which do not. */
    uint16_t *marks;
    size_t n_buckets; /* a power of two */
    size_t n_slots;
    size_t n_values;
    size_t used_bytes;
};

/* False without memory. */
bool table_init(struct table *t, const uint8_t seed[16]);
void table_release(struct table *t);

/* Forgets all slots; those who wait are told nothing. */
void table_clear(struct table *t);

struct slot *table_find(const struct table *t, const char *key, size_t len);

/* Finds or makes. NULL without memory. */
struct slot *table_get(struct table *t, const char *key, size_t len);

/* Frees a slot that has nothing more. */
void table_tidy(struct table *t, struct slot *slot);

/* Each returns false, and changes nothing, without memory. */
bool slot_set(struct table *t, struct slot *slot, const char *data, size_t len);
bool slot_append(struct table *t, struct slot *slot, const char *data,
                 size_t len);
bool slot_push(struct table *t, struct slot *slot, const char *data,
               size_t len);

void slot_unset(struct table *t, struct slot *slot);
/* The oldest of the queue, to be freed by the caller, or NULL. */
struct item *slot_pop(struct table *t, struct slot *slot);

void slot_add_wait(struct table *t, struct slot *slot, struct wait *w);
void slot_remove_wait(struct table *t, struct wait *w);

#endif
