/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of links share. Private to link*.c.
 *
 *   link.c          a link that is up: frames, failure, the end
 *   link_bulk.c     what lies open on its way
 *   link_connect.c  one being made, to the first address that answers
 *   link_listen.c   those that come: strangers until they show the key
 *   link_local.c    the way between processes of one user on one host
 */
#ifndef MUSTER_BASE_LINK_PRIV_H
#define MUSTER_BASE_LINK_PRIV_H

#include "base/link.h"
#include "base/str.h"

enum { LINK_MAX_TRYING = 8 }; /* addresses of one peer */

/* One connection of a link: while connecting there are several. */
struct conn {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t local; /* a Unix socket */
    };
    bool is_local;
    int wake_bytes; /* so many have to come before it is read from; 0 is 1 as well */
    uv_connect_t request;
    struct link *link; /* NULL once nobody wants it */
};

struct link {
    uv_loop_t *loop;
    const struct link_ops *ops;
    void *ctx;
    struct link_listener *listener; /* whose stranger it is, or NULL */
    struct link *older, *newer;     /* strangers of the same listener */
    struct channel *channel;
    struct conn *conn;     /* the connection that won */
    struct conn *trying[LINK_MAX_TRYING];
    uv_timer_t *timer;     /* stagger and deadlines, later the linger */
    struct strlist addrs;  /* while connecting */
    size_t next_addr;
    uint16_t port;
    uint64_t deadline_ms;
    uint64_t heard_ms;
    char peer[ADDR_MAX];
    bool met;      /* the peer has shown that it knows the key */
    bool down;     /* failed; waits for its owner to close it */
    bool closing;  /* the owner is done with it */
    bool in_frames; /* inside the frame loop: free later */
    bool tell_drained;
    bool held; /* not read from */
    struct error error;
};

struct link_listener {
    uv_loop_t *loop;
    uv_tcp_t tcp;
    uv_pipe_t local;
    bool has_local;
    uv_timer_t turn; /* fires at the beginning of the next turn of the loop */
    uint8_t *key;    /* NULL before link_listener_open() */
    bool open;
    bool pending; /* a connection waits: to be taken later */
    bool local_pending;
    bool closing;
    unsigned n_handles; /* not closed yet; freed with the last, and when no
                           stranger refers to it */
    unsigned n_taken;   /* in this turn */
    unsigned n_strangers;
    struct link *oldest, *newest; /* of the strangers */
    void (*on_peer)(struct link *l, const struct channel_frame *first,
                    void *ctx);
    void *ctx;
    uint16_t port;
};

/* --- link.c --- */

struct link *link_create(uv_loop_t *loop, const uint8_t *key, bool initiator,
                         struct error *e);
void link_free(struct link *l);
/* It fails by itself, as l->error says: tells the owner, or frees a stranger. */
void link_fail(struct link *l, bool closed);

/* The same from the loop, for who is inside a call of the owner's. */
void link_fail_soon(struct link *l);
/* 0 where a frame of so many bytes may be queued. */
int link_check_room(struct link *l, size_t len);
/* Gives what the channel has for the peer to the kernel. Never calls back: a
 * failure is told from the loop. */
void link_flush(struct link *l);

/* NULL without memory. */
struct conn *link_make_conn(uv_loop_t *loop, bool is_local, struct link *l);
void link_close_conn(struct conn *c);
/* The connection is there: the link has no other. */
void link_use_conn(struct link *l, struct conn *c);

/* --- link_bulk.c --- */

/* While an open frame comes, of which no part is of any use, it is read from where much of
 * it has come, or all. To be woken for each packet takes longer than to read it, most of
 * all on a virtual machine. After each read. */
void link_await_bulk(struct conn *c);

/* --- link_connect.c --- */

void link_close_trying(struct link *l);

/* --- link_listen.c --- */

/* The first frame of a stranger: it is one no more. */
void link_introduce(struct link *l, const struct channel_frame *f);
/* Nothing for a link that is none. */
void link_stranger_gone(struct link *l);

/* --- link_local.c --- */

/* Where somebody listens on this host, who listens to TCP at `port` as well. */
struct link_local {
    const uint8_t *key;
    const char *name;
    uint16_t port;
};

/* Descriptors of Unix sockets, or negative codes; the one that connect() returns is
 * connected to a process of this user. */
int link_local_listen(const struct link_local *at);
int link_local_connect(const struct link_local *at);
bool link_local_is_own(int fd);

#endif
