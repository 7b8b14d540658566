/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/rank_solo.h"

#include "base/addr.h"
#include "base/cleanup.h"
#include "base/proc.h"
#include "launcher/contract.h"
#include "launcher/outfit.h"
#include "launcher/rank_meet.h"
#include "launcher/rank_sweep.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Below the ports that the kernel hands out to clients, above those of services
 * that are well known. */
enum { FIRST_PORT = 20000, N_PORTS = 12000, STEP = 4, PORT_TRIES = 64 };

/* The user's, or 0. */
static uint16_t given_port(const struct strlist *own)
{
    const char *theirs = strlist_getenv(own, "MASTER_PORT");
    uint64_t port;

    return theirs && str_to_u64(theirs, &port) == 0 && port <= 65535
               ? (uint16_t)port : 0;
}

static uint16_t nth_port(uint64_t n)
{
    return (uint16_t)(FIRST_PORT + n % (N_PORTS / STEP) * STEP);
}

static uint16_t port_of(const struct strlist *own, uint64_t id)
{
    uint16_t given = given_port(own);

    return given ? given : nth_port(id / STEP);
}

/* The same, but one that nobody has on this node. */
static uint16_t free_port(const struct strlist *own, uint64_t id)
{
    for (unsigned i = 0; i < PORT_TRIES && !given_port(own); i++) {
        uint16_t port = nth_port(id / STEP + i);

        if (addr_port_is_free(port) &&
            addr_port_is_free(outfit_second_port(port))) {
            return port;
        }
    }
    return port_of(own, id);
}

/* What others reach this node at, and the interface that has it where the user
 * chose one. */
static int find_addr(const struct rank_solo *s, char addr[ADDR_MAX],
                     char *interface, size_t size, struct error *e)
{
    _strlist_ struct strlist ways = {0};
    int rc = s->network ? addr_chosen(s->network, &ways, e)
                        : addr_local(false, &ways, e);

    if (rc < 0) {
        return rc;
    }
    str_copy(addr, ADDR_MAX, ways.items[0]);
    if (s->network && addr_interface(addr, interface, size) < 0) {
        interface[0] = '\0';
    }
    return 0;
}

/* What sweeps up after this rank finds its processes by. */
static int set_mark(struct seat_offer *o, struct error *e)
{
    struct proc self;

    if (proc_read(getpid(), &self) < 0) {
        return error_text(e, ESRCH, "/proc does not show this process");
    }
    snprintf(o->mark, sizeof(o->mark), SEAT_MARK "=%d.%llu", (int)self.pid,
             (unsigned long long)self.start);
    return 0;
}

/* --- on several nodes --- */

/* For who is where, or for the address that rank 0 has in the chosen network. */
static bool meets(const struct rank_solo *s, const struct rank_place *place)
{
    return !place->knows_nodes || (s->network && place->n_nodes > 1);
}

static void clean(const void *arg)
{
    rank_meet_clean(arg);
}

/* Who speaks for a node leaves files where they meet. */
static int leave_guard(const struct rank_solo *s, const struct rank_meet *meet,
                       const char *mark, struct error *e)
{
    bool writes = meets(s, meet->place) && meet->place->local_rank == 0;

    return rank_guard(mark, writes ? clean : NULL, meet, e);
}

void rank_solo_end(const struct rank_solo *s, const struct rank_place *place,
                   bool well)
{
    _strlist_ struct strlist dirs = {0};
    struct rank_meet meet = {.place = place, .dirs = &dirs,
                             .timeout_ms = s->timeout_ms};

    if (!meets(s, place) || place->rank != 0) {
        return;
    }
    rank_meet_dirs(s->own, place, &dirs);
    if (well) {
        rank_meet_end(&meet);
    } else {
        rank_meet_clean(&meet);
    }
}

/* --- all of it --- */

/* What the user says; else what is told, or known. */
static const char *master_of(const struct strlist *own,
                             const struct rank_place *place, const char *met,
                             const char *here)
{
    const char *theirs = strlist_getenv(own, "MASTER_ADDR");

    if (theirs && theirs[0]) {
        return theirs;
    }
    return met[0] ? met : place->n_nodes == 1 ? here : place->first_host;
}

static int make_env(const struct rank_solo *s, const struct rank_place *place,
                    const struct contract_facts *known, struct seat_offer *ret,
                    struct error *e)
{
    char run_id[32], host[256] = "";
    struct contract_facts facts = *known;
    int rc;

    snprintf(run_id, sizeof(run_id), "mpi-%016llx",
             (unsigned long long)place->launch_id);
    gethostname(host, sizeof(host) - 1);
    facts.run_id = run_id;
    facts.generation = 1;
    facts.rank = place->rank;
    facts.world = place->world;
    facts.local_rank = place->local_rank;
    facts.local_world = place->local_world;
    facts.node = place->node;
    facts.n_nodes = place->n_nodes;
    facts.node_name = host;
    facts.jax_port = outfit_second_port(facts.master_port);
    rc = contract_env(s->own, NULL, &facts, &ret->env, NULL, e);
    if (rc < 0) {
        return rc;
    }
    rank_env_join(s->own, place->starter, &ret->env);
    strlist_add(&ret->env, ret->mark);
    return ret->env.failed ? error_set(e, ENOMEM, "make the environment") : 0;
}

int rank_solo_offer(const struct rank_solo *s, struct rank_place *place,
                    struct seat_offer *ret, struct error *e)
{
    _strlist_ struct strlist dirs = {0};
    char addr[ADDR_MAX] = "", interface[32] = "";
    struct rank_meet meet = {.place = place, .dirs = &dirs, .addr = addr,
                             .timeout_ms = s->timeout_ms};
    struct rank_met met = {0};
    struct contract_facts facts = {.master_port = port_of(s->own,
                                                          place->launch_id)};
    int rc = find_addr(s, addr, interface, sizeof(interface), e);

    rank_meet_dirs(s->own, place, &dirs);
    rc = rc < 0 ? rc : set_mark(ret, e);
    rc = rc < 0 ? rc : leave_guard(s, &meet, ret->mark, e);
    if (rc == 0 && meets(s, place)) {
        meet.port = free_port(s->own, place->launch_id);
        rc = rank_meet(&meet, &met, e);
        place->node = met.node;
        place->n_nodes = met.n_nodes;
        facts.master_port = met.port;
    }
    facts.interface = interface[0] ? interface : NULL;
    facts.master_addr = master_of(s->own, place, met.addr,
                                  s->network ? addr : "127.0.0.1");
    return rc < 0 ? rc : make_env(s, place, &facts, ret, e);
}
