/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/exclusion.h"

#include <stdio.h>
#include <string.h>

static const char *const names[] = {
    [EXCLUSION_NONE] = "",       [EXCLUSION_OTHER] = "other", [EXCLUSION_CAUSE] = "cause",
    [EXCLUSION_SLOW] = "slow",   [EXCLUSION_HANGS] = "hangs", [EXCLUSION_FAILS] = "fails",
    [EXCLUSION_MISFIT] = "misfit",
};

const char *exclusion_name(enum exclusion why)
{
    return why <= EXCLUSION_LAST ? names[why] : names[EXCLUSION_OTHER];
}

enum exclusion exclusion_by_name(const char *name)
{
    for (unsigned i = 0; i <= EXCLUSION_LAST; i++) {
        if (strcmp(name ? name : "", names[i]) == 0) {
            return (enum exclusion)i;
        }
    }
    return EXCLUSION_OTHER;
}

bool exclusion_is_of_mpi(enum exclusion why)
{
    return why == EXCLUSION_HANGS || why == EXCLUSION_FAILS;
}

void exclusion_word(enum exclusion why, uint32_t n_causes, char *to, size_t size)
{
    switch (why) {
    case EXCLUSION_CAUSE:
        snprintf(to, size, "it was the cause %u time%s, more often than "
                 "restart.maxPerNode", n_causes, n_causes == 1 ? "" : "s");
        break;
    case EXCLUSION_SLOW:
        snprintf(to, size, "the steps of ranks there take long (elastic.excludeSlow), "
                 "as was found before");
        break;
    case EXCLUSION_HANGS:
    case EXCLUSION_FAILS:
        snprintf(to, size, "mpirun %s there, as was told before", names[why]);
        break;
    case EXCLUSION_MISFIT:
        snprintf(to, size, "it does not fit the job, as was found when it came");
        break;
    case EXCLUSION_NONE:
    case EXCLUSION_OTHER:
        snprintf(to, size, "for what was found before");
        break;
    }
}
