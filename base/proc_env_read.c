/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread asks for many, and wakes who waits for it only at the end: a turn of two
 * threads for each process of a machine would take long where the machine is busy.
 * Meanwhile the caller looks now and then whether it gets on.
 */
#include <config.h>

#include "base/proc_env_priv.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/thread.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_ENV_BYTES = 16 << 20 };

struct env_reader {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t is_done;
    atomic_int n_holds; /* the thread's and the caller's */
    bool is_left;       /* nobody waits for it: it asks no more */
    char *root, *entry;
    size_t n, n_done;
    struct {
        pid_t pid;
        enum proc_env_answer answer;
    } items[];
};

/* --- reading --- */

/* 0 and some text; -ESRCH where there is none to be seen. */
static int read_env_of(const char *dir, const char *thread, char **ret,
                       size_t *ret_len)
{
    _free_ char *text = NULL;
    char path[PATH_MAX];
    int rc = fs_path(path, sizeof(path), NULL, "%s/%s/environ", dir, thread);

    rc = rc < 0 ? rc : fs_read(path, MAX_ENV_BYTES, &text, ret_len, NULL);
    if (rc == 0 && *ret_len == 0) {
        return -ESRCH;
    }
    *ret = rc == 0 ? take_ptr(&text) : NULL;
    return rc;
}

static void close_dir(DIR **d)
{
    if (*d) {
        closedir(*d);
    }
}

/* Of a thread that has ended, the first one too, the memory is gone, and with it
 * the environment; newer kernels (6.18) fail then. Others may still have it. */
static int read_env(const char *root, pid_t pid, char **ret, size_t *ret_len)
{
    __attribute__((cleanup(close_dir))) DIR *dir = NULL;
    char path[PATH_MAX], first[16];
    struct dirent *d;
    int rc = fs_path(path, sizeof(path), NULL, "%s/%d/task", root, (int)pid);

    snprintf(first, sizeof(first), "%d", (int)pid);
    rc = rc < 0 ? rc : read_env_of(path, first, ret, ret_len);
    if (rc != -ESRCH) {
        return rc;
    }
    dir = opendir(path);
    while (dir && (d = readdir(dir))) {
        if (d->d_name[0] != '.' && strcmp(d->d_name, first) != 0 &&
            read_env_of(path, d->d_name, ret, ret_len) == 0) {
            return 0;
        }
    }
    return -ESRCH;
}

enum proc_env_answer env_look(const char *root, pid_t pid, const char *entry)
{
    size_t want = strlen(entry), len;
    _free_ char *text = NULL;
    int rc = read_env(root, pid, &text, &len);

    if (rc < 0) {
        return rc == -ESRCH ? PROC_ENV_NONE : PROC_ENV_LACKS;
    }
    for (size_t at = 0; at < len;) {
        size_t n = strlen(text + at);

        if (n == want && memcmp(text + at, entry, n) == 0) {
            return PROC_ENV_HAS;
        }
        at += n + 1;
    }
    return PROC_ENV_LACKS;
}

/* --- the thread --- */

void env_reader_drop(struct env_reader *r)
{
    if (atomic_fetch_sub(&r->n_holds, 1) > 1) {
        return;
    }
    pthread_cond_destroy(&r->is_done);
    pthread_mutex_destroy(&r->lock);
    free(r->root);
    free(r->entry);
    free(r);
}

bool env_reader_waits(const struct env_reader *r)
{
    return atomic_load(&r->n_holds) > 1;
}

/* Whether there is more to do. */
static bool put_answer(struct env_reader *r, enum proc_env_answer answer)
{
    bool more;

    pthread_mutex_lock(&r->lock);
    if (!r->is_left) {
        r->items[r->n_done++].answer = answer;
    }
    more = !r->is_left && r->n_done < r->n;
    if (!more) {
        pthread_cond_signal(&r->is_done);
    }
    pthread_mutex_unlock(&r->lock);
    return more;
}

static void *read_all(void *arg)
{
    struct env_reader *r = arg;
    size_t i = 0;

    while (put_answer(r, env_look(r->root, r->items[i].pid, r->entry))) {
        i++;
    }
    env_reader_drop(r);
    return NULL;
}

static struct env_reader *make_reader(const char *root, const char *entry,
                                      const struct proc *procs, size_t n)
{
    struct env_reader *r = calloc(1, sizeof(*r) + n * sizeof(r->items[0]));
    pthread_condattr_t attr;

    if (!r) {
        return NULL;
    }
    pthread_mutex_init(&r->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&r->is_done, &attr);
    pthread_condattr_destroy(&attr);
    r->n = n;
    for (size_t i = 0; i < n; i++) {
        r->items[i].pid = procs[i].pid;
    }
    r->root = strdup(root);
    r->entry = strdup(entry);
    return r;
}

int env_reader_start(const char *root, const char *entry,
                     const struct proc *procs, size_t n,
                     struct env_reader **ret)
{
    struct env_reader *r = make_reader(root, entry, procs, n);
    int rc;

    if (!r) {
        return -ENOMEM;
    }
    r->n_holds = 2;
    rc = r->root && r->entry ? thread_start(&r->thread, read_all, r) : ENOMEM;
    if (rc) {
        r->n_holds = 1;
        env_reader_drop(r);
        return -rc;
    }
    *ret = r;
    return 0;
}

/* --- waiting for it --- */

static struct timespec after_ms(unsigned ms)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += ms / 1000;
    t.tv_nsec += ms % 1000 * 1000000L;
    if (t.tv_nsec >= 1000000000L) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000L;
    }
    return t;
}

/* True if the reader got on, or is done, before the time was over. The lock is
 * held. */
static bool gets_on(struct env_reader *r, unsigned ms)
{
    struct timespec until = after_ms(ms);
    size_t before = r->n_done;
    int rc = 0;

    while (r->n_done < r->n && rc == 0) {
        rc = pthread_cond_timedwait(&r->is_done, &r->lock, &until);
    }
    return r->n_done > before;
}

size_t env_reader_wait(struct env_reader *r, unsigned patience_ms,
                       enum proc_env_answer *ret_answers)
{
    size_t n_done;

    pthread_mutex_lock(&r->lock);
    /* Twice, in halves: whoever stood still (SIGSTOP, a host that was paused) finds
     * the time over, and the reader had none of it. */
    while (r->n_done < r->n && (gets_on(r, patience_ms / 2) ||
                                gets_on(r, patience_ms / 2))) {
    }
    n_done = r->n_done;
    for (size_t i = 0; i < n_done; i++) {
        ret_answers[i] = r->items[i].answer;
    }
    r->is_left = n_done < r->n;
    pthread_mutex_unlock(&r->lock);
    if (n_done < r->n) {
        pthread_detach(r->thread);
        return n_done;
    }
    pthread_join(r->thread, NULL);
    env_reader_drop(r);
    return n_done;
}
