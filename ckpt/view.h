/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views of what checkpoints have, see muster_ckpt_map(): memory that is mapped from a
 * file of one, from the agent's memory of it, or is a copy. Nobody writes to a file of
 * a checkpoint, and one that is removed is there as long as it is mapped. The agent's
 * memory is written to again by a later save of this rank: before that the views of it
 * become copies, where they are.
 *
 * All that was mapped by way of one connection to an agent is in one list, whatever
 * handles there are: any of them may save. Without an agent it is a handle's own. One
 * thread at a time.
 */
#ifndef MUSTER_CKPT_VIEW_H
#define MUSTER_CKPT_VIEW_H

#include "base/error.h"
#include "ckpt/commit.h"
#include "muster_ckpt.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct views;
struct view_map;

/* 0 or -ENOMEM. */
int views_create(struct views **ret);
/* What is mapped stays, and belongs to nobody. A `struct views`, or NULL. */
void views_forget(void *views);

/* What is mapped of a file. */
struct view_source {
    const char *uuid; /* of its save */
    uint32_t file;    /* its number there */
    enum muster_ckpt_where where;
    int fd;           /* borrowed */
    uint64_t skip;    /* bytes that lie before the file, of which the others count */
    uint64_t bytes;   /* of the file */
};

/* All of a file that is mapped already, to be read; NULL. */
struct view_map *views_find(struct views *l, const struct view_source *s);
/* Maps all of it, to be read; or bytes [begin, end), to be written to as well, which
 * nobody else sees. 0; -ENOMEM and others of mmap(); -ERR_FORMAT: it is shorter. Nothing
 * of it stays without a view. */
int views_map(struct views *l, const struct view_source *s, bool is_writable,
              uint64_t begin, uint64_t end, struct view_map **ret, struct error *e);
/* Memory of its own. 0 or -ENOMEM. */
int views_make(struct views *l, uint64_t bytes, struct view_map **ret, struct error *e);
/* Where byte `at` of the file is. */
char *view_map_at(const struct view_map *m, uint64_t at);
/* A view of bytes [begin, begin + bytes). 0, or -ENOMEM, and the map is gone if that
 * was the first. */
int view_create(struct view_map *m, uint64_t begin, uint64_t bytes,
                struct muster_ckpt_view **ret, struct error *e);
/* Without a view it goes. */
void view_map_drop(struct view_map *m);
void view_destroy(struct muster_ckpt_view *v);

/* That file of an agent's is about to be written to. -ENOMEM: views are as they were,
 * and it may not be. `l` may be NULL. */
int views_leave(struct views *l, dev_t dev, ino_t ino, struct error *e);

#endif
