/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of snapshots: found, settled, copied elsewhere, and written for a node
 * that has been lost. */
#include <config.h>

#include "launcher/snap_hold_priv.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void settle(struct slot *s, bool is_kept)
{
    if (is_kept && s->doing == IDLE) {
        snap_hold_set_state(s, SNAP_KEPT);
    } else if (!is_kept && snap_hold_is_written(s)) {
        s->is_dropped = true;
        s->progress.cancel = true;
    } else if (!is_kept) {
        if (s->snap->head.state == SNAP_WRITTEN) {
            snap_hold_clear(s->hold, &s->snap->head);
        }
        s->doing = IDLE;
        snap_hold_set_state(s, SNAP_EMPTY);
    }
}

static bool is_of(const struct slot *s, const char *uuid)
{
    return snap_hold_is_whole(s) && strcmp(s->snap->head.uuid, uuid) == 0;
}

void snap_hold_settle(struct snap_hold *h, const char *uuid, bool is_kept)
{
    for (struct slot *s = h->slots; s; s = s->next) {
        if (is_of(s, uuid)) {
            settle(s, is_kept);
        } else {
            snap_hold_end_ahead(h, s->rank, uuid);
        }
    }
    snap_hold_note_settled(h);
    snap_hold_drop_strays(h);
}

void snap_hold_put_off(struct snap_hold *h, const char *uuid)
{
    for (struct slot *s = h->slots; s; s = s->next) {
        if (!is_of(s, uuid)) {
            continue;
        }
        if (snap_hold_is_written(s)) {
            s->is_put_off = true;
            s->progress.cancel = true;
            continue;
        }
        s->doing = IDLE;
        if (s->snap->head.state == SNAP_WRITTEN) {
            snap_hold_clear(h, &s->snap->head);
        }
        snap_hold_set_state(s, SNAP_FULL);
    }
    snap_hold_note_settled(h);
}

/* Nobody fills it any more; and what was there may have gone to the disk already. Of a copy
 * it is another node that writes it. */
static void drop_unfilled(struct slot *s)
{
    snap_hold_clear(s->hold, &s->snap->head);
    snap_hold_set_state(s, SNAP_EMPTY);
}

static void look_at(struct slot *s, uint32_t rank)
{
    if (s->doing != IDLE || s->snap || s->hold->dir < 0 ||
        snap_open(s->hold->dir, s->name, &s->snap, NULL) < 0) {
        return;
    }
    if (s->snap->head.rank != rank) {
        snap_destroy(s->snap);
        s->snap = NULL;
    } else if (s->snap->head.state == SNAP_FILLING && !s->hold->config.is_elsewhere) {
        drop_unfilled(s);
    }
}

void snap_hold_look_for(struct snap_hold *h, uint32_t rank)
{
    for (unsigned i = 0; i < 2; i++) {
        struct slot *s = snap_hold_slot(h, rank, i, true);

        if (s) {
            look_at(s, rank);
        }
    }
}

/* Of ranks that are asked for one by one there may be many: each once. */
static void look_for_all(struct snap_hold *h)
{
    char prefix[32];
    size_t len = (size_t)snprintf(prefix, sizeof(prefix), "%s-%u-", h->config.name,
                                  h->config.agent);
    DIR *dir = opendir(h->dir_path);
    const struct dirent *d;
    unsigned rank, which;

    while (dir && (d = readdir(dir))) {
        if (strncmp(d->d_name, prefix, len) == 0 &&
            sscanf(d->d_name + len, "%u-%u", &rank, &which) == 2) {
            snap_hold_look_for(h, rank);
        }
    }
    if (dir) {
        closedir(dir);
    }
}

/* That rank is part of a later checkpoint, of the same directory. */
static bool has_newer(const struct snap_hold *h, const struct slot *of)
{
    for (const struct slot *s = h->slots; s; s = s->next) {
        if (s->rank == of->rank && snap_hold_is_whole(s) &&
            s->snap->head.state == SNAP_KEPT &&
            strcmp(s->snap->head.root, of->snap->head.root) == 0 &&
            snap_hold_is_newer(&s->snap->head, &of->snap->head)) {
            return true;
        }
    }
    return false;
}

void snap_hold_unfilled(const struct snap_hold *h, uint32_t generation,
                        void (*found)(void *arg, const struct snap_head *head), void *arg)
{
    for (const struct slot *s = h->slots; s; s = s->next) {
        if ((s->doing == IDLE || s->doing == AHEAD) && s->snap &&
            s->snap->head.state == SNAP_FILLING && s->snap->head.generation == generation &&
            snap_hold_is_served(h, s->rank)) {
            found(arg, &s->snap->head);
        }
    }
}

void snap_hold_recall(struct snap_hold *h,
                      void (*found)(void *arg, const struct snap_head *head), void *arg)
{
    if (access(h->dir_path, F_OK) < 0 || snap_hold_dir(h, NULL) < 0) {
        return;
    }
    look_for_all(h);
    for (const struct slot *s = h->slots; s; s = s->next) {
        if (s->doing == IDLE && snap_hold_is_whole(s) && s->snap->head.state != SNAP_KEPT &&
            !has_newer(h, s)) {
            found(arg, &s->snap->head);
        }
    }
}

const struct snap *snap_hold_find(struct snap_hold *h, uint32_t rank,
                                  const char *uuid)
{
    const struct snap *best = NULL;

    if (access(h->dir_path, F_OK) == 0 && snap_hold_dir(h, NULL) == 0) {
        snap_hold_look_for(h, rank);
    }
    for (const struct slot *s = h->slots; s; s = s->next) {
        const struct snap_head *head;

        if (s->rank != rank || !snap_hold_is_whole(s)) {
            continue;
        }
        head = &s->snap->head;
        if (uuid[0] ? strcmp(head->uuid, uuid) == 0
                    : head->state == SNAP_KEPT &&
                          (!best || snap_hold_is_newer(head, &best->head))) {
            best = s->snap;
        }
    }
    return best;
}

unsigned snap_hold_n_writing(const struct snap_hold *h)
{
    unsigned n = 0;

    for (const struct slot *s = h->slots; s; s = s->next) {
        n += s->doing == WAITING || snap_hold_is_written(s);
    }
    return n;
}

/* --- copies --- */

/* Whose memory comes from the same filesystem waits for what either gives back. */
void snap_hold_lend(struct snap_hold *h, struct snap_hold *copies)
{
    if (h->copies) {
        h->copies->lender = NULL;
    }
    h->copies = copies;
    if (copies) {
        copies->lender = h;
        snap_bin_unref(copies->bin);
        copies->bin = snap_bin_ref(h->bin);
    }
}

static struct slot *whole_slot(const struct snap_hold *h, uint32_t rank,
                               const char *uuid)
{
    struct slot *s = snap_hold_slot_of(h, rank, uuid);

    return s && snap_hold_is_whole(s) ? s : NULL;
}

const struct snap *snap_hold_get(const struct snap_hold *h, uint32_t rank,
                                 const char *uuid)
{
    const struct slot *s = whole_slot(h, rank, uuid);

    return s ? s->snap : NULL;
}

const struct snap *snap_hold_pin(struct snap_hold *h, uint32_t rank,
                                 const char *uuid)
{
    struct slot *s = whole_slot(h, rank, uuid);

    if (s) {
        s->n_pins++;
    }
    return s ? s->snap : NULL;
}

/* The save may have come to nothing meanwhile. */
void snap_hold_unpin(struct snap_hold *h, uint32_t rank, const char *uuid)
{
    for (struct slot *s = h->slots; s; s = s->next) {
        if (s->rank == rank && s->n_pins > 0 &&
            strcmp(s->snap->head.uuid, uuid) == 0) {
            s->n_pins--;
        }
    }
}

struct snap *snap_hold_fill(const struct snap_hold *h, uint32_t rank,
                            const char *uuid)
{
    const struct slot *s = snap_hold_slot_of(h, rank, uuid);

    return s && s->snap->head.state == SNAP_FILLING ? s->snap : NULL;
}

const struct snap *snap_hold_coming(struct snap_hold *h, uint32_t rank, const char *uuid,
                                    uint64_t image_bytes)
{
    struct snap *s = snap_hold_fill(h, rank, uuid);

    if (s) {
        s->head.image_bytes = image_bytes;
    }
    return s;
}

int snap_hold_write(struct snap_hold *h, uint32_t rank, const char *uuid,
                    struct error *e)
{
    struct slot *s = whole_slot(h, rank, uuid);

    if (!s) {
        return error_text(e, ENOENT, "there is no copy of rank %u, save %s",
                          rank, uuid);
    }
    if (s->doing == AHEAD) {
        snap_hold_drain(h, rank, uuid);
        return 0;
    }
    if (s->doing != IDLE || s->snap->head.state != SNAP_FULL) {
        return 0; /* it is on its way, or there */
    }
    s->is_dropped = s->is_put_off = false;
    s->is_instead = true;
    snap_hold_queue(s);
    return 0;
}

struct wanted {
    uint64_t step;
    bool (*is_wanted)(void *arg, uint32_t rank);
    void *arg;
};

static bool is_still_wanted(void *arg, const struct slot *s)
{
    const struct wanted *w = arg;

    return w->is_wanted(w->arg, s->rank) ||
           (s->snap && snap_hold_is_whole(s) && s->snap->head.step >= w->step);
}

void snap_hold_keep(struct snap_hold *h, uint64_t step,
                    bool (*is_wanted)(void *arg, uint32_t rank), void *arg)
{
    struct wanted w = {step, is_wanted, arg};

    snap_hold_drop(h, is_still_wanted, &w);
}
