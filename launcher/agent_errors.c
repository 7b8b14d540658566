/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Error files and stacks of workers on their way into the run directory, by a thread: that
 * filesystem may hang, and the loop must not.
 */
#include <config.h>

#include "launcher/agent.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct keep {
    uv_work_t work;
    struct agent *agent;
    char *text;
    const char *what;
    char dir[PATH_MAX];
    char path[PATH_MAX];
    struct error error;
    int rc;
};

static void keep_destroy(struct keep *k)
{
    free(k->text);
    free(k);
}

static void write_file(void *arg)
{
    struct keep *k = arg;

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

static void on_written(uv_work_t *work, int status)
{
    struct keep *k = work->data;

    if (status == 0 && k->rc < 0) {
        agent_note(k->agent, "%s is not kept: %s", k->what, k->error.text);
    }
    keep_destroy(k);
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
    struct keep *k = text ? calloc(1, sizeof(*k)) : NULL;

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
                name) < 0 ||
        uv_queue_work(&a->loop, &k->work, on_work, on_written) != 0) {
        keep_destroy(k);
    }
}
