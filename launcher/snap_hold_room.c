/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether there is memory for a snapshot: in the budget of the run, and in the filesystem.
 * A file that was handed out without its memory has been promised it: that a save does not
 * fit is to be known before ranks begin with it, so that they can write it themselves, and
 * so what one may still take is nobody else's.
 */
#include <config.h>

#include "launcher/snap_hold_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

static uint64_t room_of(const struct slot *s)
{
    if (s->doing != MAKING) {
        return s->snap ? s->snap->room : 0;
    }
    return s->is_asked && s->wanted > s->room ? s->wanted
           : !s->is_asked && s->is_given_up   ? 0
                                              : s->room;
}

static uint64_t bytes_held(const struct snap_hold *h)
{
    uint64_t sum = h->beside;

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

/* Beside what else there is, but for `has` bytes that are as good as free. */
static int check_fit(const struct snap_hold *h, const char *what, uint64_t bytes,
                     uint64_t has, struct error *e)
{
    uint64_t held = bytes_held(h) - has;

    held += h->lender ? bytes_due(h->lender) : 0;
    held += h->copies ? bytes_held(h->copies) : 0;

    if (bytes <= has) {
        return 0;
    }
    if (bytes > h->config.budget || held > h->config.budget - bytes) {
        return error_text(e, ENOMEM, "%s of %llu MiB beside %llu MiB of "
                          "others does not fit into %llu MiB, %s", what,
                          (unsigned long long)(bytes >> 20),
                          (unsigned long long)(held >> 20),
                          (unsigned long long)(h->config.budget >> 20),
                          h->budget_why);
    }
    return 0;
}

static uint64_t bytes_there(const struct slot *s)
{
    struct stat st;

    if (s->snap) {
        return snap_bytes_there(s->snap);
    }
    return fstatat(s->hold->dir, s->name, &st, AT_SYMLINK_NOFOLLOW) < 0
               ? 0 : (uint64_t)st.st_blocks * 512;
}

/* Of its room, what it has no memory for yet. */
static uint64_t bytes_to_come(const struct slot *s, uint64_t room)
{
    uint64_t there = bytes_there(s);

    return room + SNAP_PAGE_BYTES > there ? room + SNAP_PAGE_BYTES - there : 0;
}

static bool is_taking(const struct slot *s)
{
    return s->doing == MAKING ||
           (s->snap && s->snap->is_bare && s->snap->head.state == SNAP_FILLING);
}

static uint64_t bytes_promised(const struct snap_hold *h, const struct slot *but)
{
    uint64_t sum = 0;

    for (const struct slot *s = h ? h->slots : NULL; s; s = s->next) {
        if (s != but && is_taking(s) && room_of(s) > 0) {
            sum += bytes_to_come(s, room_of(s));
        }
    }
    return sum;
}

uint64_t snap_hold_promised(const struct snap_hold *h, const struct slot *but)
{
    return bytes_promised(h, but) + bytes_promised(h->copies, but) +
           bytes_promised(h->lender, but);
}

/* What a thread gives back as soon as it ends, which it has been told. */
static uint64_t bytes_given_up(const struct snap_hold *h)
{
    uint64_t sum = 0;

    for (const struct slot *s = h->slots; s; s = s->next) {
        sum += s->doing == MAKING && room_of(s) == 0 ? bytes_there(s) : 0;
    }
    return sum;
}

/* The filesystem has it, beside what was promised to others, if it gets `more` back. What
 * they take meanwhile counts twice rather than not at all. */
static int check_left(const struct snap_hold *h, const struct slot *s, uint64_t bytes,
                      uint64_t more, struct error *e)
{
    uint64_t need = bytes_to_come(s, bytes), others, left;
    struct statvfs fs;

    if (need == 0) {
        return 0;
    }
    others = snap_hold_promised(h, s);
    if (fstatvfs(h->dir, &fs) < 0 || fs.f_blocks == 0) {
        return 0;
    }
    left = (uint64_t)fs.f_bavail * fs.f_frsize + bytes_given_up(h) +
           snap_bin_bytes(h->bin) + more;
    if (left >= others && left - others >= need) {
        return 0;
    }
    return error_text(e, ENOMEM, "a snapshot takes %llu MiB of shared memory: %s has "
                      "%llu MiB left, of which others have still to take %llu",
                      (unsigned long long)(need >> 20), h->dir_path,
                      (unsigned long long)(left >> 20), (unsigned long long)(others >> 20));
}

int snap_hold_has_room(const struct snap_hold *h, const struct slot *s,
                       uint64_t bytes, struct error *e)
{
    int rc = check_fit(h, "a snapshot", bytes, room_of(s), e);

    return rc < 0 ? rc : check_left(h, s, bytes, 0, e);
}

int snap_hold_beside(struct snap_hold *h, uint64_t bytes, struct error *e)
{
    int rc = check_fit(h, "parity", bytes, h->beside, e);

    h->beside = rc < 0 ? h->beside : bytes;
    return rc;
}

static bool is_none(void *arg, const struct slot *s)
{
    (void)arg;
    (void)s;
    return false;
}

/* Of what may lose it: spare memory, and copies of other nodes' that nobody reads. */
static uint64_t bytes_to_lose(const struct snap_hold *h, const struct slot *but)
{
    uint64_t sum = 0;

    for (const struct slot *s = h->slots; s; s = s->next) {
        sum += s != but && snap_hold_is_spare(s) ? bytes_there(s) : 0;
    }
    for (const struct slot *s = h->copies ? h->copies->slots : NULL; s; s = s->next) {
        sum += s->doing == IDLE && s->n_pins == 0 ? bytes_there(s) : 0;
    }
    return sum;
}

/* Memory that is for later goes first, then copies of other nodes', and parity, which is no
 * shared memory. But nothing in vain. */
int snap_hold_make_way(struct snap_hold *h, const struct slot *s, uint64_t bytes,
                       struct error *e)
{
    int rc = snap_hold_has_room(h, s, bytes, e);

    if (rc < 0 && check_left(h, s, bytes, bytes_to_lose(h, s), e) < 0) {
        return rc;
    }
    for (struct slot *o = h->slots; o && rc == -ENOMEM; o = o->next) {
        if (o != s && snap_hold_is_spare(o)) {
            snap_hold_give_up(o);
            rc = snap_hold_has_room(h, s, bytes, e);
        }
    }
    if (rc == -ENOMEM && h->copies) {
        snap_hold_drop(h->copies, is_none, NULL);
        rc = snap_hold_has_room(h, s, bytes, e);
    }
    if (rc == -ENOMEM && h->copies && h->copies->config.on_short) {
        h->copies->config.on_short(h->copies->config.arg);
        rc = snap_hold_has_room(h, s, bytes, e);
    }
    return rc;
}
