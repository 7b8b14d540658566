/* SPDX-License-Identifier: Apache-2.0 */
/* What agent_snap_lead.c and agent_snap_lead_held.c share. */
#ifndef MUSTER_LAUNCHER_AGENT_SNAP_LEAD_PRIV_H
#define MUSTER_LAUNCHER_AGENT_SNAP_LEAD_PRIV_H

#include "ckpt/snap.h"
#include "ckpt/step.h"
#include "launcher/agent_snap.h"
#include "launcher/snap_commit.h"

#include <uv.h>

enum { SNAP_TELL_AGAIN_MS = 1000 }; /* to all, however many have not heard */

struct lead_save {
    struct lead_save *next;
    struct lead_snap *lead;
    char uuid[COMMIT_UUID_BYTES];
    char root[SNAP_ROOT_BYTES];
    uint64_t step, token;
    char pinned[STEP_NAME_BYTES];
    struct snap_tally tally;
    uint64_t told_ms;
    bool is_working, is_settled;
    struct error why; /* it has failed of that already; code 0: it has not */

    /* The thread's, while there is one. */
    uv_work_t work;
    struct snap_commit commit;
    struct error error;
};

struct lead_snap {
    struct agent *agent;
    const struct lead_snap_ops *ops;
    void *arg;
    struct lead_save *saves; /* newest first */
    uv_timer_t *timer;
    uint64_t asked_ms; /* since when somebody waits */
    /* Who has which save was said last: */
    char where_uuid[COMMIT_UUID_BYTES];
    json_int_t where_generation;
    uint64_t where_ms;
    struct office office; /* the threads ask it */
    unsigned n_works;  /* one at a time: a disk that hangs takes one thread */
    bool is_asked;
    bool is_dying;
};

/* --- agent_snap_lead.c --- */

/* NULL: nobody has spoken of it, or it is long past. */
struct lead_save *lead_save_find(struct lead_snap *l, const char *uuid);
struct snap_now lead_save_now(const struct lead_save *s);

/* --- agent_snap_lead_held.c --- */

/* Who has the newest save in memory, for the status. */
void lead_snap_show_held(struct lead_snap *l);

#endif
