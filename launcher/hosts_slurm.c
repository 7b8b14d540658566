/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What Slurm says of the nodes of a job: tasks and CPUs, in lists such as "2(x3),1"
 * in the order of SLURM_JOB_NODELIST.
 */
#include <config.h>

#include "launcher/hosts.h"

#include "base/cleanup.h"
#include "base/str.h"

#include <stdlib.h>

enum { MAX_COUNT = 1 << 20 };

bool hosts_slurm_count(const char *text, uint32_t node, uint32_t *ret)
{
    while (text && *text) {
        char *end;
        unsigned long n = strtoul(text, &end, 10), times = 1;

        if (end == text || n > MAX_COUNT) {
            return false;
        }
        if (str_starts(end, "(x")) {
            times = strtoul(end + 2, &end, 10);
            end += *end == ')';
        }
        if (node < times) {
            *ret = (uint32_t)n;
            return true;
        }
        node -= (uint32_t)times;
        text = *end == ',' ? end + 1 : NULL;
    }
    return false;
}

void hosts_add_slurm_slots(struct host_list *l)
{
    const char *nodes = getenv("SLURM_JOB_NODELIST");
    const char *tasks = getenv("SLURM_TASKS_PER_NODE");
    const char *cpus = getenv("SLURM_JOB_CPUS_PER_NODE");
    _host_list_ struct host_list all = {0};

    if (!nodes || hosts_parse(nodes, &all, NULL) < 0) {
        return;
    }
    for (size_t i = 0; i < l->n; i++) {
        struct host *host = &l->items[i];
        int64_t at = hosts_place(&all, host->name);

        if (at >= 0 && !host->slots &&
            !hosts_slurm_count(tasks ? tasks : cpus, (uint32_t)at,
                               &host->slots)) {
            host->slots = 0;
        }
    }
}

/* Whether a list of Slurm has only ones. */
static bool is_one_each(const char *text)
{
    uint32_t n;

    for (uint32_t i = 0; hosts_slurm_count(text, i, &n); i++) {
        if (n != 1 || i >= HOSTS_MAX) {
            return false;
        }
    }
    return true;
}

bool hosts_slurm_chose(void)
{
    static const char *const gpus[] = {
        "SLURM_JOB_GPUS", "SLURM_GPUS", "SLURM_GPUS_ON_NODE",
        "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK",
    };
    const char *tasks = getenv("SLURM_TASKS_PER_NODE");

    if (!tasks || getenv("SLURM_STEP_NUM_TASKS") ||
        (!getenv("SLURM_NTASKS") && !getenv("SLURM_NTASKS_PER_NODE") &&
         !getenv("SLURM_CPUS_PER_TASK"))) {
        return false;
    }
    for (size_t i = 0; i < ARRAY_SIZE(gpus); i++) {
        if (getenv(gpus[i]) && is_one_each(tasks)) {
            return false;
        }
    }
    return true;
}

uint32_t hosts_slurm_cpus(const struct host_list *all, const char *name)
{
    int64_t at = hosts_place(all, name);
    uint32_t n;

    return at >= 0 && hosts_slurm_count(getenv("SLURM_JOB_CPUS_PER_NODE"),
                                        (uint32_t)at, &n) ? n : 0;
}
