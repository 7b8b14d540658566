/* SPDX-License-Identifier: Apache-2.0 */
/* Loading, all ranks together, or by one. */
#include <config.h>

#include "ckpt/ckpt_choose.h"

#include "base/cleanup.h"
#include "base/pages.h"
#include "muster.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int ckpt_latest_all(struct muster_ckpt *ck, int64_t below, int64_t *ret_step)
{
    struct opening mine = {.call = CALL_LATEST, .step = below};
    _free_ struct opening *all = NULL;
    _step_ struct step s = {0};
    struct search w = {.bound = standing_below((uint64_t)below), .only = -1,
                       .below = below, .is_for_step = true};
    struct passed passed = {0};
    int rc;

    ckpt_lazy_end(ck, NULL);
    load_close(&ck->load); /* there may be a newer one */
    rc = ckpt_meet(ck, &mine, ckpt_find_root(ck, &ck->error), &all, &ck->error);
    ck->choice = CKPT_NOT_AVOIDED;
    rc = rc < 0 ? rc : ckpt_choose(ck, &w, &w.bound, &passed, &s, &ck->error);
    ck->choice = CKPT_ALL;
    if (rc == 0) {
        *ret_step = (int64_t)s.commit.step;
    }
    return ckpt_chosen(ck, rc, &w, &passed);
}

/* --- filling what is registered --- */

/* A blob of bytes there, and how many; -ENODATA: none of that name. */
static int find_blob(const struct load *l, const char *name, bool is_per_rank,
                     uint32_t rank, struct buf *full, uint64_t *ret_len,
                     struct error *e)
{
    size_t place;

    part_blob_name(name, is_per_rank, rank, full);
    place = full->failed ? SIZE_MAX : index_find(l->index, full->data);
    if (place == SIZE_MAX || index_tensor(l->index, place).n_dims != 1) {
        return error_text(e, ENODATA, "%s: blob '%.200s' is not in it",
                          l->step.name, name);
    }
    *ret_len = index_tensor(l->index, place).shape[0];
    return 0;
}

static int check_blob(const struct load *l, const struct registry *r,
                      const struct reg_blob *b, struct error *e)
{
    _buf_ struct buf full = {0};
    uint64_t len = 0;
    int rc = find_blob(l, b->name, b->kind == MUSTER_PER_RANK, r->rank, &full,
                       &len, e);

    if (rc == 0 && len != b->len) {
        rc = error_text(e, EINVAL, "%s: blob '%.200s' has %llu bytes there, and "
                        "%zu are registered; muster_ckpt_read_blob() tells how "
                        "many", l->step.name, b->name,
                        (unsigned long long)len, b->len);
    }
    return rc;
}

static struct load_want want_of(const struct reg_piece *p, uint32_t rank)
{
    return (struct load_want){p->name, p->dtype, p->n_dims, p->shape, p->at,
                              p->len, p->strides, p->data, p->device, rank};
}

static bool is_loaded(const struct registry *r, const struct reg_blob *b, uint32_t n_ranks)
{
    return b->kind != MUSTER_JSON && (b->kind != MUSTER_PER_RANK || r->rank < n_ranks);
}

/* Of a checkpoint of so many ranks. Returns how many. */
static size_t list_wants(const struct registry *r, uint32_t n_ranks,
                         struct load_want *wants)
{
    static const uint64_t zero;
    size_t n = 0;

    for (size_t i = 0; i < r->n_pieces; i++) {
        if (r->pieces[i].name[0] != '.') { /* no blob */
            wants[n++] = want_of(&r->pieces[i], r->rank);
        }
    }
    for (size_t i = 0; i < r->n_blobs; i++) {
        const struct reg_blob *b = &r->blobs[i];

        if (is_loaded(r, b, n_ranks)) {
            wants[n] = want_of(&r->pieces[b->piece], r->rank);
            wants[n].at = &zero;
            wants[n++].len = r->pieces[b->piece].shape;
        }
    }
    return n;
}

static int check_blobs(const struct load *l, const struct registry *r, struct error *e)
{
    int rc = 0;

    for (size_t i = 0; i < r->n_blobs && rc == 0; i++) {
        if (is_loaded(r, &r->blobs[i], l->step.manifest.n_ranks)) {
            rc = check_blob(l, r, &r->blobs[i], e);
        }
    }
    return rc;
}

/* What was loaded stays open: calls by one rank then read that one, and not another
 * of the same step. */
static int fill(struct muster_ckpt *ck, struct step *s, struct error *e)
{
    const struct registry *r = &ck->registry;
    _free_ struct load_want *wants = pages_alloc(r->n_pieces + 1, sizeof(*wants));
    _cleanup_(load_into) struct load_into *into = NULL;
    _load_ struct load l = {0};
    int rc;

    if (!wants) {
        return error_set(e, ENOMEM, "get memory for a list of the %zu tensors to load",
                         r->n_pieces);
    }
    rc = load_into_begin(wants, list_wants(r, s->manifest.n_ranks, wants),
                         (unsigned)ck->options.n_threads, &into, e);
    rc = rc < 0 ? rc : load_open(s, &l, e);
    rc = rc < 0 ? rc : check_blobs(&l, r, e);
    l.is_shared = ck->m && muster_local_world(ck->m) > 1;
    if (rc == 0 && ck->source.file) {
        save_agent_look(ck->agent.self, &l.step);
    }
    rc = rc < 0 ? rc : load_fill(&l, ck->source.file ? &ck->source : NULL, into, e);
    if (ck->source.file) {
        save_agent_looked(ck->agent.self);
    }
    if (rc == 0) {
        load_close(&ck->load);
        ck->load = l;
        l = (struct load){0};
    }
    return rc;
}

/* What this rank has seen before it was asked to load. */
static int check_flags(unsigned flags, struct error *e)
{
    if (flags & MUSTER_CKPT_CANNOT) {
        return error_text(e, ERR_FORMAT, "it cannot read what it needs");
    }
    if (flags & MUSTER_CKPT_UNFIT) {
        return error_text(e, ENODATA, "the checkpoint is not what it wants, or can take: its "
                          "own error says why");
    }
    return 0;
}

static void note_useless(struct passed *p, int rc, const struct error *e)
{
    passed_note(p, 1, e->text);
    p->n_gone += rc == -ENOENT;
}

/* What was removed meanwhile is told, and no damage that would count. */
static void note_gone(struct passed *p, const struct error *e)
{
    passed_note(p, 0, e->text);
}

/* One was removed while it was loaded, as by who saves and keeps few. So there may be newer
 * ones by now: it begins with the newest again, each time that one is gone that is newer than
 * all that were before. */
static void begin_anew(struct muster_ckpt *ck, const struct standing *first,
                       struct standing *gone, struct search *w, struct passed *passed)
{
    if (gone->name[0] && standing_compare(&w->bound, gone) <= 0) {
        return;
    }
    *gone = w->bound;
    w->bound = *first;
    ck->choice = CKPT_NOT_AVOIDED;
    *passed = (struct passed){0}; /* they are met again */
}

int ckpt_load_all(struct muster_ckpt *ck, int64_t step, unsigned flags,
                  int64_t *ret_step)
{
    bool is_any = step == MUSTER_CKPT_LATEST;
    struct opening mine = {.call = CALL_LOAD, .step = step};
    _free_ struct opening *all = NULL;
    struct standing first = standing_below(is_any ? INT64_MAX : (uint64_t)step + 1);
    struct standing gone = {0};
    struct search w = {.bound = first, .only = is_any ? -1 : step,
                       .below = MUSTER_CKPT_LATEST};
    struct passed passed = {0};
    struct error *e = &ck->error;
    int rc = check_flags(flags, e);

    ckpt_lazy_end(ck, NULL);
    rc = rc < 0 ? rc : ckpt_find_root(ck, e);
    if (!is_any && ck->has_read && ck->load.index &&
        ck->load.step.commit.step == (uint64_t)step) {
        w.bound = standing_of(&ck->load.step);
        w.or_equal = true;
        w.before = (struct passed){.n = ck->n_newer, .why = ck->newer};
    }
    ck->has_read = false;
    rc = ckpt_meet(ck, &mine, rc, &all, e);
    ck->choice = is_any ? CKPT_NOT_AVOIDED : CKPT_ALL;
    while (rc == 0) {
        _step_ struct step s = {0};

        rc = ckpt_choose(ck, &w, &first, &passed, &s, e);
        if (rc < 0) {
            break;
        }
        w = (struct search){.bound = standing_of(&s), .only = w.only, .below = w.below};
        rc = group_agree(&ck->group, fill(ck, &s, e), e);
        if (!load_is_damage(rc) || rc == -ECONNABORTED) {
            break;
        }
        if (rc == -ENOENT && is_any) {
            begin_anew(ck, &first, &gone, &w, &passed);
            note_gone(&passed, e);
        } else {
            note_useless(&passed, rc, e);
        }
        rc = 0;
    }
    ck->choice = CKPT_ALL;
    rc = ckpt_chosen(ck, rc, &w, &passed);
    if (rc == 0) {
        ck->n_newer = passed.n;
        ck->newer = passed.why;
    }
    if (rc == 0 && ret_step) {
        *ret_step = (int64_t)w.bound.step;
    }
    return rc < 0 ? rc : passed.n;
}

/* --- by one rank --- */

/* The newest of that step below `bound` that opens. Adds to what was passed over; -ENOENT:
 * there is none. */
static int open_below(struct muster_ckpt *ck, int64_t step, struct standing bound,
                      struct passed *passed, struct error *e)
{
    struct search w = {.bound = bound, .only = step};
    int rc;

    load_close(&ck->load);
    ck->has_read = false;
    do {
        _step_ struct step s = {0};
        struct passed here = {0};

        rc = ckpt_find(ck, &w, &here, &s, e);
        passed_note(passed, here.n, here.why.text);
        if (rc < 0) {
            return rc;
        }
        w.bound = standing_of(&s);
        rc = load_open(&s, &ck->load, e);
        if (load_is_damage(rc)) {
            note_useless(passed, rc, e);
        }
    } while (load_is_damage(rc));
    ck->n_newer = passed->n;
    ck->newer = passed->why;
    return rc;
}

/* Of that step the one that was loaded, or the newest; kept open for the next call,
 * until there may be a newer one. */
int ckpt_open_step(struct muster_ckpt *ck, int64_t step, struct error *e)
{
    struct search w = {.bound = standing_below((uint64_t)step + 1), .only = step};
    struct passed passed = {0};
    int rc;

    if (ck->load.index && ck->load.step.commit.step == (uint64_t)step) {
        return 0;
    }
    rc = open_below(ck, step, w.bound, &passed, e);
    return rc == -ENOENT && passed.n > 0 ? ckpt_none_whole(ck, &w, &passed, e) : rc;
}

/* The one that is open has what `e` says: the next one of its step. */
static int open_next(struct muster_ckpt *ck, int why, struct error *e)
{
    struct passed passed = {.n = ck->n_newer, .why = ck->newer};
    int rc;

    note_useless(&passed, why, e);
    rc = open_below(ck, (int64_t)ck->load.step.commit.step, standing_of(&ck->load.step),
                    &passed, e);
    return rc == -ENOENT ? error_text(e, passed.n == passed.n_gone ? ENOENT : ERR_FORMAT, "%s",
                                      passed.why.text)
                         : rc;
}

int ckpt_read_one(struct muster_ckpt *ck, int64_t step,
                  const struct muster_ckpt_tensor *box)
{
    struct registry r = {0};
    _free_ struct load_want *wants = NULL;
    struct error *e = &ck->error;
    int rc;

    registry_exchange_finder(&r, &ck->registry);
    rc = registry_tensor(&r, box, e);
    rc = rc < 0 ? rc : ckpt_open_step(ck, step, e);
    if (rc == 0) {
        wants = calloc(r.n_pieces + 1, sizeof(*wants));
        rc = wants ? load_boxes(&ck->load, NULL, wants,
                                list_wants(&r, ck->load.step.manifest.n_ranks, wants),
                                (unsigned)ck->options.n_threads, e)
                   : error_set(e, ENOMEM, "get memory for the tensor to read");
    }
    registry_exchange_finder(&r, &ck->registry);
    registry_release(&r);
    return rc;
}

static int read_bytes(struct muster_ckpt *ck, const char *full, uint64_t len,
                      void *to, size_t size, struct error *e)
{
    static const uint64_t zero;
    uint64_t n = size < len ? size : len;
    struct load_want want = {.name = full, .dtype = DTYPE_U8, .n_dims = 1,
                             .shape = &len, .at = &zero, .len = &n, .data = to,
                             .rank = ck->group.rank};

    return n == 0 ? 0 : load_boxes(&ck->load, NULL, &want, 1, 1, e);
}

/* Of the one that is open. */
static int read_blob(struct muster_ckpt *ck, const char *name, void *to, size_t size,
                     size_t *ret_len, struct error *e)
{
    _buf_ struct buf full = {0}, own = {0};
    _free_ char *text = registry_json_of(ck->load.step.manifest.state, name);
    uint64_t len = 0;
    int rc = 0;

    if (text) {
        len = strlen(text);
        if (size > 0) {
            memcpy(to, text, size < len ? size : len);
        }
    } else {
        rc = find_blob(&ck->load, name, false, 0, &full, &len, NULL);
        if (rc < 0) { /* it may be of the other kind */
            rc = find_blob(&ck->load, name, true, ck->group.rank, &own, &len, e);
        }
        rc = rc < 0 ? rc : read_bytes(ck, own.len ? own.data : full.data, len,
                                      to, size, e);
    }
    if (rc == 0 && ret_len) {
        *ret_len = len;
    }
    return rc;
}

int ckpt_read_blob_one(struct muster_ckpt *ck, int64_t step, const char *name,
                       void *to, size_t size, size_t *ret_len)
{
    struct error *e = &ck->error;
    int rc = ckpt_open_step(ck, step, e);

    while (rc == 0) {
        rc = read_blob(ck, name, to, size, ret_len, e);
        if (!load_is_damage(rc)) {
            ck->has_read = true;
            break;
        }
        rc = open_next(ck, rc, e);
    }
    return rc;
}
