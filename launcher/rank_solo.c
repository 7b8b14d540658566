/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/rank_solo.h"

#include "base/cleanup.h"
#include "base/proc.h"
#include "launcher/contract.h"
#include "launcher/outfit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Below the ports that the kernel hands out to clients, above those of services
 * that are well known. */
enum { FIRST_PORT = 20000, N_PORTS = 12000 };

/* FNV-1a. */
static uint64_t hash(const char *text)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (; *text; text++) {
        h = (h ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
    }
    return h;
}

static uint16_t port_of(const struct strlist *own, uint64_t h)
{
    const char *theirs = strlist_getenv(own, "MASTER_PORT");
    uint64_t port;

    if (theirs && str_to_u64(theirs, &port) == 0 && port && port <= 65535) {
        return (uint16_t)port;
    }
    return (uint16_t)(FIRST_PORT + h / 4 % (N_PORTS / 4) * 4);
}

static const char *addr_of(const struct strlist *own,
                           const struct rank_place *place)
{
    const char *theirs = strlist_getenv(own, "MASTER_ADDR");

    if (theirs && theirs[0]) {
        return theirs;
    }
    return place->n_nodes == 1 ? "127.0.0.1" : place->first_host;
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
    strlist_add(&o->env, o->mark);
    return o->env.failed ? error_set(e, ENOMEM, "make the environment") : 0;
}

int rank_solo_offer(const struct strlist *own, const struct rank_place *place,
                    struct seat_offer *ret, struct error *e)
{
    uint64_t h = hash(place->launch);
    char run_id[32], host[256] = "";
    struct contract_facts facts = {
        .run_id = run_id, .generation = 1,
        .rank = place->rank, .world = place->world,
        .local_rank = place->local_rank, .local_world = place->local_world,
        .node = place->node, .n_nodes = place->n_nodes, .node_name = host,
        .master_addr = addr_of(own, place), .master_port = port_of(own, h),
    };
    int rc;

    if (!place->knows_nodes || !facts.master_addr[0]) {
        return error_text(e, ERR_USAGE, "this mpirun has ranks on other nodes, "
                          "and its environment does not tell which is where: "
                          "start the program by `muster run --hosts ... -- "
                          "mpirun -n N PROGRAM`, or in Slurm by `srun "
                          "--mpi=pmix muster exec -- PROGRAM`");
    }
    snprintf(run_id, sizeof(run_id), "mpi-%016llx", (unsigned long long)h);
    gethostname(host, sizeof(host) - 1);
    facts.jax_port = outfit_second_port(facts.master_port);
    rc = contract_env(own, NULL, &facts, &ret->env, NULL, e);
    if (rc < 0) {
        return rc;
    }
    rank_env_join(own, place->starter, &ret->env);
    return set_mark(ret, e);
}
