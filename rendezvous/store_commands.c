/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/store_state.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool is_there(const struct slot *slot)
{
    return slot && (slot->has_value || slot->items);
}

static struct slot *read_slot(struct store *s, struct store_request *r)
{
    size_t len;
    const char *key = store_get_blob(r, &len);

    return table_find(&s->table, key, len);
}

/* The slot of the next field, made where missing, with room for `n` bytes. */
static int read_new_slot(struct store *s, struct store_request *r, size_t n,
                         struct slot **ret, struct error *e)
{
    size_t len;
    const char *key = store_get_blob(r, &len);
    int rc = store_check_room(s, sizeof(struct slot) + len + n, e);

    if (rc < 0) {
        return rc;
    }
    *ret = table_get(&s->table, key, len);
    return *ret ? 0 : store_no_memory(e);
}

typedef bool put_f(struct table *t, struct slot *slot, const char *data,
                   size_t len);

/* Puts `data` into a slot, where there is room for `room` bytes. A slot that was
 * made for it goes again where it cannot. */
static int put_data(struct store *s, struct slot *slot, put_f *put,
                    const char *data, size_t len, size_t room,
                    struct error *e)
{
    int rc = store_check_room(s, room, e);

    if (rc == 0 && !put(&s->table, slot, data, len)) {
        rc = store_no_memory(e);
    }
    if (rc < 0) {
        table_tidy(&s->table, slot);
    }
    return rc;
}

static int set_value(struct store *s, struct slot *slot, const char *data,
                     size_t len, struct error *e)
{
    return put_data(s, slot, slot_set, data, len, len, e);
}

static int do_validate(struct store *s, struct store_conn *c,
                       struct store_request *r, struct error *e)
{
    (void)s;
    if (c->validated || store_get_u32(r) != STORE_MAGIC) {
        return error_text(e, EPROTO, "VALIDATE where none is expected");
    }
    c->validated = true;
    return 0;
}

static int do_ping(struct store *s, struct store_conn *c,
                   struct store_request *r, struct error *e)
{
    uint32_t nonce = store_get_u32(r);

    return store_reply(s, c, &nonce, sizeof(nonce), e);
}

static int set_one(struct store *s, struct store_request *r, struct error *e)
{
    struct slot *slot;
    const char *value;
    size_t len;
    int rc = read_new_slot(s, r, 0, &slot, e);

    if (rc < 0) {
        return rc;
    }
    value = store_get_blob(r, &len);
    rc = set_value(s, slot, value, len, e);
    if (rc == 0) {
        store_wake_all(s, slot);
    }
    return rc;
}

static int do_set(struct store *s, struct store_conn *c,
                  struct store_request *r, struct error *e)
{
    (void)c;
    return set_one(s, r, e);
}

static int do_multi_set(struct store *s, struct store_conn *c,
                        struct store_request *r, struct error *e)
{
    uint64_t n = store_get_u64(r);
    int rc = 0;

    (void)c;
    s->shares.is_changing = true;
    while (n-- > 0 && rc == 0) {
        rc = set_one(s, r, e);
    }
    s->shares.is_changing = false;
    return rc;
}

/* Answers the value that the key has afterwards; for a missing key that was
 * expected to have one, what was expected (so torch's server does). */
static int do_compare_set(struct store *s, struct store_conn *c,
                          struct store_request *r, struct error *e)
{
    struct slot *slot;
    const char *expected;
    const char *desired;
    size_t expected_len;
    size_t desired_len;
    int rc = read_new_slot(s, r, 0, &slot, e);

    if (rc < 0) {
        return rc;
    }
    expected = store_get_blob(r, &expected_len);
    desired = store_get_blob(r, &desired_len);
    if (!slot->has_value && expected_len > 0) {
        table_tidy(&s->table, slot);
        return store_reply_blob(s, c, expected, expected_len, e);
    }
    if (!slot->has_value ||
        (slot->value_len == expected_len &&
         (expected_len == 0 ||
          memcmp(slot->value, expected, expected_len) == 0))) {
        rc = set_value(s, slot, desired, desired_len, e);
        if (rc < 0) {
            return rc;
        }
        store_wake_all(s, slot);
    }
    return store_reply_blob(s, c, slot->value, slot->value_len, e);
}

static int reply_value(struct store *s, struct store_conn *c,
                       struct slot *slot, struct error *e)
{
    if (!slot || !slot->has_value) {
        return store_reply_blob(s, c, NULL, 0, e);
    }
    share_key(s, c, slot);
    return store_reply_blob(s, c, slot->value, slot->value_len, e);
}

/* Clients wait before they get; a key deleted in between reads as empty. */
static int do_get(struct store *s, struct store_conn *c,
                  struct store_request *r, struct error *e)
{
    return reply_value(s, c, read_slot(s, r), e);
}

static int do_multi_get(struct store *s, struct store_conn *c,
                        struct store_request *r, struct error *e)
{
    uint64_t n = store_get_u64(r);
    int rc = 0;

    while (n-- > 0 && rc == 0) {
        rc = reply_value(s, c, read_slot(s, r), e);
    }
    return rc;
}

/* The number that a value starts with, as strtoll() reads it. */
static int parse_number(const struct slot *slot, int64_t *ret, struct error *e)
{
    char text[32];
    size_t at = 0;
    size_t len;
    char *end;

    while (at < slot->value_len && isspace((unsigned char)slot->value[at])) {
        at++;
    }
    len = slot->value_len - at;
    if (len > sizeof(text) - 1) {
        len = sizeof(text) - 1;
    }
    if (len) {
        memcpy(text, slot->value + at, len);
    }
    text[len] = '\0';
    errno = 0;
    *ret = strtoll(text, &end, 10);
    if (end == text || errno == ERANGE) {
        return error_text(e, EPROTO, "ADD to what is not a number");
    }
    return 0;
}

/* As "%lld", which is much of what an ADD costs. Returns where it begins, before
 * `end`. */
static char *format_number(int64_t n, char *end)
{
    uint64_t left = n < 0 ? -(uint64_t)n : (uint64_t)n;

    do {
        *--end = (char)('0' + left % 10);
        left /= 10;
    } while (left);
    if (n < 0) {
        *--end = '-';
    }
    return end;
}

/* Adds to the number in `slot`; a missing one counts as 0. */
static int add_number(struct store *s, struct slot *slot, int64_t delta,
                      int64_t *ret, struct error *e)
{
    char text[32], *end = text + sizeof(text), *begin;
    int64_t old = 0;

    if (slot->has_value) {
        int rc = parse_number(slot, &old, e);

        if (rc < 0) {
            return rc;
        }
    }
    if (__builtin_add_overflow(old, delta, ret)) {
        table_tidy(&s->table, slot);
        return error_text(e, EPROTO, "ADD beyond 64 bits");
    }
    begin = format_number(*ret, end);
    return set_value(s, slot, begin, (size_t)(end - begin), e);
}

static int do_add(struct store *s, struct store_conn *c,
                  struct store_request *r, struct error *e)
{
    struct slot *slot;
    int64_t sum;
    int rc = read_new_slot(s, r, 0, &slot, e);

    if (rc == 0) {
        rc = add_number(s, slot, store_get_i64(r), &sum, e);
    }
    if (rc == 0) {
        store_wake_all(s, slot);
        rc = store_reply_i64(s, c, sum, e);
    }
    return rc;
}

static int do_append(struct store *s, struct store_conn *c,
                     struct store_request *r, struct error *e)
{
    struct slot *slot;
    const char *data;
    size_t len;
    int rc = read_new_slot(s, r, 0, &slot, e);

    (void)c;
    if (rc < 0) {
        return rc;
    }
    data = store_get_blob(r, &len);
    if (len > s->limits.value_bytes - slot->value_len) {
        table_tidy(&s->table, slot);
        return error_text(e, EMSGSIZE, "APPEND beyond %zu bytes",
                          s->limits.value_bytes);
    }
    rc = put_data(s, slot, slot_append, data, len, slot->value_len + len, e);
    if (rc == 0) {
        store_wake_all(s, slot);
    }
    return rc;
}

static int do_check(struct store *s, struct store_conn *c,
                    struct store_request *r, struct error *e)
{
    uint64_t n = store_get_u64(r);
    bool all = true;

    while (n-- > 0 && all) {
        struct slot *slot = read_slot(s, r);

        all = is_there(slot);
        share_key(s, c, slot);
    }
    return store_reply_u8(s, c, all ? STORE_READY : STORE_NOT_READY, e);
}

static int do_wait(struct store *s, struct store_conn *c,
                   struct store_request *r, struct error *e)
{
    uint64_t n = store_get_u64(r);
    struct slot *slot;
    int rc = store_check_room(s, n * sizeof(struct wait), e);

    if (rc == 0 && n > 0 && !store_begin_wait(s, c, n)) {
        rc = store_no_memory(e);
    }
    while (n-- > 0 && rc == 0) {
        rc = read_new_slot(s, r, sizeof(struct wait), &slot, e);
        if (rc == 0 && !is_there(slot)) {
            store_await(s, c, slot);
        } else if (rc == 0) {
            share_key(s, c, slot);
        }
    }
    if (rc == 0 && c->n_awaited == 0) {
        store_end_wait(s, c);
        rc = store_reply_u8(s, c, STORE_STOP_WAITING, e);
    }
    return rc;
}

/* The wait itself was ended by the arrival of this request. */
static int do_cancel_wait(struct store *s, struct store_conn *c,
                          struct store_request *r, struct error *e)
{
    (void)r;
    return store_reply_u8(s, c, STORE_WAIT_CANCELED, e);
}

static int do_num_keys(struct store *s, struct store_conn *c,
                       struct store_request *r, struct error *e)
{
    (void)r;
    return store_reply_i64(s, c, (int64_t)s->table.n_values, e);
}

static int do_list_keys(struct store *s, struct store_conn *c,
                        struct store_request *r, struct error *e)
{
    int rc = do_num_keys(s, c, r, e);

    for (size_t i = 0; i < s->table.n_buckets && rc == 0; i++) {
        for (const struct slot *slot = s->table.buckets[i];
             slot && rc == 0;
             slot = slot->next) {
            if (slot->has_value) {
                rc = store_reply_blob(s, c, slot->key, slot->key_len, e);
            }
        }
    }
    return rc;
}

static int do_delete_key(struct store *s, struct store_conn *c,
                         struct store_request *r, struct error *e)
{
    struct slot *slot = read_slot(s, r);
    bool had = slot && slot->has_value;

    if (had) {
        slot_unset(&s->table, slot);
        table_tidy(&s->table, slot);
    }
    return store_reply_i64(s, c, had ? 1 : 0, e);
}

static int do_queue_push(struct store *s, struct store_conn *c,
                         struct store_request *r, struct error *e)
{
    struct slot *slot;
    const char *data;
    size_t len;
    int rc = read_new_slot(s, r, 0, &slot, e);

    (void)c;
    if (rc < 0) {
        return rc;
    }
    data = store_get_blob(r, &len);
    rc = put_data(s, slot, slot_push, data, len, sizeof(struct item) + len, e);
    if (rc == 0) {
        store_wake_one(s, slot);
    }
    return rc;
}

/* Answers how many there were, and the oldest if there was any. */
static int do_queue_pop(struct store *s, struct store_conn *c,
                        struct store_request *r, struct error *e)
{
    struct slot *slot = read_slot(s, r);
    int rc = store_reply_i64(s, c, slot ? (int64_t)slot->n_items : 0, e);

    if (rc == 0 && slot && slot->items) {
        _free_ struct item *item = slot_pop(&s->table, slot);

        table_tidy(&s->table, slot);
        rc = store_reply_blob(s, c, item->data, item->len, e);
    }
    return rc;
}

static int do_queue_len(struct store *s, struct store_conn *c,
                        struct store_request *r, struct error *e)
{
    const struct slot *slot = read_slot(s, r);

    return store_reply_i64(s, c, slot ? (int64_t)slot->n_items : 0, e);
}

/* Counts arrivals in the key's value. The last one answers all; those before
 * wait, though their key is there. */
static int do_barrier(struct store *s, struct store_conn *c,
                      struct store_request *r, struct error *e)
{
    struct slot *slot;
    int64_t count;
    int rc = read_new_slot(s, r, sizeof(struct wait), &slot, e);

    if (rc == 0) {
        rc = add_number(s, slot, 1, &count, e);
    }
    if (rc < 0) {
        return rc;
    }
    if (count >= store_get_i64(r)) {
        store_wake_all(s, slot);
        return store_reply_u8(s, c, STORE_STOP_WAITING, e);
    }
    if (!store_begin_wait(s, c, 1)) {
        return store_no_memory(e);
    }
    store_await(s, c, slot);
    return 0;
}

static int (*const commands[STORE_N_COMMANDS])(struct store *,
                                               struct store_conn *,
                                               struct store_request *,
                                               struct error *) = {
    [STORE_VALIDATE] = do_validate,
    [STORE_SET] = do_set,
    [STORE_COMPARE_SET] = do_compare_set,
    [STORE_GET] = do_get,
    [STORE_ADD] = do_add,
    [STORE_CHECK] = do_check,
    [STORE_WAIT] = do_wait,
    [STORE_NUM_KEYS] = do_num_keys,
    [STORE_DELETE_KEY] = do_delete_key,
    [STORE_APPEND] = do_append,
    [STORE_MULTI_GET] = do_multi_get,
    [STORE_MULTI_SET] = do_multi_set,
    [STORE_CANCEL_WAIT] = do_cancel_wait,
    [STORE_PING] = do_ping,
    [STORE_QUEUE_PUSH] = do_queue_push,
    [STORE_QUEUE_POP] = do_queue_pop,
    [STORE_QUEUE_LEN] = do_queue_len,
    [STORE_LIST_KEYS] = do_list_keys,
    [STORE_BARRIER] = do_barrier,
};

int store_run_command(struct store *s, struct store_conn *c,
                      struct store_request *r, struct error *e)
{
    return commands[r->command](s, c, r, e);
}
