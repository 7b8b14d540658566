/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of why a node is excluded, once its words are gone. */
#include <config.h>

#include "rendezvous/exclusion.h"
#include "tests/lib/tap.h"

#include <string.h>

int main(void)
{
    static const char *const words[] = {
        [EXCLUSION_OTHER] = "for what was found before",
        [EXCLUSION_CAUSE] = "it was the cause 3 times, more often than restart.maxPerNode",
        [EXCLUSION_SLOW] = "the steps of ranks there take long (elastic.excludeSlow), as "
                           "was found before",
        [EXCLUSION_HANGS] = "mpirun hangs there, as was told before",
        [EXCLUSION_FAILS] = "mpirun fails there, as was told before",
        [EXCLUSION_MISFIT] = "it does not fit the job, as was found when it came",
    };
    char text[128];

    for (unsigned i = EXCLUSION_NONE; i <= EXCLUSION_LAST; i++) {
        const char *name = exclusion_name((enum exclusion)i);

        is_int(exclusion_by_name(name), (int)i, "its name is known: '%s'", name);
    }
    is_int(exclusion_by_name(NULL), EXCLUSION_NONE, "no name");
    is_int(exclusion_by_name("a newer one"), EXCLUSION_OTHER, "one of a newer muster");
    for (unsigned i = EXCLUSION_OTHER; i <= EXCLUSION_LAST; i++) {
        exclusion_word((enum exclusion)i, 3, text, sizeof(text));
        is_str(text, words[i], "what the next lead says");
    }
    exclusion_word(EXCLUSION_CAUSE, 1, text, sizeof(text));
    is_str(text, "it was the cause 1 time, more often than restart.maxPerNode", "once");
    ok(exclusion_is_of_mpi(EXCLUSION_HANGS) && exclusion_is_of_mpi(EXCLUSION_FAILS) &&
           !exclusion_is_of_mpi(EXCLUSION_CAUSE) && !exclusion_is_of_mpi(EXCLUSION_NONE),
       "of two an MPI world is the end");
    return tap_done();
}
