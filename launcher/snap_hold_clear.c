/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is on the disk already of a save that came to nothing. The lead removes such a
 * save, and says so afterwards: what an agent has put there in between it takes away
 * itself, as soon as it hears. Whoever comes last removes the directory. It goes before
 * what is to be written next, by the same thread: a disk that hangs takes no other one.
 */
#include <config.h>

#include "launcher/snap_hold_priv.h"

#include "base/cleanup.h"
#include "base/thread.h"
#include "ckpt/step.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum { MAX_PENDING = 1024 }; /* the lead's tidying finds the rest */

struct leftover {
    struct leftover *next;
    struct snap_head head;
};

static void remove_one(struct io *io, const struct snap_head *head)
{
    _close_ int root = open(head->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char name[STEP_NAME_BYTES], file[32], part[32];
    const char *const files[] = {part, file};

    if (root >= 0) {
        step_name(head->step, head->uuid, name);
        snap_hold_names(head->rank, file, part);
        step_remove_files(io, root, name, files, 2, NULL);
    }
}

static void clear(void *arg)
{
    const struct snap_hold *h = arg;

    for (const struct leftover *l = h->clearing; l; l = l->next) {
        remove_one(h->config.io, &l->head);
    }
}

static void on_clear(uv_work_t *work)
{
    thread_apart(clear, work->data, -1);
}

static void free_all(struct leftover **all)
{
    while (*all) {
        struct leftover *l = *all;

        *all = l->next;
        free(l);
    }
}

static void after_clear(uv_work_t *work, int status)
{
    struct snap_hold *h = work->data;

    (void)status;
    free_all(&h->clearing);
    h->n_pending = 0;
    for (const struct leftover *l = h->pending; l; l = l->next) {
        h->n_pending++;
    }
    if (!snap_hold_work_is_over(h)) {
        snap_hold_write_next(h);
    }
}

bool snap_hold_clear_next(struct snap_hold *h)
{
    if (!h->pending) {
        return false;
    }
    h->clearing = take_ptr(&h->pending);
    h->clear_work.data = h;
    h->n_works++;
    uv_queue_work(h->config.loop, &h->clear_work, on_clear, after_clear);
    return true;
}

void snap_hold_clear(struct snap_hold *h, const struct snap_head *head)
{
    struct leftover *l = h->n_pending < MAX_PENDING ? calloc(1, sizeof(*l)) : NULL;

    if (l) {
        l->head = *head;
        l->next = h->pending;
        h->pending = l;
        h->n_pending++;
        snap_hold_write_next(h);
    }
}
