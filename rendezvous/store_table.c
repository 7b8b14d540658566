/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/store_table.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_BUCKETS 64
#define GROWTH 2 /* to between 3/8 and 3/4 of a slot in a bucket */

_Static_assert(crypto_shorthash_KEYBYTES == 16, "the seed is a SipHash key");

static uint64_t hash_key(const struct table *t, const char *key, size_t len)
{
    uint64_t hash;

    crypto_shorthash((unsigned char *)&hash, (const unsigned char *)key, len,
                     t->seed);
    return hash;
}

static bool make_buckets(struct table *t, size_t n)
{
    t->n_buckets = n;
    t->buckets = calloc(n, sizeof(struct slot *));
    t->marks = calloc(n, sizeof(*t->marks));
    if (!t->buckets || !t->marks) {
        free(t->buckets);
        free(t->marks);
        t->buckets = NULL;
        t->marks = NULL;
    }
    return t->buckets != NULL;
}

bool table_init(struct table *t, const uint8_t seed[16])
{
    *t = (struct table){0};
    memcpy(t->seed, seed, sizeof(t->seed));
    return make_buckets(t, FIRST_BUCKETS);
}

static void free_slot(struct table *t, struct slot *slot)
{
    struct item *item;

    slot_unset(t, slot);
    while ((item = slot_pop(t, slot)) != NULL) {
        free(item);
    }
    while (slot->waits) {
        slot_remove_wait(t, slot->waits);
    }
    t->used_bytes -= sizeof(*slot) + slot->key_len;
    t->n_slots--;
    free(slot);
}

void table_clear(struct table *t)
{
    for (size_t i = 0; i < t->n_buckets; i++) {
        while (t->buckets[i]) {
            struct slot *slot = t->buckets[i];

            t->buckets[i] = slot->next;
            free_slot(t, slot);
        }
        t->marks[i] = 0;
    }
}

void table_release(struct table *t)
{
    if (t->buckets) {
        table_clear(t);
        free(t->buckets);
        free(t->marks);
        t->buckets = NULL;
        t->marks = NULL;
    }
}

static size_t bucket_of(const struct table *t, uint64_t hash)
{
    return hash & (t->n_buckets - 1);
}

/* By the end of the hash that picks no bucket. */
static uint16_t mark_of(uint64_t hash)
{
    return (uint16_t)(1u << (hash >> 60));
}

static void add_to_bucket(const struct table *t, struct slot *slot)
{
    size_t b = bucket_of(t, slot->hash);

    slot->next = t->marks[b] ? t->buckets[b] : NULL;
    t->buckets[b] = slot;
    t->marks[b] |= mark_of(slot->hash);
}

static struct slot *find(const struct table *t, uint64_t hash, const char *key,
                         size_t len)
{
    size_t b = bucket_of(t, hash);
    struct slot *slot = t->marks[b] & mark_of(hash) ? t->buckets[b] : NULL;

    while (slot && (slot->hash != hash || slot->key_len != len ||
                    memcmp(slot->key, key, len) != 0)) {
        slot = slot->next;
    }
    return slot;
}

struct slot *table_find(const struct table *t, const char *key, size_t len)
{
    return find(t, hash_key(t, key, len), key, len);
}

/* Without memory the table stays as it is, only slower. */
static void grow(struct table *t)
{
    struct table bigger = *t;

    if (!make_buckets(&bigger, t->n_buckets * GROWTH)) {
        return;
    }
    for (size_t i = 0; i < t->n_buckets; i++) {
        while (t->buckets[i]) {
            struct slot *slot = t->buckets[i];

            t->buckets[i] = slot->next;
            add_to_bucket(&bigger, slot);
        }
    }
    free(t->buckets);
    free(t->marks);
    *t = bigger;
}

struct slot *table_get(struct table *t, const char *key, size_t len)
{
    uint64_t hash = hash_key(t, key, len);
    struct slot *slot = find(t, hash, key, len);

    if (slot) {
        return slot;
    }
    slot = calloc(1, sizeof(*slot) + len);
    if (!slot) {
        return NULL;
    }
    slot->hash = hash;
    slot->key_len = len;
    memcpy(slot->key, key, len);
    if (t->n_slots >= t->n_buckets / 4 * 3) {
        grow(t);
    }
    add_to_bucket(t, slot);
    t->n_slots++;
    t->used_bytes += sizeof(*slot) + len;
    return slot;
}

void table_tidy(struct table *t, struct slot *slot)
{
    size_t b = bucket_of(t, slot->hash);
    struct slot **at = &t->buckets[b];

    if (slot->has_value || slot->items || slot->waits) {
        return;
    }
    while (*at != slot) {
        at = &(*at)->next;
    }
    *at = slot->next;
    if (!t->buckets[b]) {
        t->marks[b] = 0;
    }
    free_slot(t, slot);
}

/* A new value is as large as it must be, one that grows gets room for more. */
static bool value_reserve(struct table *t, struct slot *slot, size_t cap)
{
    char *value;

    if (cap <= slot->value_cap) {
        return true;
    }
    if (slot->value_cap && cap < slot->value_cap * 2) {
        cap = slot->value_cap * 2;
    }
    value = realloc(slot->value, cap);
    if (!value) {
        return false;
    }
    t->used_bytes += cap - slot->value_cap;
    slot->value = value;
    slot->value_cap = cap;
    return true;
}

static void has_value_now(struct table *t, struct slot *slot)
{
    if (!slot->has_value) {
        slot->has_value = true;
        t->n_values++;
    }
}

bool slot_set(struct table *t, struct slot *slot, const char *data, size_t len)
{
    char *value = NULL;

    /* Also where it gets much smaller: a value does not keep its old room. */
    if (len > slot->value_cap || len < slot->value_cap / 2) {
        value = malloc(len ? len : 1);
        if (!value) {
            return false;
        }
        free(slot->value);
        t->used_bytes += len;
        t->used_bytes -= slot->value_cap;
        slot->value = value;
        slot->value_cap = len;
    }
    if (len) {
        memcpy(slot->value, data, len);
    }
    slot->value_len = len;
    has_value_now(t, slot);
    return true;
}

bool slot_append(struct table *t, struct slot *slot, const char *data,
                 size_t len)
{
    if (!value_reserve(t, slot, slot->value_len + len)) {
        return false;
    }
    if (len) {
        memcpy(slot->value + slot->value_len, data, len);
    }
    slot->value_len += len;
    has_value_now(t, slot);
    return true;
}

void slot_unset(struct table *t, struct slot *slot)
{
    free(slot->value);
    t->used_bytes -= slot->value_cap;
    t->n_values -= slot->has_value ? 1 : 0;
    slot->value = NULL;
    slot->value_len = 0;
    slot->value_cap = 0;
    slot->has_value = false;
}

bool slot_push(struct table *t, struct slot *slot, const char *data,
               size_t len)
{
    struct item *item = malloc(sizeof(*item) + len);

    if (!item) {
        return false;
    }
    *item = (struct item){.len = len};
    if (len) {
        memcpy(item->data, data, len);
    }
    if (slot->last_item) {
        slot->last_item->next = item;
    } else {
        slot->items = item;
    }
    slot->last_item = item;
    slot->n_items++;
    t->used_bytes += sizeof(*item) + len;
    return true;
}

struct item *slot_pop(struct table *t, struct slot *slot)
{
    struct item *item = slot->items;

    if (!item) {
        return NULL;
    }
    slot->items = item->next;
    if (!slot->items) {
        slot->last_item = NULL;
    }
    slot->n_items--;
    t->used_bytes -= sizeof(*item) + item->len;
    return item;
}

void slot_add_wait(struct table *t, struct slot *slot, struct wait *w)
{
    w->slot = slot;
    w->next = NULL;
    w->prev = slot->last_wait;
    if (w->prev) {
        w->prev->next = w;
    } else {
        slot->waits = w;
    }
    slot->last_wait = w;
    t->used_bytes += sizeof(*w);
}

void slot_remove_wait(struct table *t, struct wait *w)
{
    struct slot *slot = w->slot;

    if (w->prev) {
        w->prev->next = w->next;
    } else {
        slot->waits = w->next;
    }
    if (w->next) {
        w->next->prev = w->prev;
    } else {
        slot->last_wait = w->prev;
    }
    w->slot = NULL;
    t->used_bytes -= sizeof(*w);
}
