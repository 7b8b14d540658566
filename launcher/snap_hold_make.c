/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for snapshots: asked for, and waited for; and the second one of a rank made
 * ahead, behind the back of workers, as making it may take many times as long as filling
 * it. What is made ahead is only for speed: it never takes what others of the budget
 * have, and gives way to whatever is asked for. What is waited for is a file without
 * memory, as the worker is faster in taking that while it fills it (ckpt/fill.h).
 */
#include <config.h>

#include "launcher/snap_hold_priv.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "ckpt/crowd.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* --- which one --- */

static bool is_free(const struct slot *s)
{
    return s->doing == MAKING ? !s->is_asked : s->doing == IDLE && s->n_pins == 0;
}

bool snap_hold_is_newer(const struct snap_head *a, const struct snap_head *b)
{
    return snap_is_later((struct snap_age){a->generation, a->step, a->token},
                         (struct snap_age){b->generation, b->step, b->token});
}

/* What is given up for a new one: nothing whole, or else the older one. */
static struct slot *choose(struct slot *a, struct slot *b)
{
    if (!is_free(a) || !is_free(b)) {
        return is_free(a) ? a : is_free(b) ? b : NULL;
    }
    if (!snap_hold_is_whole(a) || !snap_hold_is_whole(b)) {
        return snap_hold_is_whole(a) ? b : a;
    }
    return snap_hold_is_newer(&a->snap->head, &b->snap->head) ? b : a;
}

bool snap_hold_is_spare(const struct slot *s)
{
    return is_free(s) &&
           (s->doing == MAKING || (s->is_ahead && s->snap));
}

void snap_hold_give_up(struct slot *s)
{
    s->is_given_up = s->doing == MAKING;
    if (s->is_given_up) {
        s->progress.cancel = true;
        return;
    }
    unlinkat(s->hold->dir, s->name, 0);
    /* A worker may have mapped it, and never touches it. */
    snap_bin_put(s->hold->bin, take_ptr(&s->snap), true);
}

/* --- making --- */

static bool is_enough(const struct snap *s, uint64_t room, bool may_be_bare)
{
    return s && s->room >= room && (may_be_bare || !s->is_bare) && snap_check(s, NULL) == 0;
}

static void make(uv_work_t *work)
{
    struct slot *s = work->data;
    const struct snap_want want = {.room = s->room, .n_threads = s->n_threads,
                                   .is_bare = s->is_bare,
                                   .cancel = &s->progress.cancel};

    if (is_enough(s->made, s->room, s->is_bare)) {
        return;
    }
    snap_destroy(s->made);
    s->made = NULL;
    snap_bin_wait(s->bin);
    snap_create(s->hold->dir, s->name, &want, &s->made, &s->error);
}

static void after_make(uv_work_t *work, int status);
static void make_next_ahead(struct snap_hold *h);

static void start_making(struct slot *s, uint64_t room, bool is_ahead)
{
    s->is_ahead = is_ahead;
    s->is_asked = !is_ahead;
    s->is_given_up = false;
    s->room = room;
    s->n_threads = is_ahead ? 1 : crowd_n_threads(); /* the program computes */
    s->is_bare = !is_ahead && !s->hold->config.is_elsewhere; /* a copy is filled here */
    s->made = take_ptr(&s->snap);
    s->bin = snap_bin_ref(s->hold->bin);
    snap_hold_work(s, MAKING, make, after_make);
}

static void answer(struct slot *s)
{
    const struct snap_hold_config *c = &s->hold->config;

    s->is_ahead = false;
    if (s->error.code == 0) {
        s->snap->head = s->head;
        atomic_store(snap_filled(s->snap->map), 0);
        snap_note(s->snap);
    }
    c->on_begun(c->arg, s->question, s->error.code ? NULL : s->snap, &s->error);
}

/* Where it cannot be had nobody is told: who asks for it later is. */
static void after_make(uv_work_t *work, int status)
{
    struct slot *s = work->data;
    struct snap_hold *h = s->hold;

    s->snap = take_ptr(&s->made);
    snap_bin_unref(take_ptr(&s->bin));
    if (snap_hold_work_is_over(h)) {
        return;
    }
    s->doing = IDLE;
    if (status < 0 && s->error.code == 0) {
        error_text(&s->error, ECANCELED, "no thread for a snapshot");
    }
    if (!s->is_asked) {
        if (s->is_given_up && s->snap) {
            snap_hold_give_up(s);
        }
        snap_hold_drop_strays(h); /* `s`, too */
        make_next_ahead(h);
    } else if (s->is_ahead && (s->error.code || s->snap->room < s->wanted)) {
        start_making(s, s->wanted, false);
    } else {
        answer(s);
    }
}

/* Who keeps copies is asked for the same one again where its sender had to put it off. */
static struct slot *find_same(struct slot *a, struct slot *b, const char *uuid,
                              uint64_t bytes)
{
    struct slot *of[] = {a, b};

    for (size_t i = 0; i < 2; i++) {
        if (of[i]->doing == MAKING && of[i]->is_asked &&
            of[i]->wanted == snap_room(bytes, 0) &&
            strcmp(of[i]->head.uuid, uuid) == 0) {
            return of[i];
        }
    }
    return NULL;
}

/* A rank that needs more than it has asked for asks again: it has one of them. */
static struct slot *find_filling(struct slot *a, struct slot *b, const char *uuid)
{
    struct slot *of[] = {a, b};

    for (size_t i = 0; i < 2; i++) {
        const struct snap *s = of[i]->snap;

        if (of[i]->doing == IDLE && of[i]->n_pins == 0 && s &&
            s->head.state == SNAP_FILLING && strcmp(s->head.uuid, uuid) == 0) {
            return of[i];
        }
    }
    return NULL;
}

int snap_hold_begin(struct snap_hold *h, const struct snap_rank *who,
                    uint64_t step, const char *uuid, const char *root,
                    uint64_t bytes, uint64_t question, struct error *e)
{
    struct slot *a = snap_hold_slot(h, who->rank, 0, true);
    struct slot *b = snap_hold_slot(h, who->rank, 1, true);
    struct slot *s = NULL;
    int rc;

    if (!a || !b) {
        return error_set(e, ENOMEM, "hold a snapshot");
    }
    if (h->config.is_elsewhere) {
        s = find_same(a, b, uuid, bytes);
    }
    snap_hold_end_all_ahead(h, &who->rank); /* it has given that one up, and said nothing */
    s = s ? s : find_filling(a, b, uuid);
    s = s ? s : choose(a, b);
    if (!s) {
        return error_text(e, EBUSY, "two snapshots of rank %u are on their way "
                          "to the disk", who->rank);
    }
    rc = snap_hold_dir(h, e);
    rc = rc < 0 ? rc : snap_hold_make_way(h, s, bytes, e);
    if (rc < 0) {
        return rc;
    }
    memset(&s->head, 0, sizeof(s->head));
    s->head.state = SNAP_FILLING;
    s->head.rank = who->rank;
    s->head.n_ranks = who->n_ranks;
    s->head.generation = who->generation;
    s->head.token = who->token;
    s->head.step = step;
    str_copy(s->head.uuid, sizeof(s->head.uuid), uuid);
    str_copy(s->head.root, sizeof(s->head.root), root);
    s->question = question;
    s->wanted = snap_room(bytes, 0);
    s->is_due = false;
    if (s->doing == MAKING) {
        s->is_asked = true;
    } else if (!h->config.is_elsewhere && is_enough(s->snap, s->wanted, true)) {
        s->error = (struct error){0};
        answer(s); /* a thread would take longer to begin than this */
    } else {
        start_making(s, s->wanted, false);
    }
    return 0;
}

/* --- ahead --- */

static bool is_made_ahead(const struct snap_hold *h)
{
    const struct slot *s = h->slots;

    while (s && (s->doing != MAKING || !s->is_ahead)) {
        s = s->next;
    }
    return s != NULL;
}

/* One at a time, so that threads are left for what is waited for. */
static void make_next_ahead(struct snap_hold *h)
{
    const struct snap_hold_config *c = &h->config;

    for (struct slot *s = h->slots; s && !is_made_ahead(h); s = s->next) {
        bool is_due = s->is_due && s->doing == IDLE && !s->snap &&
                      snap_hold_is_served(h, s->rank);

        s->is_due = false;
        if (is_due && snap_hold_has_room(h, s, s->wanted, NULL) == 0 &&
            (!c->left || s->wanted + snap_hold_promised(h, s) <=
                             c->left(c->arg) + snap_bin_bytes(h->bin))) {
            start_making(s, s->wanted, true);
        }
    }
}

void snap_hold_make_ahead(struct snap_hold *h, uint32_t rank)
{
    struct slot *a = snap_hold_slot(h, rank, 0, true);
    struct slot *b = snap_hold_slot(h, rank, 1, true);

    if (!a || !b || h->config.is_elsewhere || h->dir < 0) {
        return;
    }
    snap_hold_look_for(h, rank); /* what an agent before this one has left stays */
    if (!a->snap == !b->snap || a->doing == MAKING || b->doing == MAKING) {
        return;
    }
    if (a->snap) {
        b->wanted = a->snap->room;
        b->is_due = true;
    } else {
        a->wanted = b->snap->room;
        a->is_due = true;
    }
    make_next_ahead(h);
}
