/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests for a checkpoint by somebody who waits for it, and what has come of each
 * (muster checkpoint --wait): the lead's, in its status. A save answers all requests of
 * which a worker was told before it began, so that one which was under way when
 * somebody asked answers nothing, whenever it is there. A program that saves by itself
 * says only when it has saved: then it is what its rank had heard of by then that counts.
 * Pure.
 *
 * Nodes tell of a save that it began, and of a checkpoint that it is there, by ways of
 * their own: whichever is first heard of waits here for the other.
 */
#ifndef MUSTER_LAUNCHER_ASKED_H
#define MUSTER_LAUNCHER_ASKED_H

#include "ckpt/step.h"
#include "launcher/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { ASKED_SAVES = 16 }; /* that are remembered */

/* All zero to begin with. */
struct asked {
    struct asked_begun {
        char name[STEP_NAME_BYTES]; /* "": none */
        char id[STATUS_ASKED_ID_BYTES]; /* the newest that it answers */
    } begun[ASKED_SAVES];
    struct asked_there {
        char name[STEP_NAME_BYTES];
        char path[PATH_MAX];
        int64_t step;
    } there[ASKED_SAVES];
    unsigned n_begun, n_there;
};

/* Hexadecimal digits, as many as fit. */
bool asked_id_is_valid(const char *id);

/* NULL: nobody has asked by that id, or so many have since that it is forgotten. */
const struct status_asked *asked_find(const struct run_status *s, const char *id);

/* One more, which the workers of the status's generation are asked. With a `why` they are
 * not. False: it is known already. */
bool asked_add(struct run_status *s, const char *id, uint64_t now_ns, const char *why);

/* The program has heard of that one, and so of all before. */
void asked_hear(struct run_status *s, const char *id);

/* A save has begun since workers were told, by the name of its directory. May be told
 * again. */
void asked_begin(struct asked *a, struct run_status *s, const char *id, int64_t step,
                 const char *name);

/* A checkpoint is there. `id`: the newest that the rank had heard of which tells it, or
 * ""; of a save that was told to have begun it does not matter. */
void asked_save(struct asked *a, struct run_status *s, const char *id, int64_t step,
                const char *path);

/* That save will be none. */
void asked_fail(struct run_status *s, const char *name, const char *why);

#endif
