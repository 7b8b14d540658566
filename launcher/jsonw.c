/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/jsonw.h"

#include "base/utf8.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 15 };

struct jsonw jsonw_start(struct buf *to)
{
    return (struct jsonw){.to = to};
}

static void put_control(struct buf *to, unsigned char c)
{
    switch (c) {
    case '\n': buf_puts(to, "\\n"); break;
    case '\t': buf_puts(to, "\\t"); break;
    case '\r': buf_puts(to, "\\r"); break;
    default: buf_printf(to, "\\u%04x", c); break;
    }
}

static void put_string(struct buf *to, const char *text, size_t len)
{
    const unsigned char *s = (const unsigned char *)text;

    buf_putc(to, '"');
    for (size_t i = 0; i < len;) {
        uint32_t c;
        size_t n = utf8_next_of(text + i, len - i, &c);

        if (n == 0) {
            buf_puts(to, "\xef\xbf\xbd");
            n = 1;
        } else if (s[i] == '"' || s[i] == '\\') {
            buf_putc(to, '\\');
            buf_putc(to, (char)s[i]);
        } else if (s[i] < 0x20) {
            put_control(to, s[i]);
        } else {
            buf_append(to, s + i, n);
        }
        i += n;
    }
    buf_putc(to, '"');
}

static void put_key(struct jsonw *w, const char *key)
{
    if (w->filled & (1u << w->depth)) {
        buf_putc(w->to, ',');
    }
    w->filled |= (uint16_t)(1u << w->depth);
    if (key) {
        put_string(w->to, key, strlen(key));
        buf_putc(w->to, ':');
    }
}

static void open_nested(struct jsonw *w, const char *key, char c)
{
    put_key(w, key);
    buf_putc(w->to, c);
    assert(w->depth < MAX_DEPTH);
    w->depth++;
    w->filled &= (uint16_t)~(1u << w->depth);
}

static void close_nested(struct jsonw *w, char c)
{
    assert(w->depth > 0);
    w->depth--;
    buf_putc(w->to, c);
}

void jsonw_object(struct jsonw *w, const char *key)
{
    open_nested(w, key, '{');
}

void jsonw_array(struct jsonw *w, const char *key)
{
    open_nested(w, key, '[');
}

void jsonw_end_object(struct jsonw *w)
{
    close_nested(w, '}');
}

void jsonw_end_array(struct jsonw *w)
{
    close_nested(w, ']');
}

void jsonw_bytes(struct jsonw *w, const char *key, const char *s, size_t len)
{
    put_key(w, key);
    put_string(w->to, s, len);
}

void jsonw_str(struct jsonw *w, const char *key, const char *s)
{
    jsonw_bytes(w, key, s, strlen(s));
}

void jsonw_opt_str(struct jsonw *w, const char *key, const char *s)
{
    if (s && s[0]) {
        jsonw_str(w, key, s);
    }
}

void jsonw_int(struct jsonw *w, const char *key, int64_t v)
{
    put_key(w, key);
    buf_printf(w->to, "%" PRId64, v);
}

void jsonw_num(struct jsonw *w, const char *key, double v)
{
    if (isnan(v)) {
        jsonw_str(w, key, "NaN");
    } else if (isinf(v)) {
        jsonw_str(w, key, v > 0 ? "Infinity" : "-Infinity");
    } else {
        char shortest[32];

        /* As few digits as give the same number back. */
        for (int digits = 6; digits <= 17; digits++) {
            snprintf(shortest, sizeof(shortest), "%.*g", digits, v);
            if (strtod(shortest, NULL) == v) {
                break;
            }
        }
        put_key(w, key);
        buf_puts(w->to, shortest);
    }
}

bool jsonw_read_num(const json_t *v, double *ret)
{
    const char *s = json_string_value(v);

    if (json_is_number(v)) {
        *ret = json_number_value(v);
    } else if (s && strcmp(s, "NaN") == 0) {
        *ret = NAN;
    } else if (s && strcmp(s, "Infinity") == 0) {
        *ret = INFINITY;
    } else if (s && strcmp(s, "-Infinity") == 0) {
        *ret = -INFINITY;
    } else {
        return false;
    }
    return true;
}

void jsonw_bool(struct jsonw *w, const char *key, bool v)
{
    put_key(w, key);
    buf_puts(w->to, v ? "true" : "false");
}

void jsonw_time(struct jsonw *w, const char *key, uint64_t wall_ns)
{
    put_key(w, key);
    buf_printf(w->to, "%" PRIu64 ".%06" PRIu64, wall_ns / 1000000000u,
               wall_ns / 1000u % 1000000u);
}

bool jsonw_read_time(const json_t *v, uint64_t *ret)
{
    double t = json_number_value(v);

    if (!json_is_number(v) || !(t >= 0 && t < 1e10)) {
        return false;
    }
    /* A double holds today's times to a quarter of a microsecond. */
    *ret = (uint64_t)(t * 1e6 + 0.5) * 1000u;
    return true;
}
