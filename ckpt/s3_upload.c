/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects in parts. What a killed process has sent stays in its upload: the next
 * one finds it by the key, and sends only the parts that are not there with the
 * ETag of its own bytes. That is their MD5 everywhere but under some encryptions,
 * where parts are sent anew. So they are where nobody can tell what was sent: uploads may be
 * listed by fewer than may write objects, and not every store lists them, or their parts.
 */
#include <config.h>

#include "ckpt/s3_priv.h"

#include "ckpt/s3_sum.h"
#include "base/s3_uri.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A POST has a body, if an empty one. */
static const char nothing[] = "";

static void add_pair(struct buf *query, const char *name, const char *value)
{
    buf_printf(query, "%s%s=", query->len ? "&" : "", name);
    s3_escape(query, value, false);
}

/* A request about a key with a query; the body of the answer in `r`. */
static int ask(struct s3 *s, const char *method, const char *key,
               const struct buf *query, struct s3_reply *r, struct error *e)
{
    struct s3_request q = {.method = method, .key = key, .query = buf_str(query)};

    if (query->failed) {
        return error_set(e, ENOMEM, "s3://%s", s->bucket);
    }
    return s3_call(s, &q, r, e);
}

/* --- uploads --- */

static int uploads_page(struct s3 *s, struct s3_uploads *u, struct error *e)
{
    _s3_reply_ struct s3_reply r = {0};
    _buf_ struct buf query = {0};
    int rc;

    add_pair(&query, "encoding-type", "url");
    if (u->is_truncated) {
        add_pair(&query, "key-marker", u->next_key);
    }
    add_pair(&query, "prefix", u->key);
    if (u->is_truncated && u->next_id) {
        add_pair(&query, "upload-id-marker", u->next_id);
    }
    add_pair(&query, "uploads", "");
    rc = ask(s, "GET", NULL, &query, &r, e);
    return rc < 0 ? rc : s3_uploads_add(r.body.data, r.body.len, u, e);
}

static int find_uploads(struct s3 *s, struct s3_uploads *u, struct error *e)
{
    int rc;

    for (int pages = 0; pages < 100; pages++) {
        rc = uploads_page(s, u, e);
        if (rc < 0) {
            return error_wrap(e, "uploads of %s", u->key);
        }
        if (!u->is_truncated) {
            break;
        }
    }
    return 0;
}

static int create(struct s3 *s, const char *key, const char *digest,
                  char **ret_id, struct error *e)
{
    _s3_reply_ struct s3_reply r = {0};
    struct s3_request q = {.method = "POST", .key = key, .query = "uploads=",
                           .body = nothing};
    int rc;

    if (digest[0]) {
        strlist_add(&q.headers, S3_DIGEST_HEADER);
        strlist_add(&q.headers, digest);
    }
    rc = s3_call(s, &q, &r, e);
    return rc < 0 ? rc
                  : s3_answer_text(r.body.data, r.body.len, "UploadId", ret_id, e);
}

static int list_parts(struct s3 *s, const char *key, const char *id,
                      struct s3_part *parts, size_t n, struct error *e)
{
    uint64_t marker = 0, next = 0;

    do {
        _s3_reply_ struct s3_reply r = {0};
        _buf_ struct buf query = {0};
        char text[32];
        int rc;

        snprintf(text, sizeof(text), "%" PRIu64, marker);
        if (marker) {
            add_pair(&query, "part-number-marker", text);
        }
        add_pair(&query, "uploadId", id);
        rc = ask(s, "GET", key, &query, &r, e);
        rc = rc < 0 ? rc
                    : s3_parts_add(r.body.data, r.body.len, parts, n, &next, e);
        if (rc < 0) {
            return rc;
        }
        if (next && next <= marker) {
            return error_text(e, ERR_FORMAT, "pages go back");
        }
        marker = next;
    } while (marker);
    return 0;
}

static bool is_untold(int rc)
{
    return rc == -EACCES || rc == -EINVAL || rc == -ERR_FORMAT;
}

/* Once. Who is refused all else, too, is told that by what fails of it. */
static void tell_untold(struct s3 *s, const struct error *why)
{
    char text[sizeof(why->text) + 100];

    if (!atomic_exchange(&s->has_told_uploads, true) && s->limits.tell) {
        snprintf(text, sizeof(text), "%s; what an earlier push has sent of a file in parts is "
                 "sent again", why->text);
        s->limits.tell(s->limits.arg, text);
    }
}

/* 1: it has what `parts` says. */
static int find_upload(struct s3 *s, const char *key, struct s3_part *parts, size_t n_parts,
                       char **ret_id, struct error *e)
{
    _s3_uploads_ struct s3_uploads u = {.key = key};
    int rc = find_uploads(s, &u, e);

    if (rc < 0 || !u.newest) {
        return rc;
    }
    rc = list_parts(s, key, u.newest, parts, n_parts, e);
    if (rc == 0) {
        *ret_id = take_ptr(&u.newest);
        return 1;
    }
    /* Its owner has just completed it, or ended it. */
    return rc == -ENOENT ? 0 : error_wrap(e, "parts of %s", key);
}

int s3_upload_begin(struct s3 *s, const char *key, const char *digest,
                    struct s3_part *parts, size_t n_parts, char **ret_id,
                    struct error *e)
{
    struct error why = {0};
    int rc;

    memset(parts, 0, n_parts * sizeof(*parts));
    rc = find_upload(s, key, parts, n_parts, ret_id, &why);
    if (rc > 0) {
        return 0;
    }
    if (rc < 0 && !is_untold(rc)) {
        return error_text(e, why.code, "%s", why.text);
    }
    memset(parts, 0, n_parts * sizeof(*parts));
    rc = create(s, key, digest, ret_id, e);
    if (rc == 0 && why.code && is_untold(-why.code)) {
        tell_untold(s, &why);
    }
    return rc;
}

/* --- parts --- */

bool s3_part_matches(const struct s3_part *part, const void *data, size_t len)
{
    unsigned char md5[S3_MD5_BYTES];
    char hex[33];

    if (!part->is_there || part->bytes != len || s3_md5(data, len, md5) < 0) {
        return false;
    }
    s3_md5_hex(md5, hex);
    return strlen(part->etag) == 34 ? strncmp(part->etag + 1, hex, 32) == 0
                                    : strcmp(part->etag, hex) == 0;
}

int s3_upload_part(struct s3 *s, const char *key, const char *id, size_t number,
                   const void *data, size_t len, struct s3_part *ret,
                   struct error *e)
{
    _s3_reply_ struct s3_reply r = {0};
    _buf_ struct buf query = {0};
    struct s3_request q = {.method = "PUT", .key = key, .body = data,
                           .body_len = len};
    int rc;

    buf_printf(&query, "partNumber=%zu", number);
    add_pair(&query, "uploadId", id);
    q.query = buf_str(&query);
    rc = query.failed ? error_set(e, ENOMEM, "send %s", key)
                      : s3_call(s, &q, &r, e);
    if (rc < 0) {
        return rc;
    }
    if (!r.head.etag[0]) {
        return error_text(e, ERR_FORMAT, "part %zu of %s: the answer has no ETag",
                          number, key);
    }
    *ret = (struct s3_part){.is_there = true, .bytes = len};
    str_copy(ret->etag, sizeof(ret->etag), r.head.etag);
    return 0;
}

/* --- completing --- */

static void escape_xml(struct buf *to, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '"':
            buf_puts(to, "&quot;");
            break;
        case '&':
            buf_puts(to, "&amp;");
            break;
        case '<':
            buf_puts(to, "&lt;");
            break;
        default:
            buf_putc(to, *text);
        }
    }
}

static void make_body(struct buf *to, const struct s3_part *parts, size_t n)
{
    buf_puts(to, "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/"
                 "2006-03-01/\">");
    for (size_t i = 0; i < n; i++) {
        buf_printf(to, "<Part><PartNumber>%zu</PartNumber><ETag>", i + 1);
        escape_xml(to, parts[i].etag);
        buf_puts(to, "</ETag></Part>");
    }
    buf_puts(to, "</CompleteMultipartUpload>");
}

static void abort_upload(struct s3 *s, const char *key, const char *id)
{
    _s3_reply_ struct s3_reply r = {0};
    _buf_ struct buf query = {0};

    add_pair(&query, "uploadId", id);
    ask(s, "DELETE", key, &query, &r, NULL);
}

/* What others have begun costs space until somebody ends it. That this fails is no
 * harm to the object. */
static void end_others(struct s3 *s, const char *key, const char *id)
{
    _s3_uploads_ struct s3_uploads u = {.key = key};

    if (find_uploads(s, &u, NULL) < 0) {
        return;
    }
    for (size_t i = 0; i < u.ids.n; i++) {
        if (strcmp(u.ids.items[i], id) != 0) {
            abort_upload(s, key, u.ids.items[i]);
        }
    }
}

int s3_upload_complete(struct s3 *s, const char *key, const char *id,
                       const struct s3_part *parts, size_t n_parts,
                       struct error *e)
{
    _s3_reply_ struct s3_reply r = {0};
    _buf_ struct buf query = {0}, body = {0};
    struct s3_request q = {.method = "POST", .key = key};
    int rc;

    add_pair(&query, "uploadId", id);
    make_body(&body, parts, n_parts);
    q.query = buf_str(&query);
    q.body = buf_str(&body);
    q.body_len = body.len;
    rc = query.failed || body.failed ? error_set(e, ENOMEM, "complete %s", key)
                                     : s3_call(s, &q, &r, e);
    if (rc < 0) {
        return rc;
    }
    end_others(s, key, id);
    return 0;
}
