/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/s3_role.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"

#include <curl/curl.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_BYTES = 64 << 10,
    NEAR_MS = 1000,   /* of an address that may not be there */
    ANSWER_MS = 10000,
};

/* Bytes that hold secrets. */
static void wipe_buf(struct buf *b)
{
    if (b->data) {
        explicit_bzero(b->data, b->len);
    }
    buf_release(b);
}
#define _secret_ __attribute__((cleanup(wipe_buf)))

static const char *env(const char *name)
{
    const char *value = getenv(name);

    return value && *value ? value : NULL;
}

/* --- one question --- */

struct question {
    const char *method, *url;
    const char *header; /* a line, or NULL */
    long connect_ms;
    struct buf body;    /* the answer's */
    long status;        /* 0: there was none */
};

static size_t take_bytes(char *data, size_t size, size_t n, void *arg)
{
    struct question *q = arg;

    (void)size;
    if (q->body.len + n > MAX_BYTES) {
        return 0;
    }
    buf_append(&q->body, data, n);
    return q->body.failed ? 0 : n;
}

static void set_options(CURL *h, struct question *q, struct curl_slist *headers,
                        char *text)
{
    curl_easy_setopt(h, CURLOPT_URL, q->url);
    curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, q->method);
    curl_easy_setopt(h, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(h, CURLOPT_PROXY, ""); /* nobody else is to hear it */
    curl_easy_setopt(h, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, q->connect_ms);
    curl_easy_setopt(h, CURLOPT_TIMEOUT_MS, (long)ANSWER_MS);
    curl_easy_setopt(h, CURLOPT_USERAGENT, "muster/" VERSION);
    curl_easy_setopt(h, CURLOPT_ERRORBUFFER, text);
    curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, take_bytes);
    curl_easy_setopt(h, CURLOPT_WRITEDATA, q);
}

/* 0: an answer of 200. */
static int ask(struct question *q, struct error *e)
{
    char text[CURL_ERROR_SIZE] = "";
    CURL *h = curl_global_init(CURL_GLOBAL_DEFAULT) == 0 ? curl_easy_init() : NULL;
    struct curl_slist *headers = q->header ? curl_slist_append(NULL, q->header)
                                           : NULL;
    CURLcode rc = CURLE_OUT_OF_MEMORY;

    if (h && (headers || !q->header)) {
        set_options(h, q, headers, text);
        rc = curl_easy_perform(h);
    }
    if (rc == CURLE_OK) {
        curl_easy_getinfo(h, CURLINFO_RESPONSE_CODE, &q->status);
    }
    curl_easy_cleanup(h);
    curl_slist_free_all(headers);
    if (rc != CURLE_OK) {
        return error_text(e, EAGAIN, "ask %.200s for keys: %s", q->url,
                          text[0] ? text : curl_easy_strerror(rc));
    }
    return q->status == 200 ? 0
                            : error_text(e, EACCES, "ask %.200s for keys: status %ld",
                                         q->url, q->status);
}

/* --- the answer --- */

static char *take_text(const json_t *o, const char *name)
{
    const char *text = json_string_value(json_object_get(o, name));

    return text && *text ? strdup(text) : NULL;
}

static int take_keys(struct s3_config *c, const struct question *q,
                     const char *whence, struct error *e)
{
    json_t *o = json_loadb(q->body.data ? q->body.data : "", q->body.len, 0, NULL);

    c->key_id = take_text(o, "AccessKeyId");
    c->secret = take_text(o, "SecretAccessKey");
    c->token = take_text(o, "Token");
    c->whence = strdup(whence);
    json_decref(o);
    return c->key_id && c->secret && c->whence
               ? 0
               : error_text(e, EACCES, "ask %.200s for keys: the answer has none",
                            q->url);
}

/* --- a container --- */

/* What follows is the end of a host's name. */
static bool ends_host(const char *at)
{
    return !*at || strchr(":/?#", *at);
}

bool s3_role_may_ask(const char *url)
{
    static const char *const near[] = {"127.0.0.1", "localhost", "[::1]",
                                       "169.254.170.2", "169.254.170.23",
                                       "[fd00:ec2::23]"};

    if (str_starts(url, "https://")) {
        return true;
    }
    for (size_t i = 0; i < ARRAY_SIZE(near) && str_starts(url, "http://"); i++) {
        const char *host = url + strlen("http://");

        if (str_starts(host, near[i]) && ends_host(host + strlen(near[i]))) {
            return true;
        }
    }
    return false;
}

/* A header line, or nothing. */
static int add_token(struct buf *to, struct error *e)
{
    const char *path = env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    const char *token = env("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    _free_ char *text = NULL;
    size_t len = 0;
    int rc = path ? fs_read_regular(path, MAX_BYTES, &text, &len, e) : 0;

    if (rc < 0) {
        return error_wrap(e, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    }
    token = text ? text : token;
    len = token ? strcspn(token, "\r\n") : 0;
    if (token) {
        buf_printf(to, "Authorization: %.*s", (int)len, token);
    }
    if (text) {
        explicit_bzero(text, strlen(text));
    }
    return to->failed ? error_set(e, ENOMEM, "credentials") : 0;
}

static int ask_container(struct s3_config *c, const char *url, struct error *e)
{
    _secret_ struct buf token = {0};
    struct question q = {.method = "GET", .url = url, .connect_ms = ANSWER_MS};
    int rc = add_token(&token, e);

    q.header = token.len ? token.data : NULL;
    rc = rc < 0 ? rc : ask(&q, e);
    rc = rc < 0 ? rc : take_keys(c, &q, "the container's role", e);
    wipe_buf(&q.body);
    return rc;
}

/* --- an instance --- */

static int ask_instance(struct s3_config *c, const char *end, const char *path,
                        const char *token, struct buf *to, struct error *e)
{
    _secret_ struct buf url = {0}, header = {0};
    bool is_put = !token;
    struct question q = {.method = is_put ? "PUT" : "GET", .connect_ms = NEAR_MS};
    int rc;

    buf_printf(&url, "%s/latest/%s", end, path);
    buf_printf(&header, "X-aws-ec2-metadata-token%s: %s",
               is_put ? "-ttl-seconds" : "", is_put ? "300" : token);
    q.url = buf_str(&url);
    q.header = buf_str(&header);
    rc = url.failed || header.failed ? error_set(e, ENOMEM, "credentials")
                                     : ask(&q, e);
    if (rc == 0 && to) {
        buf_append(to, q.body.data, strcspn(buf_str(&q.body), "\r\n"));
    } else if (rc == 0) {
        rc = take_keys(c, &q, "the instance's role", e);
    }
    /* Nobody is there, or knows of roles, or may say so; or it has none. */
    rc = rc < 0 && (is_put || q.status == 404) ? -ENOENT : rc;
    wipe_buf(&q.body);
    return rc;
}

static int load_instance(struct s3_config *c, struct error *e)
{
    static const char roles[] = "meta-data/iam/security-credentials/";
    const char *end = env("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    const char *off = env("AWS_EC2_METADATA_DISABLED");
    _secret_ struct buf token = {0}, path = {0};
    int rc;

    if (off && strcasecmp(off, "true") == 0) {
        return -ENOENT;
    }
    end = end ? end : "http://169.254.169.254";
    rc = ask_instance(c, end, "api/token", NULL, &token, e);
    buf_puts(&path, roles);
    rc = rc < 0 ? rc : ask_instance(c, end, roles, buf_str(&token), &path, e);
    return rc < 0 ? rc
                  : ask_instance(c, end, buf_str(&path), buf_str(&token), NULL, e);
}

int s3_role_load(struct s3_config *c, struct error *e)
{
    const char *relative = env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = env("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    _buf_ struct buf url = {0};

    if (!relative && !full) {
        return load_instance(c, e);
    }
    buf_printf(&url, "%s%s%s", relative ? "http://169.254.170.2" : "",
               relative && relative[0] != '/' ? "/" : "", relative ? relative : full);
    if (!s3_role_may_ask(buf_str(&url))) {
        return error_text(e, EINVAL, "AWS_CONTAINER_CREDENTIALS_FULL_URI is "
                          "'%.100s': expected https://, or http:// of this machine",
                          buf_str(&url));
    }
    return ask_container(c, buf_str(&url), e);
}
