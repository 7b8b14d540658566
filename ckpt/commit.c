/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/commit.h"

#include "base/str.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum {
    FORMAT = 1,
    CHECK_BYTES = 5 + 16 + 1, /* "xxh3 ", the digits, a newline */
};

static void put_check(const char *line, size_t len, char to[CHECK_BYTES + 1])
{
    snprintf(to, CHECK_BYTES + 1, "xxh3 %016llx\n",
             (unsigned long long)digest_short_of(line, len));
}

static bool is_plain(char c)
{
    return c > ' ' && c <= '~' && c != '"' && c != '\\';
}

void commit_put_writer(char to[COMMIT_WRITER_BYTES], const char *text)
{
    size_t n = 0;

    for (; n < COMMIT_WRITER_BYTES - 1 && text[n]; n++) {
        to[n] = is_plain(text[n]) ? text[n] : '_';
    }
    to[n] = '\0';
}

static void put_writer(struct buf *b, const char *key, const char *value)
{
    char plain[COMMIT_WRITER_BYTES];

    commit_put_writer(plain, value);
    if (plain[0]) {
        buf_printf(b, ",\"%s\":\"%s\"", key, plain);
    }
}

void commit_encode(const struct commit *c, struct buf *b)
{
    char digest[DIGEST_TEXT_BYTES], check[CHECK_BYTES + 1];
    size_t from = b->len;

    digest_format(c->manifest_digest, digest);
    buf_printf(b, "{\"v\":%d,\"step\":%llu,\"uuid\":\"%s\",\"generation\":%u,"
               "\"token\":%llu,\"manifest_bytes\":%llu,"
               "\"manifest_digest\":\"%s\",\"n_files\":%llu,"
               "\"total_bytes\":%llu",
               FORMAT, (unsigned long long)c->step, c->uuid, c->generation,
               (unsigned long long)c->token,
               (unsigned long long)c->manifest_bytes, digest,
               (unsigned long long)c->n_files,
               (unsigned long long)c->total_bytes);
    put_writer(b, "host", c->host);
    put_writer(b, "muster", c->version);
    buf_puts(b, "}\n");
    if (!b->failed) {
        put_check(b->data + from, b->len - from, check);
        buf_append(b, check, CHECK_BYTES);
    }
}

/* Whether the second line is the digest of the first, which is `*ret_len` long. */
static bool check(const char *data, size_t len, size_t *ret_len)
{
    const char *end = memchr(data, '\n', len);
    char want[CHECK_BYTES + 1];

    if (!end || (size_t)(data + len - end) != 1 + CHECK_BYTES) {
        return false;
    }
    *ret_len = (size_t)(end - data) + 1;
    put_check(data, *ret_len, want);
    return memcmp(end + 1, want, CHECK_BYTES) == 0;
}

static bool take_number(const json_t *from, const char *key, uint64_t *ret)
{
    const json_t *v = json_object_get(from, key);

    if (!json_is_integer(v) || json_integer_value(v) < 0) {
        return false;
    }
    *ret = (uint64_t)json_integer_value(v);
    return true;
}

static bool take_uuid(const json_t *from, char to[COMMIT_UUID_BYTES])
{
    const char *text = json_string_value(json_object_get(from, "uuid"));

    if (!text || strlen(text) != COMMIT_UUID_BYTES - 1 ||
        strspn(text, "0123456789abcdef") != COMMIT_UUID_BYTES - 1) {
        return false;
    }
    str_copy(to, COMMIT_UUID_BYTES, text);
    return true;
}

static bool take_digest(const json_t *from, struct digest *ret)
{
    const char *text =
        json_string_value(json_object_get(from, "manifest_digest"));

    return text && digest_parse(text, ret);
}

/* It may be missing. */
static bool take_writer(const json_t *from, const char *key,
                        char to[COMMIT_WRITER_BYTES])
{
    const json_t *v = json_object_get(from, key);
    const char *text = json_string_value(v);
    size_t n = 0;

    if (!v) {
        return true;
    }
    while (text && is_plain(text[n])) {
        n++;
    }
    if (!text || text[n] || n >= COMMIT_WRITER_BYTES) {
        return false;
    }
    str_copy(to, COMMIT_WRITER_BYTES, text);
    return true;
}

static int take(const json_t *from, struct commit *ret, struct error *e)
{
    uint64_t version, generation;

    if (!take_number(from, "v", &version)) {
        return error_text(e, ERR_FORMAT, "COMMIT has no version");
    }
    if (version != FORMAT) {
        return error_text(e, ERR_VERSION, "COMMIT of version %llu, and this "
                          "muster knows %d", (unsigned long long)version,
                          FORMAT);
    }
    if (!take_number(from, "step", &ret->step) ||
        !take_number(from, "generation", &generation) ||
        generation > UINT32_MAX || !take_uuid(from, ret->uuid) ||
        !take_number(from, "token", &ret->token) ||
        !take_number(from, "manifest_bytes", &ret->manifest_bytes) ||
        !take_digest(from, &ret->manifest_digest) ||
        !take_number(from, "n_files", &ret->n_files) ||
        !take_number(from, "total_bytes", &ret->total_bytes) ||
        !take_writer(from, "host", ret->host) ||
        !take_writer(from, "muster", ret->version)) {
        return error_text(e, ERR_FORMAT, "COMMIT lacks a value, or has a wrong "
                          "one");
    }
    ret->generation = (uint32_t)generation;
    return 0;
}

int commit_decode(const void *data, size_t len, struct commit *ret,
                  struct error *e)
{
    struct commit c = {0};
    size_t line = 0;
    json_t *json;
    int rc;

    if (len > COMMIT_MAX_BYTES || !check(data, len, &line)) {
        return error_text(e, ERR_FORMAT, "COMMIT is cut or damaged: its %zu "
                          "bytes do not have the digest that they say", len);
    }
    json = json_loadb(data, line, JSON_REJECT_DUPLICATES, NULL);
    if (!json) {
        return error_text(e, ERR_FORMAT, "COMMIT is no JSON object");
    }
    rc = take(json, &c, e);
    json_decref(json);
    if (rc == 0) {
        *ret = c;
    }
    return rc;
}
