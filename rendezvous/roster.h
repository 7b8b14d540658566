/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is, or has been, in the run: places are never given twice, and grow with
 * those who come.
 */
#ifndef MUSTER_RENDEZVOUS_ROSTER_H
#define MUSTER_RENDEZVOUS_ROSTER_H

#include "base/buf.h"
#include "base/error.h"
#include "rendezvous/layout.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ROSTER_MAX_NODES 65536
#define ROSTER_MAX_ADDRS 8
#define ROSTER_HOST_BYTES 256
#define ROSTER_ADDR_BYTES 64
#define ROSTER_ID_BYTES 40 /* a boot id: 36 characters */
#define ROSTER_VERSION_BYTES 64

struct roster_entry {
    uint32_t rank;        /* of the agent: its place in the roster */
    uint32_t origin;      /* where it was before roster_sort(): its MPI rank */
    uint32_t host_index;  /* which agent of its host it is, from 0 */
    uint32_t slots;       /* CPU slots it owns, at least 1 */
    uint16_t port;        /* of its listener, the same on all addresses */
    uint16_t n_addrs;
    char addrs[ROSTER_MAX_ADDRS][ROSTER_ADDR_BYTES]; /* numeric, best first */
    char host[ROSTER_HOST_BYTES];
    char boot_id[ROSTER_ID_BYTES];
    char version[ROSTER_VERSION_BYTES]; /* of muster */
};

struct roster {
    uint32_t n;
    struct roster_entry *entries; /* owned */
};

void roster_release(struct roster *r);
#define _roster_ __attribute__((cleanup(roster_release)))

/* Appends a copy of `entry`, with rank and origin set to its place. 0, -ENOMEM,
 * or -E2BIG past ROSTER_MAX_NODES. */
int roster_add(struct roster *r, const struct roster_entry *entry);

/* One entry (what an agent tells about itself before there is a roster), and
 * all. Decoding: 0, -ERR_FORMAT, -ERR_VERSION, -ENOMEM; `ret` only written on
 * success. */
void roster_entry_encode(const struct roster_entry *entry, struct buf *b);
int roster_entry_decode(const void *data, size_t len, struct roster_entry *ret,
                        struct error *e);
void roster_encode(const struct roster *r, struct buf *b);
int roster_decode(const void *data, size_t len, struct roster *ret,
                  struct error *e);

/* Brings the agents of a host together: hosts in order of first appearance,
 * agents of a host by host_index; then ranks are the places, and origin is the
 * place before. 0, or -ENOMEM with nothing changed. */
int roster_sort(struct roster *r);

/* For a world that some members of a run come to again: `ranks[i]` is the place
 * that entry i has had, or ROSTER_NO_RANK for a newcomer, and `n_known` how many
 * places there have been. Those keep theirs, newcomers follow in their order, and
 * the entries of who does not come are empty. -EINVAL where two have had the same
 * place, or one beyond all. */
#define ROSTER_NO_RANK UINT32_MAX
int roster_arrange(struct roster *r, const uint32_t *ranks, uint32_t n_known,
                   struct error *e);

/* A later world of the run, as arranged above: agents get new MPI ranks, or
 * ROSTER_NO_RANK if they are not in it; newcomers follow, and of those that were not
 * in the worlds before it is known now where they are. *ret_is_news: there are such.
 * 0, -ENOMEM, -E2BIG. */
int roster_renew(struct roster *r, const struct roster *fresh, bool *ret_is_news);

/* Such an empty one. */
static inline bool roster_is_absent(const struct roster_entry *entry)
{
    return entry->port == 0 && entry->host[0] == '\0';
}

/* 0, or -EEXIST (two entries are the same agent), -ERR_VERSION (versions
 * differ: the text names hosts of both), -EINVAL (no address, port, name or
 * slots), -ENOMEM. */
int roster_check(const struct roster *r, struct error *e);

#endif
