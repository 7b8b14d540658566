/* SPDX-License-Identifier: Apache-2.0 */
/* What copies between agents say, counted: for what tests them and what measures them. */
#ifndef MUSTER_LAUNCHER_COPY_SAID_H
#define MUSTER_LAUNCHER_COPY_SAID_H

#include "launcher/snap_copy_priv.h"

struct copy_said {
    struct snap_copy *to; /* that gets copies; the caller sets it */
    int n_sent, n_got, n_fetched;
    uint32_t got_from;
    struct snap_head got;
    struct error error; /* of what was sent or fetched last */
};

extern const uint8_t copy_said_key[CHANNEL_KEY_BYTES];
extern char *const copy_said_addrs[]; /* this host */

/* A configuration that says all of that to `said`, without an agent's number. */
struct snap_copy_config copy_said_config(uv_loop_t *loop, unsigned stuck_ms,
                                         struct copy_said *said);
/* Makes that of memory one of copies, with no bound but its budget. */
void copy_said_hold(struct snap_hold_config *config, struct copy_said *said);

#endif
