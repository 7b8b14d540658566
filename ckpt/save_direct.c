/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each rank writes its file itself, block by block, so that it needs no memory but
 * for one; then its part, for rank 0, which commits when all are done.
 */
#include <config.h>

#include "ckpt/save_priv.h"

#include "base/cleanup.h"
#include "ckpt/digest.h"
#include "ckpt/held.h"
#include "ckpt/saver.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct direct {
    struct step_save *save; /* NULL: none is open */
    int held; /* tells who tidies up that it is being saved (ckpt/held.h); -1: nothing does */
    struct index_cache cache; /* rank 0's */
    char boot[SAVER_BOOT_BYTES]; /* likewise */
};

static void close_save(struct direct *d)
{
    step_save_destroy(d->save);
    d->save = NULL;
    held_give(d->held);
    d->held = -1;
}

/* All ranks do: it stays for as long as one of them lives that is at it. */
static void hold(struct direct *d, const struct save_job *job)
{
    d->held = held_take(job->root, step_save_name(d->save));
}

static int reserve(void *self, const struct save_job *job, struct error *e)
{
    struct direct *d = self;
    int rc = 0;

    close_save(d);
    if (job->rank == 0) {
        rc = step_save_begin(job->io, job->root, job->gather.step, job->gather.uuid,
                             &d->save, e);
    }
    if (d->save) {
        hold(d, job);
        saver_mark(d->save, d->held, d->boot);
    }
    return rc < 0 ? error_wrap(e, "in %s", job->root_path) : 0;
}

struct hashing {
    const struct image *image;
    uint64_t *blocks;
    struct error error; /* the first of making blocks */
};

static void make_block(void *arg, uint64_t at, size_t len, void *to)
{
    struct hashing *h = arg;

    if (h->error.code ||
        image_read(h->image, at, len, to, &h->error) < 0) {
        memset(to, 0, len); /* nothing of this process's goes to the disk */
    }
    h->blocks[at / DIGEST_BLOCK_BYTES] = digest_short_of(to, len);
}

static int put_part(struct direct *d, const struct save_job *job,
                    const uint64_t *blocks, size_t n_blocks, struct error *e)
{
    char name[PART_NAME_BYTES];
    struct part part = *job->part; /* borrows all of it */
    _buf_ struct buf b = {0};
    int rc;

    part.blocks = (uint64_t *)blocks;
    part.n_blocks = n_blocks;
    part_file_name(job->rank, name);
    rc = part_encode(&part, &b, e);
    return rc < 0 ? rc : step_save_note(d->save, name, b.data, b.len, e);
}

/* Rank 0 has made it before anybody comes here. */
static int join(struct direct *d, const struct save_job *job, const char *name,
                struct error *e)
{
    int rc = step_save_join(job->io, job->root, name, &d->save, e);

    if (rc == 0) {
        hold(d, job);
    }
    return rc == -ENOENT ? error_text(e, ENOENT, "%s, which rank 0 has made, is not there; "
                                      "expected a directory that all ranks see", name) : rc;
}

static int put(void *self, const struct save_job *job, struct error *e)
{
    struct direct *d = self;
    uint64_t n = digest_n_blocks(job->image->bytes);
    _free_ uint64_t *blocks = calloc(n + 1, sizeof(*blocks));
    struct hashing h = {job->image, blocks, {0}};
    char name[STEP_NAME_BYTES], file[PART_NAME_BYTES];
    int rc = blocks ? 0 : error_set(e, ENOMEM, "save");

    step_name(job->gather.step, job->gather.uuid, name);
    if (rc == 0 && !d->save) {
        rc = join(d, job, name, e);
    }
    part_data_name(job->rank, file);
    rc = rc < 0 ? rc : step_save_made(d->save, file, job->image->bytes,
                                      make_block, &h, e);
    if (rc == 0 && h.error.code) {
        if (e) {
            *e = h.error;
        }
        rc = -h.error.code;
    }
    rc = rc < 0 ? rc : put_part(d, job, blocks, n, e);
    return rc < 0 ? rc : step_save_sync(d->save, e);
}

static int commit(void *self, const struct save_job *job, struct error *e)
{
    struct direct *d = self;
    struct gather gather = job->gather;
    char name[STEP_NAME_BYTES];
    int rc;

    gather.cache = &d->cache;
    rc = gather_commit(d->save, &gather, e);
    if (rc == 0) {
        gather_tidy(d->save, job->gather.n_ranks);
        step_save_unmark(d->save);
    }
    if (rc < 0) { /* all ranks are done here, and what they wrote goes too */
        step_save_abort(d->save);
        step_name(job->gather.step, job->gather.uuid, name);
        step_remove(job->io, job->root, name, NULL);
        close_save(d);
    }
    return rc;
}

static void abort_save(void *self, const struct save_job *job)
{
    struct direct *d = self;

    (void)job;
    if (d->save) {
        step_save_abort(d->save);
    }
    close_save(d);
}

static void done(void *self, const struct save_job *job)
{
    (void)job;
    close_save(self);
}

/* A save that was given a number is on the disk. */
static int reached(void *self, const char *uuid, enum muster_ckpt_level level,
                   int64_t timeout_ms, struct error *e)
{
    (void)self;
    (void)uuid;
    (void)level;
    (void)timeout_ms;
    (void)e;
    return 1;
}

static void destroy(void *self)
{
    struct direct *d = self;

    close_save(d);
    index_cache_release(&d->cache);
    free(d);
}

static const struct save_ops direct_ops = {
    .reserve = reserve,
    .put = put,
    .commit = commit,
    .abort = abort_save,
    .done = done,
    .reached = reached,
    .destroy = destroy,
};

int save_direct_create(struct save_way *ret)
{
    struct direct *d = calloc(1, sizeof(*d));

    if (!d) {
        return -ENOMEM;
    }
    d->held = -1;
    *ret = (struct save_way){&direct_ops, d};
    return 0;
}
