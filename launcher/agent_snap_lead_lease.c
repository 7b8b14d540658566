/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directories that this run saves into, which no other run does meanwhile: each has a
 * thread (launcher/snap_lease.h). They are let go of once the run is over, and not where
 * another agent leads it on.
 */
#include <config.h>

#include "launcher/agent_snap_lead_priv.h"

#include "base/loop_timer.h"
#include "base/machine.h"
#include "base/proc.h"
#include "ckpt/lease.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LOOK_MS = 5,
    TELL_MS = 7000, /* one that is alive has renewed it by then */
    DROP_MS = 5000, /* a filesystem that takes longer has to do without */
};

static bool is_alone(const struct lead_snap *l)
{
    return l->agent->roster.n <= 1;
}

static struct lead_lease *find(const struct lead_snap *l, const char *root)
{
    struct lead_lease *at = l->leases;

    while (at && strcmp(snap_lease_root(at->lease), root) != 0) {
        at = at->next;
    }
    return at;
}

/* Who we are, for other runs. */
static void describe(const struct lead_snap *l, struct lease_note *ret)
{
    char machine[MACHINE_ID_BYTES], host[256] = "";
    struct proc self = {0};

    machine_id(machine, sizeof(machine));
    gethostname(host, sizeof(host) - 1);
    proc_read(getpid(), &self);
    *ret = (struct lease_note){.pid = getpid(), .start = self.start,
                               .is_alone = is_alone(l)};
    lease_note_put(ret, l->agent->run.id, host, machine);
}

static struct lead_lease *add(struct lead_snap *l, const char *root, struct error *e)
{
    struct lead_lease *fresh = calloc(1, sizeof(*fresh));
    struct lease_note own;

    if (!fresh) {
        error_set(e, ENOMEM, "save into %s", root);
        return NULL;
    }
    describe(l, &own);
    if (snap_lease_create(root, &own, &l->office, &fresh->lease, e) < 0) {
        free(fresh);
        return NULL;
    }
    fresh->next = l->leases;
    l->leases = fresh;
    return fresh;
}

struct snap_lease *lead_lease_of(struct lead_snap *l, const char *root, struct error *e)
{
    struct lead_lease *at = find(l, root);

    at = at ? at : add(l, root, e);
    return at ? at->lease : NULL;
}

/* The directory of the newest checkpoint that the run knows of: the lead before this one,
 * or the start of the run before this one, may have saved there. */
static void adopt(struct lead_snap *l)
{
    int64_t step;
    const char *path = l->ops->resume ? l->ops->resume(l->arg, &step) : "";
    const char *slash = strrchr(path, '/');
    char root[SNAP_ROOT_BYTES];
    size_t n = slash ? (size_t)(slash - path) : 0;
    uint64_t number;

    if (path[0] != '/' || n == 0 || n >= sizeof(root) ||
        !step_parse_name(slash + 1, &number)) { /* programs have others, each in its own */
        return;
    }
    memcpy(root, path, n);
    root[n] = '\0';
    lead_lease_of(l, root, NULL);
}

/* Whoever waits for saves waits for that, too, which has a time of its own. */
static void look_at_asking(struct lead_snap *l, struct lead_lease *at)
{
    uint64_t now_ms = uv_now(&l->agent->loop);

    if (!snap_lease_is_asking(at->lease)) {
        at->asks_ms = 0;
        at->has_told = false;
        return;
    }
    at->asks_ms = at->asks_ms ? at->asks_ms : now_ms;
    if (now_ms - at->asks_ms <= LEASE_STALE_MS + LEASE_WATCH_MS) {
        l->moved_ms = now_ms; /* what takes longer is a filesystem that hangs */
    }
    if (!at->has_told && now_ms - at->asks_ms >= TELL_MS) {
        at->has_told = true;
        agent_note(l->agent, "%s: a save waits for up to a minute, for another run has saved "
                   "there, and it cannot be seen from here whether it is over: its file %s* "
                   "is not renewed", snap_lease_root(at->lease), LEASE_PREFIX);
    }
}

void lead_lease_look(struct lead_snap *l)
{
    for (struct lead_lease *at = l->leases; at; at = at->next) {
        look_at_asking(l, at);
    }
    if (l->is_leaving || l->is_dying) {
        return;
    }
    adopt(l);
    for (struct lead_lease *at = l->leases; at; at = at->next) {
        snap_lease_alone(at->lease, is_alone(l));
    }
}

/* --- the end --- */

static bool is_any_dropping(const struct lead_snap *l)
{
    for (const struct lead_lease *at = l->leases; at; at = at->next) {
        if (snap_lease_is_dropping(at->lease)) {
            return true;
        }
    }
    return false;
}

/* Those whose thread has ended go; the others keep what is theirs. */
static bool end_all(struct lead_snap *l)
{
    for (struct lead_lease **at = &l->leases; *at;) {
        struct lead_lease *one = *at;

        if (snap_lease_end(one->lease)) {
            *at = one->next;
            free(one);
        } else {
            at = &one->next;
        }
    }
    return l->leases == NULL;
}

static void on_timer(uv_timer_t *t)
{
    struct lead_snap *l = t->data;
    bool is_late = uv_now(&l->agent->loop) >= l->lease_until_ms;

    if (l->is_dying) {
        lead_snap_may_go(l);
    } else if (is_late || !is_any_dropping(l)) {
        uv_timer_stop(t);
        lead_wait_look(l);
    }
}

static void drop_all(struct lead_snap *l)
{
    for (struct lead_lease *at = l->leases; at && l->is_leaving; at = at->next) {
        snap_lease_drop(at->lease);
    }
    l->has_dropped = true;
    l->lease_until_ms = uv_now(&l->agent->loop) + DROP_MS;
    uv_timer_start(l->lease_timer, on_timer, LOOK_MS, LOOK_MS);
}

bool lead_lease_drop(struct lead_snap *l)
{
    if (!l->leases) {
        return false;
    }
    if (!l->has_dropped) {
        drop_all(l);
    }
    return is_any_dropping(l) && uv_now(&l->agent->loop) < l->lease_until_ms;
}

bool lead_lease_end(struct lead_snap *l)
{
    if (l->leases && !l->is_ending_leases) {
        drop_all(l); /* also what was asked for since the last time */
    }
    l->is_ending_leases = true;
    if (end_all(l)) {
        loop_timer_close(l->lease_timer);
        l->lease_timer = NULL;
        return false;
    }
    if (uv_now(&l->agent->loop) >= l->lease_until_ms) { /* the process ends without it */
        loop_timer_close(l->lease_timer);
        l->lease_timer = NULL;
    }
    return true;
}

void lead_lease_hurry(struct lead_snap *l)
{
    for (struct lead_lease *at = l->leases; at; at = at->next) {
        snap_lease_hurry(at->lease);
    }
}
