/* SPDX-License-Identifier: Apache-2.0 */
/* Makes an environment by the tables of contract.c, and tells how. */
#include <config.h>

#include "launcher/contract_priv.h"

#include "base/cleanup.h"
#include "base/dollar.h"
#include "spec/job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_EXPANDED_BYTES = 1 << 20, NAME_BYTES = JOB_ENV_NAME_MAX + 1 };

/* Splits NAME=VALUE; false for anything else, which no exec would pass on. */
static bool split(const char *item, char *name, size_t size,
                  const char **ret_value)
{
    const char *eq = strchr(item, '=');

    if (!eq || eq == item || (size_t)(eq - item) >= size) {
        return false;
    }
    memcpy(name, item, (size_t)(eq - item));
    name[eq - item] = '\0';
    *ret_value = eq + 1;
    return true;
}

/* An environment that is being made. */
struct making {
    struct strlist *env;
    struct contract_trace *trace; /* or NULL */
    struct strlist *warnings;     /* or NULL */
};

static void note_origin(const struct making *m, const char *name,
                        enum contract_origin origin)
{
    char digit[2] = {(char)('0' + origin), '\0'};

    if (m->trace) {
        strlist_setenv(&m->trace->origins, name, digit);
    }
}

static void note_lost(const struct making *m, const char *name,
                      const char *why)
{
    if (m->trace) {
        strlist_unsetenv(&m->trace->origins, name);
        strlist_setenv(&m->trace->lost, name, why);
    }
}

static void put(const struct making *m, const char *name, const char *value,
                enum contract_origin origin)
{
    strlist_setenv(m->env, name, value);
    note_origin(m, name, origin);
}

static void add_base(const struct making *m, const struct strlist *base)
{
    bool in_launch = base && contract_is_launch(base);

    for (size_t i = 0; base && i < base->n; i++) {
        const char *value;
        char name[NAME_BYTES];

        if (!split(base->items[i], name, sizeof(name), &value)) {
            strlist_add(m->env, base->items[i]);
        } else if (contract_strips(name, in_launch)) {
            note_lost(m, name, "of the launch, batch step or run around this");
        } else {
            strlist_add(m->env, base->items[i]);
            note_origin(m, name, CONTRACT_USER);
        }
    }
}

struct scope {
    const struct strlist *first;
    const struct strlist *second; /* or NULL */
};

static const char *look_up(const struct scope *scope, const char *name,
                           size_t len)
{
    const char *value;
    char copy[NAME_BYTES];

    if (len == 0 || len >= sizeof(copy)) {
        return NULL;
    }
    memcpy(copy, name, len);
    copy[len] = '\0';
    value = strlist_getenv(scope->first, copy);
    return value || !scope->second ? value
                                   : strlist_getenv(scope->second, copy);
}

static void put_value(struct buf *to, const struct dollar *d, const void *ctx)
{
    const char *value;

    if (d->kind != DOLLAR_NAME) {
        buf_putc(to, '$');
        return;
    }
    value = look_up(ctx, d->name, d->name_len);
    if (value) {
        buf_puts(to, value);
    } else {
        buf_append(to, d->at, d->len);
    }
}

static char *expand(const char *text, const struct scope *scope)
{
    _buf_ struct buf b = {0};
    int rc = dollar_expand(&b, text, MAX_EXPANDED_BYTES, put_value, scope);

    return rc < 0 ? NULL : buf_take(&b);
}

/* Values of the job may refer to the contract's own and to earlier entries. */
static void add_job(const struct making *m, const struct strlist *job,
                    const struct strlist *facts)
{
    struct scope scope = {facts, m->env};

    for (size_t i = 0; job && i < job->n; i++) {
        const char *value;
        char name[NAME_BYTES];
        _free_ char *expanded = NULL;

        if (!split(job->items[i], name, sizeof(name), &value)) {
            continue;
        }
        expanded = expand(value, &scope);
        if (!expanded) {
            m->env->failed = true;
            return;
        }
        put(m, name, expanded, CONTRACT_JOB);
    }
}

static void warn_override(const char *name, const char *theirs,
                          const char *ours, struct strlist *warnings)
{
    if (warnings && theirs && strcmp(theirs, ours)) {
        strlist_addf(warnings, "%s=%s of the environment is replaced by "
                     "muster's %s", name, theirs, ours);
    }
}

static void set_entry(const struct making *m, const struct contract_entry *en,
                      const struct contract_facts *f)
{
    const char *theirs = strlist_getenv(m->env, en->name);
    _buf_ struct buf b = {0};

    if (en->policy == DEFAULTED && theirs) {
        return;
    }
    if (!en->value(f, &b)) {
        /* A stale value of the user's would be worse than none. */
        if (en->policy == OWNED && theirs) {
            strlist_unsetenv(m->env, en->name);
            note_lost(m, en->name, "muster's own, and without a value here");
        }
        return;
    }
    if (b.failed) {
        m->env->failed = true;
        return;
    }
    if (en->policy == OWNED) {
        warn_override(en->name, theirs, buf_str(&b), m->warnings);
    }
    put(m, en->name, buf_str(&b),
        en->policy == DEFAULTED ? CONTRACT_DEFAULT : CONTRACT_OWN);
}

static void set_all(const struct making *m, const struct contract_table *t,
                    const struct contract_facts *f)
{
    for (size_t i = 0; i < t->n; i++) {
        set_entry(m, &t->entries[i], f);
    }
}

static void add_list(const struct making *m, const struct strlist *l,
                     enum contract_origin origin)
{
    for (size_t i = 0; l && i < l->n; i++) {
        const char *value;
        char name[NAME_BYTES];

        if (split(l->items[i], name, sizeof(name), &value) &&
            !(origin == CONTRACT_HINT && strlist_getenv(m->env, name))) {
            put(m, name, value, origin);
        }
    }
}

/* A name that was taken out may have come back, with another value. */
static void forget_replaced(struct contract_trace *t)
{
    for (size_t i = 0; i < t->origins.n; i++) {
        const char *value;
        char name[NAME_BYTES];

        if (split(t->origins.items[i], name, sizeof(name), &value)) {
            strlist_unsetenv(&t->lost, name);
        }
    }
}

int contract_env_traced(const struct strlist *base, const struct strlist *job,
                        const struct contract_facts *f, struct strlist *ret,
                        struct contract_trace *trace,
                        struct strlist *warnings, struct error *e)
{
    _strlist_ struct strlist facts = {0};
    struct making known = {.env = &facts};
    struct making m = {.env = ret, .trace = trace, .warnings = warnings};
    struct making quiet = {.env = ret, .trace = trace};
    bool in_slurm = base && strlist_getenv(base, "SLURM_JOB_ID");

    if (job && job->n > 0) { /* who may refer to them */
        set_all(&known, &contract_names, f);
    }
    add_base(&m, base);
    add_job(&m, job, &facts);
    add_list(&m, f->hints, CONTRACT_HINT);
    set_all(&m, &contract_names, f);
    if (in_slurm) {
        set_all(&quiet, &contract_slurm_names, f);
    }
    add_list(&m, f->extra, CONTRACT_OWN);
    if (trace) {
        forget_replaced(trace);
    }
    if (ret->failed || facts.failed || (warnings && warnings->failed) ||
        (trace && (trace->origins.failed || trace->lost.failed))) {
        return error_set(e, ENOMEM, "make the environment of rank %u",
                         (unsigned)f->rank);
    }
    return 0;
}

int contract_env(const struct strlist *base, const struct strlist *job,
                 const struct contract_facts *f, struct strlist *ret,
                 struct strlist *warnings, struct error *e)
{
    return contract_env_traced(base, job, f, ret, NULL, warnings, e);
}

void contract_trace_release(struct contract_trace *t)
{
    strlist_release(&t->origins);
    strlist_release(&t->lost);
}

enum contract_origin contract_trace_origin(const struct contract_trace *t,
                                           const char *name)
{
    const char *digit = strlist_getenv(&t->origins, name);

    return digit ? (enum contract_origin)(digit[0] - '0') : CONTRACT_USER;
}

char *contract_expand(const char *text, const struct strlist *env)
{
    struct scope scope = {env, NULL};

    return expand(text, &scope);
}

int contract_argv(char *const *argv, const struct strlist *env,
                  struct strlist *ret, struct error *e)
{
    for (size_t i = 0; argv[i]; i++) {
        strlist_take(ret, contract_expand(argv[i], env));
    }
    return ret->failed ? error_set(e, ENOMEM, "expand the command line") : 0;
}
