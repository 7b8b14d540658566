/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request, signed and tried until there is an answer that counts.
 *
 * The signature covers the URL, our headers and the SHA-256 of the body. Over TLS a
 * long body is not hashed for it (UNSIGNED-PAYLOAD): its MD5 goes along, and TLS
 * lets nobody change it. The query has to come here escaped and in order.
 */
#include <config.h>

#include "ckpt/s3_priv.h"

#include "ckpt/s3_sign.h"
#include "ckpt/s3_sum.h"
#include "base/s3_uri.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define HASHED_MAX_BYTES (64u << 10)

/* One try. */
struct try {
    struct s3 *s;
    const struct s3_request *q;
    struct s3_reply *r;
    CURL *handle;
    struct buf url;
    struct strlist signed_headers; /* names and values */
    struct curl_slist *headers;
    bool is_failed;      /* no memory */
    bool is_overfull;    /* the answer has more bytes than there is room for */
    char text[CURL_ERROR_SIZE];
};

void s3_reply_release(struct s3_reply *r)
{
    buf_release(&r->body);
}

/* --- what libcurl calls --- */

static size_t take_line(char *line, size_t size, size_t n, void *arg)
{
    struct try *t = arg;

    (void)size;
    s3_head_line(&t->r->head, line, n, time(NULL));
    return n;
}

/* Bytes of an object only of a success: an error has a text of its own. */
static size_t take_bytes(char *data, size_t size, size_t n, void *arg)
{
    struct try *t = arg;
    size_t max = t->q->max_bytes ? t->q->max_bytes : ANSWER_MAX_BYTES;

    (void)size;
    if (t->q->to && t->r->head.status / 100 == 2) {
        if (n > t->q->to_len - t->r->got) {
            t->is_overfull = true;
            return 0;
        }
        memcpy((char *)t->q->to + t->r->got, data, n);
        t->r->got += n;
        return n;
    }
    if (n > max - t->r->body.len) {
        t->is_overfull = true;
        return 0;
    }
    buf_append(&t->r->body, data, n);
    return t->r->body.failed ? 0 : n;
}

static int look_up(void *arg, curl_off_t a, curl_off_t b, curl_off_t c,
                   curl_off_t d)
{
    const struct s3 *s = arg;

    (void)a;
    (void)b;
    (void)c;
    (void)d;
    return atomic_load(&s->is_stopped);
}

/* --- the request --- */

/* A header that is signed. */
static void add(struct try *t, const char *name, const char *value)
{
    strlist_add(&t->signed_headers, name);
    strlist_add(&t->signed_headers, value);
}

static void send_header(struct try *t, const char *name, const char *value)
{
    _buf_ struct buf line = {0};
    struct curl_slist *more;

    /* A header of no value is sent with a semicolon. */
    buf_printf(&line, "%s%s%s", name, *value ? ": " : ";", value);
    more = line.failed ? NULL : curl_slist_append(t->headers, line.data);
    t->is_failed = t->is_failed || !more;
    t->headers = more ? more : t->headers;
}

static void add_sums(struct try *t, char sha[S3_SHA256_TEXT_BYTES])
{
    const void *body = t->q->body ? t->q->body : "";
    unsigned char md5[S3_MD5_BYTES];
    char base64[32];

    str_copy(sha, S3_SHA256_TEXT_BYTES, "UNSIGNED-PAYLOAD");
    if (!t->s->has_tls || t->q->body_len <= HASHED_MAX_BYTES) {
        t->is_failed = s3_sha256_text(body, t->q->body_len, sha) < 0;
    }
    add(t, "x-amz-content-sha256", sha);
    if (t->q->body_len && s3_md5(body, t->q->body_len, md5) == 0) {
        s3_md5_base64(md5, base64);
        add(t, "content-md5", base64);
    }
}

static void add_headers(struct try *t, time_t now,
                        char sha[S3_SHA256_TEXT_BYTES])
{
    char date[S3_DATE_BYTES];

    add(t, "host", t->s->host);
    add_sums(t, sha);
    s3_format_date(now, date);
    add(t, "x-amz-date", date);
    if (t->s->config.token) {
        add(t, "x-amz-security-token", t->s->config.token);
    }
    if (t->q->body) {
        add(t, "content-type", "application/octet-stream");
    }
    strlist_add_all(&t->signed_headers, t->q->headers.items);
}

/* All headers, with the signature; and the URL. */
static void prepare(struct try *t)
{
    _buf_ struct buf path = {0}, signature = {0};
    const char *query = t->q->query ? t->q->query : "";
    const struct s3_config *c = &t->s->config;
    time_t now = time(NULL) + atomic_load(&t->s->skew_s);
    char sha[S3_SHA256_TEXT_BYTES];

    buf_printf(&path, "%s/", t->s->path);
    if (t->q->key) {
        s3_escape(&path, t->q->key, true);
    }
    buf_printf(&t->url, "%s://%s%s%s%s", t->s->has_tls ? "https" : "http",
               t->s->host, buf_str(&path), *query ? "?" : "", query);
    add_headers(t, now, sha);
    if (t->is_failed || path.failed || t->signed_headers.failed ||
        s3_sign(&(struct s3_signing){
                    .key_id = c->key_id, .secret = c->secret,
                    .region = c->region, .now = now, .method = t->q->method,
                    .path = buf_str(&path), .query = query,
                    .headers = &t->signed_headers, .payload = sha},
                &signature) < 0) {
        t->is_failed = true;
        return;
    }
    for (size_t i = 0; i + 1 < t->signed_headers.n; i += 2) {
        send_header(t, t->signed_headers.items[i],
                    t->signed_headers.items[i + 1]);
    }
    send_header(t, "authorization", signature.data);
    /* Else libcurl waits for a word of the server before each long body. */
    t->headers = curl_slist_append(t->headers, "Expect:");
}

static void set_connection(struct try *t)
{
    CURL *h = t->handle;

    curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, t->s->has_tls ? "https" : "http");
    curl_easy_setopt(h, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT, 10L);
    curl_easy_setopt(h, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(h, CURLOPT_LOW_SPEED_TIME, (long)t->s->limits.stall_s);
    curl_easy_setopt(h, CURLOPT_USERAGENT, "muster/" VERSION);
    curl_easy_setopt(h, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    curl_easy_setopt(h, CURLOPT_BUFFERSIZE, 512L * 1024);
    curl_easy_setopt(h, CURLOPT_UPLOAD_BUFFERSIZE, 512L * 1024);
    curl_easy_setopt(h, CURLOPT_ERRORBUFFER, t->text);
    curl_easy_setopt(h, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(h, CURLOPT_XFERINFOFUNCTION, look_up);
    curl_easy_setopt(h, CURLOPT_XFERINFODATA, t->s);
    if (t->s->config.ca_bundle) {
        curl_easy_setopt(h, CURLOPT_CAINFO, t->s->config.ca_bundle);
    }
}

static void set_request(struct try *t)
{
    CURL *h = t->handle;

    curl_easy_setopt(h, CURLOPT_URL, buf_str(&t->url));
    curl_easy_setopt(h, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(h, CURLOPT_HTTPHEADER, t->headers);
    if (strcmp(t->q->method, "HEAD") == 0) {
        curl_easy_setopt(h, CURLOPT_NOBODY, 1L);
    } else if (t->q->body) {
        curl_easy_setopt(h, CURLOPT_POSTFIELDSIZE_LARGE,
                         (curl_off_t)t->q->body_len);
        curl_easy_setopt(h, CURLOPT_POSTFIELDS, t->q->body);
        curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, t->q->method);
    } else if (strcmp(t->q->method, "GET") != 0) {
        curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, t->q->method);
    }
    curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, take_line);
    curl_easy_setopt(h, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, take_bytes);
    curl_easy_setopt(h, CURLOPT_WRITEDATA, t);
}

static void clear_reply(struct s3_reply *r)
{
    buf_clear(&r->body);
    r->head = (struct s3_head){.retry_after_s = -1};
    r->fault = (struct s3_fault){0};
    r->got = 0;
}

/* One try: libcurl's result. */
static CURLcode send_once(struct try *t)
{
    CURLcode rc = CURLE_OUT_OF_MEMORY;

    clear_reply(t->r);
    t->text[0] = '\0';
    t->handle = s3_take_handle(t->s);
    prepare(t);
    if (t->handle && !t->is_failed && !t->url.failed) {
        set_connection(t);
        set_request(t);
        rc = curl_easy_perform(t->handle);
    }
    if (t->handle) {
        s3_give_handle(t->s, t->handle);
    }
    curl_slist_free_all(t->headers);
    strlist_release(&t->signed_headers);
    buf_release(&t->url);
    return rc;
}

/* --- the answer --- */

/* What another try does not make better. */
static bool is_hopeless(CURLcode rc, const struct try *t)
{
    return rc == CURLE_PEER_FAILED_VERIFICATION ||
           rc == CURLE_SSL_CACERT_BADFILE || rc == CURLE_URL_MALFORMAT ||
           rc == CURLE_UNSUPPORTED_PROTOCOL || rc == CURLE_OUT_OF_MEMORY ||
           rc == CURLE_NOT_BUILT_IN || t->is_overfull;
}

/* Less than what was asked for, although the connection ended in order. */
static bool is_short(const struct try *t)
{
    return t->q->to && t->r->head.status / 100 == 2 &&
           t->r->got != t->q->to_len;
}

static enum s3_next judge(struct try *t, CURLcode rc)
{
    const struct s3_reply *r = t->r;
    bool is_error_of_200;

    /* Also of 200: a server that assembles parts has begun to answer before it
     * knows how that ends. */
    if (rc == CURLE_OK && r->body.len &&
        !(t->q->max_bytes && r->head.status / 100 == 2)) {
        s3_fault_read(r->body.data, r->body.len, &t->r->fault);
    }
    is_error_of_200 = r->fault.code[0] != '\0';
    if (rc == CURLE_OK && r->head.status / 100 == 2 && !is_error_of_200 &&
        !is_short(t)) {
        return S3_GIVE_UP;
    }
    return s3_what_next(&(struct s3_outcome){
        .has_answer = rc == CURLE_OK, .is_cut = rc == CURLE_OK && is_short(t),
        .is_hopeless = rc != CURLE_OK && is_hopeless(rc, t), .head = &r->head,
        .code = r->fault.code, .is_adjusted = atomic_load(&t->s->is_adjusted),
        .now = time(NULL) + atomic_load(&t->s->skew_s)});
}

static void describe(const struct try *t, CURLcode rc, char *to, size_t size)
{
    const struct s3_reply *r = t->r;

    if (t->is_overfull) {
        snprintf(to, size, "the answer has more bytes than there can be");
    } else if (rc != CURLE_OK) {
        snprintf(to, size, "%s",
                 t->text[0] ? t->text : curl_easy_strerror(rc));
    } else if (is_short(t)) {
        snprintf(to, size, "the answer is cut: %zu of %zu bytes", r->got,
                 t->q->to_len);
    } else {
        snprintf(to, size, "status %d%s%s%s%s", r->head.status,
                 r->fault.code[0] ? ", " : "", r->fault.code,
                 r->fault.message[0] ? ": " : "", r->fault.message);
    }
}

/* The codes of s3.h, and what to do. */
static int word(const struct try *t, CURLcode rc, enum s3_next next,
                const char *what, struct error *e)
{
    const struct s3 *s = t->s;
    const struct s3_reply *r = t->r;
    const char *code = r->fault.code;
    const char *key = t->q->key ? t->q->key : "";
    int status = rc == CURLE_OK ? r->head.status : 0;

    if (atomic_load(&s->is_stopped)) {
        return error_set(e, ECANCELED, "s3://%s/%s", s->bucket, key);
    }
    if (strcmp(code, "NoSuchBucket") == 0) {
        return error_text(e, ENXIO, "there is no bucket '%s' at %s", s->bucket,
                          s->config.endpoint ? s->config.endpoint : "Amazon");
    }
    if (r->head.region[0] && strcmp(r->head.region, s->config.region) != 0 &&
        (status == 301 || status == 307 || status == 400)) {
        return error_text(e, EINVAL, "bucket '%s' is in region %s: set AWS_REGION "
                          "to it", s->bucket, r->head.region);
    }
    if (strcmp(code, "RequestTimeTooSkewed") == 0) {
        return error_text(e, EACCES, "%s s3://%s/%s: this machine's clock and the "
                          "server's are too far apart for signatures: set it "
                          "right", t->q->method, s->bucket, key);
    }
    if (status == 401 || status == 403) {
        return error_text(e, EACCES, "%s s3://%s/%s is refused (key of %s): %s",
                          t->q->method, s->bucket, key, s->config.whence, what);
    }
    return error_text(e, status == 404   ? ENOENT
                         : status == 412 ? EEXIST
                         : t->is_overfull ? ERR_FORMAT
                         : next == S3_AGAIN                 ? EAGAIN
                         : status == 400 || status == 501 ? EINVAL : EIO,
                      "%s s3://%s/%s: %s", t->q->method, s->bucket, key, what);
}

/* --- until it is answered --- */

static void take_clock(struct s3 *s, const struct s3_reply *r)
{
    int64_t skew = (int64_t)r->head.date - (int64_t)time(NULL);
    char text[200];

    atomic_store(&s->skew_s, skew);
    if (!atomic_exchange(&s->is_adjusted, true) && s->limits.tell) {
        snprintf(text, sizeof(text), "this machine's clock is %lld s %s the "
                 "object store's: signing with the latter's",
                 (long long)(skew < 0 ? -skew : skew),
                 skew < 0 ? "ahead of" : "behind");
        s->limits.tell(s->limits.arg, text);
    }
}

/* In short steps, so that s3_stop() need not wait for it. */
static void wait_for(struct s3 *s, uint64_t ms)
{
    struct timespec step = {0, 50 * 1000 * 1000};

    for (uint64_t i = 0; i < ms / 50 + 1 && !atomic_load(&s->is_stopped); i++) {
        clock_nanosleep(CLOCK_MONOTONIC, 0, &step, NULL);
    }
}

static void hold(const struct try *t, unsigned n_tries, const char *what)
{
    struct s3 *s = t->s;
    uint32_t random = 0;
    uint64_t ms;
    char text[700];

    if (getrandom(&random, sizeof(random), 0) < 0) {
        random = (uint32_t)time(NULL);
    }
    ms = s3_wait_ms(n_tries, t->r->head.retry_after_s, random);
    if (s->limits.tell) {
        snprintf(text, sizeof(text), "%s s3://%.60s/%.200s: %.200s; again in %.1f "
                 "s (%u of %u)", t->q->method, s->bucket,
                 t->q->key ? t->q->key : "", what, (double)ms / 1000,
                 n_tries + 1, s->limits.max_tries);
        s->limits.tell(s->limits.arg, text);
    }
    wait_for(s, ms);
}

static int call(struct s3 *s, const struct s3_request *q, struct s3_reply *r,
                struct error *e)
{
    for (unsigned n = 1;; n++) {
        struct try t = {.s = s, .q = q, .r = r};
        bool was_adjusted = atomic_load(&s->is_adjusted);
        CURLcode rc = send_once(&t);
        enum s3_next next = judge(&t, rc);
        char what[512];

        if (rc == CURLE_OK && r->head.status / 100 == 2 && !r->fault.code[0] &&
            !is_short(&t)) {
            return 0;
        }
        describe(&t, rc, what, sizeof(what));
        if (next == S3_ADJUST ||
            (!was_adjusted && atomic_load(&s->is_adjusted) &&
             r->head.status == 403)) {
            /* Another thread may have, while this request was on its way. */
            take_clock(s, r);
        } else if (next == S3_GIVE_UP || n >= s->limits.max_tries ||
                   atomic_load(&s->is_stopped)) {
            return word(&t, rc, next, what, e);
        } else {
            hold(&t, n, what);
        }
    }
}

int s3_call(struct s3 *s, struct s3_request *q, struct s3_reply *ret,
            struct error *e)
{
    int rc = q->headers.failed
                 ? error_set(e, ENOMEM, "s3://%s", s->bucket)
                 : call(s, q, ret, e);

    strlist_release(&q->headers);
    return rc;
}
