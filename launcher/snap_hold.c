/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/snap_hold_priv.h"

#include "base/cleanup.h"
#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- life --- */

static void remove_files(struct snap_hold *h)
{
    for (struct slot *s = h->slots; s; s = s->next) {
        if (h->dir >= 0) {
            unlinkat(h->dir, s->name, 0);
        }
    }
    rmdir(h->dir_path);
}

static void free_hold(struct snap_hold *h)
{
    if (h->is_removed) { /* again: a thread may have made one meanwhile */
        remove_files(h);
    }
    while (h->slots) {
        struct slot *s = h->slots;

        h->slots = s->next;
        snap_bin_put(h->bin, s->snap, false);
        free(s);
    }
    snap_bin_unref(h->bin);
    close_fd(&h->dir);
    free(h->dir_path);
    free(h->budget_why);
    free(h);
}

int snap_hold_create(const struct snap_hold_config *config,
                     struct snap_hold **ret, struct error *e)
{
    struct snap_hold *h = calloc(1, sizeof(*h));

    if (!h) {
        return error_set(e, ENOMEM, "hold snapshots");
    }
    h->config = *config;
    h->config.name = config->name ? config->name : "snap";
    h->dir = -1;
    h->n_ranks = UINT32_MAX;
    h->dir_path = strdup(config->dir);
    h->budget_why = strdup(config->budget_why);
    h->bin = snap_bin_create();
    if (!h->dir_path || !h->budget_why || !h->bin) {
        free_hold(h);
        return error_set(e, ENOMEM, "hold snapshots");
    }
    *ret = h;
    return 0;
}

void snap_hold_destroy(struct snap_hold *h)
{
    if (!h) {
        return;
    }
    h->is_dying = true;
    for (struct slot *s = h->slots; s; s = s->next) {
        s->progress.cancel = true;
    }
    if (h->n_works == 0) { /* nothing is to be cleared then: that would be one */
        free_hold(h);
    }
}

void snap_hold_remove(struct snap_hold *h)
{
    h->is_removed = true;
    remove_files(h);
}

void snap_hold_work(struct slot *s, enum slot_doing doing, uv_work_cb work,
                    uv_after_work_cb after)
{
    s->work.data = s;
    s->doing = doing;
    s->error = (struct error){0};
    s->progress.cancel = false;
    s->hold->n_works++;
    uv_queue_work(s->hold->config.loop, &s->work, work, after);
}

bool snap_hold_work_is_over(struct snap_hold *h)
{
    h->n_works--;
    if (h->is_dying && h->n_works == 0 && !snap_hold_clear_next(h)) {
        free_hold(h);
        return true;
    }
    return h->is_dying;
}

int snap_hold_dir(struct snap_hold *h, struct error *e)
{
    struct stat st;

    if (h->dir >= 0) {
        return 0;
    }
    if (mkdir(h->dir_path, 0700) < 0 && errno != EEXIST) {
        return error_set(e, errno, "make %s", h->dir_path);
    }
    h->dir = open(h->dir_path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (h->dir < 0) {
        return error_set(e, errno, "open %s", h->dir_path);
    }
    if (fstat(h->dir, &st) < 0 || st.st_uid != geteuid() ||
        (st.st_mode & 077) != 0) {
        close_fd(&h->dir);
        return error_set(e, EPERM, "%s belongs to somebody else", h->dir_path);
    }
    return 0;
}

/* --- slots --- */

struct slot *snap_hold_slot(struct snap_hold *h, uint32_t rank, unsigned which,
                            bool make)
{
    char name[32];
    struct slot *s;

    snprintf(name, sizeof(name), "%s-%u-%u-%u", h->config.name,
             h->config.agent, rank, which);
    for (s = h->slots; s && strcmp(s->name, name) != 0; s = s->next) {
    }
    if (!s && make) {
        s = calloc(1, sizeof(*s));
        if (s) {
            s->hold = h;
            s->rank = rank;
            str_copy(s->name, sizeof(s->name), name);
            s->next = h->slots;
            h->slots = s;
        }
    }
    return s;
}

bool snap_hold_is_served(const struct snap_hold *h, uint32_t rank)
{
    return rank >= h->first_rank && rank - h->first_rank < h->n_ranks;
}

void snap_hold_drop(struct snap_hold *h,
                    bool (*is_wanted)(void *arg, const struct slot *s), void *arg)
{
    for (struct slot **at = &h->slots; *at;) {
        struct slot *s = *at;

        if (s->doing != IDLE || s->n_pins > 0 || is_wanted(arg, s)) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        if (h->dir >= 0) {
            unlinkat(h->dir, s->name, 0);
        }
        if (s->snap && s->snap->head.state == SNAP_FILLING) { /* whoever reads it waits */
            atomic_store(snap_filled(s->snap->map), SNAP_NO_MORE);
        }
        snap_bin_put(h->bin, s->snap, false);
        free(s);
    }
}

static bool is_served_slot(void *arg, const struct slot *s)
{
    return snap_hold_is_served(arg, s->rank);
}

void snap_hold_drop_strays(struct snap_hold *h)
{
    snap_hold_drop(h, is_served_slot, h);
}

static bool is_held(const struct snap_hold *h, const char *name)
{
    const struct slot *s = h->slots;

    while (s && strcmp(s->name, name) != 0) {
        s = s->next;
    }
    return s != NULL;
}

/* What an agent of that number has left, before this one. */
static void remove_left(struct snap_hold *h)
{
    char prefix[32];
    size_t len = (size_t)snprintf(prefix, sizeof(prefix), "%s-%u-",
                                  h->config.name, h->config.agent);
    unsigned rank, which;
    DIR *dir = opendir(h->dir_path);
    struct dirent *d;

    while (dir && (d = readdir(dir))) {
        if (strncmp(d->d_name, prefix, len) == 0 &&
            sscanf(d->d_name + len, "%u-%u", &rank, &which) == 2 &&
            !snap_hold_is_served(h, rank) &&
            !is_held(h, d->d_name)) {
            int fd = openat(dirfd(dir), d->d_name,
                            O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

            unlinkat(dirfd(dir), d->d_name, 0);
            snap_bin_put_file(h->bin, fd);
        }
    }
    if (dir) {
        closedir(dir);
    }
}

void snap_hold_serve(struct snap_hold *h, uint32_t first_rank, uint32_t n)
{
    h->first_rank = first_rank;
    h->n_ranks = n;
    snap_hold_end_all_ahead(h, NULL);
    for (struct slot *s = h->slots; s; s = s->next) {
        if (!snap_hold_is_served(h, s->rank) && snap_hold_is_spare(s)) {
            snap_hold_give_up(s);
        }
    }
    snap_hold_drop_strays(h);
    if (access(h->dir_path, F_OK) == 0 && snap_hold_dir(h, NULL) == 0) {
        remove_left(h);
    }
}

bool snap_hold_is_whole(const struct slot *s)
{
    return s->snap && s->snap->head.state >= SNAP_FULL;
}

struct slot *snap_hold_slot_of(const struct snap_hold *h, uint32_t rank,
                               const char *uuid)
{
    for (struct slot *s = h->slots; s; s = s->next) {
        if (s->rank == rank && s->snap && s->snap->head.state != SNAP_EMPTY &&
            strcmp(s->snap->head.uuid, uuid) == 0) {
            return s;
        }
    }
    return NULL;
}

void snap_hold_set_state(struct slot *s, enum snap_state state)
{
    s->snap->head.state = state;
    snap_note(s->snap);
}
