/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keys of the short form for the manual page, in scdoc: one entry a key,
 * and a line with type and default under it, and what is not acted on yet.
 */
#include <config.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "spec/schema.h"
#include "spec/spec.h"

#include <string.h>

/* scdoc reads _ and * as marks. */
static void put_text(struct buf *to, const char *s)
{
    for (; *s; s++) {
        if (strchr("_*\\#.", *s)) {
            buf_putc(to, '\\');
        }
        buf_putc(to, *s);
    }
}

static void put_entry(struct buf *to, const char *path, const char *type,
                      const char *def, const char *help, const char *later)
{
    buf_puts(to, "*");
    put_text(to, path);
    buf_puts(to, "*\n\t");
    if (help) {
        _buf_ struct buf line = {0};

        buf_puts(&line, help);
        put_text(to, buf_str(&line));
        buf_puts(to, ".\n\t");
    }
    buf_puts(to, "Expected: ");
    put_text(to, type);
    if (def) {
        buf_puts(to, ". Default: ");
        put_text(to, def);
    }
    if (later) {
        buf_puts(to, ".\n\tNot acted on yet: ");
        put_text(to, later);
    }
    buf_puts(to, ".\n\n");
}

static void put_fields(struct buf *to, const struct field *fields,
                       const char *prefix, const char *later)
{
    for (; fields->name; fields++) {
        const char *not_yet = fields->later ? fields->later : later;
        _buf_ struct buf path = {0}, type = {0};

        buf_printf(&path, "%s%s%s", prefix, prefix[0] ? "." : "",
                   fields->name);
        if (fields->type == FIELD_MAP) {
            put_fields(to, fields->fields, buf_str(&path), not_yet);
            continue;
        }
        schema_describe(fields, &type);
        put_entry(to, buf_str(&path), buf_str(&type), fields->def,
                  fields->help, not_yet);
        if (fields->fields) {
            buf_puts(&path, fields->type == FIELD_NAMED ? ".NAME" : "[]");
            put_fields(to, fields->fields, buf_str(&path), NULL);
        }
    }
}

void spec_print_table(struct buf *to)
{
    put_fields(to, job_fields, "", NULL);
    put_entry(to, "args", "a list such as [--epochs, 10]", NULL,
              "more arguments, put behind command", NULL);
    put_entry(to, "envFrom", "a list such as [{file: vars, prefix: MY_}]", NULL,
              "files with lines NAME=VALUE; their values are taken as secrets",
              NULL);
    put_entry(to, "stdin", "none", "none", "workers read nothing", NULL);
}

bool spec_describe_key(const char *path, struct buf *to)
{
    const struct field *f = schema_find(job_fields, path);

    if (!f) {
        return false;
    }
    if (f->help) {
        buf_printf(to, "%s; ", f->help);
    }
    buf_puts(to, "expected: ");
    schema_describe(f, to);
    return true;
}
