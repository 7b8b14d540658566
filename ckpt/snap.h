/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot: what one rank saves, in a file of shared memory that its node's agent
 * owns, so that it outlives the worker, and the agent.
 *
 *   0       two control records of 2048 bytes, see below; the last 8 bytes are whoever's
 *           fills it: how many blocks from the front are whole
 *   4096    the image: the safetensors file to be
 *   then    the part (ckpt/part.h), from the next multiple of 4096 on
 *
 * The record with the higher serial of those that are true is the one that counts,
 * and the other one is written next: whoever is killed while it writes leaves the
 * one before. Only the agent writes these; a worker that scribbles over them spoils
 * its own snapshot, which is none then.
 */
#ifndef MUSTER_CKPT_SNAP_H
#define MUSTER_CKPT_SNAP_H

#include "base/cleanup.h"
#include "base/error.h"
#include "base/mapguard.h"
#include "ckpt/commit.h"
#include "ckpt/digest.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SNAP_PAGE_BYTES = 4096,
    SNAP_RECORD_BYTES = 2048,
    SNAP_ROOT_BYTES = 1024,
    SNAP_STALL_MS = 30000,
};

enum snap_state {
    SNAP_EMPTY = 0,
    SNAP_FILLING = 1, /* a worker copies into it */
    SNAP_FULL = 2,    /* it is safe from the worker's death */
    SNAP_WRITTEN = 3, /* and on the disk, with its digest here */
    SNAP_KEPT = 4,    /* and part of a checkpoint */
};

struct snap_head {
    uint32_t state; /* enum snap_state */
    uint32_t rank, n_ranks;
    uint32_t generation; /* of the workers that save */
    uint64_t token;      /* see struct commit; of one rank's saves, also how many it had */
    uint64_t step;
    uint64_t image_bytes, part_bytes;
    struct digest digest; /* digest_of_blocks(), from SNAP_WRITTEN on */
    char uuid[COMMIT_UUID_BYTES];
    char root[SNAP_ROOT_BYTES]; /* the directory of the checkpoints */
};

/* What says which of two saves is the later one. */
struct snap_age {
    uint32_t generation;
    uint64_t step, token;
};

/* Steps go down where workers have started from an older checkpoint; and one may be saved
 * again. */
static inline bool snap_is_later(struct snap_age a, struct snap_age than)
{
    return a.generation != than.generation ? a.generation > than.generation
           : a.step != than.step           ? a.step > than.step : a.token > than.token;
}

/* --- the page --- */

/* Finds the record that counts. 0, or -ERR_FORMAT: neither is true. */
int snap_decode(const void *page, struct snap_head *ret, struct error *e);
/* Writes the other one. */
void snap_encode(void *page, const struct snap_head *h);

/* --- the file --- */

struct snap {
    int fd;
    char *map;     /* all of it */
    struct mapguard *guard;
    uint64_t room; /* bytes behind the page */
    bool is_bare;  /* of which not all memory may be there: who fills it takes it
                      (ckpt/fill.h) */
    struct snap_head head; /* our own: what others may scribble over is not asked */
};

/* Bytes that an image and its part take. */
uint64_t snap_room(uint64_t image_bytes, uint64_t part_bytes);

struct snap_want {
    uint64_t room;      /* bytes behind the page */
    unsigned n_threads; /* that the kernel's zeroing is shared by; 0: one */
    bool is_bare;       /* only the page: whoever fills it takes the rest */
    const _Atomic bool *cancel; /* once it is set, it ends soon. NULL: never */
};

/* Makes a file, or makes one that is there as large; its memory is there when this
 * returns, which takes its time, unless it is bare. It is empty. -ENOSPC: there is not so
 * much shared memory; -ECANCELED; no file is left then. `dir` is open. */
int snap_create(int dir, const char *name, const struct snap_want *want,
                struct snap **ret, struct error *e);
/* One that is there. -ENOENT; -ERR_FORMAT: it is none, or holds less than it
 * says. */
int snap_open(int dir, const char *name, struct snap **ret, struct error *e);
void snap_destroy(struct snap *s);
/* Gives its memory back, whoever has mapped it: nobody may touch that any more. */
void snap_cut(struct snap *s);
DEFINE_CLEANUP(snap);

/* Anybody who can open the file may cut it, or take memory that it needs. Then it reads
 * as zeros where mapguard_install() was called, else with a SIGBUS; who has read it
 * asks before it believes that. -EIO: it is of no use any more. */
int snap_check(const struct snap *s, struct error *e);

/* Of its memory, the page among it. Less than its length: it is bare. */
uint64_t snap_bytes_there(const struct snap *s);

/* Writes s->head down. */
void snap_note(struct snap *s);

/* For workers: the same memory, only to be read. A descriptor, or -errno. */
int snap_for_reading(const struct snap *s);

/* Whoever fills it counts here, in blocks of DIGEST_BLOCK_BYTES of the image: each is
 * there, also for other processes, when it counts. SNAP_NO_MORE: nobody goes on. */
#define SNAP_NO_MORE UINT64_MAX
static inline _Atomic uint64_t *snap_filled(void *page)
{
    return (_Atomic uint64_t *)((char *)page + SNAP_PAGE_BYTES) - 1;
}
/* As far as anybody can tell: it is another program's word. */
uint64_t snap_n_filled(const struct snap *s);
/* Waits until the first `n` are there, by its page. False: they do not come, or nothing has
 * for SNAP_STALL_MS. */
bool snap_await(const void *page, uint64_t n);

const void *snap_image(const struct snap *s);
const void *snap_part(const struct snap *s);

/* Whether a file that was found holds what it held. Reads all of it. */
int snap_verify(const struct snap *s, struct error *e);

#endif
