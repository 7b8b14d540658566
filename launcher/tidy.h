/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes of what an agent left on its host that was killed, or that left a run
 * which goes on. Its files go at once, or with the last agent there. The memory of its
 * snapshots may be used by an agent that comes again, so it stays for as long as the run
 * goes on, and goes with it.
 * What can be told of a run from one host is its directory, looked at again and again.
 *
 * Nothing is waited for without an end but a run that says that it goes on: where
 * nothing is heard of it memory is left to muster gc.
 */
#ifndef MUSTER_LAUNCHER_TIDY_H
#define MUSTER_LAUNCHER_TIDY_H

#include "base/error.h"
#include "launcher/status.h"

#include <stdbool.h>
#include <stdint.h>

enum tidy_step {
    TIDY_WAIT,
    TIDY_LEAVE, /* it can be gone on with, or is, where nobody here sees it */
    TIDY_TAKE,  /* its memory */
};

/* One look at the run's directory. */
struct tidy_look {
    bool is_gone; /* it is not there, or that of another run */
    bool is_read; /* else what follows is not known */
    enum status_run_state state;
    uint64_t updated_ns; /* of the status, by another host's clock */
};

struct tidy {
    uint64_t silent_ms; /* a run without a word for longer is not heard of any more */

    /* All zero before the first look. */
    bool was_there;
    uint64_t updated_ns, since_ms; /* for how long that has been the newest */
};

/* How long a run may be silent which goes on, where its lead is lost as soon as it has
 * not been heard of for that lease. */
uint64_t tidy_silent_ms(uint64_t lease_ms);

enum tidy_step tidy_decide(struct tidy *t, const struct tidy_look *look,
                           uint64_t now_ms);

/* Does it for one agent of this host: `tag` names the directory where it met others
 * (comm/agent_find.h). With `waits` until it is done, or another agent has come in its
 * place; else by one look, as far as that goes. 0, also where somebody else does it
 * already; -ENOENT where that agent has told no run. */
int tidy_up(const char *tag, unsigned index, bool waits, struct error *e);

#endif
