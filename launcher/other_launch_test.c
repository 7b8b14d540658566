/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "launcher/other_launch.h"
#include "tests/lib/tap.h"

#include <stdlib.h>

static void test_launches(void)
{
    static const struct {
        const char *env[3][2];
        const char *want; /* NULL: nothing is wrong */
    } cases[] = {
        {{{"PMI_SIZE", "4"}, {"PMI_RANK", "0"}}, "one of 4 processes of an "
         "mpiexec that is not Open MPI's (MPICH, Intel MPI), by PMI_SIZE"},
        {{{"MPI_LOCALNRANKS", "2"}}, "one of 2 processes of an mpiexec that"},
        {{{"MV2_COMM_WORLD_SIZE", "3"}, {"PMI_SIZE", "3"}}, "of MVAPICH"},
        {{{"FLUX_JOB_SIZE", "8"}, {"PMI_SIZE", "8"}}, "8 processes of flux run"},
        {{{"PMI_SIZE", "1"}, {"MPI_LOCALNRANKS", "1"}}, NULL},
        {{{"PMI_SIZE", "1"}, {"MPI_LOCALNRANKS", "many"}}, NULL},
        {{{"PMI_SIZE", "4"}, {"OMPI_COMM_WORLD_SIZE", "4"}}, NULL},
        {{{"PMI_SIZE", ""}}, NULL},
        {{{NULL, NULL}}, NULL},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct error e = {0};
        int rc;

        for (int k = 0; k < 3 && cases[i].env[k][0]; k++) {
            setenv(cases[i].env[k][0], cases[i].env[k][1], 1);
        }
        rc = other_launch_check(&e);
        is_int(rc, cases[i].want ? -ERR_USAGE : 0, "case %zu", i);
        if (cases[i].want) {
            like(e.text, cases[i].want, "which is told");
            like(e.text, "start `muster run` once", "and what to do");
        }
        for (int k = 0; k < 3 && cases[i].env[k][0]; k++) {
            unsetenv(cases[i].env[k][0]);
        }
    }
}

int main(void)
{
    unsetenv("SLURM_STEP_ID");
    unsetenv("OMPI_COMM_WORLD_SIZE");
    test_launches();
    return tap_done();
}
