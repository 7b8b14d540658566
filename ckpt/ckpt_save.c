/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A save: all ranks tell each other what they mean to save, find out who writes
 * what, and go through the steps of a way to save, hearing after each how it went
 * for all.
 */
#include <config.h>

#include "ckpt/save_priv.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "ckpt/keep.h"
#include "muster.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- what is saved --- */

struct saving {
    struct part table; /* what is registered here */
    struct part part;  /* what of it is written here; borrows */
    struct part_piece *part_pieces;
    struct image_piece *pieces;
    char **keys;
    size_t n;
    struct image image;
};

static void saving_release(struct saving *s)
{
    for (size_t i = 0; s->keys && i < s->n; i++) {
        free(s->keys[i]);
    }
    free(s->keys);
    free(s->pieces);
    free(s->part_pieces);
    image_release(&s->image);
    part_release(&s->table);
}

static int take_piece(struct muster_ckpt *ck, struct saving *s, size_t place)
{
    const struct part_piece *p = &s->table.pieces[place];
    const struct reg_piece *memory = &ck->registry.pieces[place];
    struct image_piece *to = &s->pieces[s->n];
    _buf_ struct buf key = {0};

    *to = (struct image_piece){
        .name = p->name, .dtype = p->dtype, .n_dims = p->n_dims,
        .shape = p->shape, .at = p->at, .len = p->len,
        .data = memory->data, .strides = memory->strides,
    };
    if (ck->shares[place].chunk > 0) {
        buf_printf(&key, ".chunk/%u/%s", ck->shares[place].chunk, p->name);
        s->keys[s->n] = buf_take(&key);
        to->key = s->keys[s->n];
        if (!to->key) {
            return -ENOMEM;
        }
    }
    s->n++;
    return 0;
}

/* The pieces that this rank writes, and their places in its file. */
static int plan(struct muster_ckpt *ck, const struct opening *first,
                struct saving *s, struct error *e)
{
    size_t room = s->table.n_pieces + 1;
    int rc = 0;

    s->pieces = calloc(room, sizeof(*s->pieces));
    s->part_pieces = calloc(room, sizeof(*s->part_pieces));
    s->keys = calloc(room, sizeof(*s->keys));
    if (!s->pieces || !s->part_pieces || !s->keys) {
        return error_set(e, ENOMEM, "save");
    }
    for (size_t i = 0; i < s->table.n_pieces && rc == 0; i++) {
        rc = ck->shares[i].is_mine ? take_piece(ck, s, i) : 0;
    }
    if (rc < 0) {
        return error_set(e, ENOMEM, "save");
    }
    rc = image_plan(s->pieces, s->n, (uint64_t)first->step, first->uuid,
                    &s->image, e);
    if (rc < 0) {
        return rc;
    }
    s->part = s->table;
    s->part.step = (uint64_t)first->step;
    s->part.file_bytes = s->image.bytes;
    s->part.pieces = s->part_pieces;
    s->part.n_pieces = s->n;
    str_copy(s->part.uuid, sizeof(s->part.uuid), first->uuid);
    for (size_t i = 0; i < s->n; i++) {
        const struct image_piece *p = &s->pieces[i];

        s->part_pieces[i] = (struct part_piece){p->name, p->dtype, p->n_dims,
                                                p->shape, p->at, p->len,
                                                p->begin};
    }
    return 0;
}

/* --- beginning --- */

static int prepare(struct muster_ckpt *ck, struct saving *s,
                   struct opening *mine, struct error *e)
{
    int rc = registry_table(&ck->registry, ck->group.world,
                            ck->m ? (uint32_t)muster_node(ck->m) : 0, &s->table,
                            e);

    mine->table = rc == 0 ? ckpt_table_digest(&s->table) : 0;
    mine->reasons = ck->has_shares && mine->table == ck->table_digest;
    mine->common = registry_common(&ck->registry);
    if (rc == 0 && s->table.n_pieces == 0 && ck->registry.n_blobs == 0 &&
        ck->group.world == 1) {
        rc = error_text(e, EINVAL, "nothing is registered to be saved");
    }
    if (rc == 0 && ck->group.rank == 0) {
        rc = ckpt_make_uuid(mine->uuid, e);
    }
    return rc;
}

static int check_common(const struct muster_ckpt *ck, const struct opening *all,
                        struct error *e)
{
    for (uint32_t r = 1; r < ck->group.world; r++) {
        if (all[r].common != all[0].common) {
            return error_text(e, EINVAL, "replicated blobs, or JSON, differ "
                              "between rank 0 and rank %u: they must be the "
                              "same bytes on all ranks", r);
        }
    }
    return 0;
}

/* --- going through it --- */

/* What was put stays only if all have put theirs. Nothing is undone after a commit
 * that succeeded, even if a rank is not heard of any more. */
static int go(struct muster_ckpt *ck, const struct save_way *way,
              const struct save_job *job, bool *ret_reserved, struct error *e)
{
    const struct group *g = &ck->group;
    int rc = way->ops->reserve(way->self, job, e);

    rc = group_agree(g, rc, e);
    *ret_reserved = rc == 0;
    rc = rc < 0 ? rc : group_agree(g, way->ops->put(way->self, job, e), e);
    if (rc < 0) {
        way->ops->abort(way->self, job);
        return rc;
    }
    if (way->ops->commit) {
        rc = g->rank == 0 ? way->ops->commit(way->self, job, e) : 0;
        rc = group_agree(g, rc, e);
    }
    way->ops->done(way->self, job);
    return rc;
}

/* By the agent where that can; by the ranks themselves where its memory does not
 * suffice. */
static int go_some_way(struct muster_ckpt *ck, const struct save_job *job,
                       const struct save_way **ret_way, struct error *e)
{
    bool is_reserved = false;
    int rc = -ENOTSUP;

    if (ck->agent.ops) {
        *ret_way = &ck->agent;
        rc = go(ck, &ck->agent, job, &is_reserved, e);
    }
    if (rc < 0 && !is_reserved && rc != -EBUSY && rc != -ECONNABORTED) {
        *ret_way = &ck->direct;
        rc = go(ck, &ck->direct, job, &is_reserved, e);
    }
    return rc;
}

static void tell(struct muster_ckpt *ck, const struct save_job *job)
{
    char path[4096], name[STEP_NAME_BYTES];

    step_name(job->gather.step, job->gather.uuid, name);
    if (ck->m && (size_t)snprintf(path, sizeof(path), "%s/%s", job->root_path,
                                  name) < sizeof(path)) {
        muster_checkpoint_saved(ck->m, path, (int64_t)job->gather.step);
    }
}

/* It is there. What fails from here on does not change that. */
static void finish(struct muster_ckpt *ck, const struct save_job *job,
                   const struct save_way *way, uint64_t *ret_save)
{
    struct recent *r = &ck->recent[++ck->n_saves % CKPT_N_RECENT];

    *r = (struct recent){.number = ck->n_saves, .way = way};
    str_copy(r->uuid, sizeof(r->uuid), job->gather.uuid);
    if (ret_save) {
        *ret_save = ck->n_saves;
    }
    if (way == &ck->direct && ck->group.rank == 0) {
        char name[STEP_NAME_BYTES];

        step_name(job->gather.step, job->gather.uuid, name);
        tell(ck, job);
        if (ck->options.keep > 0) {
            keep_newest(ck->io, ck->root, (size_t)ck->options.keep, name,
                          NULL);
        }
    }
}

static int save_prepared(struct muster_ckpt *ck, struct saving *s,
                         const struct opening *all, unsigned flags,
                         uint64_t *ret_save, struct error *e)
{
    uint32_t generation = ck->m ? (uint32_t)muster_generation(ck->m) : 1;
    struct save_job job = {
        .io = ck->io, .root = ck->root, .root_path = ck->root_path,
        .rank = ck->group.rank, .image = &s->image, .part = &s->part,
        .n_threads = (unsigned)ck->options.n_threads, .flags = flags,
        .gather = {.step = (uint64_t)all[0].step, .uuid = all[0].uuid,
                   .generation = generation,
                   .token = ck->m ? (uint64_t)generation << 32 : 0,
                   .n_ranks = ck->group.world},
    };
    const struct save_way *way = NULL;
    int rc = check_common(ck, all, e);

    rc = rc < 0 ? rc : ckpt_share(ck, all, &s->table, e);
    rc = rc < 0 ? rc : plan(ck, &all[0], s, e);
    rc = group_agree(&ck->group, rc, e);
    rc = rc < 0 ? rc : go_some_way(ck, &job, &way, e);
    if (rc == 0) {
        finish(ck, &job, way, ret_save);
    }
    if (rc == 0 && (flags & MUSTER_CKPT_WAIT)) {
        rc = way->ops->reached(way->self, job.gather.uuid, MUSTER_CKPT_DURABLE,
                               -1, e);
        rc = group_agree(&ck->group, rc < 0 ? rc : 0, e);
    }
    return rc;
}

int ckpt_save_all(struct muster_ckpt *ck, int64_t step, unsigned flags,
                  uint64_t *ret_save)
{
    __attribute__((cleanup(saving_release))) struct saving s = {0};
    struct opening mine = {.call = CALL_SAVE, .step = step, .flags = flags};
    _free_ struct opening *all = NULL;
    int64_t began_ns = (int64_t)clock_mono_ns();
    int rc = prepare(ck, &s, &mine, &ck->error);

    rc = ckpt_meet(ck, &mine, rc, &all, &ck->error);
    rc = rc < 0 ? rc : save_prepared(ck, &s, all, flags, ret_save, &ck->error);
    ck->last_save_ns = (int64_t)clock_mono_ns();
    load_close(&ck->load); /* it may be of this step */
    if (rc == 0) {
        ckpt_due_saved(ck, (double)(ck->last_save_ns - began_ns) / 1e9);
    }
    return rc < 0 ? error_wrap(&ck->error, "save step %" PRId64, step) : 0;
}
