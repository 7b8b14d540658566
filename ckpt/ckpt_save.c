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
#include "muster.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* --- beginning --- */

static int prepare(struct muster_ckpt *ck, struct saving *s,
                   struct opening *mine, struct error *e)
{
    int rc = saving_list(ck, s, e);

    rc = rc < 0 ? rc : registry_settle(&ck->registry, e);
    if (ck->has_shares && ck->table_changes == ck->registry.n_changes) {
        mine->table = ck->table_digest;
    } else {
        mine->table = registry_digest(&ck->registry, ck->group.world, s->table.node);
    }
    mine->reasons = ck->has_shares && mine->table && mine->table == ck->table_digest;
    mine->is_checking = ck->is_checking;
    mine->common = registry_common(&ck->registry);
    mine->has_any = s->table.n_pieces > 0 || ck->registry.n_blobs > 0;
    if (rc == 0 && ck->group.rank == 0) {
        rc = ckpt_make_uuid(mine->uuid, e);
    }
    return rc;
}

/* Who refuses need not have anything that could be prepared. */
static int prepare_or_refuse(struct muster_ckpt *ck, struct saving *s, unsigned flags,
                             struct opening *mine, struct error *e)
{
    return flags & MUSTER_CKPT_REFUSE
               ? error_text(e, ECANCELED, "it cannot save what it should: its own error "
                            "says why")
               : prepare(ck, s, mine, e);
}

/* A rank may have nothing, where others have something. */
static int check_any(const struct muster_ckpt *ck, const struct opening *all,
                     struct error *e)
{
    for (uint32_t r = 0; r < ck->group.world; r++) {
        if (all[r].has_any) {
            return 0;
        }
    }
    return error_text(e, EINVAL, "nothing is registered to be saved%s",
                      ck->group.world > 1 ? " on any rank" : "");
}

static int check_common(struct muster_ckpt *ck, const struct opening *all,
                        struct error *e)
{
    for (uint32_t r = 1; r < ck->group.world; r++) {
        if (all[r].common != all[0].common) {
            return ckpt_differ(ck, r, e);
        }
    }
    return 0;
}

/* --- going through it --- */

/* What does not fit is told with numbers, before training has waited for it; what fills
 * the disk later is found then. Where an agent writes it looks (ckpt/drain.c), as the
 * filesystem may hang. */
static int check_space(const struct muster_ckpt *ck, struct error *e)
{
    struct statvfs fs;
    uint64_t room;

    if (ck->group.rank > 0 || fstatvfs(ck->root, &fs) < 0 || fs.f_blocks == 0) {
        return 0;
    }
    room = (uint64_t)(geteuid() == 0 ? fs.f_bfree : fs.f_bavail) * fs.f_frsize;
    return room >= ck->sum.bytes
               ? 0
               : error_text(e, ENOSPC, "%s: its filesystem has %" PRIu64 " bytes left, "
                            "and this checkpoint has %" PRIu64, ck->root_path, room,
                            ck->sum.bytes);
}

/* By the agent where that can; by the ranks themselves where its memory does not
 * suffice. (Where another program, or agent, takes what this one had promised, put fails, with
 * -ENOMEM: what others have handed over by then can't be had back.) */
static int reserve(struct muster_ckpt *ck, struct saving *s, struct error *e)
{
    const struct save_way *const ways[2] = {&ck->agent, &ck->direct};
    int rc = -ENOTSUP;

    for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
        if (!ways[i]->ops) {
            continue;
        }
        s->way = ways[i];
        if (s->way == &ck->agent) {
            ckpt_lazy_await_others(ck);
        }
        rc = ways[i] == &ck->direct ? ckpt_find_root(ck, e) : 0;
        rc = rc == 0 && ways[i] == &ck->direct ? check_space(ck, e) : rc;
        rc = rc < 0 ? rc : s->way->ops->reserve(s->way->self, &s->job, e);
        rc = group_agree(&ck->group, rc, e);
        if (rc < 0) {
            s->way->ops->abort(s->way->self, &s->job);
        }
        if (rc == 0 || rc == -EBUSY || rc == -ENOSPC || rc == -ECONNABORTED) {
            break;
        }
    }
    return rc;
}

/* The agent has it from here on. */
void saving_hand(struct saving *s)
{
    const struct save_ops *ops = s->way->ops;

    if (s->rc < 0 || !ops->hand || s->is_handed) {
        return;
    }
    s->is_handed = true;
    saving_send(s);
    s->rc = s->rc < 0 ? s->rc : ops->hand(s->way->self, &s->job, &s->error);
}

void saving_send(struct saving *s)
{
    const struct save_ops *ops = s->way->ops;

    if (s->rc == 0 && ops->send && !s->is_sent) {
        s->is_sent = true;
        s->rc = ops->send(s->way->self, &s->job, &s->error);
    }
}

static void put(const struct muster_ckpt *ck, struct saving *s)
{
    const struct save_ops *ops = s->way->ops;

    s->rc = ck->is_checking ? ckpt_note_memory(ck, s, &s->error) : 0;
    s->rc = s->rc < 0 ? s->rc : ops->put(s->way->self, &s->job, &s->error);
    s->rc = s->rc < 0 ? s->rc : ckpt_check_memory(ck, s, &s->error);
    saving_hand(s);
}

static void tell(struct muster_ckpt *ck, const struct save_job *job,
                 const char *name)
{
    char path[4096];

    if (ck->m && (size_t)snprintf(path, sizeof(path), "%s/%s", job->root_path,
                                  name) < sizeof(path)) {
        muster_checkpoint_saved(ck->m, path, (int64_t)job->gather.step);
    }
}

void ckpt_say_note(struct muster_ckpt *ck)
{
    ck->error = ck->note;
    ck->note = (struct error){0};
}

/* What rank 0 has committed itself. What fails from here on does not change that. */
static void finish(struct muster_ckpt *ck, const struct save_job *job)
{
    char name[STEP_NAME_BYTES];
    bool lacks_best = false;

    step_name(job->gather.step, job->gather.uuid, name);
    tell(ck, job, name);
    if (ck->keep.rule.keep > 0) {
        keep_apply(ck->io, ck->root, &ck->keep, name, ck->avoided, &lacks_best, NULL);
    }
    if (lacks_best && !ck->has_told_best) {
        ck->has_told_best = true;
        error_text(&ck->note, ENODATA, "no checkpoint in %.300s has a metric '%s', by which the "
                   "best is to stay (keep_best): older ones go as if there were none",
                   ck->root_path, ck->keep.metric);
    }
}

/* What was put stays only if all have put theirs. Nothing is undone after a commit
 * that succeeded, even if a rank is not heard of any more. */
int ckpt_save_end(struct muster_ckpt *ck, const struct saving *s,
                  struct error *e)
{
    const struct group *g = &ck->group;
    const struct save_ops *ops = s->way->ops;
    int rc;

    if (s->rc < 0 && e) {
        *e = s->error;
    }
    rc = group_agree(g, s->rc, e);
    if (rc < 0) {
        ops->abort(s->way->self, &s->job);
        return rc;
    }
    if (ops->commit) {
        rc = g->rank == 0 ? ops->commit(s->way->self, &s->job, e) : 0;
        rc = group_agree(g, rc, e);
    }
    ops->done(s->way->self, &s->job);
    if (rc == 0 && ops->commit && g->rank == 0) {
        finish(ck, &s->job);
    }
    return rc;
}

struct recent *ckpt_number(struct muster_ckpt *ck, const struct saving *s)
{
    struct recent *r = &ck->recent[++ck->n_saves % CKPT_N_RECENT];

    *r = (struct recent){.number = ck->n_saves, .way = s->way};
    str_copy(r->uuid, sizeof(r->uuid), s->job.gather.uuid);
    return r;
}

/* Ranks may have other environments. */
static bool all_check(const struct muster_ckpt *ck, const struct opening *all)
{
    bool is = ck->group.world > 1;

    for (uint32_t r = 0; r < ck->group.world; r++) {
        is = is && all[r].is_checking;
    }
    return is;
}

static int begin(struct muster_ckpt *ck, struct saving *s,
                 const struct opening *all, struct error *e)
{
    int rc = check_any(ck, all, e);

    if (rc < 0) { /* on all ranks */
        return rc;
    }
    rc = check_common(ck, all, e);
    rc = rc < 0 ? rc : ckpt_share(ck, all, &s->table, e);
    if (rc == 0 && !saving_plan_again(ck, &all[0], s)) {
        rc = saving_plan(ck, &all[0], s, e);
    }
    rc = group_agree(&ck->group, rc, e);
    rc = rc == 0 && all_check(ck, all) ? ckpt_check_alike(ck, s, e) : rc;
    return rc < 0 ? rc : reserve(ck, s, e);
}

static int save_now(struct muster_ckpt *ck, struct saving *s, struct error *e)
{
    const struct save_way *way = s->way;
    int rc;

    put(ck, s);
    rc = ckpt_save_end(ck, s, e);
    if (rc == 0) {
        ckpt_number(ck, s);
    }
    if (rc == 0 && (s->job.flags & MUSTER_CKPT_WAIT)) {
        rc = way->ops->reached(way->self, s->job.gather.uuid,
                               MUSTER_CKPT_DURABLE, -1, e);
        rc = group_agree(&ck->group, rc < 0 ? rc : 0, e);
    }
    return rc;
}

/* Requests for a checkpoint that this process was told of: also by another connection than
 * that by which the program asks. */
static uint32_t count_requests(const struct muster_ckpt *ck)
{
    struct client *client = client_of(ck->m);
    struct worker_state state = {0};

    return client && client_state(client, &state, NULL) == 0 ? state.checkpoint_requests : 0;
}

/* Whoever waits for a checkpoint learns which one is his. */
static void tell_requests(struct muster_ckpt *ck, const struct save_job *job, uint32_t n)
{
    if (n) {
        client_checkpoint_heard(client_of(ck->m), n, job->gather.uuid,
                                (int64_t)job->gather.step, NULL);
    }
}

int ckpt_save_all(struct muster_ckpt *ck, int64_t step, unsigned flags,
                  uint64_t *ret_save)
{
    bool is_lazy = (flags & MUSTER_CKPT_LAZY) && !(flags & MUSTER_CKPT_WAIT);
    _cleanup_(saving) struct saving *s = NULL;
    struct opening mine = {.call = CALL_SAVE, .step = step};
    _free_ struct opening *all = NULL;
    int64_t began_ns = (int64_t)clock_mono_ns();
    uint32_t n_requests = count_requests(ck);
    struct error *e = &ck->error;
    int rc;

    if (ck->is_stopping) {
        flags &= ~MUSTER_CKPT_SKIP; /* on all ranks: it is the last chance */
    }
    mine.flags = flags & ~MUSTER_CKPT_REFUSE;
    ckpt_lazy_end(ck, NULL); /* what it failed of is told of its number */
    s = calloc(1, sizeof(*s));
    rc = s ? prepare_or_refuse(ck, s, flags, &mine, e) : error_set(e, ENOMEM, "save");
    rc = ckpt_meet(ck, &mine, rc, &all, e);
    rc = rc < 0 ? rc : begin(ck, s, all, e);
    if (rc == 0) {
        ckpt_due_begins(ck, &s->job);
        tell_requests(ck, &s->job, n_requests);
    }
    if (rc == 0 && is_lazy) {
        ckpt_number(ck, s);
        ckpt_lazy_begin(ck, take_ptr(&s));
    } else if (rc == 0) {
        rc = save_now(ck, s, e);
    }
    if (rc == 0 && s) {
        saving_keep_plan(ck, take_ptr(&s));
    }
    if (rc == 0 && ret_save) {
        *ret_save = ck->n_saves;
    }
    load_close(&ck->load); /* it may be of this step */
    if (rc == -EBUSY && (flags & MUSTER_CKPT_SKIP)) {
        return error_wrap(e, "step %" PRId64 " is skipped", step); /* and still due */
    }
    ck->last_save_ns = (int64_t)clock_mono_ns();
    if (rc == 0 && is_lazy) {
        ck->lazy->held_up_ns = ck->last_save_ns - began_ns;
    } else if (rc == 0) {
        ckpt_due_saved(ck, (double)(ck->last_save_ns - began_ns) / 1e9);
    }
    if (rc == 0) {
        ckpt_say_note(ck);
    }
    return rc < 0 ? error_wrap(e, "save step %" PRId64, step) : 0;
}
