/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "spec/report.h"

#include "base/buf.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void report_release(struct report *r)
{
    for (size_t i = 0; i < r->n; i++) {
        free(r->items[i].text);
    }
    free(r->items);
    *r = (struct report){0};
}

static void put_place(struct buf *b, const struct place *at)
{
    buf_puts(b, at->file ? at->file : "?");
    if (at->line) {
        buf_printf(b, ":%u:%u", at->line, at->column);
    }
}

char *place_text(const struct place *at)
{
    struct buf b = {0};
    char *text;

    put_place(&b, at);
    text = buf_take(&b);
    buf_release(&b);
    return text;
}

static void keep(struct report *r, enum spec_level level, char *text)
{
    struct spec_message *grown;

    grown = text ? reallocarray(r->items, r->n + 1, sizeof(*grown)) : NULL;
    if (!grown) {
        free(text);
        r->failed = true;
        return;
    }
    r->items = grown;
    r->items[r->n++] = (struct spec_message){.level = level, .text = text};
}

static void add(struct report *r, enum spec_level level, const struct place *at,
                const char *fmt, va_list ap)
    __attribute__((format(printf, 4, 0)));

static void add(struct report *r, enum spec_level level, const struct place *at,
                const char *fmt, va_list ap)
{
    _buf_ struct buf raw = {0}, shown = {0};

    if (at) {
        put_place(&raw, at);
        buf_puts(&raw, ": ");
    }
    buf_vprintf(&raw, fmt, ap);
    shown.failed = raw.failed;
    utf8_put_printable(&shown, buf_str(&raw), REPORT_MAX_TEXT);
    keep(r, level, buf_take(&shown));
}

void report_error(struct report *r, const struct place *at, const char *fmt,
                  ...)
{
    va_list ap;

    if (r->n_errors++ >= REPORT_MAX_ERRORS) {
        return;
    }
    va_start(ap, fmt);
    add(r, SPEC_ERROR, at, fmt, ap);
    va_end(ap);
}

void report_warn(struct report *r, const struct place *at, const char *fmt, ...)
{
    va_list ap;

    if (r->n_notes++ >= REPORT_MAX_NOTES) {
        return;
    }
    va_start(ap, fmt);
    add(r, SPEC_WARNING, at, fmt, ap);
    va_end(ap);
}

void report_note(struct report *r, const struct place *at, const char *fmt, ...)
{
    va_list ap;

    if (r->n_notes++ >= REPORT_MAX_NOTES) {
        return;
    }
    va_start(ap, fmt);
    add(r, SPEC_NOTE, at, fmt, ap);
    va_end(ap);
}

bool report_is_full(const struct report *r)
{
    return r->n_errors >= REPORT_MAX_ERRORS || r->failed;
}
