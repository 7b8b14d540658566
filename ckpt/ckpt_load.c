/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading, all ranks together. Each says which is the newest checkpoint that it can
 * open; as long as they do not say the same, all look for one that is no newer than
 * the oldest that was said. What one of them finds damaged is none for all.
 */
#include <config.h>

#include "ckpt/save_priv.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "ckpt/avoided.h"
#include "muster.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where a checkpoint stands among all: by step, then by token. */
struct rank_of {
    uint64_t step, token;
    char name[STEP_NAME_BYTES];
};

struct proposal {
    int32_t rc; /* 0; -ENOENT: there is none; another failure */
    int32_t n_passed; /* damaged ones on the way there */
    struct rank_of at;
    char text[300];
    char why[300]; /* they are */
};

/* What was passed over, for the caller. */
struct passed {
    int n;
    struct error why; /* of all, as far as there is room; text "" if there are none */
};

/* Which one is looked for. */
struct search {
    struct rank_of bound; /* it is below that, */
    bool or_equal;        /* or that itself */
    int64_t only;         /* of this step; -1: of any */
    bool is_for_step;     /* to know its step: who then loads that has those of it that are
                             damaged to tell of */
    struct passed before; /* on the way to the bound, by this rank */
};

static int compare(const struct rank_of *a, const struct rank_of *b)
{
    if (a->step != b->step) {
        return a->step < b->step ? -1 : 1;
    }
    if (a->token != b->token) {
        return a->token < b->token ? -1 : 1;
    }
    return strcmp(a->name, b->name);
}

/* --- one rank's view --- */

static void note(struct passed *p, int n, const char *why)
{
    size_t len = strlen(p->why.text);
    bool is_first = len == 0;

    p->n += n;
    if (why[0] != '\0' && (is_first || len + 2 + strlen(why) < sizeof(p->why.text))) {
        snprintf(p->why.text + len, sizeof(p->why.text) - len, "%s%s",
                 is_first ? "" : "; ", why);
    }
}

static struct rank_of rank_of(const struct step *s)
{
    struct rank_of at = {.step = s->commit.step, .token = s->commit.token};

    str_copy(at.name, sizeof(at.name), s->name);
    return at;
}

static bool is_out(const struct muster_ckpt *ck, const char *name)
{
    return ck->choice != CKPT_ALL &&
           avoided_has_name(ck->avoided, name) != (ck->choice == CKPT_ONLY_AVOIDED);
}

/* A bound without a name is below all of its step. */
static bool may_be(const struct muster_ckpt *ck, const struct search *w,
                   const struct step_entry *entry)
{
    const struct rank_of *bound = &w->bound;

    return (entry->step < bound->step ||
            (entry->step == bound->step && bound->name[0] != '\0')) &&
           !is_out(ck, entry->name);
}

static int no_such(const struct muster_ckpt *ck, const struct search *w,
                   struct error *e)
{
    return w->only < 0
               ? error_text(e, ENOENT, "no checkpoint in %s", ck->root_path)
               : error_text(e, ENOENT, "no checkpoint of step %" PRId64 " in %s",
                            w->only, ck->root_path);
}

/* The newest of those that opens, and what is newer and does not. One that was never
 * finished is not worth a word, and one of the bound's own step was told before. */
static int find(struct muster_ckpt *ck, const struct search *w, struct passed *passed,
                struct step *ret, struct error *e)
{
    _free_ struct step_entry *entries = NULL;
    struct passed here = {0}, newer = {0}; /* of those here, than the step that is next */
    struct step best = {0};
    struct rank_of best_at = {0};
    size_t n = 0;
    int rc = step_list(ck->io, ck->root, &entries, &n, e);

    for (size_t i = 0; i < n && rc == 0; i++) {
        struct step s = {0};
        struct error why = {0};
        struct rank_of at;

        if ((best.io && entries[i].step < best_at.step) ||
            (int64_t)entries[i].step < w->only) {
            break;
        }
        if (i == 0 || entries[i - 1].step != entries[i].step) {
            newer = here;
        }
        if (!may_be(ck, w, &entries[i])) {
            continue;
        }
        rc = step_open(ck->io, ck->root, entries[i].name, &s, &why);
        if (rc < 0) {
            if (!load_is_damage(rc) && e) {
                *e = why;
                break;
            }
            if (rc != -ENOENT && entries[i].step < w->bound.step) {
                note(&here, 1, why.text);
            }
            rc = 0;
            continue;
        }
        at = rank_of(&s);
        if (compare(&at, &w->bound) >= (w->or_equal ? 1 : 0) ||
            (best.io && compare(&at, &best_at) < 0)) {
            step_close(&s);
            continue;
        }
        step_close(&best);
        best = s;
        best_at = at;
    }
    *passed = best.io && w->is_for_step ? newer : here;
    if (rc < 0 || !best.io) {
        step_close(&best);
        return rc < 0 ? rc : no_such(ck, w, e);
    }
    *ret = best;
    return 0;
}

/* --- choosing together --- */

/* The oldest that anybody proposed; whether all proposed that. */
static int weigh(const struct muster_ckpt *ck, const struct proposal *all,
                 struct rank_of *ret, bool *ret_same, struct error *e)
{
    *ret_same = true;
    *ret = all[0].at;
    for (uint32_t r = 0; r < ck->group.world; r++) {
        if (all[r].rc < 0) {
            return ck->group.world == 1
                       ? all[r].rc
                       : error_text(e, -all[r].rc, "rank %u: %.*s", r,
                                    (int)sizeof(all[r].text) - 1, all[r].text);
        }
        if (compare(&all[r].at, &all[0].at) != 0) {
            *ret_same = false;
        }
        if (compare(&all[r].at, ret) < 0) {
            *ret = all[r].at;
        }
    }
    return 0;
}

/* What most of them passed over: the same on all ranks. */
static void add_passed(const struct muster_ckpt *ck, const struct proposal *all,
                       struct passed *passed)
{
    const struct proposal *most = &all[0];

    for (uint32_t r = 1; r < ck->group.world; r++) {
        if (all[r].n_passed > most->n_passed) {
            most = &all[r];
        }
    }
    note(passed, most->n_passed, most->why);
}

static int choose(struct muster_ckpt *ck, struct search w, struct passed *passed,
                  struct step *ret, struct error *e)
{
    _free_ struct proposal *all = calloc(ck->group.world, sizeof(*all));
    bool is_same = false, is_first = true;
    int rc = group_agree(&ck->group,
                         all ? 0 : error_set(e, ENOMEM, "choose"), e);

    for (; rc == 0; is_first = false) {
        struct proposal mine = {0};
        struct passed here = {0};
        struct step s = {0};

        mine.rc = find(ck, &w, &here, &s, e);
        note(&here, w.before.n, w.before.why.text);
        if (mine.rc < 0) {
            str_copy(mine.text, sizeof(mine.text), e->text);
        } else {
            mine.at = rank_of(&s);
        }
        mine.n_passed = here.n;
        str_copy(mine.why, sizeof(mine.why), here.why.text);
        rc = group_gather(&ck->group, &mine, all, sizeof(mine), e);
        if (rc == 0 && is_first) { /* what is older was not asked for */
            add_passed(ck, all, passed);
        }
        rc = rc < 0 ? rc : weigh(ck, all, &w.bound, &is_same, e);
        if (rc == 0 && is_same) {
            *ret = s;
            return 0;
        }
        step_close(&s);
        w.or_equal = true;
    }
    return rc;
}

static struct rank_of below_step(uint64_t step)
{
    return (struct rank_of){.step = step};
}

/* What is looked for; or, where there is none and it was not asked for by its step, below
 * `first` what is avoided: that is better than nothing. */
static int choose_any(struct muster_ckpt *ck, const struct search *w,
                      const struct rank_of *first, struct passed *passed,
                      struct step *ret, struct error *e)
{
    struct search avoided = *w;
    int rc = choose(ck, *w, passed, ret, e);

    if (rc == -ENOENT && ck->choice == CKPT_NOT_AVOIDED) {
        ck->choice = CKPT_ONLY_AVOIDED;
        avoided.bound = *first;
        rc = choose(ck, avoided, passed, ret, e);
    }
    return rc;
}

static int none_whole(const struct search *w, const struct passed *passed,
                      struct error *e)
{
    return w->only < 0
               ? error_text(e, ERR_FORMAT, "no checkpoint is whole; %d passed over; "
                            "%s", passed->n, passed->why.text)
               : error_text(e, ERR_FORMAT, "no checkpoint of step %" PRId64 " is "
                            "whole; %s", w->only, passed->why.text);
}

/* What all of it came to. */
static int end(struct muster_ckpt *ck, int rc, const struct search *w,
               const struct passed *passed)
{
    ck->n_passed = passed->n;
    ck->passed = passed->why;
    if (rc == -ENOENT && passed->n > 0) {
        return none_whole(w, passed, &ck->error);
    }
    if (rc == 0) {
        ck->error = passed->why;
    }
    return rc;
}

int ckpt_latest_all(struct muster_ckpt *ck, int64_t below, int64_t *ret_step)
{
    struct opening mine = {.call = CALL_LATEST, .step = below};
    _free_ struct opening *all = NULL;
    _step_ struct step s = {0};
    struct search w = {.bound = below_step((uint64_t)below), .only = -1,
                       .is_for_step = true};
    struct passed passed = {0};
    int rc;

    ckpt_lazy_end(ck, NULL);
    load_close(&ck->load); /* there may be a newer one */
    rc = ckpt_meet(ck, &mine, 0, &all, &ck->error);
    ck->choice = CKPT_NOT_AVOIDED;
    rc = rc < 0 ? rc : choose_any(ck, &w, &w.bound, &passed, &s, &ck->error);
    ck->choice = CKPT_ALL;
    if (rc == 0) {
        *ret_step = (int64_t)s.commit.step;
    }
    return end(ck, rc, &w, &passed);
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

static int list_wants(const struct load *l, const struct registry *r,
                      struct load_want *wants, size_t *ret_n, struct error *e)
{
    static const uint64_t zero;
    size_t n = 0;
    int rc = 0;

    for (size_t i = 0; i < r->n_pieces; i++) {
        if (r->pieces[i].name[0] != '.') { /* no blob */
            wants[n++] = want_of(&r->pieces[i], r->rank);
        }
    }
    for (size_t i = 0; i < r->n_blobs && rc == 0; i++) {
        const struct reg_blob *b = &r->blobs[i];

        if (b->kind == MUSTER_JSON ||
            (b->kind == MUSTER_PER_RANK && r->rank >= l->step.manifest.n_ranks)) {
            continue;
        }
        rc = check_blob(l, r, b, e);
        wants[n] = want_of(&r->pieces[b->piece], r->rank);
        wants[n].at = &zero;
        wants[n++].len = r->pieces[b->piece].shape;
    }
    *ret_n = n;
    return rc;
}

/* What was loaded stays open: calls by one rank then read that one, and not another
 * of the same step. */
static int fill(struct muster_ckpt *ck, struct step *s, struct error *e)
{
    const struct registry *r = &ck->registry;
    _free_ struct load_want *wants = calloc(r->n_pieces + 1, sizeof(*wants));
    _load_ struct load l = {0};
    size_t n = 0;
    int rc = wants ? 0 : error_set(e, ENOMEM, "load");

    rc = rc < 0 ? rc : load_open(s, &l, e);
    rc = rc < 0 ? rc : list_wants(&l, r, wants, &n, e);
    l.is_shared = ck->m && muster_local_world(ck->m) > 1;
    if (rc == 0 && ck->source.file) {
        save_agent_look(ck->agent.self, &l.step);
    }
    rc = rc < 0 ? rc : load_boxes(&l, ck->source.file ? &ck->source : NULL,
                                  wants, n, (unsigned)ck->options.n_threads, e);
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
        return error_text(e, ENODATA, "the checkpoint has not what it wants");
    }
    return 0;
}

int ckpt_load_all(struct muster_ckpt *ck, int64_t step, unsigned flags,
                  int64_t *ret_step)
{
    bool is_any = step == MUSTER_CKPT_LATEST;
    struct opening mine = {.call = CALL_LOAD, .step = step};
    _free_ struct opening *all = NULL;
    struct rank_of first = below_step(is_any ? INT64_MAX : (uint64_t)step + 1);
    struct search w = {.bound = first, .only = is_any ? -1 : step};
    struct passed passed = {0};
    struct error *e = &ck->error;
    int rc = check_flags(flags, e);

    ckpt_lazy_end(ck, NULL);
    if (!is_any && ck->has_read && ck->load.index &&
        ck->load.step.commit.step == (uint64_t)step) {
        w.bound = rank_of(&ck->load.step);
        w.or_equal = true;
        w.before = (struct passed){ck->n_newer, ck->newer};
    }
    ck->has_read = false;
    rc = ckpt_meet(ck, &mine, rc, &all, e);
    ck->choice = is_any ? CKPT_NOT_AVOIDED : CKPT_ALL;
    while (rc == 0) {
        _step_ struct step s = {0};

        rc = choose_any(ck, &w, &first, &passed, &s, e);
        if (rc < 0) {
            break;
        }
        w = (struct search){.bound = rank_of(&s), .only = w.only};
        rc = group_agree(&ck->group, fill(ck, &s, e), e);
        if (!load_is_damage(rc) || rc == -ECONNABORTED) {
            break;
        }
        note(&passed, 1, e->text);
        rc = 0;
    }
    ck->choice = CKPT_ALL;
    rc = end(ck, rc, &w, &passed);
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
static int open_below(struct muster_ckpt *ck, int64_t step, struct rank_of bound,
                      struct passed *passed, struct error *e)
{
    struct search w = {.bound = bound, .only = step};
    int rc;

    load_close(&ck->load);
    ck->has_read = false;
    do {
        _step_ struct step s = {0};
        struct passed here = {0};

        rc = find(ck, &w, &here, &s, e);
        note(passed, here.n, here.why.text);
        if (rc < 0) {
            return rc;
        }
        w.bound = rank_of(&s);
        rc = load_open(&s, &ck->load, e);
        if (load_is_damage(rc)) {
            note(passed, 1, e->text);
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
    struct search w = {.bound = below_step((uint64_t)step + 1), .only = step};
    struct passed passed = {0};
    int rc;

    if (ck->load.index && ck->load.step.commit.step == (uint64_t)step) {
        return 0;
    }
    rc = open_below(ck, step, w.bound, &passed, e);
    return rc == -ENOENT && passed.n > 0 ? none_whole(&w, &passed, e) : rc;
}

/* The one that is open has what `e` says: the next one of its step. */
static int open_next(struct muster_ckpt *ck, struct error *e)
{
    struct passed passed = {ck->n_newer, ck->newer};
    int rc;

    note(&passed, 1, e->text);
    rc = open_below(ck, (int64_t)ck->load.step.commit.step, rank_of(&ck->load.step),
                    &passed, e);
    return rc == -ENOENT ? error_text(e, ERR_FORMAT, "%s", passed.why.text) : rc;
}

int ckpt_read_one(struct muster_ckpt *ck, int64_t step,
                  const struct muster_ckpt_tensor *box)
{
    struct registry r = {0};
    _free_ struct load_want *wants = NULL;
    struct error *e = &ck->error;
    size_t n = 0;
    int rc = registry_tensor(&r, box, e);

    rc = rc < 0 ? rc : ckpt_open_step(ck, step, e);
    if (rc == 0) {
        wants = calloc(r.n_pieces + 1, sizeof(*wants));
        rc = wants ? list_wants(&ck->load, &r, wants, &n, e)
                   : error_set(e, ENOMEM, "read");
    }
    rc = rc < 0 ? rc : load_boxes(&ck->load, NULL, wants, n,
                                  (unsigned)ck->options.n_threads, e);
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
        rc = find_blob(&ck->load, name, false, 0, &full, &len, e);
        if (rc < 0) {
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
        rc = open_next(ck, e);
    }
    return rc;
}
