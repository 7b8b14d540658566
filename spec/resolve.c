/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one resolver. Each layer is a tree of the short form, and the trees are
 * merged before anything is read from them:
 *
 *   built-in defaults < environment < options of a launcher < runtime < job <
 *   command line
 *
 * The launcher's options and the environment are looked at after runtime, job and
 * command line are merged, because they fill in only what these leave open.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/utf8.h"
#include "spec/command.h"
#include "spec/form.h"
#include "spec/resolve.h"
#include "spec/runtimes.h"
#include "spec/spec.h"
#include "spec/value.h"
#include "spec/yaml.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

extern char **environ;

/* --- reading --- */

static int load_text(struct resolving *s, const char *text, size_t len)
{
    return yaml_load(&s->arena, s->file, text, len, NULL, &s->docs,
                     &s->report);
}

/* One who comes from torchrun or python names a program here. */
static bool is_program(const char *path, const char *text, size_t len)
{
    const char *dot = strrchr(path, '.');

    return (dot && (strcmp(dot, ".py") == 0 || strcmp(dot, ".sh") == 0)) ||
           (len > 2 && memcmp(text, "#!", 2) == 0) ||
           (len > 4 && memcmp(text, "\x7f" "ELF", 4) == 0);
}

static int refuse_program(struct resolving *s)
{
    const char *dot = strrchr(s->file, '.');
    bool is_python = dot && strcmp(dot, ".py") == 0;

    report_error(&s->report, NULL, "%s is a program; expected a file that "
                 "describes a job (-- %s%s runs the program)", s->file,
                 is_python                ? "python "
                 : strchr(s->file, '/') ? "" : "./", s->file);
    return -ERR_SPEC;
}

static int load(struct resolving *s)
{
    const struct spec_request *q = s->c.request;
    bool is_stdin = q->path && strcmp(q->path, "-") == 0;
    _free_ char *text = NULL;
    struct error why = {0};
    size_t len;
    int rc;

    if (q->text) {
        s->file = q->text_name ? q->text_name : "spec";
        return load_text(s, q->text, strlen(q->text));
    }
    s->file = is_stdin ? "stdin" : q->path;
    rc = is_stdin ? fs_read_fd(0, s->file, YAML_MAX_BYTES, &text, &len, &why)
                  : fs_read(s->file, YAML_MAX_BYTES, &text, &len, &why);
    if (rc < 0) {
        report_error(&s->report, NULL, "%s", why.text);
        return rc;
    }
    if (is_program(s->file, text, len)) {
        return refuse_program(s);
    }
    return load_text(s, text, len);
}

/* --- the job --- */

/* A label made of a file's or a program's name. */
static char *name_from(struct resolving *s, const char *text)
{
    char *name = arena_strdup(&s->arena, command_basename(text));
    char *dot = name ? strrchr(name, '.') : NULL;
    size_t n = 0;

    if (dot && dot != name) {
        *dot = '\0';
    }
    for (char *p = name; p && *p && n < 63; p++) {
        char c = (char)tolower((unsigned char)*p);

        if (isalnum((unsigned char)c) || (n && name[n - 1] != '-')) {
            name[n++] = isalnum((unsigned char)c) ? c : '-';
        }
    }
    while (n && name[n - 1] == '-') {
        n--;
    }
    if (name) {
        name[n] = '\0';
    }
    return n ? name : arena_strdup(&s->arena, "job");
}

/* What a command is called after: the script or module, where it is Python's. */
static const char *program_of(const struct node *command)
{
    const char *program = command->items[0]->text;

    for (size_t i = 1; command_is_python(program) && i < command->n; i++) {
        const struct node *word = command->items[i];
        const char *dot;

        if (word->kind != NODE_SCALAR || strcmp(word->text, "-c") == 0) {
            break;
        }
        if (strcmp(word->text, "-m") == 0 && i + 1 < command->n &&
            command->items[i + 1]->kind == NODE_SCALAR) {
            dot = strrchr(command->items[i + 1]->text, '.');
            return dot ? dot + 1 : command->items[i + 1]->text;
        }
        if (word->text[0] != '-') {
            return word->text;
        }
        i += strcmp(word->text, "-X") == 0 || strcmp(word->text, "-W") == 0;
    }
    return program;
}

static void settle_name(struct resolving *s, struct node *tree)
{
    static const struct place at = {.file = PLACE_DEFAULT};
    const struct node *command = node_get(tree, "command");
    const char *from = s->file;

    if (node_get(tree, "name")) {
        return;
    }
    if (!from && command && command->kind == NODE_LIST && command->n &&
        command->items[0]->kind == NODE_SCALAR) {
        from = program_of(command);
    }
    node_set(&s->arena, tree, "name",
             node_scalar(&s->arena, &at, name_from(s, from ? from : ""),
                         false));
}

static bool lists(const struct node *list, const char *name)
{
    for (size_t i = 0; list && list->kind == NODE_LIST && i < list->n; i++) {
        if (list->items[i]->kind == NODE_SCALAR &&
            strcmp(list->items[i]->text, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Variables that were read as secrets, or are called like one, join those that
 * the job lists. */
static void settle_secrets(struct resolving *s, struct node *tree)
{
    static const struct job nothing_listed = {0};
    const struct node *env = node_get(tree, "env");
    struct node *secrets = node_get(tree, "secrets");

    if (secrets && secrets->n > YAML_MAX_KEYS) {
        report_error(&s->report, &secrets->place,
                     "%zu secrets; expected at most %d", secrets->n,
                     YAML_MAX_KEYS);
        return;
    }
    for (size_t i = 0; env && env->kind == NODE_MAP && i < env->n; i++) {
        const struct pair *p = &env->pairs[i];

        if (lists(secrets, p->key) ||
            (!p->value->secret &&
             !job_env_is_secret(&nothing_listed, p->key))) {
            continue;
        }
        if (!secrets) {
            secrets = node_list(&s->arena, &p->value->place);
            node_set(&s->arena, tree, "secrets", secrets);
        }
        node_append(&s->arena, secrets,
                    node_scalar(&s->arena, &p->value->place, p->key, false));
    }
}

static struct node *settle_tree(struct resolving *s)
{
    struct node *tree = resolve_layers(s);

    if (!tree) {
        return NULL;
    }
    resolve_expand(&s->c, tree);
    if (!command_settle(&s->c, tree)) {
        return NULL;
    }
    resolve_environment(&s->c, tree);
    settle_name(s, tree);
    settle_secrets(s, tree);
    tree = resolve_without(s, tree, "args", "");
    tree = tree ? node_merge(&s->arena,
                             schema_defaults(&s->arena, job_fields,
                                             &s->report),
                             tree)
                : NULL;
    if (tree && s->document) {
        tree->place = s->document->place;
    }
    return tree;
}

static struct job *read_job(struct resolving *s, const struct node *tree)
{
    _cleanup_(job) struct job *job = job_create();
    struct reader r = {
        .arena = &s->arena, .report = &s->report, .notes = true};

    if (!job) {
        s->report.failed = true;
        return NULL;
    }
    if (!schema_read(&r, job_fields, tree, job)) {
        return NULL;
    }
    resolve_check(&s->c, tree, s->form && s->form->is_runtime, job);
    return s->report.n_errors ? NULL : take_ptr(&job);
}

static int finish(struct resolving *s, struct spec_result *ret,
                  struct error *e)
{
    const struct spec_message *first = NULL;

    if (s->report.n_errors > REPORT_MAX_ERRORS) {
        size_t more = s->report.n_errors - REPORT_MAX_ERRORS;

        s->report.n_errors = 0;
        report_error(&s->report, NULL, "and %zu more errors", more);
        s->report.n_errors = REPORT_MAX_ERRORS + more;
    }
    ret->messages = s->report.items;
    ret->n_messages = s->report.n;
    ret->n_errors = s->report.n_errors;
    for (size_t i = 0; i < ret->n_messages && !first; i++) {
        first = ret->messages[i].level == SPEC_ERROR ? &ret->messages[i] : NULL;
    }
    if (s->report.failed || s->arena.failed || (!ret->job && !first)) {
        return error_set(e, ENOMEM, "resolve the job");
    }
    if (first && ret->n_errors > 1) {
        return error_text(e, ERR_SPEC, "%.900s (and %zu more)", first->text,
                          ret->n_errors - 1);
    }
    return first ? error_text(e, ERR_SPEC, "%.1000s", first->text) : 0;
}

static void resolve(struct resolving *s, struct spec_result *ret)
{
    struct node *tree;

    if (!s->c.request->argv) {
        resolve_choose(s);
    }
    tree = s->report.n_errors ? NULL : settle_tree(s);
    if (!tree || s->report.n_errors || s->arena.failed) {
        return;
    }
    ret->job = read_job(s, tree);
    if (ret->job && !resolve_origins(tree, ret)) {
        s->report.failed = true;
    }
    ret->hosts = ret->job && s->hosts ? strdup(s->hosts) : NULL;
    if (ret->job && s->hosts && !ret->hosts) {
        s->report.failed = true;
    }
}

static int check_request(const struct spec_request *q, struct error *e)
{
    int n = (q->path != NULL) + (q->text != NULL) + (q->argv != NULL);

    if (n != 1 || (q->argv && !q->argv[0])) {
        return error_text(e, ERR_USAGE,
                          n == 0 ? "neither a spec nor a command; expected one "
                                   "of them"
                          : n == 1 ? "no command; expected a program"
                                   : "a spec and a command; expected one of "
                                     "them");
    }
    if (q->path && !q->path[0]) {
        return error_text(e, ERR_USAGE, "a spec without a name; expected a file, or "
                          "- for standard input");
    }
    for (size_t i = 0; i < q->n_overrides; i++) {
        if (!q->overrides[i].path || !q->overrides[i].path[0] ||
            !q->overrides[i].value) {
            return error_text(e, ERR_USAGE,
                              "a setting without a name or value; expected "
                              "PATH=VALUE");
        }
    }
    return 0;
}

int spec_resolve(const struct spec_request *request, struct spec_result *ret,
                 struct error *e)
{
    _free_ struct resolving *s = calloc(1, sizeof(*s));
    int rc = check_request(request, e), read_rc = 0;

    *ret = (struct spec_result){0};
    if (rc < 0 || !s) {
        return rc < 0 ? rc : error_set(e, ENOMEM, "resolve the job");
    }
    s->c = (struct context){
        .arena = &s->arena, .report = &s->report, .request = request,
        .hosts = &s->hosts};
    if (!request->argv) {
        read_rc = load(s);
    }
    if (read_rc == 0) {
        resolve(s, ret);
    }
    rc = finish(s, ret, e);
    if (rc < 0) {
        job_destroy(ret->job);
        ret->job = NULL;
    }
    arena_release(&s->arena);
    return read_rc < 0 && read_rc != -ERR_SPEC
               ? error_text(e, -read_rc, "%s",
                            ret->n_messages ? ret->messages[0].text
                                            : "out of memory")
               : rc;
}

void spec_result_release(struct spec_result *result)
{
    for (size_t i = 0; i < result->n_messages; i++) {
        free(result->messages[i].text);
    }
    for (size_t i = 0; i < result->n_origins; i++) {
        free(result->origins[i].path);
        free(result->origins[i].origin);
    }
    free(result->messages);
    free(result->origins);
    free(result->hosts);
    job_destroy(result->job);
    *result = (struct spec_result){0};
}

const char *spec_origin_of(const struct spec_result *result, const char *path)
{
    for (size_t i = 0; i < result->n_origins; i++) {
        if (strcmp(result->origins[i].path, path) == 0) {
            return result->origins[i].origin;
        }
    }
    return NULL;
}

int spec_list_runtimes(const char *const *runtime_dirs, struct buf *to,
                       struct error *e)
{
    struct spec_request request = {.runtime_dirs = runtime_dirs,
                                   .env = environ};
    _arena_ struct arena arena = {0};
    struct report report = {0};
    struct context c = {
        .arena = &arena, .report = &report, .request = &request};

    runtimes_list(&c, to);
    report_release(&report);
    if (arena.failed || to->failed) {
        return error_set(e, ENOMEM, "list runtimes");
    }
    return 0;
}
