/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes of what an agent left on its host that was killed, or that left a run
 * which goes on: its files, and the memory of its snapshots. An agent that comes again
 * may use them, so they stay for as long as the run goes on, and go with it. What can
 * be told of a run from one host is its directory, looked at again and again.
 */
#ifndef MUSTER_LAUNCHER_TIDY_H
#define MUSTER_LAUNCHER_TIDY_H

#include "launcher/status.h"

#include <stdbool.h>
#include <stdint.h>

enum tidy_step {
    TIDY_WAIT,
    TIDY_FILES, /* it can be gone on with, or is, where nobody here sees it */
    TIDY_ALL,
};

/* One look at the run's directory. */
struct tidy_look {
    bool is_gone; /* with the run in it */
    bool is_read; /* else the rest is not known */
    bool is_locked;
    enum status_run_state state;
    uint64_t updated_ns; /* of the status, by another host's clock */
};

/* All zero before the first look. */
struct tidy {
    bool was_there;
    uint64_t updated_ns, since_ms; /* for how long that has been the newest */
};

enum tidy_step tidy_decide(struct tidy *t, const struct tidy_look *look,
                           uint64_t now_ms);

#endif
