/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/snap_hold_priv.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "ckpt/step.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- life --- */

static void free_hold(struct snap_hold *h)
{
    while (h->slots) {
        struct slot *s = h->slots;

        h->slots = s->next;
        snap_destroy(s->snap);
        free(s);
    }
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
    if (!h->dir_path || !h->budget_why) {
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
    if (h->n_works == 0) {
        free_hold(h);
    }
}

void snap_hold_remove(struct snap_hold *h)
{
    for (struct slot *s = h->slots; s; s = s->next) {
        if (h->dir >= 0) {
            unlinkat(h->dir, s->name, 0);
        }
    }
    rmdir(h->dir_path);
}

/* True where the hold is no more. */
static bool work_is_over(struct snap_hold *h)
{
    h->n_works--;
    if (h->is_dying && h->n_works == 0) {
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

static bool is_served(const struct snap_hold *h, uint32_t rank)
{
    return rank >= h->first_rank && rank - h->first_rank < h->n_ranks;
}

void snap_hold_drop(struct snap_hold *h,
                    bool (*is_wanted)(void *arg, const struct slot *s), void *arg)
{
    for (struct slot **at = &h->slots; *at;) {
        struct slot *s = *at;

        if (s->doing != IDLE || s->is_pinned || is_wanted(arg, s)) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        if (h->dir >= 0) {
            unlinkat(h->dir, s->name, 0);
        }
        snap_destroy(s->snap);
        free(s);
    }
}

static bool is_served_slot(void *arg, const struct slot *s)
{
    return is_served(arg, s->rank);
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
            !is_served(h, rank) &&
            !is_held(h, d->d_name)) {
            unlinkat(dirfd(dir), d->d_name, 0);
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
    snap_hold_drop_strays(h);
    if (access(h->dir_path, F_OK) == 0 && snap_hold_dir(h, NULL) == 0) {
        remove_left(h);
    }
}

bool snap_hold_is_whole(const struct slot *s)
{
    return s->snap && s->snap->head.state >= SNAP_FULL;
}

static bool is_free(const struct slot *s)
{
    return s->doing == IDLE && !s->is_pinned;
}

/* What is given up for a new one: nothing whole, or else the older one. */
static struct slot *choose(struct slot *a, struct slot *b)
{
    if (!is_free(a) || !is_free(b)) {
        return is_free(a) ? a : is_free(b) ? b : NULL;
    }
    if (!snap_hold_is_whole(a) || !snap_hold_is_whole(b)) {
        return snap_hold_is_whole(a) ? b : a;
    }
    return a->snap->head.step <= b->snap->head.step ? a : b;
}

static uint64_t room_of(const struct slot *s)
{
    return s->doing == MAKING ? s->room : s->snap ? s->snap->room : 0;
}

static uint64_t bytes_held(const struct snap_hold *h)
{
    uint64_t sum = 0;

    for (const struct slot *s = h->slots; s; s = s->next) {
        sum += room_of(s);
    }
    return sum;
}

/* The same, and what is still to come: the second one of a rank is as large. */
static uint64_t bytes_due(const struct snap_hold *h)
{
    uint64_t sum = 0;

    for (const struct slot *s = h->slots; s; s = s->next) {
        uint64_t most = room_of(s);

        for (const struct slot *o = h->slots; o; o = o->next) {
            most = o->rank == s->rank && room_of(o) > most ? room_of(o) : most;
        }
        sum += most;
    }
    return sum;
}

static int check_budget(const struct snap_hold *h, const struct slot *s,
                        uint64_t bytes, struct error *e)
{
    uint64_t has = s->snap ? s->snap->room : 0, held = bytes_held(h) - has;

    held += h->lender ? bytes_due(h->lender) : 0;
    held += h->copies ? bytes_held(h->copies) : 0;

    if (bytes <= has) {
        return 0;
    }
    if (bytes > h->config.budget || held > h->config.budget - bytes) {
        return error_text(e, ENOMEM, "a snapshot of %llu MiB beside %llu MiB of "
                          "others does not fit into %llu MiB, %s",
                          (unsigned long long)(bytes >> 20),
                          (unsigned long long)(held >> 20),
                          (unsigned long long)(h->config.budget >> 20),
                          h->budget_why);
    }
    return 0;
}

/* --- memory --- */

static void make(uv_work_t *work)
{
    struct slot *s = work->data;

    if (s->snap && s->snap->room >= s->room) {
        return;
    }
    snap_destroy(s->snap);
    s->snap = NULL;
    snap_create(s->hold->dir, s->name, s->room, &s->snap, &s->error);
}

static void after_make(uv_work_t *work, int status)
{
    struct slot *s = work->data;
    struct snap_hold *h = s->hold;

    if (work_is_over(h)) {
        return;
    }
    s->doing = IDLE;
    if (status < 0 && s->error.code == 0) {
        error_text(&s->error, ECANCELED, "no thread for a snapshot");
    }
    if (s->error.code == 0) {
        s->snap->head = s->head;
        snap_note(s->snap);
    }
    h->config.on_begun(h->config.arg, s->question,
                       s->error.code ? NULL : s->snap, &s->error);
}

static void start_work(struct slot *s, enum slot_doing doing, uv_work_cb work,
                       uv_after_work_cb after)
{
    s->work.data = s;
    s->doing = doing;
    s->error = (struct error){0};
    s->hold->n_works++;
    uv_queue_work(s->hold->config.loop, &s->work, work, after);
}

static bool is_none(void *arg, const struct slot *s)
{
    (void)arg;
    (void)s;
    return false;
}

int snap_hold_begin(struct snap_hold *h, const struct snap_rank *who,
                    uint64_t step, const char *uuid, const char *root,
                    uint64_t bytes, uint64_t question, struct error *e)
{
    struct slot *a = snap_hold_slot(h, who->rank, 0, true);
    struct slot *b = snap_hold_slot(h, who->rank, 1, true);
    struct slot *s = a && b ? choose(a, b) : NULL;
    int rc;

    if (!a || !b) {
        return error_set(e, ENOMEM, "hold a snapshot");
    }
    if (!s) {
        return error_text(e, EBUSY, "two snapshots of rank %u are on their way "
                          "to the disk", who->rank);
    }
    rc = snap_hold_dir(h, e);
    rc = rc < 0 ? rc : check_budget(h, s, bytes, e);
    if (rc == -ENOMEM && h->copies) {
        snap_hold_drop(h->copies, is_none, NULL);
        rc = check_budget(h, s, bytes, e);
    }
    if (rc < 0) {
        return rc;
    }
    memset(&s->head, 0, sizeof(s->head));
    s->head.state = SNAP_FILLING;
    s->head.rank = who->rank;
    s->head.n_ranks = who->n_ranks;
    s->head.generation = who->generation;
    s->head.token = who->token;
    s->head.step = step;
    str_copy(s->head.uuid, sizeof(s->head.uuid), uuid);
    str_copy(s->head.root, sizeof(s->head.root), root);
    s->question = question;
    s->room = snap_room(bytes, 0);
    start_work(s, MAKING, make, after_make);
    return 0;
}

/* --- the disk --- */

/* What the node that was lost may have left of it. */
static void clear_way(struct io *io, int root, const struct snap_head *head,
                      const char *file, const char *part)
{
    char name[STEP_NAME_BYTES];
    int dir;

    step_name(head->step, head->uuid, name);
    dir = io->ops->open_dir(io, root, name);
    if (dir >= 0) {
        io->ops->unlink(io, dir, part);
        io->ops->unlink(io, dir, file);
        io->ops->close(io, dir);
    }
}

static void write_it(uv_work_t *work)
{
    struct slot *s = work->data;
    const struct snap_hold *h = s->hold;
    char file[32], part[32];
    _close_ int root = open(s->snap->head.root,
                            O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct drain d = {.io = h->config.io, .root = root, .snap = s->snap,
                      .file = file, .part_file = part,
                      .finish = h->config.finish, .progress = &s->progress};

    if (root < 0) {
        error_set(&s->error, errno, "open %s", s->snap->head.root);
        return;
    }
    snprintf(file, sizeof(file), "r%05u.safetensors", s->rank);
    snprintf(part, sizeof(part), "r%05u.part", s->rank);
    if (s->is_instead) {
        clear_way(h->config.io, root, &s->snap->head, file, part);
    }
    drain_run(&d, &s->digest, &s->error);
}

static void write_next(struct snap_hold *h);

void snap_hold_set_state(struct slot *s, enum snap_state state)
{
    s->snap->head.state = state;
    snap_note(s->snap);
}

static void after_write(uv_work_t *work, int status)
{
    struct slot *s = work->data;
    struct snap_hold *h = s->hold;
    struct snap_head head;

    if (work_is_over(h)) {
        return;
    }
    s->doing = IDLE;
    if (status < 0 && s->error.code == 0) {
        error_text(&s->error, ECANCELED, "no thread to write a snapshot");
    }
    s->snap->head.digest = s->digest;
    snap_hold_set_state(s, s->error.code || s->is_dropped ? SNAP_EMPTY : SNAP_WRITTEN);
    head = s->snap->head;
    write_next(h);
    h->config.on_written(h->config.arg, &head, &s->error);
}

static void write_next(struct snap_hold *h)
{
    struct slot *first = NULL;

    for (struct slot *s = h->slots; s; s = s->next) {
        if (s->doing == WRITING) {
            return;
        }
        if (s->doing == WAITING && (!first || s->turn < first->turn)) {
            first = s;
        }
    }
    if (first) {
        first->progress.bytes = 0;
        first->progress.cancel = false;
        start_work(first, WRITING, write_it, after_write);
    }
}

struct slot *snap_hold_slot_of(const struct snap_hold *h, uint32_t rank,
                               const char *uuid)
{
    for (struct slot *s = h->slots; s; s = s->next) {
        if (s->rank == rank && s->doing != MAKING && s->snap &&
            s->snap->head.state != SNAP_EMPTY &&
            strcmp(s->snap->head.uuid, uuid) == 0) {
            return s;
        }
    }
    return NULL;
}

void snap_hold_queue(struct slot *s)
{
    s->turn = s->hold->n_turns++;
    s->doing = WAITING;
    write_next(s->hold);
}

int snap_hold_done(struct snap_hold *h, uint32_t rank, const char *uuid,
                   uint64_t image_bytes, uint64_t part_bytes, struct error *e)
{
    struct slot *s = snap_hold_slot_of(h, rank, uuid);

    if (!s || s->snap->head.state != SNAP_FILLING) {
        return error_text(e, ENOENT, "rank %u has begun no snapshot %s", rank,
                          uuid);
    }
    if (image_bytes > s->snap->room || part_bytes > s->snap->room ||
        snap_room(image_bytes, part_bytes) > s->snap->room) {
        snap_hold_set_state(s, SNAP_EMPTY);
        return error_text(e, EINVAL, "a snapshot of rank %u with %llu bytes in "
                          "room for %llu", rank, (unsigned long long)image_bytes,
                          (unsigned long long)s->snap->room);
    }
    s->snap->head.image_bytes = image_bytes;
    s->snap->head.part_bytes = part_bytes;
    snap_hold_set_state(s, SNAP_FULL);
    s->is_dropped = s->is_instead = false;
    if (!h->config.is_elsewhere) {
        snap_hold_queue(s);
    }
    return 0;
}
