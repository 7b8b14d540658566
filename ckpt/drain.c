/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/drain.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "ckpt/step.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

struct run {
    const struct drain *d;
    uint64_t *blocks;
    uint64_t n_known; /* blocks of which there is a digest */
    struct buf part; /* as it is written; empty: not made yet */
};

static uint64_t block_bytes(uint64_t len, uint64_t block)
{
    uint64_t rest = len - block * DIGEST_BLOCK_BYTES;

    return rest < DIGEST_BLOCK_BYTES ? rest : DIGEST_BLOCK_BYTES;
}

/* More than there are is nobody's getting on. */
static uint64_t n_filled(const struct drain *d)
{
    uint64_t n = snap_n_filled(d->snap), most = digest_n_blocks(d->snap->head.image_bytes);

    return n < most ? n : most;
}

/* Who fills it goes on; or it is full. */
static int await_block(const struct drain *d, uint64_t block)
{
    enum { FIRST_NS = 1000 * 1000, MOST_NS = 8 * 1000 * 1000 };
    struct timespec pause = {.tv_nsec = FIRST_NS};
    uint64_t n = n_filled(d), before, moved_ms = clock_mono_ms();

    while (!d->progress->cancel && n <= block && !d->progress->is_full) {
        if (clock_mono_ms() - moved_ms > DRAIN_STALL_MS) {
            return -ETIME;
        }
        nanosleep(&pause, NULL);
        before = n;
        n = n_filled(d);
        if (n != before) {
            moved_ms = clock_mono_ms();
            pause.tv_nsec = FIRST_NS;
        } else if (pause.tv_nsec < MOST_NS) {
            pause.tv_nsec *= 2;
        }
    }
    return d->progress->cancel ? -ECANCELED : 0;
}

static int before_block(void *arg, uint64_t block)
{
    const struct run *r = arg;
    int rc = r->d->is_filling ? await_block(r->d, block) : 0;

    if (rc < 0 || r->d->progress->cancel) {
        return rc < 0 ? rc : -ECANCELED;
    }
    r->d->progress->bytes += block_bytes(r->d->snap->head.image_bytes, block);
    return 0;
}

/* The processor is for who fills it: just as many as keep the disk at work, also until this
 * thread has a processor again. */
static unsigned depth(void *arg)
{
    enum { FEW = 4 };
    const struct run *r = arg;

    return r->d->is_filling && !r->d->progress->is_full ? FEW : UINT_MAX;
}

/* Of those before `end`. */
static void find_digests(struct run *r, uint64_t end)
{
    const struct snap *s = r->d->snap;

    for (uint64_t i = r->n_known; i < end; i++) {
        const char *at = (const char *)snap_image(s) + i * DIGEST_BLOCK_BYTES;

        r->blocks[i] = digest_short_of(at, block_bytes(s->head.image_bytes, i));
    }
    r->n_known = end > r->n_known ? end : r->n_known;
}

/* What is looked at twice changes no more. */
static int make_part(struct run *r, struct error *e)
{
    const struct drain *d = r->d;
    const struct snap_head *h = &d->snap->head;
    _free_ char *said = malloc(h->part_bytes + 1);

    if (!said) {
        return error_set(e, ENOMEM, "what a rank says of what it has");
    }
    memcpy(said, snap_part(d->snap), h->part_bytes);
    find_digests(r, digest_n_blocks(h->image_bytes));
    buf_clear(&r->part);
    return d->finish(said, h->part_bytes, r->blocks, digest_n_blocks(h->image_bytes),
                     &r->part, e);
}

/* While the disk has it. */
static int after_block(void *arg, uint64_t block)
{
    struct run *r = arg;
    bool is_full = !r->d->is_filling || r->d->progress->is_full;

    if (is_full || !r->d->is_crowded) {
        find_digests(r, block + 1);
    }
    if (block + 1 == digest_n_blocks(r->d->snap->head.image_bytes) && is_full &&
        make_part(r, NULL) < 0) {
        buf_release(&r->part); /* which is told when it is needed */
    }
    return 0;
}

static int begin_or_join(const struct drain *d, struct step_save **ret,
                         struct error *e)
{
    const struct snap_head *h = &d->snap->head;
    char name[STEP_NAME_BYTES];
    struct error why = {0};
    int rc = step_save_begin(d->io, d->root, h->step, h->uuid, ret, &why);

    if (rc != -EEXIST) {
        return rc < 0 ? error_text(e, why.code, "%s", why.text) : 0;
    }
    step_name(h->step, h->uuid, name);
    return step_save_join(d->io, d->root, name, ret, e);
}

/* What it has left that was lost. */
static int clear_way(const struct drain *d, struct step_save *s, struct error *e)
{
    int rc = step_save_drop(s, d->part_file, e);

    return rc < 0 ? rc : step_save_drop(s, d->file, e);
}

/* A file that is filled at once. */
typedef int put_f(struct step_save *s, const char *name, const struct io_blocks *b,
                  struct error *e);

static int put_note(struct step_save *s, const char *name, const struct io_blocks *b,
                    struct error *e)
{
    return step_save_note(s, name, b->data, b->len, e);
}

/* What the kernel could not write it takes for written, and says so once: EIO of a file is
 * no reason to sync that one again, and none to give up, for all of it is in memory still.
 * It is gone by then, and its bytes go into a new one, once. */
static int put_file(put_f *put, struct step_save *s, const char *name,
                    const struct io_blocks *b, struct error *e)
{
    struct error why = {0}, again = {0};
    int rc = put(s, name, b, &why);

    if (rc != -EIO) {
        return rc < 0 ? error_text(e, why.code, "%s", why.text) : 0;
    }
    rc = put(s, name, b, &again);
    if (rc == 0 || rc == -ECANCELED) {
        return rc < 0 ? error_text(e, again.code, "%s", again.text) : 0;
    }
    return error_text(e, why.code, "%s; and again, with a new file: %s", why.text, again.text);
}

/* It comes with the last word of who fills it. */
static int await_part(const struct drain *d, struct error *e)
{
    int rc = d->is_filling ? await_block(d, UINT64_MAX) : 0;

    return rc < 0 ? error_set(e, -rc, "what a rank says of what it has") : 0;
}

/* The image is on the disk before there is a part: should this node be lost, whoever commits
 * takes that for a sign that all is there. Of many tensors a part has megabytes, which the
 * index has again: the disk need not have them. Where its power fails they are gone, and
 * nothing is committed. */
static int put_files(struct run *r, struct step_save *s, struct error *e)
{
    const struct drain *d = r->d;
    const struct snap_head *h = &d->snap->head;
    struct io_blocks b = {.data = snap_image(d->snap), .len = h->image_bytes,
                          .block_bytes = DIGEST_BLOCK_BYTES,
                          .before = before_block, .after = after_block, .depth = depth, .arg = r};
    int rc = put_file(step_save_blocks, s, d->file, &b, e);

    rc = rc < 0 ? rc : await_part(d, e);
    rc = rc < 0 || r->part.len > 0 ? rc : make_part(r, e);
    if (rc == 0 && d->is_instead) { /* who was thought to be lost may have come so far */
        rc = step_save_drop(s, d->part_file, e);
    }
    b = (struct io_blocks){.data = r->part.data, .len = r->part.len};
    rc = rc < 0 ? rc : put_file(put_note, s, d->part_file, &b, e);
    rc = rc < 0 ? rc : step_save_sync(s, e);
    return rc == 0 && d->progress->cancel
               ? error_text(e, ECANCELED, "nobody wants it any more") : rc;
}

/* Memory that is gone is why, whatever came of it: the kernel's EFAULT, zeros that are
 * no part. */
static int check_memory(const struct drain *d, int rc, struct error *e)
{
    struct error why = {0};

    if (rc == -ECANCELED || snap_check(d->snap, &why) == 0) {
        return rc;
    }
    return error_text(e, why.code, "%s", why.text);
}

/* Any, where nobody can tell. */
static uint64_t look_for_room(const struct drain *d)
{
    struct statvfs fs;

    if (fstatvfs(d->root, &fs) < 0 || fs.f_blocks == 0) {
        return UINT64_MAX;
    }
    return (uint64_t)(geteuid() == 0 ? fs.f_bfree : fs.f_bavail) * fs.f_frsize;
}

/* Told with numbers before anything is written; others may take the room meanwhile. */
static int check_space(const struct drain *d, struct error *e)
{
    enum { PAUSE_MS = 20, MOST_MS = 60000 };
    const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000};
    const struct snap_head *h = &d->snap->head;
    uint64_t room = look_for_room(d);

    for (int ms = 0; room < h->image_bytes && ms < MOST_MS && d->progress->may_get_room &&
                     !d->progress->cancel; ms += PAUSE_MS) {
        nanosleep(&pause, NULL);
        room = look_for_room(d);
    }
    if (d->progress->cancel) {
        return error_text(e, ECANCELED, "nobody wants it any more");
    }
    return room >= h->image_bytes
               ? 0
               : error_text(e, ENOSPC, "%s: its filesystem has %llu bytes left, and what "
                            "this rank has of step %llu takes %llu", h->root,
                            (unsigned long long)room, (unsigned long long)h->step,
                            (unsigned long long)h->image_bytes);
}

int drain_run(const struct drain *d, struct digest *ret, struct error *e)
{
    uint64_t bytes = d->snap->head.image_bytes;
    _cleanup_(step_save) struct step_save *s = NULL;
    _free_ uint64_t *blocks = calloc(digest_n_blocks(bytes) + 1,
                                     sizeof(*blocks));
    struct run r = {.d = d, .blocks = blocks};
    int rc;

    if (!blocks) {
        return error_set(e, ENOMEM, "the digests of %llu bytes",
                         (unsigned long long)bytes);
    }
    rc = check_space(d, e);
    rc = rc < 0 ? rc : begin_or_join(d, &s, e);
    if (rc == 0 && step_save_is_sealed(s)) {
        rc = error_text(e, EEXIST, "%s is a checkpoint, or about to be one, without this "
                        "rank's part", step_save_name(s));
    }
    rc = rc < 0 || !d->is_instead ? rc : clear_way(d, s, e);
    rc = rc < 0 ? rc : check_memory(d, put_files(&r, s, e), e);
    if (rc < 0 && s) {
        step_save_leave(s);
    }
    if (rc == 0) {
        *ret = digest_of_blocks(blocks, bytes);
    }
    buf_release(&r.part);
    return rc;
}
