/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/probe.h"

#include "base/buf.h"
#include "base/build.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "launcher/jsonw.h"

#include <errno.h>
#include <limits.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

enum {
    QUESTION_BYTES = 16 * 1024,
    MAX_NAMED = 8, /* bad hosts in one message */
};

/* A host that is asked; its task is the one of the same index. */
struct target {
    const struct host *host;
    struct probe_answer answer;
};

struct probing {
    const struct probe_config *config;
    struct target *targets;
    struct fanout_task *tasks;
    size_t n;
    struct buf question;
};

/* --- judging --- */

void probe_judge(const struct fanout_task *task, struct probe_answer *ret)
{
    json_t *o;
    const char *version, *error, *id, *host;

    *ret = (struct probe_answer){0};
    if (task->problem[0]) {
        str_copy(ret->problem, sizeof(ret->problem), task->problem);
        return;
    }
    o = fanout_answer(task);
    version = json_string_value(json_object_get(o, "version"));
    error = json_string_value(json_object_get(o, "error"));
    id = json_string_value(json_object_get(o, "id"));
    host = json_string_value(json_object_get(o, "host"));
    if (error) {
        str_copy(ret->problem, sizeof(ret->problem), error);
    } else if (!version) {
        char line[300];

        fanout_last_line(task, line, sizeof(line));
        snprintf(ret->problem, sizeof(ret->problem), task->status == 127
                 ? "muster is not installed there at the same path (%s)"
                 : "cannot be reached over ssh (%s)",
                 line[0] ? line : "no output");
    } else if (strcmp(version, build_name()) != 0) {
        snprintf(ret->problem, sizeof(ret->problem), "has muster %.60s, this "
                 "machine has %s", version, build_name());
    }
    str_copy(ret->boot_id, sizeof(ret->boot_id), id ? id : "");
    str_copy(ret->host, sizeof(ret->host), host ? host : "");
    json_decref(o);
}

static void find_twins(struct probing *p)
{
    for (size_t i = 0; i < p->n; i++) {
        for (size_t k = 0; k < i; k++) {
            struct probe_answer *a = &p->targets[i].answer;

            if (a->boot_id[0] && !a->problem[0] &&
                strcmp(a->boot_id, p->targets[k].answer.boot_id) == 0) {
                snprintf(a->problem, sizeof(a->problem), "is the same machine "
                         "as %s", p->targets[k].host->name);
            }
        }
    }
}

static int report(const struct probing *p, struct error *e)
{
    _buf_ struct buf b = {0};
    size_t n_bad = 0;

    for (size_t i = 0; i < p->n; i++) {
        const struct target *t = &p->targets[i];

        if (t->answer.problem[0] && n_bad++ < MAX_NAMED) {
            buf_printf(&b, "%shost %s: %s", b.len ? "; " : "", t->host->name,
                       t->answer.problem);
        }
    }
    if (n_bad > MAX_NAMED) {
        buf_printf(&b, "; and %zu more", n_bad - MAX_NAMED);
    }
    return n_bad ? error_text(e, ERR_LOST, "%s", buf_str(&b)) : 0;
}

static void give_results(const struct probing *p)
{
    const struct probe_config *c = p->config;

    for (size_t i = 0; i < p->n; i++) {
        size_t at = (size_t)(p->targets[i].host - c->hosts->items);

        if (c->ret_bad && p->targets[i].answer.problem[0]) {
            c->ret_bad[at] = true;
        }
        if (c->ret_answers) {
            c->ret_answers[at] = p->targets[i].answer;
        }
    }
}

static void ask(struct probing *p)
{
    const struct probe_config *c = p->config;
    struct jsonw w = jsonw_start(&p->question);
    char hex[2 * 32 + 1];

    /* At once: one that grows leaves the key behind, where it was. */
    buf_reserve(&p->question, QUESTION_BYTES);
    jsonw_object(&w, NULL);
    jsonw_int(&w, "v", 1);
    jsonw_str(&w, "run_id", c->dir->id);
    jsonw_str(&w, "run_dir", c->dir->path);
    sodium_bin2hex(hex, sizeof(hex), c->nonce, RUNDIR_NONCE_BYTES);
    jsonw_str(&w, "nonce", hex);
    sodium_bin2hex(hex, sizeof(hex), c->key, 32);
    jsonw_str(&w, "key", hex);
    sodium_memzero(hex, sizeof(hex));
    jsonw_end_object(&w);
    buf_putc(&p->question, '\n');
}

static void probing_release(struct probing *p)
{
    for (size_t i = 0; p->tasks && i < p->n; i++) {
        fanout_task_release(&p->tasks[i]);
    }
    free(p->tasks);
    free(p->targets);
    if (p->question.data) {
        sodium_memzero(p->question.data, p->question.len);
    }
    buf_release(&p->question);
}

int probe_argv(char *const *ssh, const char *host, struct strlist *to,
               struct error *e)
{
    _free_ char *quoted = NULL;
    char muster[PATH_MAX];
    int rc = fs_program(muster, sizeof(muster), e);

    if (rc < 0) {
        return rc;
    }
    /* ssh hands the words to the user's shell there: quote what we add. */
    quoted = str_shell_quote(muster);
    strlist_add_all(to, ssh);
    strlist_add(to, host);
    strlist_add(to, quoted ? quoted : muster);
    strlist_add(to, "probe");
    return to->failed ? error_set(e, ENOMEM, "start ssh") : 0;
}

static int list_targets(struct probing *p, struct error *e)
{
    const struct host_list *hosts = p->config->hosts;

    p->targets = calloc(hosts->n + 1, sizeof(*p->targets));
    p->tasks = calloc(hosts->n + 1, sizeof(*p->tasks));
    if (!p->targets || !p->tasks) {
        return error_set(e, ENOMEM, "probe hosts");
    }
    for (size_t i = 0; i < hosts->n; i++) {
        const struct host *host = &hosts->items[i];
        int rc;

        if (host->is_local) {
            continue;
        }
        p->targets[p->n].host = host;
        rc = probe_argv(p->config->ssh, host->name, &p->tasks[p->n++].argv, e);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

int probe_hosts(const struct probe_config *config, struct error *e)
{
    struct probing p = {.config = config};
    int rc = list_targets(&p, e);

    if (rc == 0) {
        struct fanout fan = {.tasks = p.tasks, .n = p.n, .input = &p.question,
                             .env = environ, .timeout_ms = config->timeout_ms};

        ask(&p);
        rc = p.question.failed ? error_set(e, ENOMEM, "probe hosts")
                               : fanout_run(&fan, e);
    }
    for (size_t i = 0; rc == 0 && i < p.n; i++) {
        probe_judge(&p.tasks[i], &p.targets[i].answer);
    }
    if (rc == 0) {
        find_twins(&p);
    }
    if (rc == 0) {
        give_results(&p);
        rc = report(&p, e);
        rc = config->ret_bad ? 0 : rc;
    }
    probing_release(&p);
    return rc;
}
