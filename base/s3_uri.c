/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/s3_uri.h"

#include "base/str.h"

#include <errno.h>
#include <string.h>

static const char scheme[] = "s3://";

bool s3_is_uri(const char *text)
{
    return str_starts(text, scheme);
}

static bool is_bucket(const char *name, size_t len)
{
    if (len < 3 || len > 63 || name[0] == '.' || name[0] == '-') {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        char c = name[i];

        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
              (c >= 'A' && c <= 'Z') || c == '.' || c == '-' || c == '_')) {
            return false;
        }
    }
    return true;
}

/* Each part of a path is a name. */
static bool is_plain(const char *path)
{
    if (str_ends(path, "/")) {
        return false;
    }
    while (*path) {
        size_t n = strcspn(path, "/");

        if (n == 0 || (n == 1 && path[0] == '.') ||
            (n == 2 && path[0] == '.' && path[1] == '.')) {
            return false;
        }
        path += n;
        path += *path == '/';
    }
    return true;
}

int s3_uri_parse(const char *text, struct s3_uri *ret, struct error *e)
{
    const char *bucket = text + strlen(scheme), *prefix;
    size_t n = s3_is_uri(text) ? strcspn(bucket, "/") : 0, len;

    if (!is_bucket(bucket, n)) {
        return error_text(e, EINVAL, "'%.100s': expected s3://BUCKET/PREFIX, with "
                          "a bucket of 3 to 63 letters, digits, '.', '-' or '_'",
                          text);
    }
    prefix = bucket + n + (bucket[n] == '/');
    len = strlen(prefix);
    len -= len > 0 && prefix[len - 1] == '/';
    if (len > S3_KEY_MAX_BYTES - 300) {
        return error_text(e, EINVAL, "'%.60s...': a prefix of %zu bytes, expected "
                          "at most %d, so that names fit behind it", text, len,
                          S3_KEY_MAX_BYTES - 300);
    }
    memcpy(ret->bucket, bucket, n);
    ret->bucket[n] = '\0';
    memcpy(ret->prefix, prefix, len);
    ret->prefix[len] = '\0';
    if (!is_plain(ret->prefix)) {
        return error_text(e, EINVAL, "'%.100s': no part of a prefix may be empty, "
                          "'.' or '..'", text);
    }
    return 0;
}

static bool stays(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || strchr("-._~", c);
}

void s3_escape(struct buf *to, const char *text, bool keeps_slashes)
{
    for (; *text; text++) {
        if (stays(*text) || (*text == '/' && keeps_slashes)) {
            buf_putc(to, *text);
        } else {
            buf_printf(to, "%%%02X", (unsigned char)*text);
        }
    }
}

static int digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool s3_unescape(char *text)
{
    char *to = text;

    for (; *text; text++, to++) {
        int high, low;

        *to = *text;
        if (*text == '+') {
            *to = ' ';
        }
        if (*text != '%') {
            continue;
        }
        high = digit(text[1]);
        low = high < 0 ? -1 : digit(text[2]);
        if (low < 0 || high + low == 0) {
            return false;
        }
        *to = (char)(high * 16 + low);
        text += 2;
    }
    *to = '\0';
    return true;
}
