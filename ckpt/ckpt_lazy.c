/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lazy save: all ranks plan it and get room for it together, as any other; then a
 * thread of each copies what is registered, while the program computes. That thread, which
 * stays for the next one, says nothing to the other ranks (their group may be MPI, or a
 * socket that the program uses meanwhile), and to the agent only that it is there. At the
 * fence the caller takes a share of what is left to copy, waits until the agent has it, and
 * hears how it went for all.
 *
 * What lies in registered memory, and what describes it, is read until the thread is done:
 * whatever changes either waits for that first.
 */
#include <config.h>

#include "ckpt/save_priv.h"

#include "base/clock.h"

#include <errno.h>
#include <unistd.h>

static void copy_behind(void *arg)
{
    struct saving *s = arg;

    if (s->rc == 0) {
        s->rc = s->way->ops->put(s->way->self, &s->job, &s->error);
    }
    if (!s->sums) { /* what is to be checked first is the caller's, at the fence */
        saving_send(s);
    }
    atomic_store(&s->is_put, true);
}

/* It stays for the next save. NULL: no thread is to be had. */
static struct errand *copier_of(struct muster_ckpt *ck)
{
    if (ck->copier && !errand_is_here(ck->copier)) {
        errand_destroy(take_ptr(&ck->copier)); /* the parent's */
    }
    if (!ck->copier) {
        ck->copier = errand_create();
    }
    return ck->copier;
}

/* In a child that was forked since there is no such thread, and the save is its
 * parent's. */
static void forget_in_child(struct muster_ckpt *ck)
{
    if (ck->lazy && ck->lazy->pid != getpid()) {
        saving_destroy(ck->lazy);
        ck->lazy = NULL;
    }
}

/* By an agent: without one each handle saves by itself. NULL: there is none. */
static struct client_pending *pending_of(const struct muster_ckpt *ck)
{
    struct client *c = ck->agent.ops ? client_of(ck->m) : NULL;

    return c ? client_pending(c) : NULL;
}

static void hand_over(void *arg)
{
    ckpt_lazy_await(arg);
}

void ckpt_lazy_await_others(struct muster_ckpt *ck)
{
    const struct client_pending *p = pending_of(ck);

    if (p && p->hand && p->arg != ck) {
        p->hand(p->arg);
    }
}

static void note_pending(struct muster_ckpt *ck, bool is_pending)
{
    struct client_pending *p = pending_of(ck);

    if (p && is_pending) {
        *p = (struct client_pending){hand_over, ck};
    } else if (p && p->arg == ck) {
        *p = (struct client_pending){0};
    }
}

void ckpt_lazy_begin(struct muster_ckpt *ck, struct saving *s)
{
    ck->lazy = s;
    s->number = ck->n_saves;
    s->pid = getpid();
    s->job.n_threads = 1; /* the program computes */
    note_pending(ck, s->way == &ck->agent);
    s->rc = ck->is_checking ? ckpt_note_memory(ck, s, &s->error) : 0;
    s->is_behind = copier_of(ck) != NULL;
    if (s->is_behind) {
        errand_send(ck->copier, copy_behind, s);
    } else {
        copy_behind(s);
    }
}

void ckpt_lazy_await(struct muster_ckpt *ck)
{
    struct saving *s;

    forget_in_child(ck);
    s = ck->lazy;
    if (s && s->is_behind) {
        if (s->way->ops->help) {
            s->way->ops->help(s->way->self, (unsigned)ck->options.n_threads);
        }
        errand_await(ck->copier);
        s->is_behind = false;
    }
    if (s && s->rc == 0 && !s->is_checked) {
        s->is_checked = true;
        s->rc = ckpt_check_memory(ck, s, &s->error);
    }
    if (s) {
        saving_hand(s);
    }
}

int ckpt_lazy_end(struct muster_ckpt *ck, struct error *e)
{
    int64_t began_ns = (int64_t)clock_mono_ns();
    struct error ignored = {0};
    struct saving *s;
    struct recent *r;
    int rc;

    ckpt_lazy_await(ck);
    s = ck->lazy;
    if (!s) {
        return 0;
    }
    note_pending(ck, false);
    e = e ? e : &ignored;
    rc = ckpt_save_end(ck, s, e);
    r = &ck->recent[s->number % CKPT_N_RECENT];
    if (rc < 0) {
        error_wrap(e, "save step %llu",
                   (unsigned long long)s->job.gather.step);
        r->why = *e;
    } else {
        s->held_up_ns += (int64_t)clock_mono_ns() - began_ns;
        ckpt_due_saved(ck, (double)s->held_up_ns / 1e9);
    }
    load_close(&ck->load); /* it may be of this step */
    saving_keep_plan(ck, s);
    ck->lazy = NULL;
    return rc;
}

void ckpt_lazy_close(struct muster_ckpt *ck)
{
    struct saving *s;

    ckpt_lazy_await(ck);
    note_pending(ck, false);
    s = ck->lazy;
    if (s && ck->group.world == 1) {
        ckpt_lazy_end(ck, NULL);
    } else if (s) {
        if (s->rc < 0 || s->way->ops->commit) {
            s->way->ops->abort(s->way->self, &s->job);
        }
        saving_destroy(s);
        ck->lazy = NULL;
    }
    errand_destroy(take_ptr(&ck->copier));
}

/* One that has not been at the fence. */
static int lazy_reached(struct muster_ckpt *ck, const struct recent *r,
                        enum muster_ckpt_level level, int64_t timeout_ms,
                        struct error *e)
{
    struct saving *s = ck->lazy;

    if (timeout_ms == 0 && (s->way->ops->commit || !atomic_load(&s->is_put))) {
        return 0;
    }
    if (s->way->ops->commit && ck->group.world > 1) {
        return error_text(e, EDEADLK, "without an agent a lazy save is made at "
                          "the fence: call muster_ckpt_fence() on all ranks "
                          "first");
    }
    if (s->way->ops->commit) {
        ckpt_lazy_end(ck, NULL);
        return ckpt_reached(ck, r, level, timeout_ms, e);
    }
    ckpt_lazy_await(ck);
    if (s->rc < 0) {
        if (e) {
            *e = s->error;
        }
        return s->rc;
    }
    return r->way->ops->reached(r->way->self, r->uuid, level, timeout_ms, e);
}

int ckpt_reached(struct muster_ckpt *ck, const struct recent *r,
                 enum muster_ckpt_level level, int64_t timeout_ms,
                 struct error *e)
{
    int rc;

    forget_in_child(ck);
    if (level == MUSTER_CKPT_REMOTE) {
        return ckpt_reached_store(ck, r, timeout_ms, e);
    }
    if (r->why.code) {
        if (e) {
            *e = r->why;
        }
        return -r->why.code;
    }
    if (ck->lazy && ck->lazy->number == r->number) {
        return lazy_reached(ck, r, level, timeout_ms, e);
    }
    rc = r->way->ops->reached(r->way->self, r->uuid, level, timeout_ms, e);
    return rc == -ESTALE ? ckpt_passed_over(ck, r, level, e) : rc;
}
