/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/log_prune.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/thread.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LOOK_US = 2000 };

struct log_pruner {
    char *run_dir;
    uint32_t keep;
    _Atomic int64_t running; /* the newest that was said */
    atomic_bool is_busy;
    atomic_int n_users;   /* the owner, and the thread */
};

bool log_prune_keeps(int64_t generation, int64_t running, uint32_t keep)
{
    return keep == 0 || generation <= 1 || generation >= running - keep;
}

/* Their numbers first: a directory is not to be read while it changes. */
static int list_old(const char *logs, int64_t running, uint32_t keep,
                    int64_t **ret, size_t *ret_n, struct error *e)
{
    DIR *dir = opendir(logs);
    struct dirent *d;
    int64_t n;

    if (!dir) {
        return errno == ENOENT ? 0 : error_set(e, errno, "open %s", logs);
    }
    while ((d = readdir(dir))) {
        int64_t *grown;

        if (str_to_i64(d->d_name, &n) < 0 ||
            log_prune_keeps(n, running, keep)) {
            continue;
        }
        grown = reallocarray(*ret, *ret_n + 1, sizeof(**ret));
        if (!grown) {
            closedir(dir);
            return error_set(e, ENOMEM, "list %s", logs);
        }
        *ret = grown;
        grown[(*ret_n)++] = n;
    }
    closedir(dir);
    return 0;
}

int log_prune(const char *run_dir, int64_t running, uint32_t keep,
              struct error *e)
{
    _free_ int64_t *old = NULL;
    char logs[PATH_MAX], path[PATH_MAX];
    size_t n = 0;
    int rc = fs_path(logs, sizeof(logs), e, "%s/logs", run_dir);
    int n_removed = 0;

    rc = rc < 0 ? rc : list_old(logs, running, keep, &old, &n, e);
    for (size_t i = 0; i < n; i++) {
        int one = fs_path(path, sizeof(path), e, "%s/%lld", logs,
                          (long long)old[i]);

        one = one < 0 ? one : fs_remove_tree(path, e);
        rc = one < 0 ? one : rc;
        n_removed += one == 0;
    }
    return rc < 0 ? rc : n_removed;
}

/* --- beside the loop --- */

static void drop(struct log_pruner *p)
{
    if (atomic_fetch_sub(&p->n_users, 1) == 1) {
        free(p->run_dir);
        free(p);
    }
}

/* Until nothing newer was said meanwhile: generations that fail at once come faster than a
 * directory goes. What cannot be removed now may be by the next one. */
static void *prune(void *arg)
{
    struct log_pruner *p = arg;
    int64_t done;

    do {
        done = atomic_load(&p->running);
        log_prune(p->run_dir, done, p->keep, NULL);
        atomic_store(&p->is_busy, false);
    } while (atomic_load(&p->running) != done && !atomic_exchange(&p->is_busy, true));
    drop(p);
    return NULL;
}

int log_pruner_create(const char *run_dir, uint32_t keep,
                      struct log_pruner **ret, struct error *e)
{
    struct log_pruner *p = calloc(1, sizeof(*p));

    if (p) {
        p->run_dir = strdup(run_dir);
    }
    if (!p || !p->run_dir) {
        free(p);
        return error_set(e, ENOMEM, "keep logs in bounds");
    }
    p->keep = keep;
    atomic_init(&p->n_users, 1);
    *ret = p;
    return 0;
}

void log_pruner_start(struct log_pruner *p, int64_t running)
{
    pthread_t thread;

    if (p->keep == 0 || log_prune_keeps(2, running, p->keep)) {
        return;
    }
    atomic_store(&p->running, running);
    if (atomic_exchange(&p->is_busy, true)) {
        return;
    }
    atomic_fetch_add(&p->n_users, 1);
    if (thread_start_apart(&thread, prune, p, -1) == 0) {
        pthread_detach(thread);
        return;
    }
    atomic_store(&p->is_busy, false);
    drop(p);
}

void log_pruner_release(struct log_pruner *p, unsigned wait_ms)
{
    uint64_t end_ms = clock_mono_ms() + wait_ms;

    if (!p) {
        return;
    }
    while (atomic_load(&p->is_busy) && clock_mono_ms() < end_ms) {
        usleep(LOOK_US);
    }
    drop(p);
}
