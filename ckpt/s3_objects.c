/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/s3_priv.h"

#include "base/s3_uri.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

int s3_head(struct s3 *s, const char *key, struct s3_facts *ret, struct error *e)
{
    _s3_reply_ struct s3_reply r = {0};
    struct s3_request q = {.method = "HEAD", .key = key};
    int rc = s3_call(s, &q, &r, e);

    if (rc < 0) {
        return rc;
    }
    if (!r.head.has_length) {
        return error_text(e, ERR_FORMAT, "HEAD s3://%s/%s: the answer has no "
                          "length", s->bucket, key);
    }
    *ret = (struct s3_facts){.bytes = r.head.length};
    str_copy(ret->etag, sizeof(ret->etag), r.head.etag);
    str_copy(ret->digest, sizeof(ret->digest), r.head.digest);
    return 0;
}

int s3_get(struct s3 *s, const char *key, size_t max, struct buf *to,
           struct error *e)
{
    _s3_reply_ struct s3_reply r = {0};
    struct s3_request q = {.method = "GET", .key = key, .max_bytes = max};
    int rc = s3_call(s, &q, &r, e);

    if (rc < 0) {
        return rc;
    }
    buf_append(to, r.body.data, r.body.len);
    return to->failed ? error_set(e, ENOMEM, "read s3://%s/%s", s->bucket, key)
                      : 0;
}

int s3_get_range(struct s3 *s, const char *key, uint64_t at, void *to, size_t len,
                 struct error *e)
{
    _s3_reply_ struct s3_reply r = {0};
    struct s3_request q = {.method = "GET", .key = key, .to = to, .to_len = len};
    int rc;

    strlist_add(&q.headers, "range");
    strlist_addf(&q.headers, "bytes=%" PRIu64 "-%" PRIu64, at, at + len - 1);
    rc = s3_call(s, &q, &r, e);
    if (rc == 0 && r.head.status != 206 && at > 0) {
        return error_text(e, EIO, "GET s3://%s/%s: the server knows no ranges",
                          s->bucket, key);
    }
    return rc;
}

static int put(struct s3 *s, const char *key, const void *data, size_t len,
               const char *digest, bool is_new, struct error *e)
{
    _s3_reply_ struct s3_reply r = {0};
    struct s3_request q = {.method = "PUT", .key = key,
                           .body = data ? data : "", .body_len = len};

    if (digest[0]) {
        strlist_add(&q.headers, S3_DIGEST_HEADER);
        strlist_add(&q.headers, digest);
    }
    if (is_new) {
        strlist_add(&q.headers, "if-none-match");
        strlist_add(&q.headers, "*");
    }
    return s3_call(s, &q, &r, e);
}

int s3_put(struct s3 *s, const char *key, const void *data, size_t len,
           const char *digest, bool is_new, struct error *e)
{
    struct error why = {0};
    int rc = put(s, key, data, len, digest, is_new, &why);

    /* A store that knows no conditions says so. */
    if (rc == -EINVAL && is_new && strstr(why.text, "NotImplemented")) {
        rc = put(s, key, data, len, digest, false, &why);
    }
    if (rc < 0 && e) {
        *e = why;
    }
    return rc;
}

int s3_delete(struct s3 *s, const char *key, struct error *e)
{
    _s3_reply_ struct s3_reply r = {0};
    struct s3_request q = {.method = "DELETE", .key = key};
    int rc = s3_call(s, &q, &r, e);

    return rc == -ENOENT ? 0 : rc;
}

/* Parameters in the order of their names, as signatures want them. */
static void make_query(struct buf *to, const char *prefix, bool is_flat,
                       const char *next)
{
    if (next) {
        buf_puts(to, "continuation-token=");
        s3_escape(to, next, false);
        buf_putc(to, '&');
    }
    buf_puts(to, is_flat ? "delimiter=%2F&" : "");
    buf_puts(to, "encoding-type=url&list-type=2&prefix=");
    s3_escape(to, prefix, false);
}

static int list_page(struct s3 *s, const char *prefix, bool is_flat,
                     struct s3_listing *ret, struct error *e)
{
    _s3_reply_ struct s3_reply r = {0};
    _buf_ struct buf query = {0};
    struct s3_request q = {.method = "GET"};
    int rc;

    make_query(&query, prefix, is_flat, ret->is_truncated ? ret->next : NULL);
    if (query.failed) {
        return error_set(e, ENOMEM, "list s3://%s", s->bucket);
    }
    q.query = buf_str(&query);
    rc = s3_call(s, &q, &r, e);
    rc = rc < 0 ? rc : s3_listing_add(r.body.data, r.body.len, ret, e);
    return rc < 0 ? error_wrap(e, "list s3://%s/%s", s->bucket, prefix) : 0;
}

int s3_list(struct s3 *s, const char *prefix, bool is_flat,
            struct s3_listing *ret, struct error *e)
{
    _s3_listing_ struct s3_listing l = {0};

    do {
        size_t before = l.n + l.prefixes.n;
        int rc = list_page(s, prefix, is_flat, &l, e);

        if (rc < 0) {
            return rc;
        }
        if (l.is_truncated && l.n + l.prefixes.n == before) {
            return error_text(e, ERR_FORMAT, "list s3://%s/%s: a page that is "
                              "empty and not the last", s->bucket, prefix);
        }
    } while (l.is_truncated);
    *ret = l;
    l = (struct s3_listing){0};
    return 0;
}
