/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/store_history_bed.h"

#include "tests/lib/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VISITED = 1 << 20 };

struct answer {
    char data[HISTORY_ANSWER];
    size_t len;
};

struct search {
    const struct history *h;
    uint64_t *visited;
    unsigned n_visited;
    int before[HISTORY_OPS]; /* the same client's last one, or -1 */
};

bool history_has_answer(enum store_command command)
{
    return command != STORE_SET && command != STORE_MULTI_SET &&
           command != STORE_APPEND && command != STORE_QUEUE_PUSH;
}

bool history_is_there(const struct history_state *s, unsigned k)
{
    return s->keys[k].is_there || s->keys[k].queue.len > 0;
}

/* The model */

static void put(struct answer *a, const void *data, size_t len)
{
    memcpy(a->data + a->len, data, len);
    a->len += len;
}

static void put_number(struct answer *a, int64_t n)
{
    put(a, &n, sizeof(n));
}

static void put_text(struct answer *a, const char *data, size_t len)
{
    put_number(a, (int64_t)len);
    put(a, data, len);
}

static void add(struct history_text *to, const char *word)
{
    size_t n = strlen(word);

    if (n > sizeof(to->data) - to->len) {
        bail_out("a text of the model is full");
    }
    memcpy(to->data + to->len, word, n);
    to->len = (uint8_t)(to->len + n);
}

static void set(struct history_value *v, const char *word)
{
    memset(&v->text, 0, sizeof(v->text));
    add(&v->text, word);
    v->is_there = true;
}

static void put_value(struct answer *a, const struct history_value *v)
{
    put_text(a, v->text.data, v->is_there ? v->text.len : 0);
}

static void apply_add(struct history_value *v, int64_t delta, struct answer *a)
{
    char text[HISTORY_TEXT + 1] = {0};
    int64_t sum;

    memcpy(text, v->text.data, v->is_there ? v->text.len : 0);
    sum = atoll(text) + delta;
    snprintf(text, sizeof(text), "%lld", (long long)sum);
    set(v, text);
    put_number(a, sum);
}

static void apply_compare(struct history_value *v, const char *expected,
                          const char *desired, struct answer *a)
{
    if (!v->is_there && *expected) {
        put_text(a, expected, strlen(expected));
        return;
    }
    if (!v->is_there || (v->text.len == strlen(expected) &&
                         memcmp(v->text.data, expected, v->text.len) == 0)) {
        set(v, desired);
    }
    put_value(a, v);
}

static void apply_pop(struct history_value *v, struct answer *a)
{
    struct history_text *q = &v->queue;

    put_number(a, q->len);
    if (q->len) {
        put_text(a, q->data, 1);
        memmove(q->data, q->data + 1, --q->len);
        q->data[q->len] = '\0';
    }
}

static void apply_delete(struct history_value *v, struct answer *a)
{
    put_number(a, v->is_there);
    v->is_there = false;
    memset(&v->text, 0, sizeof(v->text));
}

static bool are_there(const struct history_state *s,
                      const struct history_op *op)
{
    bool all = true;

    for (unsigned i = 0; i < op->n_keys; i++) {
        all = all && history_is_there(s, op->keys[i]);
    }
    return all;
}

static void apply_all(struct history_state *s, const struct history_op *op,
                      struct answer *a)
{
    for (unsigned i = 0; i < op->n_keys; i++) {
        struct history_value *v = &s->keys[op->keys[i]];

        if (op->command == STORE_MULTI_SET) {
            set(v, op->words[i]);
        } else {
            put_value(a, v);
        }
    }
}

static int64_t count(const struct history_state *s)
{
    int64_t n = 0;

    for (unsigned k = 0; k < HISTORY_KEYS; k++) {
        n += s->keys[k].is_there;
    }
    return n;
}

/* Does it, and says what the answer is. */
static void apply(struct history_state *s, const struct history_op *op,
                  struct answer *a)
{
    struct history_value *v = &s->keys[op->keys[0]];

    switch (op->command) {
    case STORE_SET:
        set(v, op->words[0]);
        break;
    case STORE_APPEND:
        add(&v->text, op->words[0]);
        v->is_there = true;
        break;
    case STORE_ADD:
        apply_add(v, op->number, a);
        break;
    case STORE_COMPARE_SET:
        apply_compare(v, op->words[0], op->words[1], a);
        break;
    case STORE_DELETE_KEY:
        apply_delete(v, a);
        break;
    case STORE_GET:
    case STORE_MULTI_GET:
    case STORE_MULTI_SET:
        apply_all(s, op, a);
        break;
    case STORE_CHECK:
        put(a, are_there(s, op) ? "\0" : "\1", 1);
        break;
    case STORE_WAIT:
        put(a, are_there(s, op) ? "\0" : "\1", 1);
        break;
    case STORE_QUEUE_PUSH:
        add(&v->queue, op->words[0]);
        break;
    case STORE_QUEUE_POP:
        apply_pop(v, a);
        break;
    case STORE_QUEUE_LEN:
        put_number(a, v->queue.len);
        break;
    case STORE_NUM_KEYS:
        put_number(a, count(s));
        break;
    default:
        bail_out("the model knows no command %d", op->command);
    }
}

/* The search for an order */

static uint64_t hash_text(uint64_t h, const struct history_text *t)
{
    h = (h ^ t->len) * 1099511628211u;
    for (uint8_t i = 0; i < t->len; i++) {
        h = (h ^ (unsigned char)t->data[i]) * 1099511628211u;
    }
    return h;
}

static uint64_t hash(uint64_t done, const struct history_state *s)
{
    uint64_t h = 1469598103934665603u ^ done * 0x9e3779b97f4a7c15u;

    for (unsigned k = 0; k < HISTORY_KEYS; k++) {
        h = (h ^ s->keys[k].is_there) * 1099511628211u;
        h = hash_text(hash_text(h, &s->keys[k].text), &s->keys[k].queue);
    }
    return h ? h : 1;
}

/* True the first time that it is here. */
static bool is_new(struct search *q, uint64_t done,
                   const struct history_state *s)
{
    uint64_t h = hash(done, s);
    size_t at = h % VISITED;

    while (q->visited[at] && q->visited[at] != h) {
        at = (at + 1) % VISITED;
    }
    if (q->visited[at]) {
        return false;
    }
    if (++q->n_visited > VISITED / 2) {
        bail_out("too many orders of a history");
    }
    q->visited[at] = h;
    return true;
}

static bool is_done(uint64_t done, unsigned i)
{
    return done >> i & 1;
}

/* Nothing that is not done was answered before this one was asked. */
static bool may_be_next(const struct search *q, uint64_t done, unsigned i)
{
    const struct history *h = q->h;

    if (is_done(done, i) ||
        (q->before[i] >= 0 && !is_done(done, (unsigned)q->before[i]))) {
        return false;
    }
    for (unsigned k = 0; k < h->n_ops; k++) {
        if (!is_done(done, k) && h->ops[k].answered_at < h->ops[i].asked_at) {
            return false;
        }
    }
    return true;
}

static bool is_answered_so(const struct history_op *op, const struct answer *a)
{
    return op->answered_at == HISTORY_NEVER ||
           (op->answer_len == a->len &&
            memcmp(op->answer, a->data, a->len) == 0);
}

static bool only_reads(enum store_command command)
{
    return command == STORE_GET || command == STORE_CHECK ||
           command == STORE_WAIT || command == STORE_MULTI_GET ||
           command == STORE_QUEUE_LEN || command == STORE_NUM_KEYS;
}

/* Does what can be done now, in `done` and in `s`, if its answer is right. */
static bool try(const struct search *q, unsigned i, uint64_t *done,
                struct history_state *s)
{
    const struct history_op *op = &q->h->ops[i];
    struct answer a;

    a.len = 0;
    if (!may_be_next(q, *done, i)) {
        return false;
    }
    apply(s, op, &a);
    *done |= UINT64_C(1) << i;
    return is_answered_so(op, &a);
}

/* What only reads leaves all as it is, so where it can be done it need not be done
 * later. */
static uint64_t do_reads(const struct search *q, uint64_t done,
                         struct history_state *s)
{
    for (unsigned i = 0; i < q->h->n_ops; i++) {
        uint64_t then = done;

        if (only_reads(q->h->ops[i].command) && try(q, i, &then, s)) {
            return do_reads(q, then, s);
        }
    }
    return done;
}

static bool is_all(const struct history *h, uint64_t done)
{
    for (unsigned i = 0; i < h->n_ops; i++) {
        if (!is_done(done, i) && !h->ops[i].is_open) {
            return false;
        }
    }
    return true;
}

static bool find(struct search *q, uint64_t done, struct history_state *s)
{
    done = do_reads(q, done, s);
    if (is_all(q->h, done)) {
        return true;
    }
    if (!is_new(q, done, s)) {
        return false;
    }
    for (unsigned i = 0; i < q->h->n_ops; i++) {
        struct history_state then = *s;
        uint64_t next = done;

        if (!only_reads(q->h->ops[i].command) && try(q, i, &next, &then) &&
            find(q, next, &then)) {
            return true;
        }
    }
    return false;
}

static int last_of(const struct history *h, unsigned client, unsigned before)
{
    int i = (int)before - 1;

    while (i >= 0 && (h->ops[i].client != client || h->ops[i].is_void)) {
        i--;
    }
    return i;
}

bool history_is_possible(const struct history *h)
{
    struct search q = {.h = h, .visited = calloc(VISITED, sizeof(uint64_t))};
    struct history_state begin = h->begin;
    uint64_t done = 0;
    bool found;

    if (!q.visited) {
        bail_out("no memory");
    }
    for (unsigned i = 0; i < h->n_ops; i++) {
        q.before[i] = last_of(h, h->ops[i].client, i);
        done |= (uint64_t)h->ops[i].is_void << i;
    }
    found = find(&q, done, &begin);
    free(q.visited);
    return found;
}

void history_print(const struct history *h)
{
    for (unsigned k = 0; k < HISTORY_KEYS; k++) {
        const struct history_value *v = &h->begin.keys[k];

        diag("k%u: %s%.*s, queue %.*s", k, v->is_there ? "" : "none",
             v->text.len, v->text.data, v->queue.len, v->queue.data);
    }
    for (unsigned i = 0; i < h->n_ops; i++) {
        const struct history_op *op = &h->ops[i];
        char hex[2 * 24 + 1] = "";

        for (size_t k = 0; k < op->answer_len && k < 24; k++) {
            snprintf(hex + 2 * k, 3, "%02x", (unsigned char)op->answer[k]);
        }
        diag("%u: client %u, %lld to %lld: command %d of k%u, k%u (%u), %s %s "
             "%lld: %s%s%s", i, op->client, (long long)op->asked_at,
             (long long)op->answered_at, op->command, op->keys[0], op->keys[1],
             op->n_keys, op->words[0] ? op->words[0] : "",
             op->words[1] ? op->words[1] : "", (long long)op->number, hex,
             op->is_void ? " cancelled" : "", op->is_open ? " open" : "");
    }
}
