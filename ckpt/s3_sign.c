/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/s3_sign.h"

#include "base/cleanup.h"
#include "ckpt/s3_sum.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DAY_BYTES = 9 };

struct pair {
    const char *name, *value;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct pair *)a)->name, ((const struct pair *)b)->name);
}

void s3_format_date(time_t now, char to[S3_DATE_BYTES])
{
    struct tm tm;

    gmtime_r(&now, &tm);
    strftime(to, S3_DATE_BYTES, "%Y%m%dT%H%M%SZ", &tm);
}

/* The names, joined by ';'. */
static void put_names(struct buf *to, const struct pair *pairs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        buf_printf(to, "%s%s", i ? ";" : "", pairs[i].name);
    }
}

/* What is hashed: the request, written in the one way that both sides know. */
static void put_request(struct buf *to, const struct s3_signing *s,
                        const struct pair *pairs, size_t n)
{
    buf_printf(to, "%s\n%s\n%s\n", s->method, s->path, s->query);
    for (size_t i = 0; i < n; i++) {
        buf_printf(to, "%s:%s\n", pairs[i].name, pairs[i].value);
    }
    buf_putc(to, '\n');
    put_names(to, pairs, n);
    buf_printf(to, "\n%s", s->payload);
}

/* The secret, narrowed to a day, a region and a service. */
static int make_key(const struct s3_signing *s, const char *day,
                    unsigned char to[S3_SHA256_BYTES])
{
    const char *const steps[] = {day, s->region, "s3", "aws4_request"};
    char secret[512];
    int n = snprintf(secret, sizeof(secret), "AWS4%s", s->secret);
    const void *key = secret;
    size_t len = (size_t)n;
    int rc = n < (int)sizeof(secret) ? 0 : -ENOMEM;

    for (size_t i = 0; i < ARRAY_SIZE(steps) && rc == 0; i++) {
        unsigned char next[S3_SHA256_BYTES];

        rc = s3_hmac(key, len, steps[i], strlen(steps[i]), next);
        memcpy(to, next, sizeof(next));
        explicit_bzero(next, sizeof(next));
        key = to;
        len = S3_SHA256_BYTES;
    }
    explicit_bzero(secret, sizeof(secret));
    return rc;
}

static int sign(const struct s3_signing *s, const struct pair *pairs, size_t n,
                struct buf *to)
{
    _buf_ struct buf request = {0}, text = {0};
    char date[S3_DATE_BYTES], day[DAY_BYTES], sum[S3_SHA256_TEXT_BYTES];
    unsigned char key[S3_SHA256_BYTES] = {0}, signature[S3_SHA256_BYTES] = {0};
    int rc;

    s3_format_date(s->now, date);
    str_copy(day, sizeof(day), date);
    put_request(&request, s, pairs, n);
    rc = request.failed ? -ENOMEM
                        : s3_sha256_text(request.data, request.len, sum);
    buf_printf(&text, "AWS4-HMAC-SHA256\n%s\n%s/%s/s3/aws4_request\n%s", date, day,
               s->region, sum);
    rc = rc < 0 || text.failed ? -ENOMEM : make_key(s, day, key);
    rc = rc < 0 ? rc
                : s3_hmac(key, sizeof(key), text.data, text.len, signature);
    explicit_bzero(key, sizeof(key));
    s3_hex(signature, sizeof(signature), sum);
    buf_printf(to, "AWS4-HMAC-SHA256 Credential=%s/%s/%s/s3/aws4_request, "
               "SignedHeaders=", s->key_id, day, s->region);
    put_names(to, pairs, n);
    buf_printf(to, ", Signature=%s", sum);
    return rc < 0 || to->failed ? -ENOMEM : 0;
}

int s3_sign(const struct s3_signing *s, struct buf *to)
{
    size_t n = s->headers->n / 2;
    _free_ struct pair *pairs = calloc(n + 1, sizeof(*pairs));

    if (!pairs) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        pairs[i] = (struct pair){s->headers->items[2 * i],
                                 s->headers->items[2 * i + 1]};
    }
    qsort(pairs, n, sizeof(*pairs), by_name);
    return sign(s, pairs, n, to);
}
