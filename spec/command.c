/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "spec/command_wrap.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "spec/value.h"

#include <string.h>

const char *command_basename(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

bool command_is_python(const char *word)
{
    const char *name = command_basename(word);

    return str_starts(name, "python") &&
           strspn(name + 6, "0123456789.") == strlen(name + 6);
}

/* "--nproc_per_node=4" to "nproc-per-node", and where the value begins. */
static const char *split_option(const char *text, char *name, size_t size)
{
    const char *sep;
    size_t len;

    text += strspn(text, "-");
    sep = strchr(text, '=');
    len = sep ? (size_t)(sep - text) : strlen(text);
    len = len < size - 1 ? len : size - 1;
    for (size_t i = 0; i < len; i++) {
        name[i] = text[i];
        if (name[i] == '_') {
            name[i] = '-';
        }
    }
    name[len] = '\0';
    return sep ? sep + 1 : NULL;
}

/* The same as argparse reads it: two dashes and a name of several letters, or
 * one dash and one letter, with its value right behind it. */
static const char *split_argparse(const char *text, char *name, size_t size)
{
    const char *value;

    if (text[0] != '-' || !text[1]) {
        name[0] = '\0';
        return NULL;
    }
    if (text[1] != '-') {
        name[0] = text[1];
        name[1] = '\0';
        return text[2] ? text + 2 + (text[2] == '=') : NULL;
    }
    value = split_option(text, name, size);
    if (text[2] == '-' || !name[0] || !name[1]) {
        name[0] = '\0';
    }
    return value;
}

/* Only by its whole name: what is short for one option today may be short for
 * two tomorrow. */
static const struct launcher_option *
find_option(const struct launcher_option *table, const char *name)
{
    for (; table->name; table++) {
        if (strcmp(table->name, name) == 0) {
            return table;
        }
    }
    return NULL;
}

const struct launcher_option *
command_option(const struct launcher_option *table, const char *word,
               const char **ret_value)
{
    char name[64];

    *ret_value = split_argparse(word, name, sizeof(name));
    return find_option(table, name);
}

/* The first one that begins as the word does, to tell who abbreviates. */
static void report_unknown(struct command *cmd,
                           const struct launcher_option *table,
                           const struct node *word)
{
    char name[64];

    split_option(word->text, name, sizeof(name));
    for (; strlen(name) >= 3 && table->name; table++) {
        if (str_starts(table->name, name)) {
            report_error(cmd->c->report, &word->place,
                         "%.60s of %s; expected an option by its whole name, "
                         "such as --%s",
                         word->text, cmd->launcher, table->name);
            return;
        }
    }
    report_error(cmd->c->report, &word->place,
                 "%.60s of %s; expected an option of it that muster knows, "
                 "or the program itself as the command",
                 word->text, cmd->launcher);
}

/* The word at cmd->at as the value of an option before it, or NULL: argparse
 * takes none that looks like another option. */
static struct node *next_value(const struct command *cmd)
{
    const char *text = cmd->at < cmd->n ? cmd->argv[cmd->at]->text : NULL;
    double number;

    if (!text || (cmd->is_argparse && text[0] == '-' && text[1] &&
                  str_to_f64(text, &number) < 0)) {
        return NULL;
    }
    return cmd->argv[cmd->at];
}

static int take_values(struct command *cmd, struct launcher_hit *hit,
                       const char *attached)
{
    if (attached && hit->option->n_values == 0) {
        report_error(cmd->c->report, &hit->node->place,
                     "%.80s of %s; expected it without a value",
                     hit->node->text, cmd->launcher);
        return -1;
    }
    for (unsigned i = 0; i < hit->option->n_values; i++) {
        if (i == 0 && attached) {
            hit->values[0] = node_scalar(cmd->c->arena, &hit->node->place,
                                         attached, false);
        } else {
            hit->values[i] = next_value(cmd);
            cmd->at += hit->values[i] != NULL;
        }
        if (!hit->values[i]) {
            report_error(cmd->c->report, &hit->node->place,
                         "%s of %s without a value; expected one",
                         hit->node->text, cmd->launcher);
            return -1;
        }
    }
    return 1;
}

int command_next(struct command *cmd, const struct launcher_option *table,
                 struct launcher_hit *ret)
{
    struct launcher_hit hit = {0};
    const char *attached;
    char name[64];

    if (cmd->at == cmd->n) {
        return 0;
    }
    hit.node = cmd->argv[cmd->at];
    if (strcmp(hit.node->text, "--") == 0) {
        cmd->at++;
        return 0;
    }
    if (hit.node->text[0] != '-' || !hit.node->text[1]) {
        return 0;
    }
    attached = (cmd->is_argparse ? split_argparse : split_option)(
        hit.node->text, name, sizeof(name));
    hit.option = find_option(table, name);
    if (!hit.option) {
        report_unknown(cmd, table, hit.node);
        return -1;
    }
    cmd->at++;
    if (take_values(cmd, &hit, attached) < 0) {
        return -1;
    }
    *ret = hit;
    return 1;
}

bool command_is_unexpanded(struct command *cmd, const struct launcher_hit *hit,
                           const struct node *value)
{
    if (!strchr(value->text, '$')) {
        return false;
    }
    report_note(cmd->c->report, &value->place,
                "%.80s of %s is ignored: it has a variable that nothing filled "
                "in",
                hit->node->text, cmd->launcher);
    return true;
}

static bool says_the_same(const struct field *f, const char *a, const char *b)
{
    struct job_nodes x, y;

    if (f->type == FIELD_NODES && value_range(a, 65536, &x) == 0 &&
        value_range(b, 65536, &y) == 0) {
        return x.min == y.min && x.max == y.max;
    }
    return strcmp(a, b) == 0;
}

void command_offer(struct command *cmd, const struct launcher_hit *hit,
                   const char *path, struct node *value)
{
    const struct field *f = schema_find(job_fields, path);
    struct reader r = {.arena = cmd->c->arena, .report = cmd->c->report};
    const struct node *own = node_get_path(cmd->tree, path);
    struct field as_option = *f;
    _free_ char *where = NULL;

    if (command_is_unexpanded(cmd, hit, value)) {
        return;
    }
    as_option.name = hit->is_environment
                         ? hit->node->text
                         : arena_printf(cmd->c->arena, "%s%s of %s",
                                        hit->option->name[1] ? "--" : "-",
                                        hit->option->name, cmd->launcher);
    if (!as_option.name || !schema_read_field(&r, &as_option, value, NULL)) {
        return;
    }
    if (!own || node_is_null(own)) {
        node_set_path(cmd->c->arena, cmd->tree, path, value);
        return;
    }
    if (!hit->is_environment && own->kind == NODE_SCALAR &&
        !says_the_same(f, own->text, value->text)) {
        where = place_text(&own->place);
        report_warn(cmd->c->report, &value->place,
                    "%.60s of %s differs from %s %.60s (%s); the latter counts",
                    hit->node->text, cmd->launcher, path, own->text,
                    where ? where : "");
    }
}

void command_replace(struct command *cmd, struct node *const *first, size_t n)
{
    struct arena *a = cmd->c->arena;
    struct node *list = node_list(a, &cmd->argv[0]->place);

    for (size_t i = 0; i < n; i++) {
        node_append(a, list, first[i]);
    }
    for (size_t i = cmd->at; i < cmd->n; i++) {
        node_append(a, list, cmd->argv[i]);
    }
    node_set(a, cmd->tree, "command", list);
}

/* All words are scalars; what is not, the schema reports later. */
static bool is_list_of_words(const struct node *list)
{
    if (!list || list->kind != NODE_LIST) {
        return false;
    }
    for (size_t i = 0; i < list->n; i++) {
        if (list->items[i]->kind != NODE_SCALAR) {
            return false;
        }
    }
    return true;
}

static void warn_of_mixture(const struct context *c,
                            const struct node *command,
                            const struct node *args)
{
    bool same = command->place.file && args->place.file &&
                strcmp(command->place.file, args->place.file) == 0;

    if (!same && args->n) {
        _free_ char *where = place_text(&command->place);

        report_warn(c->report, &args->place,
                    "args are put behind a command from elsewhere (%s)",
                    where ? where : "");
    }
}

/* One list `command`; `args` becomes null, which counts as not given. */
static void join_args(const struct context *c, struct node *tree)
{
    struct node *command = node_get(tree, "command");
    struct node *args = node_get(tree, "args");
    struct node *list;

    if (!is_list_of_words(args)) {
        return;
    }
    list = node_list(c->arena, command ? &command->place : &args->place);
    if (is_list_of_words(command)) {
        warn_of_mixture(c, command, args);
        for (size_t i = 0; i < command->n; i++) {
            node_append(c->arena, list, command->items[i]);
        }
    }
    for (size_t i = 0; i < args->n; i++) {
        node_append(c->arena, list, args->items[i]);
    }
    node_set(c->arena, tree, "command", list);
    node_set(c->arena, tree, "args",
             node_scalar(c->arena, &args->place, "", true));
}

static const struct launcher {
    bool (*is)(struct command *cmd);
    bool (*read)(struct command *cmd);
} launchers[] = {
    {command_is_torch, command_read_torch},
    {command_is_mpi, command_read_mpi},
    {command_is_deepspeed, command_read_deepspeed},
    {command_is_accelerate, command_read_accelerate},
    {command_is_horovod, command_read_horovod},
};

static const struct launcher *launcher_of(struct command *cmd)
{
    for (size_t i = 0; i < ARRAY_SIZE(launchers); i++) {
        if (launchers[i].is(cmd)) {
            return &launchers[i];
        }
    }
    return NULL;
}

bool command_is_launcher(struct command *cmd)
{
    return launcher_of(cmd);
}

/* The launcher that the job's command is, with its words in `cmd`; NULL where
 * there is no command of words, or it is the program itself. */
static const struct launcher *find_launcher(struct command *cmd)
{
    const struct node *command = node_get(cmd->tree, "command");

    if (!is_list_of_words(command) || command->n == 0) {
        return NULL;
    }
    cmd->argv = command->items;
    cmd->n = command->n;
    return launcher_of(cmd);
}

/* One launcher that starts another: the resolved job would be read as if it was
 * started by the second alone. */
static bool is_last(const struct command *before)
{
    struct command cmd = {.c = before->c, .tree = before->tree};
    struct wrap wrap;

    if (!find_launcher(&cmd) &&
        (!cmd.n || !command_unwrap(before->c, before->tree, &wrap) ||
         !find_launcher(&cmd))) {
        return true;
    }
    report_error(cmd.c->report, &cmd.argv[0]->place,
                 "%s behind %s; expected the program itself, or one launcher",
                 cmd.launcher, before->launcher);
    return false;
}

bool command_settle(const struct context *c, struct node *tree)
{
    size_t errors = c->report->n_errors;
    struct command cmd = {.c = c, .tree = tree};
    const struct launcher *launcher;
    struct wrap wrap = {0};

    join_args(c, tree);
    launcher = find_launcher(&cmd);
    if (!launcher && cmd.n && command_unwrap(c, tree, &wrap)) {
        launcher = find_launcher(&cmd);
    }
    if (launcher && (!launcher->read(&cmd) || !is_last(&cmd))) {
        return false;
    }
    if (launcher && wrap.is_wrapped) {
        command_rewrap(&wrap);
    }
    if (launcher || cmd.n == 0) {
        return c->report->n_errors == errors;
    }
    command_warn_of_unread(c, cmd.argv[0]);
    return c->report->n_errors == errors;
}
