/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/ckpt_choose.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "ckpt/avoided.h"
#include "ckpt/step.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int standing_compare(const struct standing *a, const struct standing *b)
{
    if (a->step != b->step) {
        return a->step < b->step ? -1 : 1;
    }
    return -step_compare(a->token, a->name, b->token, b->name);
}

/* --- one rank's view --- */

void passed_note(struct passed *p, int n, const char *why)
{
    size_t len = strlen(p->why.text);
    bool is_first = len == 0;

    p->n += n;
    if (why[0] != '\0' && (is_first || len + 2 + strlen(why) < sizeof(p->why.text))) {
        snprintf(p->why.text + len, sizeof(p->why.text) - len, "%s%s",
                 is_first ? "" : "; ", why);
    }
}

struct standing standing_of(const struct step *s)
{
    struct standing at = {.step = s->commit.step, .token = s->commit.token};

    str_copy(at.name, sizeof(at.name), s->name);
    return at;
}

struct standing standing_below(uint64_t step)
{
    return (struct standing){.step = step};
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
    const struct standing *bound = &w->bound;

    return (entry->step < bound->step ||
            (entry->step == bound->step && bound->name[0] != '\0')) &&
           !is_out(ck, entry->name);
}

/* " of step 7", or whatever it is that was asked for. */
static const char *say_which(const struct search *w, char *to, size_t size)
{
    to[0] = '\0';
    if (w->only >= 0) {
        snprintf(to, size, " of step %" PRId64, w->only);
    } else if (w->below != MUSTER_CKPT_LATEST) {
        snprintf(to, size, " below step %" PRId64, w->below);
    }
    return to;
}

static int no_such(const struct muster_ckpt *ck, const struct search *w,
                   struct error *e)
{
    char which[64];

    return error_text(e, ENOENT, "no checkpoint%s in %s", say_which(w, which, sizeof(which)),
                      ck->root_path);
}

/* What one rank has seen, from the newest on. */
struct view {
    struct step best; /* io NULL: none yet */
    struct standing best_at;
    struct passed here, newer; /* of those here, than the step that is next */
    bool has_lost;             /* one that was listed is not there, or never was finished */
};

/* One that was never finished is not worth a word, and one of the bound's own step was told
 * before. */
static int look_at(struct muster_ckpt *ck, const struct search *w,
                   const struct step_entry *entry, struct view *v, struct error *e)
{
    struct step s = {0};
    struct error why = {0};
    struct standing at;
    int rc = step_open(ck->io, ck->root, entry->name, &s, &why);

    if (rc < 0 && !load_is_damage(rc)) {
        return error_text(e, why.code, "%s: %s", ck->root_path, why.text);
    }
    if (rc < 0) {
        v->has_lost |= rc == -ENOENT;
        if (rc != -ENOENT && entry->step < w->bound.step) {
            passed_note(&v->here, 1, why.text);
        }
        return 0;
    }
    at = standing_of(&s);
    if (standing_compare(&at, &w->bound) >= (w->or_equal ? 1 : 0) ||
        (v->best.io && standing_compare(&at, &v->best_at) < 0)) {
        step_close(&s);
        return 0;
    }
    step_close(&v->best);
    v->best = s;
    v->best_at = at;
    return 0;
}

static int look_at_all(struct muster_ckpt *ck, const struct search *w, struct view *v,
                       struct error *e)
{
    _free_ struct step_entry *entries = NULL;
    size_t n = 0;
    int rc = step_list(ck->io, ck->root, &entries, &n, e);

    for (size_t i = 0; i < n && rc == 0; i++) {
        if ((v->best.io && entries[i].step < v->best_at.step) ||
            (int64_t)entries[i].step < w->only) {
            break;
        }
        if (i == 0 || entries[i - 1].step != entries[i].step) {
            v->newer = v->here;
        }
        if (may_be(ck, w, &entries[i])) {
            rc = look_at(ck, w, &entries[i], v, e);
        }
    }
    return rc;
}

int ckpt_find(struct muster_ckpt *ck, const struct search *w, struct passed *passed,
              struct step *ret, struct error *e)
{
    struct view v = {0};
    int rc = look_at_all(ck, w, &v, e);

    if (rc == 0 && !v.best.io && v.has_lost) { /* who removed it may have saved a newer one */
        v = (struct view){0};
        rc = look_at_all(ck, w, &v, e);
    }
    *passed = v.best.io && w->is_for_step ? v.newer : v.here;
    if (rc < 0 || !v.best.io) {
        step_close(&v.best);
        return rc < 0 ? rc : no_such(ck, w, e);
    }
    *ret = v.best;
    return 0;
}

/* --- together --- */

struct proposal {
    int32_t rc; /* 0; -ENOENT: there is none; another failure */
    int32_t n_passed; /* damaged ones on the way there */
    struct standing at;
    char text[300];
    char why[300]; /* they are */
};

/* The oldest that anybody proposed; whether all proposed that. */
static int weigh(const struct muster_ckpt *ck, const struct proposal *all,
                 struct standing *ret, bool *ret_same, struct error *e)
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
        if (standing_compare(&all[r].at, &all[0].at) != 0) {
            *ret_same = false;
        }
        if (standing_compare(&all[r].at, ret) < 0) {
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
    passed_note(passed, most->n_passed, most->why);
}

/* Whether anybody proposed one that is newer than `newest`, which it is then. */
static bool has_risen(const struct muster_ckpt *ck, const struct proposal *all,
                      struct standing *newest)
{
    bool is_newer = false;

    for (uint32_t r = 0; r < ck->group.world; r++) {
        if (all[r].rc == 0 &&
            (!newest->name[0] || standing_compare(&all[r].at, newest) > 0)) {
            *newest = all[r].at;
            is_newer = true;
        }
    }
    return is_newer;
}

/* Where none is left that all have, while somebody has seen one: it was removed meanwhile, and
 * they begin again, until they see no newer one. */
static int choose(struct muster_ckpt *ck, const struct search *begin, struct passed *passed,
                  struct step *ret, struct error *e)
{
    _free_ struct proposal *all = calloc(ck->group.world, sizeof(*all));
    struct standing newest = {0};
    struct search w = *begin;
    bool is_same = false, is_first = true, is_newer = false;
    int rc = group_agree(&ck->group,
                         all ? 0 : error_set(e, ENOMEM, "choose"), e);

    for (; rc == 0; is_first = false) {
        struct proposal mine = {0};
        struct passed here = {0};
        struct step s = {0};

        mine.rc = ckpt_find(ck, &w, &here, &s, e);
        passed_note(&here, w.before.n, w.before.why.text);
        if (mine.rc < 0) {
            str_copy(mine.text, sizeof(mine.text), e->text);
        } else {
            mine.at = standing_of(&s);
        }
        mine.n_passed = here.n;
        str_copy(mine.why, sizeof(mine.why), here.why.text);
        rc = group_gather(&ck->group, &mine, all, sizeof(mine), e);
        if (rc < 0) {
            step_close(&s);
            break;
        }
        if (is_first) { /* what is older was not asked for */
            add_passed(ck, all, passed);
        }
        is_newer = has_risen(ck, all, &newest) || is_newer;
        rc = weigh(ck, all, &w.bound, &is_same, e);
        if (rc == 0 && is_same) {
            *ret = s;
            return 0;
        }
        step_close(&s);
        w.or_equal = true;
        if (rc == -ENOENT && is_newer) {
            w = *begin;
            is_newer = false;
            rc = 0;
        }
    }
    return rc;
}

int ckpt_choose(struct muster_ckpt *ck, const struct search *w, const struct standing *first,
                struct passed *passed, struct step *ret, struct error *e)
{
    struct search avoided = *w;
    int rc = choose(ck, w, passed, ret, e);

    if (rc == -ENOENT && ck->choice == CKPT_NOT_AVOIDED) {
        ck->choice = CKPT_ONLY_AVOIDED;
        avoided.bound = *first;
        rc = choose(ck, &avoided, passed, ret, e);
    }
    return rc;
}

/* What to do comes before what was passed over, which may be more than there is room for. */
int ckpt_none_whole(const struct muster_ckpt *ck, const struct search *w,
                    const struct passed *passed, struct error *e)
{
    char which[64], n[32] = "";

    if (passed->n == passed->n_gone) {
        return error_text(e, ENOENT, "no checkpoint%s in %.300s: %s",
                          say_which(w, which, sizeof(which)), ck->root_path, passed->why.text);
    }
    if (w->only < 0) {
        snprintf(n, sizeof(n), " %d passed over;", passed->n);
    }
    return error_text(e, ERR_FORMAT, "no checkpoint%s in %.300s is whole (muster ckpt verify "
                      "%.300s tells of each);%s %s", say_which(w, which, sizeof(which)),
                      ck->root_path, ck->root_path, n, passed->why.text);
}

int ckpt_chosen(struct muster_ckpt *ck, int rc, const struct search *w,
                const struct passed *passed)
{
    ck->n_passed = passed->n;
    ck->passed = passed->why;
    if (rc == -ENOENT && passed->why.text[0] != '\0') {
        return ckpt_none_whole(ck, w, passed, &ck->error);
    }
    if (rc == 0) {
        ck->error = passed->why;
    }
    return rc;
}
