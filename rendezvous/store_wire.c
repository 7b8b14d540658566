/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/store_wire.h"

#include <errno.h>
#include <string.h>

/* Fields by letter: k key, v value, i 64-bit number, u 32-bit number, and *
 * a count of how often the rest is repeated. */
static const char *const shapes[STORE_N_COMMANDS] = {
    [STORE_VALIDATE] = "u",
    [STORE_SET] = "kv",
    [STORE_COMPARE_SET] = "kvv",
    [STORE_GET] = "k",
    [STORE_ADD] = "ki",
    [STORE_CHECK] = "*k",
    [STORE_WAIT] = "*k",
    [STORE_NUM_KEYS] = "",
    [STORE_DELETE_KEY] = "k",
    [STORE_APPEND] = "kv",
    [STORE_MULTI_GET] = "*k",
    [STORE_MULTI_SET] = "*kv",
    [STORE_CANCEL_WAIT] = "",
    [STORE_PING] = "u",
    [STORE_QUEUE_PUSH] = "kv",
    [STORE_QUEUE_POP] = "k",
    [STORE_QUEUE_LEN] = "k",
    [STORE_LIST_KEYS] = "",
    [STORE_BARRIER] = "ki",
};

#define OLD_WATCH_KEY 7 /* never used by the Python clients that remain */

static uint64_t load_u64(const char *from)
{
    uint64_t v;

    memcpy(&v, from, sizeof(v));
    return v;
}

static uint32_t load_u32(const char *from)
{
    uint32_t v;

    memcpy(&v, from, sizeof(v));
    return v;
}

enum store_dialect store_detect(const void *data, size_t len)
{
    const char *p = data;

    if (len > 0 && p[0] != 0) {
        return STORE_DIALECT_OLD;
    }
    if (len < 1 + sizeof(uint32_t)) {
        return STORE_DIALECT_UNKNOWN;
    }
    /* Old: a SET, and this the low half of the length of its key. */
    return load_u32(p + 1) == STORE_MAGIC ? STORE_DIALECT_NEW
                                          : STORE_DIALECT_OLD;
}

static int scan_command(struct store_scan *scan, enum store_dialect dialect,
                        uint8_t byte, struct error *e)
{
    unsigned command = byte;

    if (dialect == STORE_DIALECT_OLD) {
        if (byte == OLD_WATCH_KEY || byte > STORE_CANCEL_WAIT) {
            return error_text(e, EPROTO, "unknown command %u (old dialect)",
                              byte);
        }
        command = byte < OLD_WATCH_KEY ? byte + 1u : byte;
    } else if (byte >= STORE_N_COMMANDS) {
        return error_text(e, EPROTO, "unknown command %u", byte);
    }
    scan->command = (enum store_command)command;
    scan->shape = shapes[command];
    scan->field = scan->shape;
    scan->at = 1;
    return 0;
}

/* The length of the field that starts at scan->at, as far as it can be known
 * from what is there: at least that many bytes are needed. */
static int field_length(const struct store_scan *scan,
                        const struct store_limits *limits, const char *data,
                        size_t len, size_t *ret, struct error *e)
{
    size_t max = *scan->field == 'k' ? limits->key_bytes : limits->value_bytes;
    uint64_t n;

    *ret = *scan->field == 'u' ? sizeof(uint32_t) : sizeof(uint64_t);
    if (*scan->field == 'u' || len - scan->at < sizeof(n)) {
        return 0;
    }
    n = load_u64(data + scan->at);
    if (*scan->field == '*' && n > limits->request_keys) {
        return error_text(e, EMSGSIZE, "%llu keys in a request, limit %zu",
                          (unsigned long long)n, limits->request_keys);
    }
    if (*scan->field == 'k' || *scan->field == 'v') {
        if (n > max) {
            return error_text(e, EMSGSIZE, "%s of %llu bytes, limit %zu",
                              *scan->field == 'k' ? "key" : "value",
                              (unsigned long long)n, max);
        }
        *ret += (size_t)n;
    }
    if (*ret > limits->request_bytes - scan->at) {
        return error_text(e, EMSGSIZE, "request of more than %zu bytes",
                          limits->request_bytes);
    }
    return 0;
}

/* Past a field that is there, to the next one or the next round. */
static void step(struct store_scan *scan, const char *data, size_t field_len)
{
    if (*scan->field == '*') {
        scan->rounds = load_u64(data + scan->at);
        scan->field += scan->rounds ? 1 : strlen(scan->field);
    } else {
        scan->field++;
        if (*scan->field == '\0' && scan->rounds > 1) {
            scan->rounds--;
            scan->field = scan->shape + 1;
        }
    }
    scan->at += field_len;
}

int store_scan(struct store_scan *scan, enum store_dialect dialect,
               const struct store_limits *limits, const void *data, size_t len,
               struct error *e)
{
    size_t field_len;
    int rc;

    if (len == 0) {
        return 0;
    }
    if (!scan->shape) {
        rc = scan_command(scan, dialect, *(const uint8_t *)data, e);
        if (rc < 0) {
            return rc;
        }
    }
    while (*scan->field) {
        rc = field_length(scan, limits, data, len, &field_len, e);
        if (rc < 0) {
            return rc;
        }
        if (len - scan->at < field_len) {
            return 0;
        }
        step(scan, data, field_len);
    }
    return 1;
}

uint32_t store_get_u32(struct store_request *r)
{
    uint32_t v = load_u32(r->data + r->at);

    r->at += sizeof(v);
    return v;
}

uint64_t store_get_u64(struct store_request *r)
{
    uint64_t v = load_u64(r->data + r->at);

    r->at += sizeof(v);
    return v;
}

int64_t store_get_i64(struct store_request *r)
{
    return (int64_t)store_get_u64(r);
}

const char *store_get_blob(struct store_request *r, size_t *ret_len)
{
    size_t len = (size_t)store_get_u64(r);
    const char *blob = r->data + r->at;

    r->at += len;
    *ret_len = len;
    return blob;
}
