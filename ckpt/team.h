/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that are threads of a test. They run at once, or, so that calls to a
 * filesystem come in one order, in turns: one after the other from one meeting to
 * the next.
 */
#ifndef MUSTER_CKPT_TEAM_H
#define MUSTER_CKPT_TEAM_H

#include "muster_ckpt.h"

#include <stdbool.h>
#include <stdint.h>

enum { TEAM_MAX = 20 };

/* Runs `body` as ranks 0 .. world-1, each with its group, and waits for all of them.
 * A body that returns leaves the others alone: from then on they cannot meet
 * (-ECONNABORTED). */
void team_run(int world, bool in_turns,
              void (*body)(void *arg, const struct muster_ckpt_group *group),
              void *arg);

#endif
