/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/copy_bed.h"

#include "tests/lib/tap.h"

#include <stdio.h>
#include <string.h>

enum { PATIENT_MS = 300000 };

static void on_peer(struct link *l, const struct channel_frame *first, void *ctx)
{
    struct copy_bed *b = ctx;

    /* Who has is asked by who has not. */
    snap_copy_take(first->type == SNAP_COPY_WANT ? b->from : b->to, l, first);
}

static struct snap_hold *make_copies(struct copy_bed *b, uint64_t budget)
{
    struct snap_said unused;
    struct snap_hold_config config = snap_bed_config(&b->loop, b->dir[1], &unused);

    copy_said_hold(&config, &b->copied);
    config.budget = budget;
    config.is_elsewhere = true;
    return snap_bed_hold(&config);
}

static struct snap_hold *make_own(struct copy_bed *b)
{
    struct snap_hold_config config = snap_bed_config(&b->loop, b->dir[0], &b->said);

    config.is_elsewhere = true; /* the disk is for other tests */
    return snap_bed_hold(&config);
}

void copy_bed_open(struct copy_bed *b, uint64_t budget)
{
    struct snap_copy_config config = copy_said_config(&b->loop, PATIENT_MS, &b->copied);
    struct error e;

    memset(b, 0, sizeof(*b));
    snap_bed_open("copy_bed", &b->loop, b->top);
    for (int i = 0; i < 2; i++) {
        snprintf(b->dir[i], sizeof(b->dir[i]), "%s/%d", b->top, i);
    }
    b->own = make_own(b);
    b->copies = make_copies(b, budget);
    config.agent = 7;
    config.own = b->own;
    if (snap_copy_create(&config, &b->from, &e) < 0 ||
        snap_copy_create(&config, &b->to, &e) < 0 ||
        link_listen(&b->loop, true, &b->listener, &e) < 0) {
        bail_out("%s", e.text);
    }
    b->copied.to = b->to;
    snap_copy_hold(b->to, b->copies);
    link_listener_open(b->listener, copy_said_key, on_peer, b);
}

void copy_bed_close(struct copy_bed *b)
{
    snap_copy_destroy(b->from);
    snap_copy_destroy(b->to);
    link_listener_close(b->listener);
    snap_hold_destroy(b->own);
    snap_hold_destroy(b->copies);
    snap_bed_close(&b->loop, b->top);
}

void copy_bed_give_up_after(struct copy_bed *b, unsigned stuck_ms)
{
    b->from->config.stuck_ms = b->to->config.stuck_ms = stuck_ms;
}

void copy_bed_hide(struct copy_bed *b, bool hides)
{
    b->from->config.hides = b->to->config.hides = hides;
}

bool copy_bed_run_until(struct copy_bed *b, const int *count, int n)
{
    return snap_bed_run_until(&b->loop, count, n);
}

/* --- what is said and done --- */

void copy_bed_save(struct copy_bed *b, uint32_t rank, const char *uuid,
                   uint64_t step, uint64_t bytes, int fill)
{
    struct error e;

    snap_bed_begin(&b->loop, b->own, &b->said, rank, uuid, step, b->top, bytes);
    for (uint64_t i = 0; i < bytes; i++) {
        ((char *)snap_image(b->said.snap))[i] = (char)(fill + i * 7 / 5);
    }
    if (snap_hold_done(b->own, rank, uuid, bytes - SNAP_PAGE_BYTES, 100, &e) < 0) {
        bail_out("%s", e.text);
    }
}

int copy_bed_send(struct copy_bed *b, uint32_t rank, const char *uuid)
{
    return snap_copy_send(b->from, rank, uuid, 1, copy_said_addrs,
                          link_listener_port(b->listener), NULL);
}

void copy_bed_send_half(struct copy_bed *b)
{
    copy_bed_save(b, 0, UUID(1), 10, COPY_LONG_ROOM, 1);
    copy_bed_send(b, 0, UUID(1));
    while (!b->to->ins || b->to->ins->at == 0) {
        uv_run(&b->loop, UV_RUN_ONCE);
    }
}

int copy_bed_fetch(struct copy_bed *b, uint32_t rank, const char *uuid)
{
    return snap_copy_fetch(b->to, rank, uuid, copy_said_addrs,
                           link_listener_port(b->listener), NULL);
}

bool copy_bed_is_same(struct copy_bed *b, uint32_t rank, const char *uuid)
{
    const struct snap *a = snap_hold_get(b->own, rank, uuid);
    const struct snap *c = snap_hold_get(b->copies, rank, uuid);

    return a && c && a->head.image_bytes == c->head.image_bytes &&
           a->head.part_bytes == c->head.part_bytes &&
           memcmp(snap_image(a), snap_image(c), a->head.image_bytes) == 0 &&
           memcmp(snap_part(a), snap_part(c), a->head.part_bytes) == 0;
}
