/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "spec/yaml_syntax.h"

#include "base/error.h"

#include <errno.h>
#include <string.h>

struct place yaml_place(const char *file, const struct place *fixed,
                        const yaml_mark_t *mark)
{
    if (fixed) {
        return *fixed;
    }
    return (struct place){.file = file,
                          .line = (unsigned)mark->line + 1,
                          .column = (unsigned)mark->column + 1};
}

/* Behind a mark of byte order, which is not counted. */
static size_t first_byte(const char *text, size_t len)
{
    return len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

static bool begins_char(char byte)
{
    return (byte & 0xc0) != 0x80;
}

/* Where byte `offset` is, in characters as everywhere; for errors that libyaml
 * gives no line for. What is before it is UTF-8. */
static yaml_mark_t mark_at(const char *text, size_t len, size_t offset)
{
    yaml_mark_t mark = {0};

    for (size_t i = first_byte(text, len); i < offset && i < len; i++) {
        mark.column += begins_char(text[i]);
        if (text[i] == '\n') {
            mark.line++;
            mark.column = 0;
        }
    }
    return mark;
}

/* The character of that number, or 0. */
static char char_at(const char *text, size_t len, size_t index)
{
    for (size_t at = first_byte(text, len); at < len; at++) {
        if (begins_char(text[at]) && index-- == 0) {
            return text[at];
        }
    }
    return '\0';
}

/* What libyaml only calls a character that cannot start any token. */
static void report_bad_start(struct report *r, const struct place *at, char c)
{
    if (c == '\t') {
        report_error(r, at, "a tab before a value; expected blanks");
    } else {
        report_error(r, at, "%c at the start of a value; expected text that "
                     "begins so in quotes", c);
    }
}

static void report_problem(struct report *r, const struct place *at,
                           const yaml_parser_t *p)
{
    const char *problem = p->problem ? p->problem : "cannot be read";

    if (p->context && p->context_mark.line != p->problem_mark.line) {
        report_error(r, at, "%s (%s from line %zu); expected YAML", problem,
                     p->context, p->context_mark.line + 1);
    } else {
        report_error(r, at, "%s%s%s%s; expected YAML", problem,
                     p->context ? " (" : "", p->context ? p->context : "",
                     p->context ? ")" : "");
    }
}

int yaml_syntax_error(const yaml_parser_t *p, const char *text, size_t len,
                      const char *file, const struct place *fixed,
                      struct report *r)
{
    yaml_mark_t mark = p->problem_mark;
    struct place at;

    if (p->error == YAML_MEMORY_ERROR) {
        return -ENOMEM;
    }
    if (p->error == YAML_READER_ERROR) {
        mark = mark_at(text, len, p->problem_offset);
        at = yaml_place(file, fixed, &mark);
        report_error(r, &at, "byte 0x%02x (%s); expected UTF-8 text",
                     p->problem_value, p->problem ? p->problem : "no text");
        return -ERR_SPEC;
    }
    at = yaml_place(file, fixed, &mark);
    if (p->problem && strstr(p->problem, "cannot start any token")) {
        report_bad_start(r, &at, char_at(text, len, mark.index));
    } else {
        report_problem(r, &at, p);
    }
    return -ERR_SPEC;
}
