/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/options.h"

#include "base/cleanup.h"
#include "base/utf8.h"
#include "launcher/commands.h"
#include "launcher/habits.h"

#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAME = 64, HELP_WIDTH = 79 };

static const struct option_def help_def = {
    "help", NULL, "show this text", OPTION_FLAG, 0, NULL, 'h',
};

/* The walk over argv. */
struct parse {
    const struct options *o;
    char **argv;
    int argc;
    int at; /* the next argument */
    void *into;
    struct option_args *args;
    struct error *e;
};

void option_args_release(struct option_args *a)
{
    strlist_release(&a->words);
    strlist_release(&a->rest);
    strlist_release(&a->others);
    a->has_rest = false;
}

static const struct option_def *find_name(const struct options *o,
                                          const char *name)
{
    for (const struct option_def *d = o->table; d && d->name; d++) {
        if (strcmp(d->name, name) == 0) {
            return d;
        }
    }
    return strcmp(name, help_def.name) == 0 ? &help_def : NULL;
}

static const struct option_def *find_letter(const struct options *o,
                                            char letter)
{
    for (const struct option_def *d = o->table; d && d->name; d++) {
        if (d->letter == letter) {
            return d;
        }
    }
    return letter == help_def.letter ? &help_def : NULL;
}

/* `name` is what stands behind the dashes, or NULL. */
static int unknown_option(struct parse *p, const char *given, const char *name)
{
    const struct habit *habit = name ? habit_find(name) : NULL;
    const char *names[256] = {help_def.name};
    const char *near;
    size_t n = 1;

    if (habit && find_name(p->o, habit->option)) {
        return error_text(p->e, ERR_USAGE, "unknown option %s (here it is %s)",
                          given, habit->here);
    }
    for (const struct option_def *d = p->o->table; d && d->name; d++) {
        if (d->help && n < ARRAY_SIZE(names) - 1) {
            names[n++] = d->name;
        }
    }
    names[n] = NULL;
    near = name && strlen(name) > 1 ? str_nearest(name, names) : NULL;
    return error_text(p->e, ERR_USAGE, "unknown option %s%s%s%s", given,
                      near ? " (did you mean --" : "", near ? near : "",
                      near ? "?)" : "");
}

static int call_option(struct parse *p, const struct option_def *def,
                       const char *value)
{
    struct error inner = {0};
    int rc = def->call(p->into, def, value, &inner);

    if (rc < 0) {
        return error_text(p->e, ERR_USAGE, "option --%s: %.900s", def->name,
                          inner.text);
    }
    return 0;
}

static int store_value(struct parse *p, const struct option_def *def,
                       const char *value)
{
    char *field = (char *)p->into + def->offset;
    int64_t number;

    switch (def->type) {
    case OPTION_FLAG:
        *(bool *)(void *)field = true;
        return 0;
    case OPTION_STR:
    case OPTION_MAYBE:
        *(const char **)(void *)field = value;
        return 0;
    case OPTION_INT:
        if (str_to_i64(value, &number) < 0) {
            return error_text(p->e, ERR_USAGE,
                              "option --%s: expected a whole number, found "
                              "'%.200s'", def->name, value);
        }
        *(int64_t *)(void *)field = number;
        return 0;
    case OPTION_LIST:
        strlist_add((struct strlist *)(void *)field, value);
        return 0;
    case OPTION_CALL:
        return call_option(p, def, value);
    }
    return 0;
}

/* The value of `def`: what was given with it, else the next argument. */
static int take_value(struct parse *p, const struct option_def *def,
                      const char *given)
{
    if (!def->value && given) {
        return error_text(p->e, ERR_USAGE, "option --%s takes no value, found "
                          "'%.200s'", def->name, given);
    }
    if (def->type == OPTION_MAYBE && !given) {
        return store_value(p, def, "");
    }
    if (def->value && !given) {
        if (p->at == p->argc) {
            return error_text(p->e, ERR_USAGE, "option --%s needs a value: %s",
                              def->name, def->value);
        }
        given = p->argv[p->at++];
    }
    if (def == &help_def) {
        return OPTIONS_HELP;
    }
    if (def->value && !given[0]) {
        return error_text(p->e, ERR_USAGE, "option --%s: expected %s, found "
                          "''", def->name, def->value);
    }
    return store_value(p, def, given);
}

/* An option that is not in the table: kept for whose it is. */
static int take_other(struct parse *p, const char *arg, const char *given,
                      const char *name)
{
    int n = p->o->n_values_elsewhere ? p->o->n_values_elsewhere(arg) : -1;

    if (n < 0) {
        return unknown_option(p, given, name);
    }
    strlist_add(&p->args->others, arg);
    for (; n > 0 && p->at < p->argc; n--) {
        strlist_add(&p->args->others, p->argv[p->at++]);
    }
    return 0;
}

/* The name in --name or -name, also before =value, with dashes. False if it is none's. */
static bool name_of(const char *arg, char *to, size_t size)
{
    const char *name = arg + 1 + (arg[1] == '-');
    size_t len = strcspn(name, "=");

    if (len >= size) {
        return false;
    }
    memcpy(to, name, len);
    to[len] = '\0';
    for (char *c = to; *c; c++) {
        *c = *c == '_' ? '-' : *c;
    }
    return true;
}

static int parse_long(struct parse *p, const char *arg)
{
    const struct option_def *def;
    size_t len = strcspn(arg + 2, "=");
    char name[MAX_NAME];

    if (!name_of(arg, name, sizeof(name))) {
        return error_text(p->e, ERR_USAGE, "unknown option %.80s...", arg);
    }
    def = find_name(p->o, name);
    if (!def) {
        char given[MAX_NAME + 2];

        str_copy(given, len + 3 < sizeof(given) ? len + 3 : sizeof(given), arg);
        return take_other(p, arg, given, name);
    }
    return take_value(p, def, arg[2 + len] ? arg + 2 + len + 1 : NULL);
}

/* -nnodes, or -np of mpirun: no flags that are bundled. */
static bool is_long_by_one_dash(const struct parse *p, const char *arg,
                                char *name, size_t size)
{
    const struct option_def *first = find_letter(p->o, arg[1]);
    const struct habit *habit;

    if ((first && first->value) || !name_of(arg, name, size) ||
        strlen(name) < 2) {
        return false;
    }
    habit = habit_find(name);
    return find_name(p->o, name) || (habit && find_name(p->o, habit->option));
}

static int parse_short(struct parse *p, const char *arg)
{
    char name[MAX_NAME];

    if (is_long_by_one_dash(p, arg, name, sizeof(name))) {
        return unknown_option(p, arg, name);
    }
    for (const char *c = arg + 1; *c; c++) {
        const struct option_def *def = find_letter(p->o, *c);
        char given[3] = {'-', *c, '\0'};
        int rc;

        if (!def) {
            return c == arg + 1 ? take_other(p, arg, given, given + 1)
                                : unknown_option(p, given, NULL);
        }
        if (def->value) {
            return take_value(p, def, c[1] ? c + 1 : NULL);
        }
        rc = take_value(p, def, NULL);
        if (rc) {
            return rc;
        }
    }
    return 0;
}

static int parse_all(struct parse *p)
{
    while (p->at < p->argc) {
        const char *arg = p->argv[p->at++];
        int rc;

        if (strcmp(arg, "--") == 0) {
            p->args->has_rest = true;
            strlist_add_all(p->o->takes_rest ? &p->args->rest : &p->args->words,
                            p->argv + p->at);
            return 0;
        }
        if (arg[0] != '-' || !arg[1] ||
            (p->o->takes_numbers && isdigit((unsigned char)arg[1]))) {
            strlist_add(&p->args->words, arg);
            if (p->o->stops_at_positional) {
                strlist_add_all(&p->args->words, p->argv + p->at);
                return 0;
            }
            continue;
        }
        rc = arg[1] == '-' ? parse_long(p, arg) : parse_short(p, arg);
        if (rc) {
            return rc;
        }
    }
    return 0;
}

/* Of a usage of several lines, for as many subcommands, the first that is of this one. */
static size_t usage_of(const char *usage, const struct strlist *words, const char **ret)
{
    const char *line = usage;
    size_t n = words->n ? strlen(words->items[0]) : 0;

    while (n && line && (strncmp(line, words->items[0], n) != 0 || line[n] != ' ')) {
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    *ret = line && n ? line : usage;
    return strcspn(*ret, "\n");
}

static int tell_missing(const struct options *o, const struct option_args *a,
                        struct error *e)
{
    const char *line;
    size_t n = usage_of(o->usage, &a->words, &line);

    return error_text(e, ERR_USAGE, "missing argument: muster %s %.*s%s", o->command,
                      (int)n, line, line == o->usage && line[n] ? ", or others" : "");
}

static int check_words(const struct options *o, const struct option_args *a,
                       struct error *e)
{
    if (a->words.failed || a->rest.failed || a->others.failed) {
        return error_set(e, ENOMEM, "read the command line");
    }
    if (a->words.n > o->max_args) {
        return error_text(e, ERR_USAGE, "unexpected argument '%.200s'%s",
                          a->words.items[o->max_args],
                          o->takes_rest ? " (a program and its words stand "
                                          "behind --)" : "");
    }
    if (a->words.n < o->min_args) {
        return tell_missing(o, a, e);
    }
    return 0;
}

int options_parse(const struct options *o, int argc, char **argv, void *into,
                  struct option_args *ret_args, struct error *e)
{
    struct parse p = {
        .o = o, .argv = argv, .argc = argc, .at = argc ? 1 : 0,
        .into = into, .args = ret_args, .e = e,
    };
    int rc = parse_all(&p);

    return rc ? rc : check_words(o, ret_args, e);
}

int options_n_values(const struct options *o, const char *word)
{
    const struct option_def *def = NULL;
    char name[MAX_NAME];

    if (word[0] != '-' || !word[1]) {
        return -1;
    }
    if (word[1] == '-') {
        def = name_of(word, name, sizeof(name)) ? find_name(o, name) : NULL;
        return !def ? -1
                    : def->value && def->type != OPTION_MAYBE &&
                          !strchr(word, '=');
    }
    for (const char *c = word + 1; *c; c++) {
        def = find_letter(o, *c);
        if (!def || def->value) {
            return !def ? -1 : !c[1];
        }
    }
    return 0;
}

/* Words of `text` in lines that fit, the first one starting at column `at`. */
static void wrap_text(struct buf *to, const char *text, size_t at,
                      size_t indent)
{
    while (*text) {
        size_t len = strcspn(text, " \n");

        if (at > indent && at + 1 + len > HELP_WIDTH) {
            buf_printf(to, "\n%*s", (int)indent, "");
            at = indent;
        } else if (at > indent) {
            buf_putc(to, ' ');
            at++;
        }
        buf_printf(to, "%.*s", (int)len, text);
        at += len;
        text += len;
        text += strspn(text, " \n");
    }
    buf_putc(to, '\n');
}

static void help_option(const struct option_def *d, struct buf *to)
{
    enum { INDENT = 28 };
    bool is_maybe = d->type == OPTION_MAYBE;
    char left[128];
    size_t len;

    snprintf(left, sizeof(left), "  %c%c%s --%s%s%s%s", d->letter ? '-' : ' ',
             d->letter ? d->letter : ' ', d->letter ? "," : " ", d->name,
             is_maybe ? "[=" : d->value ? " " : "", d->value ? d->value : "",
             is_maybe ? "]" : "");
    len = strlen(left);
    buf_puts(to, left);
    if (len + 2 > INDENT) {
        buf_putc(to, '\n');
        len = 0;
    }
    buf_printf(to, "%*s", (int)(INDENT - len), "");
    wrap_text(to, d->help, INDENT, INDENT);
}

void options_help(const struct options *o, struct buf *to)
{
    const char *line = o->usage;

    do {
        size_t len = strcspn(line, "\n");

        buf_printf(to, "%s muster %s%s%.*s\n",
                   line == o->usage ? "usage:" : "      ", o->command,
                   len ? " " : "", (int)len, line);
        line += len + (line[len] == '\n');
    } while (*line);
    buf_putc(to, '\n');
    wrap_text(to, o->about, 0, 0);
    buf_puts(to, "\noptions:\n");
    for (const struct option_def *d = o->table; d && d->name; d++) {
        if (d->help) {
            help_option(d, to);
        }
    }
    help_option(&help_def, to);
}

/* Names that the user gave, or that a file has, may be in the text. */
static void print_fault(const char *who, const char *text)
{
    _buf_ struct buf line = {0};

    buf_printf(&line, "%s: ", who);
    utf8_put_printable(&line, text, sizeof(((struct error *)0)->text));
    fprintf(stderr, "%s\n", buf_str(&line));
}

int command_fail(const struct error *e)
{
    print_fault("muster", e->text);
    switch (e->code) {
    case ERR_USAGE:
    case ERR_SPEC:
        return EXIT_USAGE;
    case ERR_SUSPENDED:
        return EXIT_RESUMABLE;
    case ERR_DEADLINE:
        return EXIT_DEADLINE;
    default:
        return EXIT_FAILED;
    }
}

int options_start(const struct options *o, int argc, char **argv, void *into,
                  struct option_args *ret_args)
{
    struct error e = {0};
    int rc = options_parse(o, argc, argv, into, ret_args, &e);

    if (rc == OPTIONS_HELP) {
        _buf_ struct buf text = {0};

        options_help(o, &text);
        fputs(buf_str(&text), stdout);
        return EXIT_OK;
    }
    if (rc < 0) {
        char who[MAX_NAME + 8];

        snprintf(who, sizeof(who), "muster %s", o->command);
        print_fault(who, e.text);
        fprintf(stderr, "%s --help shows the usage\n", who);
        return rc == -ERR_USAGE ? EXIT_USAGE : EXIT_FAILED;
    }
    return -1;
}
