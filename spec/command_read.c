/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What options of launchers have in common: the meanings that most of them
 * know, and the Python program at their end.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "spec/command.h"
#include "spec/yaml.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void command_note(struct command *cmd, const struct launcher_hit *hit,
                  const char *why)
{
    if (!hit->is_environment) {
        report_note(cmd->c->report, &hit->node->place,
                    "%.80s of %s has no effect: %s", hit->node->text,
                    cmd->launcher, why);
    }
}

void command_refuse(struct command *cmd, const struct launcher_hit *hit,
                    const char *instead)
{
    const char *word = hit->node->text;

    report_error(cmd->c->report, &hit->node->place, "%.*s of %s; %s",
                 (int)strcspn(word, "="), word, cmd->launcher, instead);
}

struct node *command_seconds(struct command *cmd, const struct node *value,
                             const char *text, size_t len)
{
    return node_scalar(cmd->c->arena, &value->place,
                       arena_printf(cmd->c->arena, "%.*ss", (int)len, text),
                       true);
}

void command_set_env(struct command *cmd, const char *name, struct node *value)
{
    struct arena *a = cmd->c->arena;

    if (name && !node_get(node_get(cmd->tree, "env"), name)) {
        node_set_path(a, cmd->tree, arena_printf(a, "env.%s", name), value);
    }
}

static void take_variable(struct command *cmd, const struct launcher_hit *hit,
                          const char *flag)
{
    struct node *value = hit->option->n_values
                             ? hit->values[0]
                             : node_scalar(cmd->c->arena, &hit->node->place,
                                           flag, false);

    if (!hit->option->n_values || !command_is_unexpanded(cmd, hit, value)) {
        command_set_env(cmd, hit->option->text, value);
    }
}

static bool is_number(const char *text)
{
    char *end;
    double n = strtod(text, &end);

    return end != text && !*end && n >= 0 && isfinite(n);
}

/* What a launcher finds out when it starts, its workers would find out one by one. */
static void take_number(struct command *cmd, const struct launcher_hit *hit)
{
    const char *text = hit->values[0]->text;

    if (!strchr(text, '$') && !is_number(text)) {
        command_refuse(cmd, hit, "expected a number from 0 on");
        return;
    }
    take_variable(cmd, hit, NULL);
}

void command_take(struct command *cmd, const struct launcher_hit *hit)
{
    struct node *value = hit->values[0];

    switch ((enum launcher_meaning)hit->option->meaning) {
    case LAUNCHER_NOTED:
        command_note(cmd, hit, hit->option->text);
        break;
    case LAUNCHER_REFUSED:
        command_refuse(cmd, hit, hit->option->text);
        break;
    case LAUNCHER_KEY:
        command_offer(cmd, hit, hit->option->text, value);
        break;
    case LAUNCHER_SECONDS:
        command_offer(cmd, hit, hit->option->text,
                      command_seconds(cmd, value, value->text,
                                      strlen(value->text)));
        break;
    case LAUNCHER_TOTAL:
        if (!command_is_unexpanded(cmd, hit, value)) {
            cmd->total = *hit;
        }
        break;
    case LAUNCHER_ENV:
        take_variable(cmd, hit, "1");
        break;
    case LAUNCHER_ENV_OFF:
        take_variable(cmd, hit, "0");
        break;
    case LAUNCHER_ENV_NUMBER:
        take_number(cmd, hit);
        break;
    case LAUNCHER_MODULE:
        cmd->module = true;
        break;
    case LAUNCHER_NO_PYTHON:
        cmd->no_python = true;
        break;
    case LAUNCHER_SILENT:
    case LAUNCHER_OWN:
        break;
    }
}

bool command_read_options(struct command *cmd,
                          const struct launcher_option *table,
                          void (*own)(struct command *cmd,
                                      const struct launcher_hit *hit,
                                      void *arg),
                          void *arg)
{
    struct launcher_hit hit;
    int rc;

    while ((rc = command_next(cmd, table, &hit)) > 0) {
        if (hit.option->meaning >= LAUNCHER_OWN) {
            own(cmd, &hit, arg);
        } else {
            command_take(cmd, &hit);
        }
    }
    if (rc == 0 && cmd->at == cmd->n) {
        report_error(cmd->c->report, &cmd->argv[0]->place,
                     "%s without a program; expected one behind its options",
                     cmd->launcher);
        return false;
    }
    return rc == 0;
}

const struct node *command_load(struct command *cmd, const char *path,
                                const struct place *at)
{
    _free_ struct yaml_docs *docs = calloc(1, sizeof(*docs));
    _free_ char *text = NULL;
    struct error e = {0};
    size_t len;

    if (!docs) {
        cmd->c->report->failed = true;
        return NULL;
    }
    if (fs_read_regular(path, YAML_MAX_BYTES, &text, &len, &e) < 0) {
        report_error(cmd->c->report, at, "the configuration of %s: %s",
                     cmd->launcher, e.text);
        return NULL;
    }
    if (yaml_load(cmd->c->arena, path, text, len, NULL, docs,
                  cmd->c->report) < 0) {
        return NULL;
    }
    if (docs->n > 0 && docs->docs[0]->kind != NODE_MAP) {
        report_error(cmd->c->report, &docs->docs[0]->place,
                     "the configuration of %s is %s; expected a map",
                     cmd->launcher, node_noun(docs->docs[0]));
        return NULL;
    }
    report_note(cmd->c->report, at, "%.200s is the configuration of %s", path,
                cmd->launcher);
    return docs->n > 0 ? docs->docs[0] : NULL;
}

/* --- Python --- */

/* The letter of a word of python's options that takes a value, and what is behind
 * it in that word: of -um an m with nothing, of -Wignore a W with the rest. */
static char python_letter(const char *word, const char **ret_rest)
{
    size_t len = strcspn(word, "mcWX");

    if (word[0] != '-' || word[1] == '-' || !word[len]) {
        return '\0';
    }
    *ret_rest = word + len + 1;
    return word[len];
}

/* What python is told to run: *ret_module after -m, or *ret_script; NULL is the
 * other one. *ret_at is behind it. False where it is neither of both. */
static bool python_program(const struct command *cmd, const char **ret_module,
                           const char **ret_script, size_t *ret_at)
{
    size_t i = 1;

    *ret_module = *ret_script = NULL;
    if (!command_is_python(cmd->argv[0]->text)) {
        return false;
    }
    for (; i < cmd->n && cmd->argv[i]->text[0] == '-' &&
           cmd->argv[i]->text[1]; i++) {
        const char *rest = "";
        char letter = python_letter(cmd->argv[i]->text, &rest);
        bool is_apart = letter && !rest[0];

        if (letter == 'c' || (letter == 'm' && is_apart && i + 1 == cmd->n)) {
            return false;
        }
        i += is_apart;
        if (letter == 'm') {
            *ret_at = i + 1;
            *ret_module = is_apart ? cmd->argv[i]->text : rest;
            return true;
        }
    }
    if (i >= cmd->n) {
        return false;
    }
    *ret_at = i + 1;
    *ret_script = cmd->argv[i]->text;
    return true;
}

/* Whether a path ends as the file of a module would: .../torch/distributed/run.py
 * is torch.distributed.run. */
static bool is_file_of(const char *path, const char *module)
{
    size_t len = strlen(path), n = strlen(module);

    if (!str_ends(path, ".py") || len < n + 3 ||
        (len > n + 3 && path[len - n - 4] != '/')) {
        return false;
    }
    path += len - n - 3;
    for (size_t i = 0; i < n; i++) {
        if (path[i] != (module[i] == '.' ? '/' : module[i])) {
            return false;
        }
    }
    return true;
}

static const char *find_program(const char *word, const char *const *programs)
{
    const char *name = command_basename(word);

    while (*programs && strcmp(name, *programs) != 0) {
        programs++;
    }
    return *programs;
}

bool command_is_one_of(struct command *cmd, const char *const *programs,
                       const char *const *modules)
{
    const char *module, *script;

    cmd->at = 1;
    cmd->launcher = find_program(cmd->argv[0]->text, programs);
    if (cmd->launcher || !modules ||
        !python_program(cmd, &module, &script, &cmd->at)) {
        return cmd->launcher != NULL;
    }
    cmd->launcher = script ? find_program(script, programs) : NULL;
    for (size_t i = 0; !cmd->launcher && modules[i]; i++) {
        if (module ? strcmp(module, modules[i]) == 0
                   : is_file_of(script, modules[i])) {
            cmd->launcher = modules[i];
        }
    }
    return cmd->launcher != NULL;
}

bool command_check_python(struct command *cmd)
{
    if (cmd->module && cmd->no_python) {
        report_error(cmd->c->report, &cmd->argv[0]->place,
                     "both --module and --no-python of %s; expected one of "
                     "them", cmd->launcher);
        return false;
    }
    return true;
}

/* The one that is asked for, else the one beside the launcher, in the same
 * environment. */
static struct node *interpreter(struct command *cmd)
{
    struct node *word = cmd->argv[0];
    const char *name = command_basename(word->text);

    if (cmd->python && cmd->python[0]) {
        return node_scalar(cmd->c->arena, &word->place, cmd->python, false);
    }
    if (command_is_python(word->text)) {
        return word;
    }
    return node_scalar(cmd->c->arena, &word->place,
                       arena_printf(cmd->c->arena, "%.*spython3",
                                    (int)(name - word->text), word->text),
                       false);
}

void command_start_python(struct command *cmd, struct node *argument)
{
    struct arena *a = cmd->c->arena;
    const struct place *at = &cmd->argv[0]->place;
    struct node *program = cmd->argv[cmd->at++];
    struct node *first[5];
    size_t n = 0;

    if (!cmd->no_python) {
        first[n++] = interpreter(cmd);
        first[n++] = node_scalar(a, at, "-u", false);
        if (cmd->module) {
            first[n++] = node_scalar(a, at, "-m", false);
        }
    }
    first[n++] = program;
    if (argument) {
        first[n++] = argument;
    }
    command_replace(cmd, first, n);
    report_note(cmd->c->report, at,
                "%s is not run: muster starts %.80s itself", cmd->launcher,
                program->text);
}
