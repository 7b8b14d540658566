/* SPDX-License-Identifier: Apache-2.0 */
/* Which hosts of the run are there: those whose agents live, by the lead's status. */
#include <config.h>

#include "launcher/front_priv.h"

#include <string.h>

unsigned front_agents_of(const struct mpirun_plan *plan, size_t host)
{
    unsigned before = (unsigned)host * plan->agents_per_host;
    unsigned left = plan->n_agents > before ? plan->n_agents - before : 0;

    return left < plan->agents_per_host ? left : plan->agents_per_host;
}

/* Agents of the first world are in the order of its hosts. */
static const char *name_by_place(const struct front *f,
                                 const struct run_status *s, size_t host)
{
    const struct reach_host *hosts = f->reach->hosts;
    size_t at = 0;

    for (size_t i = 0; i < host; i++) {
        at += hosts[i].came_later ? 0 : front_agents_of(&f->config->plan, i);
    }
    return !hosts[host].came_later && at < s->n_nodes ? s->nodes[at].host
                                                      : NULL;
}

/* Later agents have the name that earlier ones had. */
const char *front_host_name(const struct front *f, const struct run_status *s,
                            size_t host)
{
    const char *given = f->config->plan.hosts->items[host].name;
    const struct reach_host *h = &f->reach->hosts[host];

    if (h->name[0]) {
        return h->name;
    }
    for (size_t i = 0; i < s->n_nodes; i++) {
        if (hosts_is_name_of(given, s->nodes[i].host)) {
            return s->nodes[i].host;
        }
    }
    return name_by_place(f, s, host);
}

/* Whether all its agents live; `is_of_use`: and take part, or may. */
static bool is_there(const struct front *f, size_t host, bool is_of_use)
{
    const struct run_status *s = screen_last(f->screen);
    const char *name = s ? front_host_name(f, s, host) : NULL;
    unsigned n_alive = 0;

    if (!s || !s->n_nodes) {
        return !f->reach->hosts[host].came_later;
    }
    for (size_t i = 0; name && i < s->n_nodes; i++) {
        enum status_node_state state = s->nodes[i].state;

        n_alive += strcmp(s->nodes[i].host, name) == 0 &&
                   state != STATUS_NODE_LOST && state != STATUS_NODE_LEFT &&
                   (!is_of_use || state != STATUS_NODE_EXCLUDED);
    }
    return n_alive >= front_agents_of(&f->config->plan, host);
}

bool front_is_newcomer(const struct front *f, size_t host)
{
    return !is_there(f, host, false) || front_host_hangs(f, host);
}

size_t front_count_hosts(struct front *f)
{
    size_t n = 0;

    for (size_t i = 0; i < f->config->plan.hosts->n; i++) {
        n += is_there(f, i, true);
    }
    return n;
}
