/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/store_share.h"

#include "rendezvous/store_state.h"
#include "rendezvous/store_trunk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Of a key that trunks read: who does. */
struct share {
    struct share *prev; /* of the store's */
    struct share *next;
    struct slot *slot;
    bool is_ending; /* they were told to drop it */
    struct store_conn *blocked; /* who wants to change it then, oldest first */
    struct store_conn *last_blocked;
    uint32_t n_reading; /* bits that are set */
    uint32_t n_words;
    uint64_t words[]; /* a bit a trunk; until it has answered, where it is ending */
};

static const bool changes[STORE_N_COMMANDS] = {
    [STORE_SET] = true,        [STORE_COMPARE_SET] = true,
    [STORE_ADD] = true,        [STORE_DELETE_KEY] = true,
    [STORE_APPEND] = true,     [STORE_MULTI_SET] = true,
    [STORE_BARRIER] = true,
};

static size_t size_of(uint32_t n_words)
{
    return sizeof(struct share) + n_words * sizeof(uint64_t);
}

static bool reads(const struct share *share, uint32_t number)
{
    return number / 64 < share->n_words &&
           (share->words[number / 64] >> number % 64 & 1);
}

/* A share has room for all trunks that there were when it was made or moved. */
static struct share *make_room(struct store *s, struct slot *slot)
{
    struct share *old = slot->share, *share;
    uint32_t had = old ? old->n_words : 0;
    uint32_t n_words = s->shares.n_readers / 64;

    if (had == n_words) {
        return old;
    }
    if (store_check_room(s, size_of(n_words), NULL) < 0) {
        return NULL;
    }
    share = realloc(old, size_of(n_words));
    if (!share) {
        return NULL;
    }
    if (!old) {
        *share = (struct share){.slot = slot, .next = s->shares.first};
        s->shares.first = share;
    } else {
        s->table.used_bytes -= size_of(had);
    }
    memset(share->words + had, 0, (n_words - had) * sizeof(uint64_t));
    share->n_words = n_words;
    s->table.used_bytes += size_of(n_words);
    slot->share = share;
    if (share->next) {
        share->next->prev = share;
    }
    if (share->prev) {
        share->prev->next = share;
    } else {
        s->shares.first = share;
    }
    return share;
}

static void unlink_blocked(struct store_conn *c)
{
    struct share *share = c->blocked;

    if (c->blocked_prev) {
        c->blocked_prev->blocked_next = c->blocked_next;
    } else {
        share->blocked = c->blocked_next;
    }
    if (c->blocked_next) {
        c->blocked_next->blocked_prev = c->blocked_prev;
    } else {
        share->last_blocked = c->blocked_prev;
    }
    c->blocked = NULL;
}

static void end_share(struct store *s, struct share *share)
{
    while (share->blocked) {
        struct store_conn *c = share->blocked;

        unlink_blocked(c);
        store_make_due(s, c);
    }
    if (share->prev) {
        share->prev->next = share->next;
    } else {
        s->shares.first = share->next;
    }
    if (share->next) {
        share->next->prev = share->prev;
    }
    share->slot->share = NULL;
    s->table.used_bytes -= size_of(share->n_words);
    free(share);
}

static void stop_reading(struct store *s, struct share *share, uint32_t number)
{
    share->words[number / 64] &= ~(UINT64_C(1) << number % 64);
    if (--share->n_reading == 0) {
        end_share(s, share);
    }
}

/* Trunks */

bool share_add_reader(struct store *s, struct store_conn *control)
{
    struct shares *all = &s->shares;
    uint32_t i = 0;

    while (i < all->n_readers && all->readers[i].control) {
        i++;
    }
    if (i == all->n_readers) {
        struct reader *more =
            realloc(all->readers, (i ? i * 2 : 64) * sizeof(*more));

        if (!more) {
            return false;
        }
        all->readers = more;
        all->n_readers = i ? i * 2 : 64;
        memset(more + i, 0, (all->n_readers - i) * sizeof(*more));
    }
    all->readers[i] = (struct reader){.control = control};
    control->reader = i;
    return true;
}

void share_remove_reader(struct store *s, struct store_conn *control)
{
    struct share *share = s->shares.first;

    while (share) {
        struct share *next = share->next;

        if (reads(share, control->reader)) {
            stop_reading(s, share, control->reader);
        }
        share = next;
    }
    s->shares.readers[control->reader].control = NULL;
}

void share_clear(struct store *s)
{
    while (s->shares.first) {
        end_share(s, s->shares.first);
    }
}

/* Words */

static int say(struct store *s, struct store_conn *control,
               enum store_command word, const struct slot *slot)
{
    _buf_ struct buf b = {0};
    uint64_t len = slot->key_len;

    buf_putc(&b, (char)word);
    buf_append(&b, &len, sizeof(len));
    buf_append(&b, slot->key, slot->key_len);
    if (word == STORE_KEEP) {
        len = slot->value_len;
        buf_append(&b, &len, sizeof(len));
        if (len) {
            buf_append(&b, slot->value, slot->value_len);
        }
    }
    if (b.failed) {
        return -ENOMEM;
    }
    return word == STORE_KEEP ? store_reply(s, control, b.data, b.len, NULL)
                              : store_say(s, control, b.data, b.len, NULL);
}

static bool is_shareable(const struct store *s, const struct store_conn *c,
                         const struct slot *slot)
{
    return slot && slot->has_value && slot->value_len <= SHARE_MAX_BYTES &&
           slot->n_changes < SHARE_MAX_CHANGES && !s->shares.is_changing &&
           !(slot->share && slot->share->is_ending) &&
           !store_trunk_held(c->trunk);
}

void share_key(struct store *s, const struct store_conn *c, struct slot *slot)
{
    struct share *share;
    uint32_t number;

    if (!c->control || !is_shareable(s, c, slot)) {
        return;
    }
    number = c->control->reader;
    if (slot->share && reads(slot->share, number)) {
        return;
    }
    share = make_room(s, slot);
    if (!share) {
        return;
    }
    if (say(s, c->control, STORE_KEEP, slot) == 0) {
        share->words[number / 64] |= UINT64_C(1) << number % 64;
        share->n_reading++;
    } else if (share->n_reading == 0) {
        end_share(s, share);
    }
}

/* Without memory for the word the trunk is of no use. */
static void begin_ending(struct store *s, struct share *share)
{
    share->is_ending = true;
    share->slot->n_changes++;
    for (uint32_t i = 0; i < s->shares.n_readers; i++) {
        struct reader *reader = &s->shares.readers[i];

        if (reads(share, i)) {
            reader->n_told++;
            if (say(s, reader->control, STORE_DROP, share->slot) < 0) {
                store_break(s, reader->control);
            }
        }
    }
}

static void block(struct store_conn *c, struct share *share)
{
    c->blocked = share;
    c->blocked_next = NULL;
    c->blocked_prev = share->last_blocked;
    if (c->blocked_prev) {
        c->blocked_prev->blocked_next = c;
    } else {
        share->blocked = c;
    }
    share->last_blocked = c;
}

void share_unblock(struct store_conn *c)
{
    if (c->blocked) {
        unlink_blocked(c);
    }
}

bool share_may_run(struct store *s, struct store_conn *c,
                   const struct store_request *r)
{
    struct store_request at = *r;
    uint64_t n = 1;
    size_t len;

    if (!s->shares.first || !changes[r->command]) {
        return true;
    }
    if (r->command == STORE_MULTI_SET) {
        n = store_get_u64(&at);
    }
    while (n-- > 0) {
        const char *key = store_get_blob(&at, &len);
        struct slot *slot = table_find(&s->table, key, len);

        if (slot && slot->share) {
            if (!slot->share->is_ending) {
                begin_ending(s, slot->share);
            }
            if (!c->blocked) {
                block(c, slot->share);
            }
        }
        if (r->command == STORE_MULTI_SET) {
            store_get_blob(&at, &len);
        }
    }
    return !c->blocked;
}

int share_word(struct store *s, const struct store_conn *control,
               struct store_request *r, struct error *e)
{
    size_t len;
    const char *key;
    struct slot *slot;

    key = store_get_blob(r, &len);
    slot = table_find(&s->table, key, len);
    if (!slot || !slot->share || !reads(slot->share, control->reader) ||
        (r->command == STORE_DROP && !slot->share->is_ending)) {
        return error_text(e, EPROTO, "a trunk drops a key that it does not keep");
    }
    if (r->command == STORE_DROP) {
        s->shares.readers[control->reader].n_dropped++;
        stop_reading(s, slot->share, control->reader);
    } else if (!slot->share->is_ending) {
        stop_reading(s, slot->share, control->reader);
    } /* else its answer to DROP comes behind */
    return 0;
}
