/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/companion_link.h"

#include "base/build.h"
#include "base/cleanup.h"
#include "base/key.h"
#include "base/seqsock.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PEERS = 8 }; /* that have connected and not been replaced yet */

/* A descriptor that the loop polls. Freed when libuv has let go of it. */
struct peer {
    uv_poll_t poll;
    struct companion_link *link; /* NULL once closed */
    int fd;
    uint64_t epoch; /* 0 before its hello */
    uint64_t number; /* the later, the higher */
    bool has_world; /* it has told of its MPI world */
};

struct companion_link {
    struct companion_link_ops ops;
    void *ctx;
    struct buf info; /* this agent's roster entry, encoded */
    struct companion_place place; /* in the run */
    char path[108];
    struct peer *listener;
    struct peer *peers[MAX_PEERS];
    uint64_t n_peers; /* that ever connected */
    struct peer *current; /* of the newest epoch */
    bool had_one; /* there was one, at some time */
    uv_loop_t *loop;
};

static void free_peer(uv_handle_t *h)
{
    struct peer *p = h->data;

    close_fd(&p->fd);
    free(p);
}

static struct peer *peer_create(struct companion_link *l, int fd,
                                uv_poll_cb on_readable)
{
    struct peer *p = calloc(1, sizeof(*p));

    if (!p || uv_poll_init(l->loop, &p->poll, fd) < 0) {
        free(p);
        return NULL;
    }
    p->poll.data = p;
    p->link = l;
    p->fd = fd;
    uv_poll_start(&p->poll, UV_READABLE | UV_DISCONNECT, on_readable);
    return p;
}

static void peer_close(struct peer *p)
{
    struct companion_link *l = p->link;

    for (size_t i = 0; i < MAX_PEERS; i++) {
        if (l->peers[i] == p) {
            l->peers[i] = NULL;
        }
    }
    if (l->current == p) {
        l->current = NULL;
    }
    p->link = NULL;
    uv_poll_stop(&p->poll);
    uv_close((uv_handle_t *)&p->poll, free_peer);
}

static int send_outcome(struct peer *p, enum companion_type type,
                        const struct companion_outcome *o)
{
    _buf_ struct buf b = {0};

    companion_outcome_encode(o, &b);
    return seqsock_send(p->fd, (uint16_t)type, &b, NULL, 0);
}

static void refuse(struct peer *p, const char *why)
{
    struct companion_outcome o = {0};

    str_copy(o.text, sizeof(o.text), why);
    send_outcome(p, COMPANION_REFUSED, &o);
    peer_close(p);
}

static void refuse_version(struct peer *p, const struct companion_hello *h)
{
    char why[COMPANION_TEXT_BYTES];

    snprintf(why, sizeof(why), "this agent is of muster %s (companions of "
             "version %d), and muster-mpi of muster %s (version %u): install "
             "both from one build, and none while a run is under way",
             build_name(), COMPANION_VERSION,
             h->muster_version[0] ? h->muster_version : "of another age",
             h->version);
    refuse(p, why);
}

/* Of another build than this agent: nobody else will come to one that was started
 * for it. */
static void refuse_build(struct peer *p, const struct companion_hello *h)
{
    struct companion_link *l = p->link;

    refuse_version(p, h);
    if (!l->had_one) {
        l->ops.on_lost(l->ctx, h->epoch);
    }
}

static void take_hello(struct peer *p, const struct seqsock_msg *m)
{
    struct companion_link *l = p->link;
    struct companion_hello h;
    const char *why_not;
    _buf_ struct buf b = {0};

    if (companion_hello_decode(&m->data, &h) < 0) {
        h = (struct companion_hello){0};
    }
    if (h.version != COMPANION_VERSION ||
        strcmp(h.muster_version, build_name()) != 0) {
        refuse_build(p, &h);
        return;
    }
    if (l->current && l->current->epoch >= h.epoch) {
        refuse(p, "this agent serves a newer MPI world");
        return;
    }
    why_not = l->ops.may_come(l->ctx, seqsock_peer(p->fd), &h);
    if (why_not) {
        refuse(p, why_not);
        return;
    }
    p->epoch = h.epoch;
    if (l->current) {
        peer_close(l->current);
    }
    l->current = p;
    l->had_one = true;
    companion_info_encode(&l->place, &l->info, &b);
    if (seqsock_send(p->fd, COMPANION_INFO, &b, NULL, 0) < 0) {
        peer_close(p);
    }
}

static void take_world(struct peer *p, const struct seqsock_msg *m)
{
    struct companion_link *l = p->link;
    uint64_t epoch = p->epoch;
    struct companion_world w;
    _roster_ struct roster roster = {0};
    _buf_ struct buf bytes = {0};

    if (companion_world_decode(&m->data, &w) < 0 ||
        seqsock_blob_read(m->fds[0], COMPANION_ROSTER_MAX, &bytes, NULL) <
            0 ||
        roster_decode(bytes.data, bytes.len, &roster, NULL) < 0 ||
        w.epoch != p->epoch) {
        refuse(p, "the world that was sent does not parse");
        l->ops.on_lost(l->ctx, epoch);
        return;
    }
    explicit_bzero(m->data.data, m->data.len); /* the key was in it */
    p->has_world = true;
    l->ops.on_world(l->ctx, &w, &roster);
    explicit_bzero(&w, sizeof(w));
    secret_forget();
}

static void take_message(struct peer *p, const struct seqsock_msg *m)
{
    struct companion_link *l = p->link;
    struct companion_outcome o;

    if (m->type == COMPANION_HELLO) {
        take_hello(p, m);
    } else if (p != l->current) {
        peer_close(p);
    } else if (m->type == COMPANION_WORLD) {
        take_world(p, m);
    } else if (m->type == COMPANION_TERM) {
        l->ops.on_term(l->ctx);
    } else if (m->type == COMPANION_NOTICE) {
        l->ops.on_notice(l->ctx);
    } else if (m->type == COMPANION_ATTACHED &&
               companion_outcome_decode(&m->data, &o) == 0) {
        l->ops.on_attached(l->ctx, &o);
    }
}

static void on_peer_readable(uv_poll_t *poll, int status, int events)
{
    struct peer *p = poll->data;
    struct companion_link *l = p->link;
    _seqsock_msg_ struct seqsock_msg m;
    bool was_current = p == l->current;
    uint64_t epoch = p->epoch;
    int rc;

    (void)events;
    seqsock_msg_init(&m);
    rc = status < 0 ? status : seqsock_recv(p->fd, &m);
    if (rc == -EAGAIN) {
        return;
    }
    if (rc == 1) {
        take_message(p, &m);
        return;
    }
    peer_close(p);
    if (was_current) {
        l->ops.on_lost(l->ctx, epoch);
    }
}

/* Where there is none left, that of whoever has been silent for longest: a crowd
 * must not keep muster-mpi out. */
static struct peer **free_place(struct companion_link *l)
{
    struct peer **oldest = NULL;

    for (size_t i = 0; i < MAX_PEERS; i++) {
        struct peer **p = &l->peers[i];

        if (!*p) {
            return p;
        }
        if (*p != l->current && (!oldest || (*p)->number < (*oldest)->number)) {
            oldest = p;
        }
    }
    peer_close(*oldest);
    return oldest;
}

static void on_listener_readable(uv_poll_t *poll, int status, int events)
{
    const struct peer *listener = poll->data;
    struct companion_link *l = listener->link;
    int fd = seqsock_accept(listener->fd, NULL);
    struct peer **place;

    (void)status;
    (void)events;
    if (fd < 0) {
        return;
    }
    place = free_place(l);
    *place = peer_create(l, fd, on_peer_readable);
    if (*place) {
        (*place)->number = ++l->n_peers;
    } else {
        close(fd);
    }
}

int companion_link_create(uv_loop_t *loop, const char *path,
                          const struct buf *info,
                          const struct companion_link_ops *ops, void *ctx,
                          struct companion_link **ret, struct error *e)
{
    struct companion_link *l;
    int fd = seqsock_listen(path, e);

    if (fd < 0) {
        return fd;
    }
    l = calloc(1, sizeof(*l));
    if (!l) {
        close(fd);
        return error_set(e, ENOMEM, "companion socket");
    }
    l->ops = *ops;
    l->ctx = ctx;
    l->loop = loop;
    l->place.rank = ROSTER_NO_RANK;
    str_copy(l->path, sizeof(l->path), path);
    buf_append(&l->info, info->data, info->len);
    l->listener = peer_create(l, fd, on_listener_readable);
    if (!l->listener || l->info.failed) {
        close(fd);
        buf_release(&l->info);
        free(l);
        return error_set(e, ENOMEM, "companion socket");
    }
    *ret = l;
    return 0;
}

void companion_link_keep_open(struct companion_link *l)
{
    if (l->current && fcntl(l->current->fd, F_DUPFD_CLOEXEC, 0) < 0) {
        /* then the companion does not wait for all of it */
    }
}

void companion_link_destroy(struct companion_link *l)
{
    if (!l) {
        return;
    }
    unlink(l->path);
    peer_close(l->listener);
    for (size_t i = 0; i < MAX_PEERS; i++) {
        if (l->peers[i]) {
            peer_close(l->peers[i]);
        }
    }
    buf_release(&l->info);
    free(l);
}

void companion_link_set_place(struct companion_link *l, uint32_t rank,
                              uint32_t n_known)
{
    l->place = (struct companion_place){.rank = rank, .n_known = n_known};
}

bool companion_link_is_up(const struct companion_link *l)
{
    return l->current;
}

int companion_link_attach(struct companion_link *l,
                          const struct companion_attach *a, int segment_fd,
                          int event_fd)
{
    int fds[2] = {segment_fd, event_fd};
    _buf_ struct buf b = {0};

    if (!l->current || !l->current->has_world) {
        return -EPIPE;
    }
    companion_attach_encode(a, &b);
    return seqsock_send(l->current->fd, COMPANION_ATTACH, &b, fds, 2);
}

void companion_link_detach(struct companion_link *l, uint32_t tag)
{
    struct companion_outcome o = {.tag = tag};

    if (l->current) {
        send_outcome(l->current, COMPANION_DETACH, &o);
    }
}

void companion_link_verdict(struct companion_link *l, uint8_t status,
                            const char *reason)
{
    struct companion_outcome o = {.status = status};

    str_copy(o.text, sizeof(o.text), reason);
    if (l->current) {
        send_outcome(l->current, COMPANION_VERDICT, &o);
    }
}
