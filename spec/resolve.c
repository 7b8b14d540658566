/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one resolver. Each layer is a tree of the short form, and the trees are
 * merged before anything is read from them:
 *
 *   built-in defaults < options of a launcher < runtime < job < command line
 *
 * The launcher's options are looked at after runtime, job and command line are
 * merged, because they fill in only what these leave open.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
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

struct resolving {
    struct context c;
    struct arena arena;
    struct report report;
    struct yaml_docs docs;
    const char *file;      /* as messages call it; NULL: an argv */
    struct node *document; /* the chosen one; NULL: an argv */
    const struct form *form;
};

/* --- reading --- */

static int load_text(struct resolving *s, const char *text, size_t len)
{
    return yaml_load(&s->arena, s->file, text, len, NULL, &s->docs,
                     &s->report);
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
    rc = fs_read(is_stdin ? "/dev/stdin" : q->path, YAML_MAX_BYTES, &text, &len,
                 &why);
    if (rc < 0) {
        report_error(&s->report, NULL, "%s", why.text);
        return rc;
    }
    return load_text(s, text, len);
}

/* --- choosing the document --- */

struct found {
    struct node *jobs[YAML_MAX_DOCUMENTS];
    const struct form *forms[YAML_MAX_DOCUMENTS];
    size_t n;
    struct node *runtime; /* the last one */
    const struct form *runtime_form;
};

static void sort_documents(struct resolving *s, struct found *f)
{
    for (size_t i = 0; i < s->docs.n; i++) {
        struct node *doc = s->docs.docs[i];
        const struct form *form = form_of(&s->c, doc, s->docs.n > 1);

        if (form && form->is_runtime) {
            f->runtime = doc;
            f->runtime_form = form;
        } else if (form) {
            f->jobs[f->n] = doc;
            f->forms[f->n++] = form;
        } else if (s->docs.n > 1 && s->report.n_errors == 0) {
            report_note(&s->report, &doc->place,
                        "kind %.60s is skipped: it is no training job",
                        node_get(doc, "kind")->text);
        }
    }
}

static void report_no_job(struct resolving *s, const struct found *f)
{
    struct place at = {.file = s->file};

    if (s->docs.n == 0) {
        report_error(&s->report, &at,
                     "no job in it; expected one, such as apiVersion: "
                     "muster/v1 and kind: Job");
    } else if (f->runtime) {
        const char *name = form_doc_name(f->runtime);

        report_error(&s->report, &f->runtime->place,
                     "only the runtime %.60s; expected a job that refers to "
                     "it",
                     name ? name : "without a name");
    } else {
        form_of(&s->c, s->docs.docs[0], false);
    }
}

/* All names, for the error about a choice. */
static char *list_jobs(struct resolving *s, const struct found *f)
{
    _buf_ struct buf names = {0};

    for (size_t i = 0; i < f->n; i++) {
        const char *name = form_doc_name(f->jobs[i]);

        buf_printf(&names, "%s%.60s", i ? ", " : "", name ? name : "(none)");
    }
    return arena_strdup(&s->arena, buf_str(&names));
}

static void pick_job(struct resolving *s, const struct found *f)
{
    struct place at = {.file = s->file};
    const char *want = s->c.request->job;

    if (f->n == 1 && !want) {
        s->document = f->jobs[0];
        s->form = f->forms[0];
        return;
    }
    for (size_t i = 0; want && i < f->n; i++) {
        const char *name = form_doc_name(f->jobs[i]);

        if (name && strcmp(name, want) == 0) {
            s->document = f->jobs[i];
            s->form = f->forms[i];
            return;
        }
    }
    if (want) {
        report_error(&s->report, &at, "no job %.60s in it; expected one of %s",
                     want, list_jobs(s, f));
    } else {
        report_error(&s->report, &at,
                     "%zu jobs in it; expected the name of one of %s", f->n,
                     list_jobs(s, f));
    }
}

static void choose(struct resolving *s)
{
    _free_ struct found *f = calloc(1, sizeof(*f));

    if (!f) {
        s->report.failed = true;
        return;
    }
    sort_documents(s, f);
    if (s->report.n_errors) {
        return;
    }
    if (f->n == 0 && f->runtime && s->c.request->accept_runtime) {
        s->document = f->runtime;
        s->form = f->runtime_form;
    } else if (f->n == 0) {
        report_no_job(s, f);
    } else {
        pick_job(s, f);
    }
}

/* --- layers --- */

static struct node *read_argv(struct resolving *s)
{
    static const struct place at = {.file = "command line"};
    struct node *map = node_map(&s->arena, &at);
    struct node *list = node_list(&s->arena, &at);

    for (char *const *arg = s->c.request->argv; *arg; arg++) {
        struct node *n = node_scalar(&s->arena, &at, *arg, false);

        if (!value_is_utf8(*arg)) {
            report_error(&s->report, &at,
                         "argument %zu is not UTF-8; expected text",
                         (size_t)(arg - s->c.request->argv) + 1);
        }
        if (n) {
            n->literal = true;
        }
        node_append(&s->arena, list, n);
    }
    node_set(&s->arena, map, "command", list);
    return map;
}

static struct node *read_overrides(struct resolving *s)
{
    static const struct place at = {.file = "command line"};
    struct node *map = node_map(&s->arena, &at);

    for (size_t i = 0; map && i < s->c.request->n_overrides; i++) {
        const struct spec_override *o = &s->c.request->overrides[i];
        struct place place = {.file = arena_strdup(
                                  &s->arena, o->origin ? o->origin : "--set")};

        if (!value_is_utf8(o->value)) {
            report_error(&s->report, &place, "%s is not UTF-8; expected text",
                         o->path);
            continue;
        }
        form_set_text(&s->c, map, o->path, o->value, &place);
    }
    return map;
}

/* The tree without keys that are not the job's own to give. */
static struct node *without(struct resolving *s, const struct node *tree,
                            const char *a, const char *b)
{
    struct node *rest = node_map(&s->arena, &tree->place);

    for (size_t i = 0; i < tree->n; i++) {
        const struct pair *p = &tree->pairs[i];

        if (strcmp(p->key, a) != 0 && strcmp(p->key, b) != 0) {
            node_add(&s->arena, rest, p->key, &p->place, p->value);
        }
    }
    return rest;
}

/* A job that says N takes the range of its runtime away. */
static void note_fixed_size(struct resolving *s, const struct node *runtime,
                            const struct node *job)
{
    const struct node *range = node_get(runtime, "nodes");
    const struct node *own = node_get(job, "nodes");
    struct job_nodes a, b;

    if (range && own && range->kind == NODE_SCALAR &&
        own->kind == NODE_SCALAR && value_range(range->text, 65536, &a) == 0 &&
        value_range(own->text, 65536, &b) == 0 && a.min != a.max &&
        b.min == b.max) {
        report_note(&s->report, &own->place,
                    "the job has %s nodes, so the runtime's %s does not count",
                    own->text, range->text);
    }
}

/* The runtime that the job or the command line names, under the job. */
static struct node *add_runtime(struct resolving *s, struct node *job,
                                const struct node *over)
{
    const struct node *ref = node_get(over, "runtime");
    const struct node *kind = NULL;
    struct node *runtime;

    if (!ref) {
        ref = node_get(job, "runtime");
        kind = node_get(job, "runtimeKind");
    }
    if (!ref || ref->kind != NODE_SCALAR || node_is_null(ref) ||
        strcmp(ref->text, "none") == 0) {
        return job;
    }
    runtime = runtimes_load(&s->c, s->form ? &s->docs : NULL, ref->text,
                            kind ? kind->text : NULL, &ref->place);
    if (!runtime) {
        return NULL;
    }
    note_fixed_size(s, runtime, job);
    return node_merge(&s->arena, without(s, runtime, "name", "runtime"), job);
}

static struct node *merge_layers(struct resolving *s)
{
    struct node *job, *over;

    job = s->document ? s->form->read(&s->c, s->document) : read_argv(s);
    over = read_overrides(s);
    if (!job || !over || s->report.n_errors) {
        return NULL;
    }
    job = add_runtime(s, job, over);
    if (!job || s->report.n_errors) {
        return NULL;
    }
    job = without(s, node_merge(&s->arena, job, over), "runtimeKind", "");
    return job ? node_copy(&s->arena, job) : NULL;
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
    struct node *tree = merge_layers(s);

    if (!tree) {
        return NULL;
    }
    resolve_expand(&s->c, tree);
    if (!command_settle(&s->c, tree)) {
        return NULL;
    }
    settle_name(s, tree);
    settle_secrets(s, tree);
    tree = without(s, tree, "args", "");
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
        choose(s);
    }
    tree = s->report.n_errors ? NULL : settle_tree(s);
    if (!tree || s->report.n_errors || s->arena.failed) {
        return;
    }
    ret->job = read_job(s, tree);
    if (ret->job && !resolve_origins(tree, ret)) {
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
        .arena = &s->arena, .report = &s->report, .request = request};
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
