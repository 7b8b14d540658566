/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots on their way from one agent to another, over links that know the job key
 * (base/link.h). A link carries one snapshot:
 *
 *   sender      OFFER   whose, of which save, how large
 *   receiver    MAKING  memory is being made, every second, as long as it is
 *               READY   there is memory, or REFUSED with the reason
 *   sender      DATA    in order, as many as it takes
 *               END
 *   receiver    DONE    it has all of it, or REFUSED
 *
 * That nothing is changed, left out or put in on the way is the link's affair. What has
 * not come to its end is no copy. An agent sends one at a time, first what it
 * was asked for, which passes a copy of which nothing was sent yet: that is offered anew
 * in its turn. Who makes no progress for a while is given up. Everything runs on the
 * loop's thread.
 *
 * Who needs one asks for it: its first frame is a WANT, and who has that save of that
 * rank, its own or a copy, answers with an OFFER on the same link, or REFUSED.
 */
#ifndef MUSTER_LAUNCHER_SNAP_COPY_H
#define MUSTER_LAUNCHER_SNAP_COPY_H

#include "base/link.h"
#include "launcher/snap_hold.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    SNAP_COPY_OFFER = 80, /* no type of the tree's or of the stores' */
    SNAP_COPY_READY = 81,
    SNAP_COPY_DATA = 82,
    SNAP_COPY_END = 83,
    SNAP_COPY_DONE = 84,
    SNAP_COPY_REFUSED = 85,
    SNAP_COPY_WANT = 86,
    SNAP_COPY_MAKING = 87,
};

struct snap_copy;

struct snap_copy_config {
    uv_loop_t *loop;
    const uint8_t *key;      /* copied */
    struct snap_hold *own;   /* sent from; borrowed */
    uint32_t agent;          /* this one, for those who get copies */
    unsigned stuck_ms;       /* without progress */
    bool hides;              /* nobody can read on the way what this one sends */

    /* What became of snap_copy_send(): it is there, or (`e->code`) it is not. */
    void (*on_sent)(void *arg, uint32_t rank, const char *uuid, uint32_t to,
                    const struct error *e);
    /* There is a copy of that agent's in `copies`, whole. */
    void (*on_got)(void *arg, const struct snap_head *head, uint32_t from);
    /* What was asked for begins to come: there is memory, in which it can be seen how far it
     * is (snap_hold_coming()). NULL: nobody looks. */
    void (*on_coming)(void *arg, const struct snap_head *head);
    /* What became of snap_copy_fetch(): it is in `copies`, whole, or (`e->code`) it
     * is not. */
    void (*on_fetched)(void *arg, uint32_t rank, const char *uuid,
                       const struct error *e);
    /* Somebody asks for one that is not here. True: it is made, and snap_copy_made()
     * comes. NULL: none is. */
    bool (*make)(void *arg, uint32_t rank, const char *uuid);
    void *arg;
};

int snap_copy_create(const struct snap_copy_config *config,
                     struct snap_copy **ret, struct error *e);
/* Half copies come to nothing. NULL is allowed. */
void snap_copy_destroy(struct snap_copy *c);
/* Where copies of others are put: borrowed, and created with snap_copy_begun() as
 * on_begun. NULL, as at first: they are refused. */
void snap_copy_hold(struct snap_copy *c, struct snap_hold *copies);
void snap_copy_begun(struct snap_copy *c, uint64_t question, const struct snap *s,
                     const struct error *e);

/* Sends that save of a rank, when those before it are done; `to` is who gets it, for
 * on_sent(), which never comes from inside this call. The save is pinned until then.
 * -ENOENT, -ENOMEM. */
int snap_copy_send(struct snap_copy *c, uint32_t rank, const char *uuid,
                   uint32_t to, char *const *addrs, uint16_t port,
                   struct error *e);

/* Has that save of a rank sent here by the agent at `addrs`. on_fetched() never comes
 * from inside this call. -ENOTSUP: copies are put nowhere. */
int snap_copy_fetch(struct snap_copy *c, uint32_t rank, const char *uuid,
                    char *const *addrs, uint16_t port, struct error *e);
/* Nobody waits for those any more: on_fetched() does not come. */
void snap_copy_fetch_forget(struct snap_copy *c);

/* That one is there by now, or will not be: who has waited for it gets it, or hears
 * that. */
void snap_copy_made(struct snap_copy *c, uint32_t rank, const char *uuid);

/* Takes over a link whose first frame is an OFFER or a WANT. */
void snap_copy_take(struct snap_copy *c, struct link *l,
                    const struct channel_frame *first);

#endif
