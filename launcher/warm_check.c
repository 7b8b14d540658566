/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A module sees the environment while it is imported: in Python, which the
 * interpreter tells of by name, or in C, which nobody can tell of. So a worker of
 * a warm interpreter must have the values that it was started with, but for the
 * names that are muster's own and differ by worker and generation; and those the
 * modules must not have asked for.
 */
#include <config.h>

#include "launcher/warm_priv.h"

#include "launcher/contract.h"
#include "spec/job.h"

#include <errno.h>
#include <string.h>

enum { NAME_BYTES = JOB_ENV_NAME_MAX + 1 };

void warm_past_release(struct warm_past *p)
{
    strlist_release(&p->argv);
    strlist_release(&p->env);
    strlist_release(&p->names);
}

static bool has(const struct strlist *l, const char *s)
{
    for (size_t i = 0; i < l->n; i++) {
        if (strcmp(l->items[i], s) == 0) {
            return true;
        }
    }
    return false;
}

static bool cut_name(const char *entry, char *to, size_t size)
{
    size_t len = strcspn(entry, "=");

    if (entry[len] == '\0' || len == 0 || len >= size) {
        return false;
    }
    memcpy(to, entry, len);
    to[len] = '\0';
    return true;
}

/* By which what belongs to a run or an agent is found. */
static bool is_mark(const char *name)
{
    return strcmp(name, "MUSTER_RUN_ID") == 0 ||
           strcmp(name, "MUSTER_RUN_DIR") == 0 ||
           strcmp(name, "MUSTER_AGENT") == 0;
}

void warm_base_env(char *const *envp, struct strlist *ret)
{
    for (size_t i = 0; envp[i]; i++) {
        char name[NAME_BYTES];

        if (!cut_name(envp[i], name, sizeof(name)) || is_mark(name) ||
            !contract_varies(name)) {
            strlist_add(ret, envp[i]);
        }
    }
}

static enum warm_fit check_argv(const struct warm_past *p, char *const *argv,
                                struct error *why)
{
    size_t n_same = p->argv.n - p->n_args;

    for (size_t i = 0; i < n_same; i++) {
        if (!argv[i] || strcmp(argv[i], p->argv.items[i]) != 0) {
            error_text(why, EINVAL, "the command has %.100s where the "
                       "interpreter was started with %.100s",
                       argv[i] ? argv[i] : "nothing", p->argv.items[i]);
            return WARM_OLD;
        }
    }
    return WARM_FITS;
}

/* One variable of a worker. */
static enum warm_fit check_entry(const struct warm_past *p, const char *entry,
                                 struct error *why)
{
    char name[NAME_BYTES];

    if (!cut_name(entry, name, sizeof(name)) || has(&p->env, entry)) {
        return WARM_FITS;
    }
    if (!contract_varies(name)) {
        error_text(why, EINVAL, "%.100s is not as it was when the modules were "
                   "imported", name);
        return WARM_OLD;
    }
    if (has(&p->names, name)) {
        error_text(why, EINVAL, "the modules look at %.100s while they are "
                   "imported, which differs by worker", name);
        return WARM_NEVER;
    }
    return WARM_FITS;
}

static bool has_name(char *const *envp, const char *name)
{
    size_t len = strlen(name);

    for (size_t i = 0; envp[i]; i++) {
        if (strncmp(envp[i], name, len) == 0 && envp[i][len] == '=') {
            return true;
        }
    }
    return false;
}

enum warm_fit warm_past_check(const struct warm_past *p, char *const *argv,
                              char *const *envp, struct error *why)
{
    enum warm_fit fit = check_argv(p, argv, why);
    char name[NAME_BYTES];

    for (size_t i = 0; envp[i] && fit == WARM_FITS; i++) {
        fit = check_entry(p, envp[i], why);
    }
    for (size_t i = 0; i < p->env.n && fit == WARM_FITS; i++) {
        if (cut_name(p->env.items[i], name, sizeof(name)) &&
            !has_name(envp, name)) {
            error_text(why, EINVAL, "%.100s was set when the modules were "
                       "imported, and is not any more", name);
            fit = WARM_OLD;
        }
    }
    return fit;
}
