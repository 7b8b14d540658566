/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/other_launch.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "launcher/slurm.h"

#include <stdint.h>
#include <stdlib.h>

int other_launch_check(struct error *e)
{
    static const struct {
        const char *size, *who;
    } kinds[] = {
        {"FLUX_JOB_SIZE", "flux run"},
        {"MV2_COMM_WORLD_SIZE", "an mpiexec of MVAPICH"},
        {"PMI_SIZE", "an mpiexec that is not Open MPI's (MPICH, Intel MPI)"},
        {"MPI_LOCALNRANKS", "an mpiexec that is not Open MPI's (MPICH, Intel MPI)"},
    };

    if (getenv("OMPI_COMM_WORLD_SIZE") || slurm_is_mpi_launch()) {
        return 0;
    }
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        const char *text = getenv(kinds[i].size);
        uint64_t n;

        if (text && str_to_u64(text, &n) == 0 && n > 1) {
            return error_text(e, ERR_USAGE, "this is one of %llu processes of "
                              "%s, by %s, and each would start a run of its "
                              "own: start `muster run` once, without it, with "
                              "--hosts or --hostfile, or by Open MPI's "
                              "`mpirun --map-by ppr:1:node muster run`",
                              (unsigned long long)n, kinds[i].who,
                              kinds[i].size);
        }
    }
    return 0;
}
