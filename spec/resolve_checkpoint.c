/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What keys of `checkpoint` say together. A key that has no effect is told where a job
 * would be the worse for it when it is too late: at a restart, or when what was to stay is
 * gone. Who has said no more than what is so anyway need not hear of it.
 */
#include <config.h>

#include "spec/resolve.h"

#include "base/s3_uri.h"
#include "base/str.h"
#include "spec/command_wrap.h"

#include <string.h>

/* As in job_fields.c. */
enum { KEEP = 3, PARTNER_GROUP = 8, PARTNER_PARITIES = 2, COPY_EVERY_MS = 30 * 60 * 1000 };

struct check {
    const struct context *c;
    const struct node *tree;
    const struct job_checkpoint *k;
};

/* Of `key` below checkpoint, or of what it is in as far as that was given. */
static const struct place *place_of(const struct check *s, const char *key)
{
    const struct node *at = node_get(s->tree, "checkpoint");
    const struct node *n = at ? node_get_path(at, key) : NULL;

    return n ? &n->place : at ? &at->place : &s->tree->place;
}

/* `sh -c TEXT`: words behind that are the shell's, and TEXT has to ask for them. */
static bool is_shell_line(const struct strlist *command)
{
    const char *slash = command->n > 2 ? strrchr(command->items[0], '/') : NULL;

    return command->n > 2 && strcmp(command->items[1], "-c") == 0 &&
           str_ends(slash ? slash + 1 : command->items[0], "sh") &&
           (command->n == 3 || !command_passes_words(command->items[2]));
}

static bool is_span(uint64_t ms)
{
    return ms != 0 && ms != JOB_AUTO;
}

static void warn_without(const struct check *s, const char *key, const char *what)
{
    report_warn(s->c->report, place_of(s, key),
                "checkpoint.%s has no effect without %s", key, what);
}

static void check_partner(const struct check *s)
{
    const struct job_checkpoint *k = s->k;
    bool is_copy = k->partner == JOB_PARTNER_COPY, is_rs = k->partner == JOB_PARTNER_RS;
    bool has_group = k->partner_group != PARTNER_GROUP;
    bool has_parities = k->partner_parities != PARTNER_PARITIES;
    const char *key = has_parities ? "partnerParities" : "partnerGroup";

    if (!is_copy && !(k->levels & JOB_LEVEL_PARTNER)) {
        warn_without(s, "partner", "partner in checkpoint.levels");
    }
    if (k->partner_encrypt && !(k->levels & JOB_LEVEL_PARTNER)) {
        warn_without(s, "partnerEncrypt", "partner in checkpoint.levels");
    }
    if (is_rs && k->partner_parities >= k->partner_group) {
        report_error(s->c->report, place_of(s, "partnerParities"),
                     "checkpoint.partnerParities is %u in groups of %u nodes; expected "
                     "less than checkpoint.partnerGroup", k->partner_parities,
                     k->partner_group);
    }
    if ((has_group && is_copy) || (has_parities && !is_rs)) {
        report_warn(s->c->report, place_of(s, key),
                    "checkpoint.%s has no effect with checkpoint.partner: %s", key,
                    is_copy ? "copy" : "xor");
    }
}

static void check_levels(const struct check *s)
{
    const struct job_checkpoint *k = s->k;
    bool has_memory = k->levels & JOB_LEVEL_MEMORY;

    if (!(k->levels & JOB_LEVEL_DISK)) {
        report_warn(s->c->report, place_of(s, "levels"),
                    "checkpoint.levels is without disk, where checkpoints are "
                    "written all the same");
    }
    if (k->levels & JOB_LEVEL_PARTNER && !has_memory) {
        report_warn(s->c->report, place_of(s, "levels"),
                    "partner of checkpoint.levels has no effect without memory, which "
                    "is what partners copy");
    }
    if (is_span(k->disk_every_ms) && !has_memory) {
        warn_without(s, "diskEvery",
                     "memory in checkpoint.levels, where the others would stay");
    }
    if (is_span(k->partner_every_ms) && !(k->levels & JOB_LEVEL_PARTNER)) {
        warn_without(s, "partnerEvery", "partner in checkpoint.levels");
    }
    if (!has_memory && (k->keep != KEEP || k->keep_every || k->keep_best)) {
        warn_without(s, k->keep != KEEP ? "keep" : k->keep_every ? "keepEvery" : "keepBest",
                     "memory in checkpoint.levels: programs that write themselves keep what "
                     "they say themselves");
    }
}

/* `--best` of muster ckpt, and the options of programs, have the goal behind the name; here
 * it would be a part of a name that no checkpoint has. */
static void check_metric(const struct check *s, const char *key, const char *metric,
                         const char *goal)
{
    const char *colon = metric ? strrchr(metric, ':') : NULL;

    if (colon && (strcmp(colon, ":max") == 0 || strcmp(colon, ":min") == 0)) {
        report_warn(s->c->report, place_of(s, key),
                    "checkpoint.%s is taken as a metric of the name \"%.60s\"; expected the "
                    "name alone, and checkpoint.%s: %s", key, metric, goal,
                    colon[2] == 'a' ? "maximize" : "minimize");
    }
}

static void check_keep(const struct check *s)
{
    const struct job_checkpoint *k = s->k;

    if (!k->keep_best && k->keep_goal == JOB_MAXIMIZE) {
        warn_without(s, "keepGoal", "checkpoint.keepBest");
    }
    check_metric(s, "keepBest", k->keep_best, "keepGoal");
    check_metric(s, "prune.best", k->prune_best, "prune.goal");
    if (k->prune_keep == 0 && (k->prune_every || k->prune_best)) {
        warn_without(s, k->prune_every ? "prune.every" : "prune.best",
                     "checkpoint.prune.keep: nothing is removed");
    }
    if (!k->prune_best && k->prune_goal == JOB_MAXIMIZE) {
        warn_without(s, "prune.goal", "checkpoint.prune.best");
    }
}

/* What is on the disk counts for it, and nothing else. */
static void check_alarm(const struct check *s)
{
    const struct job_checkpoint *k = s->k;
    bool is_disk = is_span(k->disk_every_ms) && k->disk_every_ms >= k->alarm_ms &&
                   k->levels & JOB_LEVEL_MEMORY;
    bool is_every = is_span(k->every_ms) && k->every_ms >= k->alarm_ms;

    if (k->alarm_ms == JOB_OFF) {
        if (k->alarm_then == JOB_ALARM_STOP) {
            warn_without(s, "alarm.then", "checkpoint.alarm.after");
        }
    } else if (is_disk || is_every) {
        report_warn(s->c->report, place_of(s, "alarm.after"),
                    "checkpoint.alarm.after is no longer than checkpoint.%s: a run in which "
                    "nothing is wrong is late", is_disk ? "diskEvery" : "every");
    }
}

/* As whoever copies there will read it. */
static void check_uri(const struct check *s, const char *key, const char *uri)
{
    struct s3_uri parsed;
    struct error e;

    if (s3_uri_parse(uri, &parsed, &e) < 0) {
        report_error(s->c->report, place_of(s, key), "checkpoint.%s: %s", key, e.text);
    }
}

static void check_store(const struct check *s)
{
    const struct job_checkpoint *k = s->k;

    if (k->store) {
        check_uri(s, "store", k->store);
    }
    if (!k->store && (k->store_every_ms || k->store_keep)) {
        warn_without(s, k->store_keep ? "storeKeep" : "storeEvery", "checkpoint.store");
    }
}

/* Neither the shell nor muster makes another path of it: a run that looks at a place that
 * nobody writes to starts from the beginning again. */
static void check_path(const struct check *s, const char *key, const char *path)
{
    if (path && (path[0] == '~' || strchr(path, '$'))) {
        report_warn(s->c->report, place_of(s, key),
                    "checkpoint.%s is \"%.100s\", which is taken as it is; expected a path "
                    "without ~ and variables", key, path);
    }
}

static void check_watch(const struct check *s)
{
    const struct job_checkpoint *k = s->k;

    if (!k->watch && (k->prune_keep || k->copy_to)) {
        warn_without(s, k->prune_keep ? "prune" : "copy", "checkpoint.watch");
    }
    if (k->watch && s3_is_uri(k->watch)) {
        report_error(s->c->report, place_of(s, "watch"),
                     "checkpoint.watch is \"%.100s\"; expected a directory, and a store as "
                     "checkpoint.store", k->watch);
    }
    if (k->watch && k->copy_to && strcmp(k->watch, k->copy_to) == 0) {
        report_error(s->c->report, place_of(s, "copy.to"),
                     "checkpoint.copy.to is checkpoint.watch itself; expected "
                     "another directory");
    }
    if (!k->copy_to && (k->copy_keep || k->copy_every_ms != COPY_EVERY_MS)) {
        warn_without(s, k->copy_keep ? "copy.keep" : "copy.every", "checkpoint.copy.to");
    }
    check_path(s, "watch", k->watch);
    check_path(s, "copy.to", k->copy_to);
    if (k->copy_to && s3_is_uri(k->copy_to)) {
        check_uri(s, "copy.to", k->copy_to);
    }
}

/* The first {WORD} that is not {path}: with its length, 0 for none. */
static size_t find_other_hole(const char *arg, const char **ret)
{
    for (const char *at = arg; (at = strchr(at, '{')); at++) {
        size_t n = strspn(at + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_");

        if (at[1 + n] == '}' && !str_starts(at, "{path}")) {
            *ret = at;
            return n + 2;
        }
    }
    return 0;
}

static bool is_quoted(const char *arg)
{
    static const char *const quoted[] = {"\"{path}\"", "'{path}'"};

    for (size_t i = 0; i < 2; i++) {
        const char *at = strstr(arg, quoted[i]);

        if (at && (at == arg || strchr(" \t=", at[-1]))) {
            return true;
        }
    }
    return false;
}

static bool is_script(const char *word)
{
    return str_ends(word, ".py");
}

/* The script whose options end with a -- of its own; NULL: there is none. What is behind
 * the -- of a program that starts another one, as in uv run -- python x.py, is that. */
static const char *find_closed_script(const struct strlist *command)
{
    const char *script = NULL;

    for (size_t i = 0; i < command->n; i++) {
        const char *word = command->items[i];
        const char *next = i + 1 < command->n ? command->items[i + 1] : "";
        const char *slash = strrchr(next, '/');

        if (!script && is_script(word)) {
            script = word;
        } else if (script && strcmp(word, "--") == 0) {
            if (!is_script(next) && !str_starts(slash ? slash + 1 : next, "python")) {
                return script;
            }
            script = NULL;
        }
    }
    return NULL;
}

static void check_resume_place(const struct check *s, const struct job *job,
                               const struct place *at)
{
    const char *arg = s->k->resume_arg + strspn(s->k->resume_arg, " \t");
    const char *script = arg[0] == '-' ? find_closed_script(&job->command) : NULL;

    if (script) {
        report_warn(s->c->report, at,
                    "checkpoint.resumeArg is put at the end of the command, behind the -- that "
                    "ends the options of %.100s; expected no -- there, or "
                    "$MUSTER_RESUME_PATH in the program", script);
    }
}

static void check_resume_arg(const struct check *s, const struct job *job)
{
    const char *arg = s->k->resume_arg, *other = NULL;
    const struct place *at = place_of(s, "resumeArg");
    size_t n;

    if (!arg) {
        return;
    }
    if (is_shell_line(&job->command)) {
        report_warn(s->c->report, at,
                    "checkpoint.resumeArg is put behind the text that %.60s -c "
                    "runs, where the program does not see it; expected "
                    "$MUSTER_RESUME_PATH in the text",
                    job->command.items[0]);
    }
    check_resume_place(s, job, at);
    n = find_other_hole(arg, &other);
    if (n) {
        report_warn(s->c->report, at,
                    "checkpoint.resumeArg has %.*s, which the program gets as it is; expected "
                    "{path}", (int)(n < 60 ? n : 60), other);
    }
    if (is_quoted(arg)) {
        report_warn(s->c->report, at,
                    "checkpoint.resumeArg has quotes, which the program gets with the path; "
                    "expected {path} alone: no shell reads it");
    }
}

void resolve_check_checkpoint(const struct context *c, const struct node *tree,
                              const struct job *job)
{
    struct check s = {.c = c, .tree = tree, .k = &job->checkpoint};

    check_resume_arg(&s, job);
    check_levels(&s);
    check_partner(&s);
    check_keep(&s);
    check_alarm(&s);
    check_store(&s);
    check_watch(&s);
}
