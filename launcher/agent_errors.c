/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Error files and stacks of workers on their way into the run directory, by a thread: that
 * filesystem may hang, and the loop must not. One after the other: libuv has four threads
 * for all that an agent does, checkpoints among it.
 */
#include <config.h>

#include "launcher/agent.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WAITING = 64 };

struct kept_file {
    struct kept_file *next;
    uv_work_t work;
    struct agent *agent;
    char *text;
    const char *what;
    char dir[PATH_MAX];
    char path[PATH_MAX];
    struct error error;
    int rc;
};

static void kept_file_destroy(struct kept_file *k)
{
    free(k->text);
    free(k);
}

static void write_file(void *arg)
{
    struct kept_file *k = arg;

    k->rc = fs_mkdirs(k->dir, &k->error);
    if (k->rc == 0) {
        k->rc = fs_write_replace(k->path, k->text, strlen(k->text),
                                 &k->error);
    }
}

static void on_work(uv_work_t *work)
{
    thread_apart(write_file, work->data, -1);
}

static void write_first(struct agent *a);

static void on_written(uv_work_t *work, int status)
{
    struct kept_file *k = work->data;
    struct agent *a = k->agent;

    if (status == 0 && k->rc < 0) {
        agent_note(a, "%s is not kept: %s", k->what, k->error.text);
    }
    a->kept_files = k->next;
    kept_file_destroy(k);
    write_first(a);
}

static void write_first(struct agent *a)
{
    if (a->kept_files) {
        uv_queue_work(&a->loop, &a->kept_files->work, on_work, on_written);
    }
}

/* False: too many wait. */
static bool append(struct agent *a, struct kept_file *k)
{
    struct kept_file **end = &a->kept_files;
    unsigned n = 0;

    while (*end) {
        end = &(*end)->next;
        n++;
    }
    if (n > MAX_WAITING) {
        return false;
    }
    *end = k;
    if (n == 0) {
        write_first(a);
    }
    return true;
}

void agent_error_name(uint32_t generation, uint32_t rank, char *to,
                      size_t size)
{
    snprintf(to, size, "errors/%u-%u.json", generation, rank);
}

void agent_stack_name(uint32_t generation, uint32_t rank, char *to,
                      size_t size)
{
    snprintf(to, size, "errors/%u-%u.stack", generation, rank);
}

void agent_keep(struct agent *a, const char *name, const char *what,
                char *text)
{
    struct kept_file *k = text ? calloc(1, sizeof(*k)) : NULL;

    if (!k) {
        free(text);
        return;
    }
    k->agent = a;
    k->text = text;
    k->what = what;
    k->work.data = k;
    if (fs_path(k->dir, sizeof(k->dir), NULL, "%s/errors", a->run.dir) < 0 ||
        fs_path(k->path, sizeof(k->path), NULL, "%s/%s", a->run.dir,
                name) < 0) {
        kept_file_destroy(k);
    } else if (!append(a, k)) {
        agent_note(a, "%s is not kept: %d others wait for %s, which does not answer", what,
                   MAX_WAITING, a->run.dir);
        kept_file_destroy(k);
    }
}
