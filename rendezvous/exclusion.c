/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/exclusion.h"

#include "base/str.h"

#include <stdio.h>

static const char *const words[] = {
    [EXCLUSION_CAUSE] = EXCLUSION_CAUSE_WORDS,
    [EXCLUSION_SLOW] = EXCLUSION_SLOW_WORDS,
    [EXCLUSION_HANGS] = EXCLUSION_HANGS_WORDS,
    [EXCLUSION_FAILS] = EXCLUSION_FAILS_WORDS,
};

enum exclusion exclusion_of(const char *why)
{
    for (unsigned i = 0; why && i <= EXCLUSION_LAST; i++) {
        if (words[i] && str_starts(why, words[i])) {
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
        snprintf(to, size, EXCLUSION_CAUSE_WORDS "%u time%s, more often than "
                 "restart.maxPerNode", n_causes, n_causes == 1 ? "" : "s");
        break;
    case EXCLUSION_SLOW:
        snprintf(to, size, EXCLUSION_SLOW_WORDS "s there take long (elastic.excludeSlow), "
                 "as the lead before this one has found");
        break;
    case EXCLUSION_HANGS:
    case EXCLUSION_FAILS:
        snprintf(to, size, "%s, as the lead before this one was told", words[why]);
        break;
    case EXCLUSION_NONE:
    case EXCLUSION_OTHER:
        snprintf(to, size, "by the lead before this one");
        break;
    }
}
