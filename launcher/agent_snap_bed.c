/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/agent_snap_bed.h"

#include "base/fs.h"
#include "launcher/lead_bed.h"
#include "tests/lib/tap.h"

#include <stdlib.h>
#include <string.h>

void agent_snap_bed_open(struct agent_snap_bed *b)
{
    memset(b, 0, sizeof(*b));
    lead_bed_make(&b->agent);
    hold_bed_open(&b->hold, 1 << 20);
    b->snap.hold = b->hold.hold;
    b->snap.agent = &b->agent;
    b->snap.timer = calloc(1, sizeof(*b->snap.timer));
    if (!b->snap.timer || uv_timer_init(&b->agent.loop, b->snap.timer) < 0) {
        bail_out("memory");
    }
    b->agent.snap = &b->snap;
    b->crew.agent = &b->agent;
}

void agent_snap_bed_close(struct agent_snap_bed *b)
{
    while (b->snap.saved) {
        struct saved *s = b->snap.saved;

        b->snap.saved = s->next;
        free(s);
    }
    agent_snap_forget_ranks(&b->snap);
    uv_timer_stop(b->snap.timer);
    uv_close((uv_handle_t *)b->snap.timer, (uv_close_cb)free);
    uv_run(&b->agent.loop, UV_RUN_NOWAIT);
    b->agent.snap = NULL;
    hold_bed_close(&b->hold);
    fs_remove_tree(b->agent.run.dir, NULL);
    lead_bed_release(&b->agent);
}
