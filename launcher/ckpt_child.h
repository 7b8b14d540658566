/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work on checkpoints that may take long, or hang, in a child of the agent: `muster
 * ckpt push`, `pull` and the like. It runs in the environment in which the run was
 * started, where what a store asks for is, and never has a secret among its arguments.
 * What it says goes to the agent's log. On the loop's thread.
 */
#ifndef MUSTER_LAUNCHER_CKPT_CHILD_H
#define MUSTER_LAUNCHER_CKPT_CHILD_H

#include "base/error.h"
#include "base/str.h"
#include "launcher/agent.h"

#include <stdbool.h>
#include <stdint.h>

struct ckpt_child;

/* Valid during the call. */
struct ckpt_child_end {
    bool is_ok;
    bool may_pass;   /* it failed of something that may be over later */
    uint64_t ms;     /* it took */
    const char *out; /* what it printed, without the last newline */
    const char *why; /* it failed; "" else */
};
typedef void ckpt_child_f(void *arg, const struct ckpt_child_end *end);

/* `argv` begins with "muster" and is borrowed for the call. `on_end` comes once, not
 * from inside this call, and *ret is gone then: when the child has ended, or has taken
 * `limit_ms` (0: no limit), of which it is killed. */
int ckpt_child_start(struct agent *a, const struct strlist *argv, uint64_t limit_ms,
                     ckpt_child_f *on_end, void *arg, struct ckpt_child **ret,
                     struct error *e);
/* Kills it; on_end does not come. NULL is allowed. */
void ckpt_child_stop(struct ckpt_child *c);

uint64_t ckpt_child_ms(const struct ckpt_child *c); /* so far */

#endif
