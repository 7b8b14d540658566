/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An mpirun that was started by hand is not started again. Workers with collectives
 * of their own do without its MPI world; those that wait for other nodes in one of
 * muster's would do so for ever. After a lease, which is what all else that is lost
 * is given, the lead hears of them, and ends the run so that it can be resumed.
 */
#include <config.h>

#include "launcher/crew.h"

#include "base/cleanup.h"
#include "launcher/jsonw.h"

enum { LOOKS = 10 }; /* in a lease */

bool crew_is_stranded(const struct agent *a)
{
    const struct crew_world *w = a->crew ? a->crew->world : NULL;

    return uv_is_active((const uv_handle_t *)&a->strand_timer) && w &&
           w->n_nodes > 1 && !w->broken && segment_waits(w->segment);
}

static void tell(struct agent *a)
{
    _buf_ struct buf b = {0};
    struct jsonw w = crew_fact_begin(&b, "stranded", a->crew);

    agent_fact_send(a, &w);
}

static void on_timer(uv_timer_t *t)
{
    struct agent *a = t->data;
    uint64_t now = uv_now(&a->loop);

    if (!crew_is_stranded(a) || a->crew->stopping) {
        a->stranded_ms = 0;
    } else if (!a->stranded_ms) {
        a->stranded_ms = now;
    } else if (now - a->stranded_ms >= a->config.job->heartbeat_timeout_ms) {
        tell(a); /* again a lease later, should the lead not have heard it */
        a->stranded_ms = now;
    }
}

void crew_strand(struct agent *a)
{
    uint64_t ms = a->config.job->heartbeat_timeout_ms / LOOKS + 1;

    uv_timer_start(&a->strand_timer, on_timer, ms, ms);
}

void crew_unstrand(struct agent *a)
{
    uv_timer_stop(&a->strand_timer);
    a->stranded_ms = 0;
}
