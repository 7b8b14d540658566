/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arbiter between two sides of a run that cannot hear each other: files
 * views/<start>.<view> in the run directory, each made once and never changed; each
 * start of the run counts its views anew. Who makes one leads it; whoever comes
 * later reads who did.
 *
 * A file appears whole or not at all: it is written under another name and linked
 * to its own. What link() answers is not believed, as NFS may repeat a request
 * that went through and report its own work as EEXIST: what stands there then,
 * read back, tells: it is this claim if it says the same, for no two agents have
 * the same rank. So a claim may also be made again where it is not known how it
 * went.
 *
 * All of this blocks, for ever where the filesystem hangs: launcher/arbiter.h
 * asks from a thread.
 */
#ifndef MUSTER_LAUNCHER_VIEW_FILE_H
#define MUSTER_LAUNCHER_VIEW_FILE_H

#include "base/buf.h"
#include "base/error.h"
#include "rendezvous/view.h"

#include <stdint.h>

/* Which start of which run, and where. */
struct view_place {
    const char *run_dir;
    const char *run_id;
    uint32_t start; /* from 1 */
    const uint8_t *nonce; /* of RUNDIR_NONCE_BYTES, by which the directory is known
                             where a view is claimed; NULL: any will do */
};

void view_file_encode(const struct view *v, const struct view_place *at,
                      struct buf *b);
/* Of that view. 0, -ERR_FORMAT, -ERR_VERSION, -ENOMEM; `ret` is only written on
 * success. */
int view_file_decode(const char *text, size_t len, const struct view_place *at,
                     uint32_t number, struct view *ret, struct error *e);

/* Makes it, where the directory is the one with the nonce: a host that came later may
 * have another by its name, in which nobody else is seen to claim anything. 1: it is
 * this one; 0: another one was there, in *ret. Else a negative code, and nobody knows:
 * the same claim may be made again. */
int view_file_claim(const struct view_place *at, const struct view *v,
                    struct view *ret, struct error *e);

/* -ENOENT where there is none (yet). */
int view_file_read(const struct view_place *at, uint32_t number,
                   struct view *ret, struct error *e);

#endif
