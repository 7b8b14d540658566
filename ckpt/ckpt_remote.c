/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store of a run (checkpoint.store): the run's lead takes the newest checkpoint
 * there, and the agent tells its workers which one that was. What becomes a checkpoint
 * while another one is on its way may be passed over for one that is newer still: who
 * waits for it hears of that. So does who waits for one that has stayed in memory of the
 * node (checkpoint.diskEvery), until a later one took its place.
 */
#include <config.h>

#include "ckpt/save_priv.h"

#include "base/clock.h"
#include "comm/client.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>

/* The first save behind `r` that has got so far; NULL: none has. */
static const struct recent *find_later(const struct muster_ckpt *ck,
                                       struct client *client, const struct recent *r,
                                       enum worker_snap_level level)
{
    const struct recent *best = NULL;
    struct worker_snap_status s;

    for (size_t i = 0; i < CKPT_N_RECENT; i++) {
        const struct recent *o = &ck->recent[i];

        if (o->number > r->number && (!best || o->number < best->number) &&
            client_snap_status(client, o->uuid, &s, NULL) == 0 && s.level >= level &&
            s.error != ESTALE) {
            best = o;
        }
    }
    return best;
}

static int check_later(const struct muster_ckpt *ck, struct client *client,
                       const struct recent *r, struct error *e)
{
    const struct recent *o = find_later(ck, client, r, WORKER_SNAP_REMOTE);

    return !o ? 0
              : error_text(e, ESTALE, "save %" PRIu64 " was not taken to the "
                           "store: save %" PRIu64 ", a later one, was",
                           r->number, o->number);
}

/* What stayed in memory until then gave it to one that came later, which may be on its
 * way still. */
int ckpt_passed_over(struct muster_ckpt *ck, const struct recent *r,
                     enum muster_ckpt_level level, struct error *e)
{
    struct client *client = ck->m ? client_of(ck->m) : NULL;
    const char *where = level == MUSTER_CKPT_PARTNER ? "partner" : "disk";
    const struct recent *o = client ? find_later(ck, client, r, level + 1) : NULL;

    if (o) {
        return error_text(e, ESTALE, "save %" PRIu64 " was not taken to the %s: save %"
                          PRIu64 ", a later one, was", r->number, where, o->number);
    }
    return error_text(e, ESTALE, "save %" PRIu64 " was not taken to the %s: a later one "
                      "has its place in memory", r->number, where);
}

/* One that the agent has not told of yet may be one that the ranks wrote. */
static int look(const struct muster_ckpt *ck, struct client *client,
                const struct recent *r, struct error *e)
{
    struct worker_snap_status s = {0};
    struct error why = {0};
    int rc = client_snap_status(client, r->uuid, &s, &why);

    if (rc < 0 && rc != -ENOENT) {
        return error_text(e, why.code, "%s", why.text);
    }
    if (s.level == WORKER_SNAP_REMOTE) {
        return 1;
    }
    if (s.error) {
        return error_text(e, (int)(s.error & 0xffff), "it was not taken to the store: "
                          "%s", s.why);
    }
    return check_later(ck, client, r, e);
}

int ckpt_reached_store(struct muster_ckpt *ck, const struct recent *r,
                       int64_t timeout_ms, struct error *e)
{
    struct client *client = ck->m ? client_of(ck->m) : NULL;
    uint64_t now_ms = clock_mono_ms(), end_ms;
    int rc = client ? client_has_store(client, e) : 0;

    end_ms = timeout_ms < 0 ? UINT64_MAX : now_ms + (uint64_t)timeout_ms;
    if (rc == 0) {
        return error_text(e, ENOTSUP, "nothing takes checkpoints to a store: "
                          "checkpoint.store of a job does");
    }
    rc = rc < 0 ? rc : ckpt_reached(ck, r, MUSTER_CKPT_DURABLE, timeout_ms, e);
    if (rc <= 0) {
        return rc;
    }
    while ((rc = look(ck, client, r, e)) == 0 && (now_ms = clock_mono_ms()) < end_ms) {
        struct pollfd p = {.fd = client_fd(client), .events = POLLIN};
        uint64_t left = end_ms - now_ms;

        poll(&p, 1, left > 1000 ? 1000 : (int)left);
    }
    return rc;
}
