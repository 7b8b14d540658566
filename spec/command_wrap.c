/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "spec/command_wrap.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define ALL_WORDS " \"$@\""

bool command_is_in(const char *const *names, const char *word)
{
    const char *name = command_basename(word);

    for (size_t i = 0; names[i]; i++) {
        if (strcmp(names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_shell(const char *word)
{
    static const char *const shells[] = {"ash", "bash", "dash", "ksh",
                                         "sh",  "zsh",  NULL};

    return command_is_in(shells, word);
}

size_t command_assignment(const char *s)
{
    size_t len = 0;

    while (isalnum((unsigned char)s[len]) || s[len] == '_') {
        len++;
    }
    return len && !isdigit((unsigned char)s[0]) && s[len] == '=' ? len : 0;
}

static bool is_launcher(const struct context *c, struct node **words, size_t n)
{
    struct command cmd = {.c = c, .argv = words, .n = n};

    return n && command_is_launcher(&cmd);
}

/* --- env, exec, nohup, numactl --- */

struct peeling {
    struct wrap *wrap;
    struct node **words;
    const struct shell_word *info; /* NULL: no shell has read them */
    size_t n;
    struct node *kept; /* list */
};

/* A variable of the workers; where only the shell knows its value, it stays in
 * front of the program. */
static void take_assignment(struct peeling *p, size_t i)
{
    struct arena *a = p->wrap->c->arena;
    struct node *word = p->words[i];
    size_t len = command_assignment(word->text);

    if (p->info && p->info[i].expands) {
        node_append(a, p->kept, node_scalar(a, &word->place, "env", false));
        node_append(a, p->kept, word);
        return;
    }
    node_set(a, p->wrap->env, arena_printf(a, "%.*s", (int)len, word->text),
             node_scalar(a, &word->place, word->text + len + 1, false));
}

/* Behind the variables of env, or n where it has options that are not read. */
static size_t peel_env(struct peeling *p, size_t i)
{
    for (; i < p->n && command_assignment(p->words[i]->text); i++) {
        take_assignment(p, i);
    }
    return i < p->n && p->words[i]->text[0] == '-' ? p->n : i;
}

/* Behind a program that sets something for the one it starts, and its options: a
 * word behind an option is its value, unless it is known as a program. */
static size_t peel_setter(struct peeling *p, size_t i)
{
    bool is_mask = command_is_in((const char *const[]){"taskset", NULL},
                         p->words[i]->text);
    struct arena *a = p->wrap->c->arena;
    bool may_be_value = false;

    node_append(a, p->kept, p->words[i++]);
    for (; i < p->n; i++) {
        const char *s = p->words[i]->text;

        if (s[0] == '-' && s[1]) {
            may_be_value = !strchr(s, '=');
            is_mask &= s[1] == 'a';
        } else if (is_launcher(p->wrap->c, p->words + i, p->n - i) ||
                   is_shell(s) || (!may_be_value && !is_mask)) {
            break;
        } else {
            may_be_value = is_mask = false;
        }
        node_append(a, p->kept, p->words[i]);
    }
    return i;
}

/* Where the program begins. */
static size_t peel(struct peeling *p)
{
    static const char *const setters[] = {"chrt",    "ionice", "nice",
                                          "numactl", "stdbuf", "taskset", NULL};
    size_t i = 0;

    while (i < p->n) {
        const char *s = p->words[i]->text;

        if (p->info && command_assignment(s)) {
            take_assignment(p, i++);
        } else if (command_is_in((const char *const[]){"env", NULL}, s)) {
            i = peel_env(p, i + 1);
        } else if (command_is_in(setters, s)) {
            i = peel_setter(p, i);
        } else if (command_is_in((const char *const[]){"nohup", NULL}, s) ||
                   (p->info && strcmp(s, "exec") == 0)) {
            i++; /* workers have no terminal that could hang up */
        } else {
            break;
        }
    }
    return i;
}

/* --- a line of shell --- */

/* Commands that may run once a worker in front of the program, instead of once a
 * node in front of the launcher. */
static bool is_harmless(const char *word)
{
    static const char *const names[] = {
        ".",      ":",      "cd",     "conda", "date", "echo", "export",
        "hostname", "module", "ml",   "printf", "pwd", "set",  "source",
        "true",   "ulimit", "umask",  "unset", NULL};

    return command_assignment(word) || command_is_in(names, word);
}

/* The words of a shell up to its text; false where there is none, or it has an
 * option that is not known. */
static bool find_text(struct wrap *w, struct node **words, size_t n)
{
    struct arena *a = w->c->arena;
    bool has_text = false;

    w->shell = node_list(a, &words[0]->place);
    node_append(a, w->shell, words[0]);
    for (size_t i = 1; i < n; i++) {
        const char *s = words[i]->text;

        if (s[0] != '-' && s[0] != '+') {
            w->text = has_text ? words[i] : NULL;
            w->tail = words + i + 1;
            w->n_tail = n - i - 1;
            return has_text;
        }
        node_append(a, w->shell, words[i]);
        if (s[1] == '-') {
            w->keep_shell |= strcmp(s, "--login") == 0;
            if (!str_starts(s, "--no") && strcmp(s, "--login") != 0) {
                return false;
            }
            continue;
        }
        has_text |= s[0] == '-' && strchr(s, 'c');
        w->keep_shell |= strchr(s, 'l') || strchr(s, 'i');
        if (strchr(s, 'o') && i + 1 < n) {
            node_append(a, w->shell, words[++i]);
        }
    }
    return false;
}

/* $NAME and ${NAME} of what the job itself sets, as launchers' options have. */
static const char *fill_in(const struct wrap *w, const char *text)
{
    const struct node *env = node_get(w->tree, "env");
    _buf_ struct buf b = {0};

    for (const char *s = text; *s;) {
        const char *name = s + 1 + (s[0] == '$' && s[1] == '{');
        size_t len = 0;
        const struct node *value;

        while (isalnum((unsigned char)name[len]) || name[len] == '_') {
            len++;
        }
        if (*s != '$' || !len || (s[1] == '{' && name[len] != '}')) {
            buf_putc(&b, *s++);
            continue;
        }
        value = node_get(env, arena_printf(w->c->arena, "%.*s", (int)len, name));
        s = name + len + (s[1] == '{');
        if (!value || value->kind != NODE_SCALAR) {
            return text;
        }
        buf_puts(&b, value->text);
    }
    return arena_strdup(w->c->arena, buf_str(&b));
}

/* The words of its last command, as nodes. False where it is not simple, or runs
 * what should not run once a worker. */
static bool read_text(struct wrap *w)
{
    struct arena *a = w->c->arena;
    struct shell_line *line = &w->line;

    if (!shell_line_read(a, w->text->text, line)) {
        line->n = 0;
        return false;
    }
    for (size_t i = 0; i < line->last; i++) {
        if (line->words[i].is_first && !is_harmless(line->words[i].text)) {
            return false;
        }
    }
    w->keep_shell |= line->last > 0;
    w->words = arena_alloc(a, (line->n + 1) * sizeof(struct node *));
    for (size_t i = line->last; w->words && i < line->n; i++) {
        const struct shell_word *word = &line->words[i];
        struct node *node = node_scalar(
            a, &w->text->place, word->expands ? fill_in(w, word->text)
                                              : word->text, false);

        if (!node) {
            return false;
        }
        node->literal = w->text->literal;
        w->words[i - line->last] = node;
    }
    return w->words;
}

/* --- all of it --- */

static void apply(struct wrap *w, struct node **words, size_t n)
{
    struct arena *a = w->c->arena;
    struct command cmd = {.c = w->c, .tree = w->tree};
    struct node *list = node_list(a, &words[0]->place);

    for (size_t i = 0; i < n; i++) {
        node_append(a, list, words[i]);
    }
    for (size_t i = 0; w->env && i < w->env->n; i++) {
        command_set_env(&cmd, w->env->pairs[i].key, w->env->pairs[i].value);
    }
    node_set(a, w->tree, "command", list);
    w->is_wrapped = true;
}

static void unwrap_text(struct wrap *w)
{
    struct peeling p = {.wrap = w, .kept = w->inner};
    size_t at;

    if (!read_text(w)) {
        command_warn_of_text(w);
        return;
    }
    p.words = w->words;
    p.info = w->line.words + w->line.last;
    p.n = w->line.n - w->line.last;
    at = peel(&p);
    if (at < p.n && is_launcher(w->c, p.words + at, p.n - at)) {
        apply(w, p.words + at, p.n - at);
    } else {
        command_warn_of_text(w);
    }
}

bool command_unwrap(const struct context *c, struct node *tree,
                    struct wrap *ret)
{
    const struct node *command = node_get(tree, "command");
    struct peeling p = {.wrap = ret, .words = command->items, .n = command->n};
    const struct place *place = &command->place;
    size_t at;

    *ret = (struct wrap){.c = c, .tree = tree,
                         .outer = node_list(c->arena, place),
                         .inner = node_list(c->arena, place),
                         .env = node_map(c->arena, place)};
    if (!ret->outer || !ret->inner || !ret->env) {
        return false;
    }
    p.kept = ret->outer;
    at = peel(&p);
    if (at < p.n && is_shell(p.words[at]->text)) {
        if (find_text(ret, p.words + at, p.n - at)) {
            unwrap_text(ret);
        }
    } else if (at > 0 && at < p.n &&
               is_launcher(c, p.words + at, p.n - at)) {
        apply(ret, p.words + at, p.n - at);
    } else {
        command_warn_of_words(ret, p.words, p.n);
    }
    return ret->is_wrapped;
}

/* The word of the line that a node was made of, or NULL. */
static const struct shell_word *word_of(const struct wrap *w,
                                        const struct node *n)
{
    for (size_t i = w->line.last; i < w->line.n; i++) {
        if (w->words[i - w->line.last] == n) {
            return &w->line.words[i];
        }
    }
    return NULL;
}

static bool needs_shell(const struct wrap *w, const struct node *list)
{
    for (size_t i = 0; i < list->n; i++) {
        const struct shell_word *word = word_of(w, list->items[i]);

        if (word && word->expands) {
            return true;
        }
    }
    return false;
}

static void put_words(const struct wrap *w, const struct node *list,
                      struct buf *to)
{
    for (size_t i = 0; i < list->n; i++) {
        const struct shell_word *word = word_of(w, list->items[i]);
        _free_ char *quoted =
            word ? NULL : str_shell_quote(list->items[i]->text);

        buf_printf(to, " %s", word ? word->raw : quoted ? quoted : "");
    }
}

static void append_all(struct wrap *w, struct node *to, struct node *const *from,
                       size_t n)
{
    for (size_t i = 0; i < n; i++) {
        node_append(w->c->arena, to, from[i]);
    }
}

/* The shell again, with the program in the launcher's place. */
static void append_line(struct wrap *w, const struct node *program,
                        struct node *to)
{
    struct arena *a = w->c->arena;
    const char *name = command_basename(w->shell->items[0]->text);
    _buf_ struct buf b = {0};
    struct node *text;

    buf_append(&b, w->text->text, w->line.last_at);
    buf_puts(&b, "exec");
    put_words(w, w->inner, &b);
    put_words(w, program, &b);
    buf_puts(&b, w->n_tail ? "" : ALL_WORDS);
    text = node_scalar(a, &w->text->place, arena_strdup(a, buf_str(&b)), false);
    if (text) {
        text->literal = w->text->literal;
    }
    append_all(w, to, w->shell->items, w->shell->n);
    node_append(a, to, text);
    append_all(w, to, w->tail, w->n_tail);
    if (!w->n_tail) {
        node_append(a, to, node_scalar(a, &w->text->place,
                                       arena_strdup(a, name), false));
    }
}

void command_rewrap(struct wrap *w)
{
    const struct node *program = node_get(w->tree, "command");
    struct node *list = node_list(w->c->arena, &program->place);

    append_all(w, list, w->outer->items, w->outer->n);
    if (w->line.n && (w->keep_shell || needs_shell(w, program) ||
                      needs_shell(w, w->inner))) {
        append_line(w, program, list);
    } else {
        append_all(w, list, w->inner->items, w->inner->n);
        append_all(w, list, program->items, program->n);
    }
    node_set(w->c->arena, w->tree, "command", list);
}

bool command_passes_words(const char *text)
{
    return str_ends(text, ALL_WORDS);
}
