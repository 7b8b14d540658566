/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a command starts Python, and how: the program of its first word may be
 * a script, whose #! line names another, and env may stand before it. What comes
 * of it is the same interpreter with the same options, and no program: who runs
 * that learns what the command would find before its program begins, without
 * running any of it. Anything but a plain start of Python is refused: a wrapper
 * does things of its own.
 */
#include <config.h>

#include "launcher/exec_setup.h"

#include "base/cleanup.h"
#include "base/str.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MAX_WORDS = 256, /* before the program; there are seldom more than three */
    MAX_STEPS = 8,   /* from one interpreter to the next; the kernel allows 5 */
    MAX_LINE = 256,  /* of a #! line, as the kernel reads it */
};

struct command {
    const struct setup *s;
    char *words[MAX_WORDS + 1];
    size_t n;
};

static __attribute__((format(printf, 2, 3))) _Noreturn void
refuse(const struct command *c, const char *fmt, ...)
{
    char why[400];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, sizeof(why), fmt, ap);
    va_end(ap);
    exec_fail(c->s, EXEC_PYTHON, 0, "%s", why);
}

static void push(struct command *c, char *word)
{
    if (c->n < MAX_WORDS) {
        c->words[c->n++] = word;
    }
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* The first word gives way to others. */
static void replace_first(struct command *c, char *const *by, size_t n)
{
    struct command old = *c;

    c->n = 0;
    for (size_t i = 0; i < n; i++) {
        push(c, by[i]);
    }
    for (size_t i = 1; i < old.n; i++) {
        push(c, old.words[i]);
    }
}

static void trim(char *text)
{
    size_t n = strlen(text);

    while (n && (text[n - 1] == ' ' || text[n - 1] == '\t')) {
        text[--n] = '\0';
    }
}

/* The line as the kernel takes it: a name and at most one argument. */
static void follow_line(struct command *c, const char *path, char *line)
{
    char *by[3] = {line + 2, NULL, NULL};
    char *name, *rest;
    size_t n = 1;

    line[strcspn(line, "\n")] = '\0';
    name = by[0] + strspn(by[0], " \t");
    rest = name + strcspn(name, " \t");
    if (*rest) {
        *rest++ = '\0';
        rest += strspn(rest, " \t");
    }
    trim(rest);
    by[0] = strdup(name);
    if (*rest) {
        by[n++] = strdup(rest);
    }
    by[n++] = strdup(path);
    replace_first(c, by, n);
}

/* "-S python3 -u" is one word in a #! line. */
static void split_second(struct command *c, char *text)
{
    const struct command old = *c;
    char *save = NULL;

    if (strpbrk(text, "\"'\\$")) {
        refuse(c, "env -S with quotes");
    }
    c->n = 1;
    for (char *w = strtok_r(text, " \t", &save); w;
         w = strtok_r(NULL, " \t", &save)) {
        push(c, w);
    }
    for (size_t i = 2; i < old.n; i++) {
        push(c, old.words[i]);
    }
}

/* env with nothing to do but to look into PATH. */
static void follow_env(struct command *c)
{
    const char *next = c->n > 1 ? c->words[1] : "";

    if (str_starts(next, "-S")) {
        split_second(c, c->words[1] + 2);
        next = c->n > 1 ? c->words[1] : "";
    }
    if (next[0] == '\0' || next[0] == '-' || strchr(next, '=')) {
        refuse(c, "env changes the environment (%s)", next);
    }
    replace_first(c, NULL, 0);
}

static bool is_python(const char *path)
{
    _free_ char *real = realpath(path, NULL);
    const char *name = real ? base_name(real) : "";

    return str_starts(name, "python") || str_starts(name, "pypy");
}

static size_t read_head(const char *path, char *head, size_t size)
{
    _close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, head, size - 1);

    head[n < 0 ? 0 : n] = '\0';
    return n < 0 ? 0 : (size_t)n;
}

/* One step towards Python; true once it is there, `path` then. */
static bool follow(struct command *c, char *path)
{
    struct setup as_if = *c->s;
    char head[MAX_LINE];
    size_t n;

    as_if.argv = c->words;
    exec_find(&as_if, path);
    n = read_head(path, head, sizeof(head));
    if (n > 2 && memcmp(head, "#!", 2) == 0) {
        follow_line(c, path, head);
        return false;
    }
    if (strcmp(base_name(path), "env") == 0) {
        follow_env(c);
        return false;
    }
    if (n < SELFMAG || memcmp(head, ELFMAG, SELFMAG) != 0 ||
        !is_python(path)) {
        refuse(c, "the command starts %s, not Python itself", path);
    }
    return true;
}

/* What is done with the letters of a word of options. */
static const char letters_alone[] = "bBdJOPqRstuvx";
static const char letters_with_value[] = "WX";
static const char letters_of_programs[] = "cm";
static const char letters_without_site[] = "EIS";

enum { PROGRAM_BEGINS = -1 };

/* The options in one word. Returns how many further words belong to it, or that a
 * program begins in it: then the word ends before that. */
static int read_letters(const struct command *c, char *word)
{
    for (char *p = word + 1; *p; p++) {
        if (strchr(letters_with_value, *p)) {
            return p[1] == '\0';
        }
        if (strchr(letters_of_programs, *p)) {
            *p = '\0';
            return PROGRAM_BEGINS;
        }
        if (strchr(letters_without_site, *p)) {
            refuse(c, "Python's option -%c keeps PYTHONPATH or site out", *p);
        }
        if (!strchr(letters_alone, *p)) {
            refuse(c, "Python's option -%c", *p);
        }
    }
    return 0;
}

static int read_option(const struct command *c, char *word)
{
    if (strcmp(word, "--check-hash-based-pycs") == 0) {
        return 1;
    }
    if (word[1] == '-') {
        refuse(c, "Python's option %s", word);
    }
    return read_letters(c, word);
}

/* Leaves the options of Python. */
static void cut_program(struct command *c)
{
    size_t i = 1;

    while (i < c->n && c->words[i][0] == '-' && c->words[i][1]) {
        int more;

        c->words[i] = strdup(c->words[i]);
        more = read_option(c, c->words[i]);
        if (more == PROGRAM_BEGINS) {
            c->n = i + (c->words[i][1] != '\0');
            return;
        }
        i += 1 + (size_t)more;
    }
    if (i >= c->n) {
        refuse(c, "Python is given no program");
    }
    if (strcmp(c->words[i], "-") == 0) {
        refuse(c, "Python reads its program from stdin");
    }
    c->n = i;
}

void exec_python(struct setup *s, char *path)
{
    struct command *c = calloc(1, sizeof(*c)); /* s->argv lies in it */
    int steps = 0;

    if (!c) {
        exec_fail(s, EXEC_PYTHON, ENOMEM, "out of memory");
    }
    c->s = s;
    for (size_t i = 0; s->argv[i]; i++) {
        push(c, s->argv[i]);
    }
    while (!follow(c, path)) {
        if (c->n == 0 || ++steps > MAX_STEPS) {
            refuse(c, "no interpreter at the end of its #! lines");
        }
    }
    cut_program(c);
    c->n = c->n < MAX_WORDS - 2 ? c->n : MAX_WORDS - 2;
    push(c, (char *)(uintptr_t)"-c");
    push(c, (char *)(uintptr_t)"pass");
    c->words[c->n] = NULL;
    s->argv = c->words;
}
