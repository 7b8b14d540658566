/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "launcher/rank_env.h"
#include "tests/lib/tap.h"

#include <stdio.h>
#include <string.h>

#define MPIRUN "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 " \
               "OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE="
#define SRUN "PMIX_RANK=2 SLURM_STEP_ID=1 SLURM_JOB_ID=7 SLURM_PROCID=2 " \
             "SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NUM_NODES=3 " \
             "SLURM_STEP_NODELIST=n[4-6] SLURM_LOCALID=0 SLURM_NODEID=1 "

/* Words of `text` as a list. */
static void fill(struct strlist *to, const char *text)
{
    while (*(text += strspn(text, " "))) {
        size_t len = strcspn(text, " ");

        strlist_addf(to, "%.*s", (int)len, text);
        text += len;
    }
}

static void test_places(void)
{
    static const struct {
        const char *env, *want;
    } cases[] = {
        {MPIRUN "4", "3/4 1/4 0/1 known"},
        {MPIRUN "2", "3/4 1/2 0/0 unknown"},
        {MPIRUN "1", "refused"},
        {MPIRUN "x", "refused"},
        {MPIRUN "5", "refused"},
        {"OMPI_COMM_WORLD_RANK=0", "refused"},
        {SRUN "SLURM_STEP_TASKS_PER_NODE=2,1(x2)", "2/4 0/1 1/3 known n4"},
        {SRUN "SLURM_STEP_TASKS_PER_NODE=2", "refused"},
        {SRUN "SLURM_STEP_TASKS_PER_NODE=2(x", "refused"},
        {SRUN "SLURM_STEP_TASKS_PER_NODE=", "refused"},
        {SRUN, "refused"},
        {"SLURM_STEP_ID=1 SLURM_PROCID=0", "refused"},
        {"A=b", "refused"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _strlist_ struct strlist env = {0};
        struct rank_place p;
        struct error e = {0};
        char got[512] = "refused";

        fill(&env, cases[i].env);
        if (rank_place_read(&env, &p, &e) == 0) {
            snprintf(got, sizeof(got), "%u/%u %u/%u %u/%u %s%s%s", p.rank,
                     p.world, p.local_rank, p.local_world, p.node, p.n_nodes,
                     p.knows_nodes ? "known" : "unknown",
                     p.first_host[0] ? " " : "", p.first_host);
        }
        is_str(got, cases[i].want, "%s", cases[i].env);
    }
}

static void test_launch(void)
{
    static const char *const envs[] = {
        MPIRUN "2 PMIX_NAMESPACE=a@1 PMIX_SERVER_URI41=a@0.1;tcp4://127.0.0.1:5",
        MPIRUN "2 PMIX_NAMESPACE=a@1 PMIX_SERVER_URI2=a@0.2;tcp4://127.0.0.1:5",
        MPIRUN "2 PMIX_NAMESPACE=a@2 PMIX_SERVER_URI41=a@0.1;tcp4://127.0.0.1:5",
        MPIRUN "2 PMIX_NAMESPACE=a@1 OMPI_MCA_orte_precondition_transports=1",
    };
    struct rank_place p[ARRAY_SIZE(envs)];

    for (size_t i = 0; i < ARRAY_SIZE(envs); i++) {
        _strlist_ struct strlist env = {0};

        fill(&env, envs[i]);
        is_int(rank_place_read(&env, &p[i], NULL), 0, "%s", envs[i]);
    }
    ok(p[0].launch_id == p[1].launch_id, "one launch, whatever the daemon");
    ok(p[0].launch_id != p[2].launch_id, "another name, another launch");
    ok(p[0].launch_id != p[3].launch_id, "so for a key");
    ok(p[0].daemon != p[1].daemon, "two daemons");
    ok(p[0].daemon == p[2].daemon, "and one");
}

static void test_join(void)
{
    _strlist_ struct strlist own = {0}, env = {0}, again = {0}, chosen = {0};

    fill(&own, "OMPI_X=1 PMIX_RANK=3 SLURM_PROCID=9 HOME=/a");
    fill(&env, "OMPI_X=2 OMPI_Y=2 SLURM_PROCID=1 HOME=/b");
    fill(&again, "OMPI_X=2 SLURM_PROCID=1 HOME=/b");
    rank_env_join(&own, RANK_BY_MPIRUN, &env);
    is_str(strlist_getenv(&env, "OMPI_X"), "1", "the launch has its own values");
    is_str(strlist_getenv(&env, "PMIX_RANK"), "3", "and all of them");
    ok(!strlist_getenv(&env, "OMPI_Y"), "none of another launch");
    fill(&chosen, RANK_ENV_INTERFACE "=eth0");
    rank_env_join(&own, RANK_BY_MPIRUN, &chosen);
    is_str(strlist_getenv(&chosen, RANK_ENV_INTERFACE), "eth0", "its interface");
    fill(&own, RANK_ENV_INTERFACE "=eth1");
    rank_env_join(&own, RANK_BY_MPIRUN, &chosen);
    is_str(strlist_getenv(&chosen, RANK_ENV_INTERFACE), "eth1",
           "unless the launch has one");
    is_str(strlist_getenv(&env, "SLURM_PROCID"), "1", "Slurm's are not its own");
    is_str(strlist_getenv(&env, "HOME"), "/b", "nor is anything else");
    rank_env_join(&own, RANK_BY_SRUN, &again);
    is_str(strlist_getenv(&again, "SLURM_PROCID"), "9", "but under srun");
}

int main(void)
{
    test_places();
    test_launch();
    test_join();
    return tap_done();
}
