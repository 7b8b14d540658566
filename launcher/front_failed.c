/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An mpirun that ends before it has made an MPI world, again and again: ssh to a host is
 * refused, say, or Slurm starts no step there, or its daemon of MPI is gone, though the
 * agent there is well. mpirun fails as a whole then, mostly before any of its processes
 * was heard of. So from the second one in a row on each host of the world is tried by an
 * mpirun of its own, and with one that fails there, too, it is as with one where mpirun
 * hangs (front_hung.c).
 *
 * These come one after the other in seconds: what they tell within a lease is one fact,
 * or a short disturbance would cost a node.
 */
#include <config.h>

#include "launcher/front_priv.h"

enum { MIN_FAILED = 2 };

static bool is_soon(const struct front *f)
{
    return f->failed_ms && front_now_ms(f) - f->failed_ms <
                               f->config->run->job->heartbeat_timeout_ms;
}

void front_see_failed(struct front *f)
{
    const struct host_list *hosts = f->config->plan.hosts;

    /* One that was ended on purpose has not failed. */
    if (!f->lead || f->joined_epoch >= f->epoch || f->end_mpirun_at_ms || !hosts ||
        hosts_all_local(hosts) || front_blame_newcomers(f, MIN_FAILED)) {
        return;
    }
    f->n_failed++;
    if (f->n_failed >= MIN_FAILED && !is_soon(f)) {
        f->failed_ms = front_now_ms(f);
        f->reach->is_suspect = f->reach->has_failed = true;
    }
}
