/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests: what clients of a store have asked and were answered, and whether one
 * store that does one thing after the other could have answered so, each request at
 * some moment between its asking and its answer, and those of one client in order.
 * That store is a model of its own, so that nothing is believed of the one that is
 * tested.
 */
#ifndef MUSTER_RENDEZVOUS_STORE_HISTORY_BED_H
#define MUSTER_RENDEZVOUS_STORE_HISTORY_BED_H

#include "rendezvous/store_wire.h"

enum {
    HISTORY_KEYS = 4,   /* k0 to k3 */
    HISTORY_TEXT = 80,  /* a value at most; of a queue, items of one byte */
    HISTORY_OPS = 64,
    HISTORY_ANSWER = 2 * (8 + HISTORY_TEXT),
};

#define HISTORY_NEVER UINT64_MAX

struct history_text {
    uint8_t len;
    char data[HISTORY_TEXT];
};

struct history_state {
    struct history_value {
        bool is_there;
        struct history_text text;
        struct history_text queue;
    } keys[HISTORY_KEYS];
};

/* One request. What takes two keys or words has them in order. */
struct history_op {
    unsigned client;
    enum store_command command;
    unsigned keys[2];
    unsigned n_keys;
    const char *words[2];
    int64_t number;
    uint64_t asked_at, answered_at; /* in one order; HISTORY_NEVER */
    bool is_void; /* a wait that was cancelled */
    bool is_open; /* perhaps not done: its client is gone */
    char answer[HISTORY_ANSWER];
    size_t answer_len;
};

struct history {
    struct history_state begin;
    struct history_op ops[HISTORY_OPS];
    unsigned n_ops;
};

/* Whether a request of this command is answered. */
bool history_has_answer(enum store_command command);

/* True if a wait for key `k` would be answered. */
bool history_is_there(const struct history_state *s, unsigned k);

bool history_is_possible(const struct history *h);

/* One line an operation, as comments of the test. */
void history_print(const struct history *h);

#endif
