/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who belongs to a set is known in three ways, because no single one is sure: the
 * session or group of a worker (a process may leave both), an entry in the
 * environment that all inherit (a process may clear it), and being an orphan
 * that came to the agent while there is no other set. A cgroup would do, where
 * there is one of our own; there seldom is.
 */
#include <config.h>

#include "launcher/workers_set.h"

#include <unistd.h>

enum { MAX_ANCESTORS = 64 };

static const struct worker *find_worker(const struct workers *w, pid_t id)
{
    for (unsigned i = 0; i < w->n; i++) {
        if (w->all[i].was == id) {
            return &w->all[i];
        }
    }
    return NULL;
}

/* Whether `id`, a session or a group, is of this set (1), of another child of
 * the agent (-1), or unknown (0). A number that another child has by now is that
 * one's, whoever had it before. */
static int whose(const struct workers *w, pid_t id)
{
    const struct worker *k = find_worker(w, id);
    bool known = child_is_known(w->host->children, id);

    if (k && (k->pid == id || !known)) {
        return 1;
    }
    return known ? -1 : 0;
}

int workers_whose(const struct workers *w, pid_t pid)
{
    struct proc p = {.parent = pid};

    for (int i = 0; i < MAX_ANCESTORS && proc_read(p.parent, &p) == 0; i++) {
        const struct worker *k = find_worker(w, p.session);

        k = k ? k : find_worker(w, p.pid);
        if (k) {
            return (int)k->local_rank;
        }
    }
    return -1;
}

static bool is_alone(const struct workers *w)
{
    return w->host->sets == w && !w->next;
}

bool workers_own(void *arg, const struct proc *p)
{
    const struct workers *w = arg;
    int by_session = whose(w, p->session);

    if (child_is_known(w->host->children, p->pid) || by_session < 0) {
        return false;
    }
    return by_session > 0 || whose(w, p->group) > 0 ||
           (is_alone(w) && p->parent == getpid()) ||
           proc_env_ask(&w->host->env, p, w->tag) == PROC_ENV_HAS;
}

/* An orphan that only its environment can tell of, and that does not: it has none
 * yet, in the middle of an exec, or it is silent. */
static bool is_in_doubt(const struct workers *w, const struct proc *p,
                        enum proc_env_answer answer)
{
    return p->parent == getpid() && !is_alone(w) &&
           !child_is_known(w->host->children, p->pid) &&
           whose(w, p->session) == 0 &&
           proc_env_ask(&w->host->env, p, w->tag) == answer;
}

bool workers_is_silent(const struct workers *w, const struct proc *p)
{
    return is_in_doubt(w, p, PROC_ENV_SILENT);
}

/* Keeps of a list what belongs to the set, and what is below that. One that is
 * silent counts, too: were it taken for another's, two generations could run. It is
 * not killed: it may be another's. Returns whether somebody was unclear. */
static bool keep_ours(struct workers *w, struct proc_list *l)
{
    bool unclear = false;
    size_t n = 0;

    for (size_t i = 0; i < l->n; i++) {
        const struct proc *p = &l->items[i];
        bool ours = false;

        /* To ask one takes a thread: first what is known. */
        for (size_t k = 0; k < n && !ours; k++) {
            ours = l->items[k].pid == p->parent;
        }
        ours = ours || workers_own(w, p) || workers_is_silent(w, p);
        unclear = unclear || (!ours && is_in_doubt(w, p, PROC_ENV_NONE));
        if (ours) {
            l->items[n++] = *p;
        }
    }
    l->n = n;
    return unclear;
}

/* A child of the agent that is no worker of the set: of another one, a blank, an
 * interpreter. Nothing below it is ours: orphans come to the agent. */
static bool is_others(void *set, pid_t pid)
{
    const struct workers *w = set;

    return child_is_known(w->host->children, pid) && !find_worker(w, pid);
}

bool workers_left(struct workers *w, struct proc_list *l)
{
    return proc_descendants_but(getpid(), is_others, w, l, NULL) == 0 &&
           keep_ours(w, l);
}
