/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a sweep stops before it kills: a process with a pending SIGSTOP cannot
 * complete a fork, and stays its children's parent. So the snapshot becomes
 * exact after some rounds, however fast they fork. Killing while looking would
 * lose those whose parent has just ended.
 */
#include <config.h>

#include "base/proc_env.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum { MAX_ROUNDS = 64 };

/* Those that a sweep has stopped, also as one bit a pid. */
struct catch {
    struct proc_list taken;
    uint8_t *bits;
};

static bool is_taken(const struct catch *c, pid_t pid)
{
    return pid > 0 && pid < PROC_PID_LIMIT &&
           (c->bits[pid / 8] >> (pid % 8) & 1);
}

static int take(struct catch *c, const struct proc *p)
{
    int rc = proc_list_add(&c->taken, p);

    if (rc == 0) {
        c->bits[p->pid / 8] |= (uint8_t)(1 << (p->pid % 8));
        proc_signal(p, SIGSTOP);
    }
    return rc;
}

/* Takes the new ones of a list. Returns how many, or a negative code. */
static int take_new(struct catch *c, const struct proc_list *l,
                    proc_pick_f *pick, void *arg)
{
    int n = 0;

    for (size_t i = 0; i < l->n; i++) {
        const struct proc *p = &l->items[i];

        if (is_taken(c, p->pid) ||
            (pick && !is_taken(c, p->parent) && !pick(arg, p))) {
            continue;
        }
        if (take(c, p) < 0) {
            return -ENOMEM;
        }
        n++;
    }
    return n;
}

static int kill_taken(struct catch *c)
{
    int n = 0;

    for (size_t i = 0; i < c->taken.n; i++) {
        n += proc_signal(&c->taken.items[i], SIGKILL) == 0;
    }
    return n;
}

static void catch_release(struct catch *c)
{
    proc_list_release(&c->taken);
    free(c->bits);
}

/* Appends those that are there now. 0 or a negative code. */
typedef int look_f(void *where, struct proc_list *l);

static int sweep(look_f *look, void *where, proc_pick_f *pick, void *arg)
{
    __attribute__((cleanup(catch_release))) struct catch c = {0};
    int n = 1, n_killed;

    c.bits = calloc(1, PROC_PID_LIMIT / 8);
    if (!c.bits) {
        return -ENOMEM;
    }
    for (int round = 0; round < MAX_ROUNDS && n > 0; round++) {
        _proc_list_ struct proc_list l = {0};

        n = look(where, &l);
        if (n == 0) {
            n = take_new(&c, &l, pick, arg);
        }
    }
    /* Whatever went wrong in looking, none may stay behind stopped. */
    n_killed = kill_taken(&c);
    return n < 0 ? n : n_killed;
}

static int look_below(void *where, struct proc_list *l)
{
    return proc_descendants(*(const pid_t *)where, l, NULL);
}

int proc_sweep(pid_t root, proc_pick_f *pick, void *arg, struct error *e)
{
    int n = sweep(look_below, &root, pick, arg);

    return n >= 0 ? n : error_set(e, -n, "sweep the descendants of process %d",
                                  (int)root);
}

static bool is_self_or_above(pid_t pid)
{
    struct proc p = {0};

    for (pid_t at = getpid(); at > 1; at = p.parent) {
        if (at == pid) {
            return true;
        }
        if (proc_read(at, &p) < 0) {
            return false;
        }
    }
    return false;
}

static bool is_not_above_us(void *arg, const struct proc *p)
{
    (void)arg;
    return !is_self_or_above(p->pid);
}

struct by_env {
    struct proc_env *asker;
    const char *entry;
};

/* Those with the entry, and all that is below them. */
static int look_for_env(void *where, struct proc_list *l)
{
    const struct by_env *by = where;
    int rc = proc_env_list(by->asker, by->entry, l, NULL, NULL);
    size_t n_roots = l->n;

    for (size_t i = 0; rc == 0 && i < n_roots; i++) {
        if (is_not_above_us(NULL, &l->items[i])) {
            rc = proc_descendants(l->items[i].pid, l, NULL);
        }
    }
    return rc;
}

int proc_sweep_env(struct proc_env *a, const char *entry, struct error *e)
{
    struct by_env by = {a, entry};
    int n = sweep(look_for_env, &by, is_not_above_us, NULL);

    return n >= 0 ? n : error_set(e, -n, "sweep processes by %s", entry);
}
