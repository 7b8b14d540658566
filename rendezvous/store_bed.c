/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/store_bed.h"

#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <stdarg.h>
#include <string.h>

static const uint8_t seed[16] = {1, 2, 3};

void bed_put(struct buf *b, const void *data, size_t len)
{
    buf_append(b, data, len);
}

void bed_put_u64(struct buf *b, uint64_t v)
{
    bed_put(b, &v, sizeof(v));
}

void bed_put_blob(struct buf *b, const char *s)
{
    bed_put_u64(b, strlen(s));
    buf_puts(b, s);
}

void bed_req(struct buf *b, int command, const char *fields, ...)
{
    va_list ap;

    va_start(ap, fields);
    buf_putc(b, (char)command);
    for (; *fields; fields++) {
        if (*fields == 's') {
            bed_put_blob(b, va_arg(ap, const char *));
        } else if (*fields == 'n') {
            bed_put_u64(b, va_arg(ap, uint64_t));
        } else {
            uint32_t v = va_arg(ap, uint32_t);

            bed_put(b, &v, sizeof(v));
        }
    }
    va_end(ap);
}

struct store *bed_store(const struct store_limits *limits)
{
    struct store *s = store_create(limits, seed);

    if (!s) {
        bail_out("no memory");
    }
    return s;
}

struct store_conn *bed_open(struct store *s)
{
    struct store_conn *c = store_open(s, NULL);
    _buf_ struct buf b = {0};

    bed_req(&b, STORE_VALIDATE, "u", STORE_MAGIC);
    if (!c || store_feed(s, c, b.data, b.len, NULL) < 0) {
        bail_out("cannot open a connection");
    }
    return c;
}

void bed_take(struct store *s, struct store_conn *c, struct buf *to)
{
    size_t len;
    _free_ char *data = store_take(c, &len);

    buf_clear(to);
    if (data) {
        bed_put(to, data, len);
    }
    store_sent(s, c, len);
    while (store_next_ready(s)) {
    }
}

int bed_ask(struct store *s, struct store_conn *c, struct buf *in,
            struct buf *out)
{
    struct error e = {0};
    int rc = store_feed(s, c, in->data, in->len, &e);

    buf_clear(in);
    bed_take(s, c, out);
    return rc;
}

bool bed_is(const struct buf *got, const struct buf *want, const char *name)
{
    bool same = got->len == want->len &&
                (got->len == 0 ||
                 memcmp(got->data, want->data, got->len) == 0);

    if (!ok(same, "%s", name)) {
        diag("got %zu bytes, want %zu", got->len, want->len);
    }
    return same;
}
