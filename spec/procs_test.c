/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "spec/procs.h"
#include "tests/lib/tap.h"

#include <errno.h>

int main(void)
{
    static const struct {
        struct job_procs procs;
        struct procs_node node;
        int rc;
        uint32_t n;
    } cases[] = {
        {{JOB_PROCS_FIXED, 7}, {.n_cpus = 2}, 0, 7},
        {{JOB_PROCS_CPU, 0}, {.n_cpus = 8}, 0, 8},
        {{JOB_PROCS_CPU, 0}, {0}, 0, 1},
        {{JOB_PROCS_CPU, 0}, {.n_cpus = 1024}, 0, 1024},
        {{JOB_PROCS_CPU, 0}, {.n_cpus = 1025}, -E2BIG, 1025},
        {{JOB_PROCS_CPU, 0},
         {.n_cpus = 64, .quota_us = 150000, .period_us = 100000}, 0, 2},
        {{JOB_PROCS_CPU, 0},
         {.n_cpus = 2, .quota_us = 900000, .period_us = 100000}, 0, 2},
        {{JOB_PROCS_CPU, 0},
         {.n_cpus = 4, .quota_us = -1, .period_us = 100000}, 0, 4},
        {{JOB_PROCS_CPU, 0},
         {.n_cpus = 4, .quota_us = 1, .period_us = 100000}, 0, 1},
        {{JOB_PROCS_AUTO, 0}, {.n_cpus = 8, .n_gpus = 4}, 0, 4},
        {{JOB_PROCS_AUTO, 0}, {.n_cpus = 8}, 0, 8},
        {{JOB_PROCS_AUTO, 0},
         {.n_cpus = 8, .n_gpus = 4, .visible = "0,2"}, 0, 2},
        {{JOB_PROCS_AUTO, 0},
         {.n_cpus = 8, .n_gpus = 4, .visible = ""}, 0, 8},
        {{JOB_PROCS_AUTO, 0},
         {.n_cpus = 8, .n_gpus = 4, .visible = "-1"}, 0, 8},
        {{JOB_PROCS_AUTO, 0}, {.n_cpus = 8, .n_gpus = 4, .slots = 3}, 0, 3},
        {{JOB_PROCS_CPU, 0}, {.n_cpus = 8, .slots = 3}, 0, 3},
        {{JOB_PROCS_FIXED, 7}, {.slots = 3}, 0, 7},
        {{JOB_PROCS_GPU, 0}, {.n_gpus = 4, .slots = 3}, 0, 4},
        {{JOB_PROCS_GPU, 0}, {.n_cpus = 8, .n_gpus = 4}, 0, 4},
        {{JOB_PROCS_GPU, 0}, {.n_cpus = 8}, -ENODEV, 0},
        {{JOB_PROCS_GPU, 0},
         {.n_gpus = 4, .visible = "-1"}, -ENODEV, 0},
        {{JOB_PROCS_GPU, 0}, {.n_gpus = 4, .visible = "0,-1,2"}, 0, 1},
        {{JOB_PROCS_GPU, 0}, {.n_gpus = 4, .visible = "0,9"}, 0, 1},
        {{JOB_PROCS_GPU, 0}, {.n_gpus = 4, .visible = "3,4"}, 0, 1},
        {{JOB_PROCS_GPU, 0}, {.n_gpus = 4, .visible = "3, 1"}, 0, 2},
        {{JOB_PROCS_GPU, 0},
         {.n_gpus = 4, .visible = "GPU-8f1c,GPU-0a22,MIG-77"}, 0, 3},
        {{JOB_PROCS_GPU, 0}, {.n_gpus = 4, .visible = "0,1,"}, 0, 2},
        {{JOB_PROCS_GPU, 0}, {.n_gpus = 4, .visible = ",0"}, -ENODEV, 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct error e = {0};
        uint32_t n = 0;

        is_int(procs_count(&cases[i].procs, &cases[i].node, &n, &e),
               cases[i].rc, "case %zu", i);
        is_int(n, cases[i].n, "its number");
        if (cases[i].rc < 0) {
            like(e.text, cases[i].rc == -ENODEV ? "there is no GPU"
                                                : "expected 1024 at most",
                 "and the reason");
        }
    }
    return tap_done();
}
