/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a checkpoint again from the disk, behind the back of everybody: whether it is what
 * was saved. It takes only what nobody else wants of processor and disk, waits while a save
 * is on its way there, and leaves nothing in the page cache, which workers have better use
 * for.
 */
#ifndef MUSTER_LAUNCHER_SNAP_REREAD_H
#define MUSTER_LAUNCHER_SNAP_REREAD_H

#include "base/error.h"

#include <pthread.h>
#include <stdbool.h>

/* In all, for others; then it reads on beside them: saves may follow one another without
 * an end, and older checkpoints stay until one was read. */
enum { REREAD_WAIT_MS = 60000 };

/* What the reader is told from another thread. */
struct reread_gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_held, is_over;
    bool is_reading, is_left; /* who may be held */
};

void reread_gate_init(struct reread_gate *g);
void reread_gate_destroy(struct reread_gate *g);
/* Somebody else wants the disk, or no longer does. */
void reread_gate_hold(struct reread_gate *g, bool is_held);
/* What may be being read has been removed: it has its room as long as it is open. Who reads,
 * and is not urgent, ends (-ECANCELED); has ended when this returns, or a second later. */
void reread_gate_leave(struct reread_gate *g);
/* It is to end, for good. */
void reread_gate_end(struct reread_gate *g);

/* Whether the checkpoint is right, to the last byte: 0, -ERR_FORMAT or why nobody can
 * tell; -ECANCELED soon after reread_gate_end(). By a thread of its own, for which the
 * caller's waits. With `is_urgent` others wait for what is read, and it gives way to none. */
int snap_reread(const char *root, const char *name, struct reread_gate *g, bool is_urgent,
                struct error *e);

#endif
