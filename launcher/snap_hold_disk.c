/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What workers have filled goes to the disk: one after the other, by a thread. Where
 * nothing is on its way, one that is being filled goes there meanwhile. Whatever ends that
 * before it is full ends nothing else: it begins anew then.
 */
#include <config.h>

#include "launcher/snap_hold_priv.h"

#include "base/cleanup.h"
#include "base/mapguard.h"
#include "base/thread.h"
#include "ckpt/step.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

void snap_hold_names(uint32_t rank, char file[32], char part[32])
{
    snprintf(file, 32, "r%05u.safetensors", rank);
    snprintf(part, 32, "r%05u.part", rank);
}

static void write_it(void *arg)
{
    struct slot *s = arg;
    const struct snap_hold *h = s->hold;
    char file[32], part[32];
    _close_ int root = open(s->snap->head.root,
                            O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct drain d = {.io = h->config.io, .root = root, .snap = s->snap,
                      .file = file, .part_file = part, .is_instead = s->is_instead,
                      .is_filling = s->was_ahead, .is_crowded = s->is_crowded,
                      .finish = h->config.finish, .progress = &s->progress};

    mapguard_admit();
    if (root < 0) {
        error_set(&s->error, errno, "open %s", s->snap->head.root);
        return;
    }
    snap_hold_names(s->rank, file, part);
    drain_run(&d, &s->digest, &s->error);
}

/* A save before this one that is not settled yet: when it is, older ones go. */
static bool has_before(const struct slot *s)
{
    const struct snap_head *h = &s->snap->head;
    bool has = false;

    for (const struct slot *o = s->hold->slots; o && !has; o = o->next) {
        has = o->doing == IDLE && o->snap && o->snap->head.state == SNAP_WRITTEN &&
              strcmp(o->snap->head.uuid, h->uuid) != 0 &&
              strcmp(o->snap->head.root, h->root) == 0;
    }
    return has;
}

void snap_hold_note_settled(struct snap_hold *h)
{
    for (struct slot *s = h->slots; s; s = s->next) {
        if (snap_hold_is_written(s)) {
            s->progress.may_get_room = has_before(s);
        }
    }
}

/* Apart: a filesystem that hangs then is not in the way of workers that start. */
static void on_write(uv_work_t *work)
{
    struct slot *s = work->data;

    thread_apart(write_it, s, s->snap->fd);
}

/* What was begun too early counts only where it has come to its end. */
static bool begin_anew(struct slot *s, bool is_full)
{
    bool was_ahead = s->was_ahead;

    s->was_ahead = false;
    if (!was_ahead || s->is_dropped || s->is_put_off || (is_full && s->error.code == 0)) {
        return false;
    }
    if (is_full) {
        snap_hold_queue(s);
    } else {
        snap_hold_write_next(s->hold);
        snap_hold_drop_strays(s->hold);
    }
    return true;
}

static void after_write(uv_work_t *work, int status)
{
    struct slot *s = work->data;
    struct snap_hold *h = s->hold;
    bool is_full = s->doing == WRITING;
    struct snap_head head;

    if (snap_hold_work_is_over(h)) {
        return;
    }
    s->doing = IDLE;
    if (status < 0 && s->error.code == 0) {
        error_text(&s->error, ECANCELED, "no thread to write a snapshot");
    }
    if (begin_anew(s, is_full)) {
        return;
    }
    s->snap->head.digest = s->digest;
    snap_hold_set_state(s, s->is_dropped                        ? SNAP_EMPTY
                           : s->error.code || s->is_put_off ? SNAP_FULL
                                                            : SNAP_WRITTEN);
    head = s->snap->head;
    if ((s->is_dropped || s->is_put_off) && s->error.code == 0) {
        snap_hold_clear(h, &head); /* it was on the disk when it was to end */
    }
    snap_hold_write_next(h);
    h->config.on_written(h->config.arg, &head, &s->error);
}

static void start(struct slot *s, enum slot_doing doing)
{
    s->progress.bytes = 0;
    s->progress.is_full = false;
    s->progress.may_get_room = has_before(s);
    snap_hold_work(s, doing, on_write, after_write);
}

void snap_hold_write_next(struct snap_hold *h)
{
    struct slot *first = NULL;

    if (h->clearing) {
        return;
    }
    for (struct slot *s = h->slots; s; s = s->next) {
        if (snap_hold_is_written(s)) {
            return;
        }
        if (s->doing == WAITING && (!first || s->turn < first->turn)) {
            first = s;
        }
    }
    if (!snap_hold_clear_next(h) && first) {
        start(first, WRITING);
    }
}

static bool is_at_work(const struct snap_hold *h)
{
    return snap_hold_n_writing(h) > 0 || h->clearing || h->pending;
}

void snap_hold_drain_ahead(struct snap_hold *h, uint32_t rank, const char *uuid,
                           uint64_t image_bytes, bool is_crowded)
{
    struct slot *s = snap_hold_slot_of(h, rank, uuid);

    if (!s || s->doing != IDLE || s->snap->head.state != SNAP_FILLING || is_at_work(h) ||
        image_bytes > s->snap->room) {
        return;
    }
    s->snap->head.image_bytes = image_bytes;
    s->is_dropped = s->is_put_off = s->is_instead = false;
    s->was_ahead = true;
    s->is_crowded = is_crowded;
    start(s, AHEAD);
}

static void end_ahead(struct slot *s)
{
    if (s->doing == AHEAD) {
        s->progress.cancel = true;
    }
}

void snap_hold_end_ahead(struct snap_hold *h, uint32_t rank, const char *uuid)
{
    struct slot *s = snap_hold_slot_of(h, rank, uuid);

    if (s) {
        end_ahead(s);
    }
}

void snap_hold_end_all_ahead(struct snap_hold *h, const uint32_t *rank)
{
    for (struct slot *s = h->slots; s; s = s->next) {
        if (!rank || s->rank == *rank) {
            end_ahead(s);
        }
    }
}

uint64_t snap_hold_n_written(const struct snap_hold *h, uint32_t rank, const char *uuid)
{
    const struct slot *s = h ? snap_hold_slot_of(h, rank, uuid) : NULL;

    return s && s->doing == WRITING ? s->progress.bytes : 0;
}

void snap_hold_queue(struct slot *s)
{
    s->turn = s->hold->n_turns++;
    s->doing = WAITING;
    snap_hold_write_next(s->hold);
}

int snap_hold_stay(struct snap_hold *h, uint32_t rank, const char *uuid,
                   uint64_t image_bytes, uint64_t part_bytes, struct error *e)
{
    struct slot *s = snap_hold_slot_of(h, rank, uuid);

    if (!s || s->snap->head.state != SNAP_FILLING) {
        return error_text(e, ENOENT, "rank %u has begun no snapshot %s", rank,
                          uuid);
    }
    if (image_bytes > s->snap->room || part_bytes > s->snap->room ||
        snap_room(image_bytes, part_bytes) > s->snap->room ||
        (s->doing == AHEAD && image_bytes != s->snap->head.image_bytes)) {
        end_ahead(s);
        snap_hold_set_state(s, SNAP_EMPTY);
        return error_text(e, EINVAL, "a snapshot of rank %u with %llu bytes in "
                          "room for %llu", rank, (unsigned long long)image_bytes,
                          (unsigned long long)s->snap->room);
    }
    if (snap_check(s->snap, e) < 0) {
        end_ahead(s);
        snap_hold_set_state(s, SNAP_EMPTY);
        return -EIO;
    }
    if (s->doing != AHEAD) { /* else a thread reads these */
        s->snap->head.image_bytes = image_bytes;
        s->is_dropped = s->is_put_off = s->is_instead = false;
    }
    s->snap->head.part_bytes = part_bytes;
    s->snap->is_bare = s->snap->is_bare &&
                       snap_bytes_there(s->snap) < SNAP_PAGE_BYTES + s->snap->room;
    snap_hold_set_state(s, SNAP_FULL);
    return 0;
}

void snap_hold_drain(struct snap_hold *h, uint32_t rank, const char *uuid)
{
    struct slot *s = snap_hold_slot_of(h, rank, uuid);

    if (s->doing == AHEAD) {
        s->doing = WRITING;
        s->progress.is_full = true;
    } else {
        snap_hold_queue(s);
    }
}

int snap_hold_done(struct snap_hold *h, uint32_t rank, const char *uuid,
                   uint64_t image_bytes, uint64_t part_bytes, struct error *e)
{
    int rc = snap_hold_stay(h, rank, uuid, image_bytes, part_bytes, e);

    if (rc == 0 && !h->config.is_elsewhere) {
        snap_hold_drain(h, rank, uuid);
    }
    return rc;
}
