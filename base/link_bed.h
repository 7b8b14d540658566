/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of links: a listener and a connector on one loop. */
#ifndef MUSTER_BASE_LINK_BED_H
#define MUSTER_BASE_LINK_BED_H

#include "base/link.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

extern const uint8_t world_key[CHANNEL_KEY_BYTES];
extern const uint8_t world_other_key[CHANNEL_KEY_BYTES];

/* What both ends saw. */
struct world {
    uv_loop_t loop;
    struct link_listener *listener;
    struct link *accepted;
    struct link *connector;
    int n_up, n_down, n_peers;
    size_t bytes;
    int last_type;
    char why[256];
    bool close_on_frame;
    int stop_after; /* frames */
    int n_frames;
};

extern const struct link_ops world_ops;

/* Listens, and takes nobody yet: link_listener_open() with world_on_peer(). */
void world_open(struct world *w);
void world_close(struct world *w);
void world_on_peer(struct link *l, const struct channel_frame *first,
                   void *ctx);
/* Until `stop_after` frames have come, or a link is down. */
void world_run(struct world *w);

void world_dial(struct world *w, const uint8_t *with_key, uint16_t port);
void world_dial_local(struct world *w, const uint8_t *with_key,
                      const char *name, uint16_t port);
/* Both ends are there; the first frame was the connector's. */
void world_meet(struct world *w);
/* A connection to the listener that says nothing by itself, or -1. */
int world_stranger(const struct world *w);

#endif
