/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank has two buffers of its agent's (launcher/snap_hold.h). The second one is made
 * after the first save, and handed out with the second, which would have to map it
 * then: that takes about as long as half the copy. A thread of the worker does it
 * before, while the program goes on. So it does with what is left to map of the first one,
 * which the first save may have filled without its mapping (ckpt/fill.h).
 *
 * It finds the file by its name, beside that of the first one: where the worker sees
 * other directories than the agent, nothing is mapped ahead. Until the agent has handed
 * the file out its mapping is not touched, as the agent may cut it.
 */
#ifndef MUSTER_CKPT_SAVE_AHEAD_H
#define MUSTER_CKPT_SAVE_AHEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Mapped once: what is there already need not be faulted in again. */
struct save_map {
    ino_t file;
    char *at;
    size_t len;
    bool is_touched; /* all its pages are there */
};

struct save_ahead;

/* For the buffer beside that of `fd`. NULL: it has none, or there is no memory. */
struct save_ahead *save_ahead_create(int fd);
/* Maps it as soon as its memory is there, for which a thread waits. Meanwhile it touches
 * `first`, whose memory is there, and which stays mapped until the end. */
void save_ahead_start(struct save_ahead *a, const struct save_map *first);
/* Ends that at once. `ret` is the mapping of `file`, perhaps half touched, or has at
 * NULL. NULL is allowed. True: all of `first` was touched. */
bool save_ahead_end(struct save_ahead *a, ino_t file, struct save_map *ret);

#endif
