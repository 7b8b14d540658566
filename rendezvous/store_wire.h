/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The requests of the TCPStore protocol: which fields each command has, where a
 * request ends in a stream of bytes, and reading the fields of one that is
 * complete. store_core.h describes the wire.
 */
#ifndef MUSTER_RENDEZVOUS_STORE_WIRE_H
#define MUSTER_RENDEZVOUS_STORE_WIRE_H

#include "base/error.h"
#include "rendezvous/store_core.h"

#include <stddef.h>
#include <stdint.h>

enum store_command {
    STORE_VALIDATE = 0,
    STORE_SET = 1,
    STORE_COMPARE_SET = 2,
    STORE_GET = 3,
    STORE_ADD = 4,
    STORE_CHECK = 5,
    STORE_WAIT = 6,
    STORE_NUM_KEYS = 7,
    STORE_DELETE_KEY = 8,
    STORE_APPEND = 9,
    STORE_MULTI_GET = 10,
    STORE_MULTI_SET = 11,
    STORE_CANCEL_WAIT = 12,
    STORE_PING = 13,
    STORE_QUEUE_PUSH = 14,
    STORE_QUEUE_POP = 15,
    STORE_QUEUE_LEN = 16,
    STORE_LIST_KEYS = 17,
    STORE_BARRIER = 18,
    STORE_N_COMMANDS,

    /* Between agents, on a channel for them: store_share.h, store_frame.h. */
    STORE_KEEP = STORE_SET,
    STORE_FORGOT = STORE_GET,
    STORE_DROP = STORE_DELETE_KEY, /* also the answer to it */
    STORE_MORE = STORE_PING
};

#define STORE_MAGIC 0x3c85f7ceu /* what VALIDATE carries */

enum store_check_reply { STORE_READY = 0, STORE_NOT_READY = 1 };
enum store_wait_reply {
    STORE_STOP_WAITING = 0,
    STORE_WAIT_CANCELED = 1,
    STORE_STOP_WAITING_ONE = 2 /* between agents: store_frame.h */
};

enum store_dialect {
    STORE_DIALECT_UNKNOWN,
    STORE_DIALECT_OLD, /* before PyTorch 2.1 */
    STORE_DIALECT_NEW
};

/* What the first bytes of a connection say; UNKNOWN asks for more of them. */
enum store_dialect store_detect(const void *data, size_t len);

/* Where a scan of one request stands; zero-initialised before its first byte. */
struct store_scan {
    enum store_command command;
    const char *shape; /* of the fields; NULL before the command */
    const char *field; /* the next one */
    uint64_t rounds;   /* left of a repeated group */
    size_t at;         /* bytes of the request that are known to be there */
};

/* Looks at `len` bytes from the start of a request; bytes that were there in
 * the last call with this scan must be there again. 1: complete, `at` bytes
 * long; 0: not all there yet; -EPROTO: no such command; -EMSGSIZE: over a
 * limit. */
int store_scan(struct store_scan *scan, enum store_dialect dialect,
               const struct store_limits *limits, const void *data, size_t len,
               struct error *e);

/* The fields of a request that store_scan() found complete, in order. */
struct store_request {
    enum store_command command;
    const char *data;
    size_t at;
};
uint32_t store_get_u32(struct store_request *r);
uint64_t store_get_u64(struct store_request *r);
int64_t store_get_i64(struct store_request *r);
/* A key or value, inside the request's memory. */
const char *store_get_blob(struct store_request *r, size_t *ret_len);

#endif
