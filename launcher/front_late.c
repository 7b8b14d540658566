/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An mpirun that makes no MPI world: one that hangs before any of its processes has
 * come to an agent says so to nobody, and workers that wait for the world would wait
 * for ever. While it starts nothing is under way in it, so that it may be ended and
 * made again.
 *
 * A world has as long as six leases, and never longer than all nodes had at the start
 * (gang.timeout). Each one in a row that is late is given twice as long as the one
 * before it: a machine that is only slow gets its world in the end. Only time counts
 * in which the lead could have said that it is there, and in which this process ran.
 */
#include <config.h>

#include "launcher/front_priv.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "launcher/jsonw.h"
#include "rendezvous/tree_msg.h"

#include <inttypes.h>
#include <sys/stat.h>

enum {
    WORLD_LEASES = 6,
    MAX_DOUBLED = 8,
    MAX_STEP_MS = 1000, /* of one tick: more, and this process stood still */
    MAX_NAMED = 8,      /* hosts in one message */
};

void front_see_joined(struct front *f, uint64_t epoch)
{
    if (epoch > f->joined_epoch) {
        f->joined_epoch = epoch;
        f->n_late = 0;
        if (epoch == f->epoch) {
            front_clear_hung(f);
        }
    }
}

void front_late_begin(struct front *f)
{
    struct stat st;

    f->late_ms = 0;
    f->late_seen_ms = front_now_ms(f);
    f->log_from = stat(f->log_path, &st) == 0 ? (size_t)st.st_size : 0;
}

static uint64_t limit_ms(const struct front *f)
{
    const struct job *job = f->config->run->job;
    unsigned n = f->n_late < MAX_DOUBLED ? f->n_late : MAX_DOUBLED;
    uint64_t ms = (WORLD_LEASES * job->heartbeat_timeout_ms) << n;

    return ms < job->gang_timeout_ms ? ms : job->gang_timeout_ms;
}

/* To the lead, which writes it down, and says it to whoever looks on. */
static void tell(struct front *f, uint64_t had_ms)
{
    _buf_ struct buf b = {0}, text = {0}, names = {0};
    struct jsonw w = jsonw_start(&b);
    size_t n = front_name_unheard(f, &names);

    buf_printf(&text, "mpirun has made no MPI world in %" PRIu64 " s, and is ended",
               had_ms / 1000);
    if (n) {
        buf_printf(&text, ": nothing was heard of muster-mpi on %s%s",
                   buf_str(&names), n > MAX_NAMED ? " and others" : "");
    }
    jsonw_object(&w, NULL);
    jsonw_str(&w, "fact", "mpi_late");
    jsonw_int(&w, "epoch", (int64_t)f->epoch);
    jsonw_str(&w, "text", buf_str(&text));
    jsonw_end_object(&w);
    if (!b.failed && !text.failed) {
        link_send_buf(f->lead, TREE_REQUEST, &b);
    }
}

void front_tick_late(struct front *f)
{
    uint64_t now = front_now_ms(f), step = now - f->late_seen_ms;
    uint64_t may_take_ms = limit_ms(f);

    f->late_seen_ms = now;
    if (f->mpirun_pid <= 0 || f->phase != FRONT_RUNNING || !f->lead ||
        f->end_mpirun_at_ms || f->joined_epoch >= f->epoch) {
        return;
    }
    f->late_ms += step < MAX_STEP_MS ? step : MAX_STEP_MS;
    if (f->late_ms > may_take_ms) {
        tell(f, may_take_ms);
        f->n_late++;
        front_blame_late(f);
        f->end_mpirun_at_ms = now;
    }
}
