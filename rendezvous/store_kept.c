/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/store_share.h"

#include "rendezvous/store_state.h"

#include <stdlib.h>

/* A key of a relay's store, which has no others. */
struct kept {
    struct kept *prev; /* which was read after it */
    struct kept *next;
    struct slot *slot;
};

static void unlink_kept(struct kept_keys *all, struct kept *k)
{
    if (k->prev) {
        k->prev->next = k->next;
    } else {
        all->first = k->next;
    }
    if (k->next) {
        k->next->prev = k->prev;
    } else {
        all->last = k->prev;
    }
}

static void put_first(struct kept_keys *all, struct kept *k)
{
    k->prev = NULL;
    k->next = all->first;
    if (k->next) {
        k->next->prev = k;
    } else {
        all->last = k;
    }
    all->first = k;
}

static void drop(struct store *s, struct slot *slot)
{
    struct kept *k = slot->kept;

    unlink_kept(&s->kept, k);
    free(k);
    slot->kept = NULL;
    s->table.used_bytes -= sizeof(*k);
    slot_unset(&s->table, slot);
    table_tidy(&s->table, slot);
}

static struct kept *make_kept(struct store *s, struct slot *slot)
{
    struct kept *k = slot->kept ? slot->kept : calloc(1, sizeof(*k));

    if (!k) {
        return NULL;
    }
    if (slot->kept) {
        unlink_kept(&s->kept, k);
    } else {
        k->slot = slot;
        slot->kept = k;
        s->table.used_bytes += sizeof(*k);
    }
    put_first(&s->kept, k);
    return k;
}

bool kept_put(struct store *s, const char *key, size_t key_len,
              const char *value, size_t len)
{
    struct slot *slot;

    kept_drop(s, key, key_len);
    if (store_check_room(s, sizeof(*slot) + sizeof(struct kept) + key_len + len,
                         NULL) < 0) {
        return false;
    }
    slot = table_get(&s->table, key, key_len);
    if (!slot) {
        return false;
    }
    if (!slot_set(&s->table, slot, value, len) || !make_kept(s, slot)) {
        slot_unset(&s->table, slot);
        table_tidy(&s->table, slot);
        return false;
    }
    return true;
}

void kept_drop(struct store *s, const char *key, size_t len)
{
    struct slot *slot = table_find(&s->table, key, len);

    if (slot && slot->kept) {
        drop(s, slot);
    }
}

const char *kept_excess(const struct store *s, size_t *ret_len)
{
    if (s->table.used_bytes <= s->limits.kept_bytes || !s->kept.last) {
        return NULL;
    }
    *ret_len = s->kept.last->slot->key_len;
    return s->kept.last->slot->key;
}

void kept_clear(struct store *s)
{
    while (s->kept.first) {
        drop(s, s->kept.first->slot);
    }
}

bool kept_answers(struct store *s, const struct store_request *r)
{
    struct store_request at = *r;
    uint64_t n = 1;

    switch (r->command) {
    case STORE_GET:
        break;
    case STORE_CHECK:
    case STORE_WAIT:
    case STORE_MULTI_GET:
        n = store_get_u64(&at);
        break;
    default:
        return false;
    }
    while (n-- > 0) {
        size_t len;
        const char *key = store_get_blob(&at, &len);
        struct slot *slot = table_find(&s->table, key, len);

        if (!slot || !slot->kept) {
            return false;
        }
        make_kept(s, slot); /* has been read */
    }
    return true;
}
