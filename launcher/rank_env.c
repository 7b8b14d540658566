/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/rank_env.h"

#include "base/cleanup.h"
#include "base/hash.h"
#include "launcher/hosts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 1 << 24 };

/* Names that belong to a launch. Under srun Slurm's own are among them: its PMIx
 * and Open MPI look at those of the step. */
static bool is_of_launch(const char *item, enum rank_starter starter)
{
    static const char *const prefixes[] = {"OMPI_", "PMIX_", "PMI_", "ORTE_",
                                           "PRTE_", "OPAL_"};

    for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++) {
        if (str_starts(item, prefixes[i])) {
            return true;
        }
    }
    return starter == RANK_BY_SRUN && str_starts(item, "SLURM_");
}

static void name_of(const char *item, char *to, size_t size)
{
    size_t len = strcspn(item, "=");

    snprintf(to, size, "%.*s", (int)len, item);
}

static bool keeps_interface(const struct strlist *own)
{
    return !strlist_getenv(own, RANK_ENV_INTERFACE) &&
           !strlist_getenv(own, "OMPI_MCA_btl_tcp_if_exclude");
}

void rank_env_join(const struct strlist *own, enum rank_starter starter,
                   struct strlist *env)
{
    bool keeps = keeps_interface(own);
    char name[256];

    for (size_t i = env->n; i-- > 0;) {
        if (is_of_launch(env->items[i], starter) &&
            !(keeps && str_starts(env->items[i], RANK_ENV_INTERFACE "="))) {
            name_of(env->items[i], name, sizeof(name));
            strlist_unsetenv(env, name);
        }
    }
    for (size_t i = 0; i < own->n; i++) {
        if (is_of_launch(own->items[i], starter)) {
            strlist_add(env, own->items[i]);
        }
    }
}

static bool number(const struct strlist *env, const char *name, uint32_t *ret)
{
    const char *text = strlist_getenv(env, name);
    uint64_t n;

    if (!text || str_to_u64(text, &n) < 0 || n > MAX_RANKS) {
        return false;
    }
    *ret = (uint32_t)n;
    return true;
}

/* Of one text, which may be NULL, behind another; 0: behind none. */
static uint64_t hash(uint64_t h, const char *text)
{
    return hash_text(hash_text(h ? h : HASH_NONE, text ? text : ""), "-");
}

/* Where the daemon here listens: PMIx has it by a name for each of its versions. */
static uint64_t daemon_of(const struct strlist *env)
{
    static const char *const names[] = {"PMIX_SERVER_URI41", "PMIX_SERVER_URI4",
                                        "PMIX_SERVER_URI3", "PMIX_SERVER_URI2"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (strlist_getenv(env, names[i])) {
            return hash(0, strlist_getenv(env, names[i]));
        }
    }
    return 0;
}

/* Open MPI 4.1 tells all ranks a random key; 5.0 has only the name of the launch,
 * of the host and the process id of mpirun. */
static bool read_mpirun(const struct strlist *env, struct rank_place *p)
{
    const char *space = strlist_getenv(env, "PMIX_NAMESPACE");
    const char *key = strlist_getenv(env,
                                     "OMPI_MCA_orte_precondition_transports");

    p->starter = RANK_BY_MPIRUN;
    p->launch_id = hash(hash(0, space), key);
    p->daemon = daemon_of(env);
    return number(env, "OMPI_COMM_WORLD_RANK", &p->rank) &&
           number(env, "OMPI_COMM_WORLD_SIZE", &p->world) &&
           number(env, "OMPI_COMM_WORLD_LOCAL_RANK", &p->local_rank) &&
           number(env, "OMPI_COMM_WORLD_LOCAL_SIZE", &p->local_world);
}

static void read_first_host(const struct strlist *env, struct rank_place *p)
{
    const char *nodes = strlist_getenv(env, "SLURM_STEP_NODELIST");
    _host_list_ struct host_list hosts = {0};

    if (nodes && hosts_parse(nodes, &hosts, NULL) == 0 && hosts.n) {
        str_copy(p->first_host, sizeof(p->first_host), hosts.items[0].name);
    }
}

static bool read_srun(const struct strlist *env, struct rank_place *p)
{
    const char *job = strlist_getenv(env, "SLURM_JOB_ID");
    const char *step = strlist_getenv(env, "SLURM_STEP_ID");

    p->starter = RANK_BY_SRUN;
    p->knows_nodes = number(env, "SLURM_NODEID", &p->node) &&
                     number(env, "SLURM_STEP_NUM_NODES", &p->n_nodes);
    p->launch_id = hash(hash(0, job), step);
    p->daemon = hash(p->launch_id, strlist_getenv(env, "SLURM_NODEID"));
    read_first_host(env, p);
    return p->knows_nodes && number(env, "SLURM_PROCID", &p->rank) &&
           number(env, "SLURM_STEP_NUM_TASKS", &p->world) &&
           number(env, "SLURM_LOCALID", &p->local_rank) &&
           hosts_slurm_count(strlist_getenv(env, "SLURM_STEP_TASKS_PER_NODE"),
                             p->node, &p->local_world);
}

static bool is_sane(const struct rank_place *p)
{
    return p->world > 0 && p->rank < p->world && p->local_world > 0 &&
           p->local_rank < p->local_world && p->local_world <= p->world &&
           (!p->knows_nodes || p->node < p->n_nodes);
}

int rank_place_read(const struct strlist *env, struct rank_place *ret,
                    struct error *e)
{
    struct rank_place p = {0};
    bool by_mpirun = strlist_getenv(env, "OMPI_COMM_WORLD_RANK");
    bool by_srun = strlist_getenv(env, "SLURM_STEP_ID") &&
                   strlist_getenv(env, "PMIX_RANK");

    if (!by_mpirun && !by_srun) {
        return error_text(e, ERR_USAGE, "this is no process of an MPI launch: "
                          "start it by `mpirun -n N muster exec -- PROGRAM` "
                          "(Open MPI), or by `srun --mpi=pmix`%s",
                          strlist_getenv(env, "SLURM_STEP_ID")
                              ? ", which this srun was not told" : "");
    }
    if (!(by_mpirun ? read_mpirun(env, &p) : read_srun(env, &p)) ||
        !is_sane(&p)) {
        return error_text(e, ERR_USAGE, "the variables of this %s do not tell "
                          "which rank this is", by_mpirun ? "mpirun" : "srun");
    }
    if (p.local_world == p.world) {
        p.node = 0;
        p.n_nodes = 1;
        p.knows_nodes = true;
    }
    *ret = p;
    return 0;
}
