/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/crew.h"

#include "base/cleanup.h"
#include "launcher/hosts.h"
#include "launcher/jsonw.h"

#include <errno.h>
#include <stdlib.h>

_Static_assert((int)JOB_PROCS_MAX <= (int)SEGMENT_LOCAL_MAX &&
                   (int)HOSTS_MAX_SLOTS <= (int)JOB_PROCS_MAX,
               "who may be asked for finds room");

static uint32_t most_procs(const struct order *order)
{
    uint32_t most = 0;

    for (uint32_t i = 0; i < order->n_nodes; i++) {
        most = order->n_procs[i] > most ? order->n_procs[i] : most;
    }
    return most;
}

static int list_members(struct crew_world *w, const struct order *order)
{
    w->members = calloc(order->n_nodes, sizeof(*w->members));
    if (!w->members) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < order->n_nodes; i++) {
        if (order->n_procs[i]) {
            w->members[w->n_nodes++] = i;
        }
    }
    return 0;
}

static void crew_world_destroy(struct crew_world *w)
{
    if (w) {
        segment_destroy(w->segment);
        free(w->members);
        free(w);
    }
}
DEFINE_CLEANUP(crew_world);

int crew_world_create(const struct order *order, const struct layout *layout,
                      struct crew_world **ret, struct error *e)
{
    _cleanup_(crew_world) struct crew_world *w = calloc(1, sizeof(*w));
    struct segment_spec spec = {
        .generation = order->generation,
        .n_nodes = layout->n_groups,
        .node = layout->group,
        .world = layout->world,
        .n_local = layout->n_local,
        .max_local = most_procs(order),
        .first_rank = layout->first_rank,
    };
    int rc;

    if (!w || list_members(w, order) < 0) {
        return error_set(e, ENOMEM, "list nodes");
    }
    w->generation = order->generation;
    rc = segment_create(&spec, &w->segment, e);
    if (rc == 0) {
        *ret = take_ptr(&w);
    }
    return rc;
}

void crew_world_end(struct crew_world *w, const char *why)
{
    if (!w->broken) {
        w->broken = true;
        segment_abort(w->segment, SEGMENT_ABORT_LOST, why);
    }
}

/* Workers elsewhere that have heard sooner than those here who it was that ended may
 * have failed of it: that reason comes before theirs. */
void crew_world_break(struct crew_world *w)
{
    char why[SEGMENT_WHY_SIZE] = "another worker or node is gone";

    segment_lacks_one(w->segment, why);
    crew_world_end(w, why);
}

/* One that takes part is in no MPI world, or only in an older one: it was away when
 * this one was made, or has lost its muster-mpi and nobody heard of it. The lead tells
 * the front end, which makes another world. */
static void tell_short(struct agent *a, const struct crew_world *w,
                       const char *host)
{
    _buf_ struct buf b = {0};
    struct jsonw fact = agent_fact_begin(&b, "mpi_short");

    jsonw_int(&fact, "epoch", (int64_t)a->epoch);
    jsonw_int(&fact, "generation", w->generation);
    jsonw_str(&fact, "host", host);
    agent_fact_send(a, &fact);
}

/* Their MPI ranks. False if one of them has none, as far as this agent knows; the
 * first that has one tells of that. */
static bool find_origins(struct agent *a, const struct crew_world *w,
                         uint32_t *origins)
{
    const struct roster_entry *entries = a->roster.entries;
    uint32_t first = ROSTER_NO_RANK, absent = ROSTER_NO_RANK;

    for (uint32_t i = 0; i < w->n_nodes; i++) {
        uint32_t rank = w->members[i];

        if (rank >= a->roster.n) {
            return false; /* of a world that has not come here */
        }
        origins[i] = entries[rank].origin;
        if (origins[i] == ROSTER_NO_RANK) {
            absent = rank;
        } else if (first == ROSTER_NO_RANK) {
            first = rank;
        }
    }
    if (absent == ROSTER_NO_RANK) {
        return true;
    }
    if (first == a->rank) {
        tell_short(a, w, entries[absent].host);
    }
    return false;
}

static void attach(struct agent *a, const struct crew_world *w)
{
    struct companion_attach attach = {0};
    _free_ uint32_t *origins = NULL;

    if (w->n_nodes < 2 || w->broken) {
        return;
    }
    origins = calloc(w->n_nodes, sizeof(*origins));
    if (!origins || !find_origins(a, w, origins)) {
        return; /* there will be another world */
    }
    attach = (struct companion_attach){w->generation, w->n_nodes, origins};
    companion_link_attach(a->companion, &attach, w->segment->fd,
                          w->segment->event_fd);
    if (!companion_link_is_up(a->companion)) {
        tell_short(a, w, a->host);
    }
}

void crew_join_world(struct agent *a)
{
    const struct crew_world *w = a->crew ? a->crew->world : a->parted;

    if (w) {
        attach(a, w);
    }
}

void crew_attached(struct agent *a, const struct companion_outcome *o)
{
    if (a->crew && a->crew->generation == o->tag && !o->ok) {
        agent_note(a, "MPI cannot connect the nodes of generation %u: %s; a "
                   "new MPI world is needed", o->tag, o->text);
    }
}

void crew_world_close(struct agent *a, struct crew_world *w)
{
    if (w && w->n_nodes > 1) {
        companion_link_detach(a->companion, w->generation);
    }
    crew_world_destroy(w);
}

void crew_world_part(struct agent *a, struct crew_world *w)
{
    if (w && w->n_nodes > 1 && !w->broken) {
        a->parted = w;
    } else {
        crew_world_close(a, w);
    }
}
