/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/proc_env_priv.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PATIENCE_MS = 1000,
    LEAST_PATIENCE_MS = 20,
    MAX_SILENT = 256, /* threads that are left behind */
};

struct proc_env_silent {
    struct proc proc;
    struct env_reader *reader;
};

/* Whoever waits for some that are silent has less time for the next one, so that
 * many of them, as of a filesystem that many use, do not add up. */
static unsigned patience_ms(size_t n_silent)
{
    size_t ms = PATIENCE_MS / (1 + n_silent);

    return ms > LEAST_PATIENCE_MS ? (unsigned)ms : LEAST_PATIENCE_MS;
}

static const char *root_of(const struct proc_env *a)
{
    return a->root ? a->root : "/proc";
}

/* --- the silent --- */

static void forget(struct proc_env *a, size_t i)
{
    env_reader_drop(a->silent[i].reader);
    a->silent[i] = a->silent[--a->n_silent];
}

/* Those whose reader has its answer by now may be asked again. */
static void forget_some(struct proc_env *a)
{
    for (size_t i = a->n_silent; i > 0; i--) {
        if (!env_reader_waits(a->silent[i - 1].reader)) {
            forget(a, i - 1);
        }
    }
}

/* One of which the pid alone is known has no start yet. */
static uint64_t start_of(const struct proc *p)
{
    struct proc now = {0};

    if (p->start == 0) {
        proc_read(p->pid, &now);
    }
    return p->start ? p->start : now.start;
}

static bool is_silent(const struct proc_env *a, const struct proc *p)
{
    for (size_t i = 0; i < a->n_silent; i++) {
        const struct proc *s = &a->silent[i].proc;

        if (s->pid == p->pid && s->start == start_of(p)) {
            return true;
        }
    }
    return a->n_silent >= MAX_SILENT;
}

static void remember(struct proc_env *a, const struct proc *p,
                     struct env_reader *r)
{
    struct proc_env_silent *grown =
        reallocarray(a->silent, a->n_silent + 1, sizeof(*grown));
    struct proc now = *p;

    if (!grown) {
        env_reader_drop(r);
        return;
    }
    a->silent = grown;
    if (p->start == 0) {
        proc_read(p->pid, &now);
    }
    a->silent[a->n_silent++] = (struct proc_env_silent){now, r};
    if (a->on_silent) {
        a->on_silent(a->arg, &now);
    }
}

void proc_env_release(struct proc_env *a)
{
    while (a->n_silent > 0) {
        forget(a, a->n_silent - 1);
    }
    free(a->silent);
    a->silent = NULL;
}

void proc_env_word(const struct proc *p, char *to, size_t size)
{
    snprintf(to, size, "process %d (%s) does not tell whose it is: it becomes "
             "another program, and waits for a filesystem that does not answer "
             "(state %c)", (int)p->pid, p->name, p->state);
}

/* --- asking --- */

/* Asks those from `from` on until one of them is silent. Returns how far it got. */
static size_t ask_from(struct proc_env *a, const struct proc *procs, size_t n,
                       const char *entry, enum proc_env_answer *answers)
{
    struct env_reader *r = NULL;
    size_t n_done;

    if (env_reader_start(root_of(a), entry, procs, n, &r) < 0) {
        answers[0] = env_look(root_of(a), procs[0].pid, entry);
        return 1; /* no thread is to be had: better so than not at all */
    }
    n_done = env_reader_wait(r, patience_ms(a->n_silent), answers);
    if (n_done == n) {
        return n;
    }
    answers[n_done] = PROC_ENV_SILENT;
    remember(a, &procs[n_done], r);
    return n_done + 1;
}

/* All of them, between those that are known to be silent. */
static void ask_all(struct proc_env *a, const struct proc *procs, size_t n,
                    const char *entry, enum proc_env_answer *answers)
{
    size_t at = 0;

    forget_some(a);
    while (at < n) {
        size_t end = at;

        while (end < n && !is_silent(a, &procs[end])) {
            end++;
        }
        if (end == at) {
            answers[at++] = PROC_ENV_SILENT;
            continue;
        }
        at += ask_from(a, procs + at, end - at, entry, answers + at);
    }
}

enum proc_env_answer proc_env_ask(struct proc_env *a, const struct proc *p,
                                  const char *entry)
{
    enum proc_env_answer answer = PROC_ENV_LACKS;

    ask_all(a, p, 1, entry, &answer);
    return answer;
}

int proc_env_list(struct proc_env *a, const char *entry, struct proc_list *l,
                  bool *ret_any_silent, struct error *e)
{
    _proc_list_ struct proc_list mine = {0};
    _free_ enum proc_env_answer *answers = NULL;
    bool any_silent = false;
    int rc = proc_list_mine(root_of(a), &mine, e);

    if (rc == 0 && !(answers = calloc(mine.n + 1, sizeof(*answers)))) {
        rc = error_set(e, ENOMEM, "list processes");
    }
    if (rc < 0) {
        return rc;
    }
    ask_all(a, mine.items, mine.n, entry, answers);
    for (size_t i = 0; i < mine.n; i++) {
        any_silent = any_silent || answers[i] == PROC_ENV_SILENT;
        if (answers[i] == PROC_ENV_HAS &&
            proc_list_add_living(l, mine.items[i].pid) < 0) {
            return error_set(e, ENOMEM, "list processes");
        }
    }
    if (ret_any_silent) {
        *ret_any_silent = any_silent;
    }
    return 0;
}
