/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/show.h"

#include "base/cleanup.h"
#include "base/utf8.h"
#include "launcher/commands.h"
#include "launcher/rundir.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_COLUMNS = 16, MAX_YAML_DEPTH = 64 };

int show_set_format(void *into, const struct option_def *def,
                    const char *value, struct error *e)
{
    static const char *const names[] = {
        [SHOW_TABLE] = "table",
        [SHOW_WIDE] = "wide",
        [SHOW_JSON] = "json",
        [SHOW_YAML] = "yaml",
    };
    enum show_format *format = (void *)((char *)into + def->offset);

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (strcmp(value, names[i]) == 0) {
            *format = (enum show_format)i;
            return 0;
        }
    }
    return error_text(e, ERR_USAGE, "expected json, yaml or wide, found "
                      "'%.100s'", value);
}

static void yaml_indent(struct buf *to, int depth)
{
    buf_printf(to, "%*s", 2 * depth, "");
}

/* A string that YAML reads back as this very string: plain where nothing in it
 * could mean something else, else in double quotes, as JSON writes it. */
static void yaml_string(struct buf *to, const char *s, size_t len)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-";
    static const char *const words[] = {
        "true", "false", "null", "yes", "no", "on", "off", "y", "n", NULL,
    };
    bool is_plain = len && strlen(s) == len && strspn(s, plain) == len &&
                    (isalpha((unsigned char)s[0]) || s[0] == '/');

    for (size_t i = 0; is_plain && words[i]; i++) {
        is_plain = strcasecmp(s, words[i]) != 0;
    }
    if (is_plain) {
        buf_puts(to, s);
    } else {
        json_t *string = json_stringn_nocheck(s, len);
        char *quoted = json_dumps(string, JSON_ENCODE_ANY);

        json_decref(string);
        if (quoted) {
            buf_puts(to, quoted);
        } else {
            to->failed = true;
        }
        free(quoted);
    }
}

static void yaml_value(struct buf *to, const json_t *v, int depth, bool inline_);

static void yaml_object(struct buf *to, const json_t *v, int depth, bool inline_)
{
    const char *key;
    json_t *item;

    json_object_foreach((json_t *)v, key, item) {
        if (!inline_) {
            yaml_indent(to, depth);
        }
        inline_ = false;
        yaml_string(to, key, strlen(key));
        buf_putc(to, ':');
        yaml_value(to, item, depth, false);
    }
}

static void yaml_array(struct buf *to, const json_t *v, int depth)
{
    json_t *item;
    size_t i;

    json_array_foreach(v, i, item) {
        yaml_indent(to, depth);
        buf_putc(to, '-');
        yaml_value(to, item, depth, true);
    }
}

/* Whatever follows "key:" or "-", to the end of its line or lines. */
static void yaml_value(struct buf *to, const json_t *v, int depth, bool inline_)
{
    if (depth > MAX_YAML_DEPTH) {
        to->failed = true;
    } else if (json_is_object(v) && json_object_size(v)) {
        buf_puts(to, inline_ ? " " : "\n");
        yaml_object(to, v, depth + 1, inline_);
    } else if (json_is_array(v) && json_array_size(v)) {
        buf_putc(to, '\n');
        yaml_array(to, v, depth + 1);
    } else if (json_is_string(v)) {
        buf_putc(to, ' ');
        yaml_string(to, json_string_value(v), json_string_length(v));
        buf_putc(to, '\n');
    } else {
        char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));

        buf_printf(to, " %s\n", text ? text : "null");
        free(text);
    }
}

int show_yaml(const char *json, size_t len, struct buf *to, struct error *e)
{
    json_error_t je;
    json_t *root = json_loadb(json, len, JSON_ALLOW_NUL, &je);

    if (!root) {
        return error_text(e, ERR_FORMAT, "read JSON: line %d: %.200s", je.line,
                          je.text);
    }
    if (json_is_object(root) && json_object_size(root)) {
        yaml_object(to, root, 0, false);
    } else if (json_is_array(root) && json_array_size(root)) {
        yaml_array(to, root, 0);
    } else {
        buf_puts(to, json_is_array(root) ? "[]\n" : "{}\n");
    }
    json_decref(root);
    return to->failed ? error_set(e, ENOMEM, "write YAML") : 0;
}

static int print_indented(const struct buf *json, struct error *e)
{
    json_error_t je;
    json_t *root = json_loadb(buf_str(json), json->len, JSON_ALLOW_NUL, &je);
    char *text;

    if (!root) {
        return error_text(e, ERR_FORMAT, "read JSON: line %d: %.200s", je.line,
                          je.text);
    }
    text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    json_decref(root);
    if (!text) {
        return error_set(e, ENOMEM, "write JSON");
    }
    puts(text);
    free(text);
    return 0;
}

int show_check_watch(bool is_watched, enum show_format format,
                     struct error *e)
{
    return is_watched && format == SHOW_YAML
               ? error_text(e, ERR_USAGE, "option --watch: shows tables or "
                            "json, not yaml")
               : 0;
}

int show_json(const struct buf *json, enum show_format format)
{
    _buf_ struct buf yaml = {0};
    struct error e = {0};
    int rc;

    if (json->failed) {
        rc = error_set(&e, ENOMEM, "write JSON");
    } else if (format == SHOW_YAML) {
        rc = show_yaml(buf_str(json), json->len, &yaml, &e);
        fputs(rc < 0 ? "" : buf_str(&yaml), stdout);
    } else {
        rc = print_indented(json, &e);
    }
    return rc < 0 ? command_fail(&e) : EXIT_OK;
}

/* As show_clean() shows it. */
size_t show_width(const char *s)
{
    size_t n = 0;

    while (*s) {
        uint32_t c = 0;
        size_t len = utf8_next(s, &c);

        n += len && utf8_is_printable(c) ? utf8_columns(c) : 1;
        s += len ? len : 1;
    }
    return n;
}

void show_clean(struct buf *to, const char *s, size_t len)
{
    for (size_t i = 0; i < len;) {
        uint32_t c;
        size_t n = utf8_next_of(s + i, len - i, &c);

        if (n && (c == '\t' || utf8_is_printable(c))) {
            buf_append(to, s + i, n);
        } else {
            buf_putc(to, '?');
        }
        i += n ? n : 1;
    }
}

void show_table(const struct strlist *cells, size_t n_columns, struct buf *to)
{
    size_t widths[MAX_COLUMNS] = {0};

    for (size_t i = 0; i < cells->n && n_columns <= MAX_COLUMNS; i++) {
        size_t width = show_width(cells->items[i]);

        if (width > widths[i % n_columns]) {
            widths[i % n_columns] = width;
        }
    }
    for (size_t i = 0; i < cells->n && n_columns <= MAX_COLUMNS; i++) {
        const char *cell = cells->items[i];
        size_t column = i % n_columns, begin = to->len;

        show_clean(to, cell, strlen(cell));
        for (; begin < to->len; begin++) { /* it would go to any column */
            to->data[begin] = to->data[begin] == '\t' ? '?' : to->data[begin];
        }
        if (column + 1 < n_columns) {
            buf_printf(to, "%*s",
                       (int)(widths[column] - show_width(cell) + 2), "");
        } else {
            while (to->len && to->data[to->len - 1] == ' ') {
                to->data[--to->len] = '\0';
            }
            buf_putc(to, '\n');
        }
    }
}

bool show_has_colour(FILE *f)
{
    const char *no = getenv("NO_COLOR");
    const char *term = getenv("TERM");

    return isatty(fileno(f)) && !(no && no[0]) && term &&
           strcmp(term, "dumb") != 0;
}

/* What failed earlier has left no reason, but fails once more for the same one. */
static int find_reason(void)
{
    errno = 0;
    clearerr(stdout);
    return putchar('\n') == EOF || fflush(stdout) ? errno : 0;
}

void show_no_runs(const char *name)
{
    _buf_ struct buf text = {0};

    if (name) {
        buf_puts(&text, " called ");
        utf8_put_printable(&text, name, RUNDIR_NAME_SIZE);
    }
    fprintf(stderr, "muster: no runs%s\n", buf_str(&text));
}

int show_finish(int exit_status)
{
    bool failed;
    int why;

    errno = 0;
    failed = fflush(stdout) || ferror(stdout);
    why = failed && !errno ? find_reason() : errno;
    if (!failed || why == EPIPE) {
        return exit_status;
    }
    fprintf(stderr, "muster: write to standard output: %s\n",
            why ? strerror(why) : "it failed, and does no more");
    return exit_status ? exit_status : EXIT_FAILED;
}
