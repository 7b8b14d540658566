/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of why a node is excluded, once its words are gone. */
#include <config.h>

#include "rendezvous/exclusion.h"
#include "tests/lib/tap.h"

#include <string.h>

int main(void)
{
    static const struct {
        const char *why;
        enum exclusion want;
    } cases[] = {
        {"it was the cause 3 times, and restart.maxPerNode is 2", EXCLUSION_CAUSE},
        {"the steps of rank 1 take 3.00 times the median", EXCLUSION_SLOW},
        {"mpirun hangs there: 3 MPI worlds in a row", EXCLUSION_HANGS},
        {"mpirun fails there", EXCLUSION_FAILS},
        {"mpirun fails", EXCLUSION_OTHER},
        {"by the lead before this one", EXCLUSION_OTHER},
        {"", EXCLUSION_OTHER},
        {NULL, EXCLUSION_OTHER},
    };
    char text[128];

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        is_int(exclusion_of(cases[i].why), cases[i].want, "%s",
               cases[i].why ? cases[i].why : "none");
    }
    for (unsigned i = EXCLUSION_OTHER; i <= EXCLUSION_LAST; i++) {
        exclusion_word((enum exclusion)i, 3, text, sizeof(text));
        ok(exclusion_of(text) == i && strlen(text) < sizeof(text) - 1,
           "the words of the next lead are of the same kind: %s", text);
    }
    exclusion_word(EXCLUSION_CAUSE, 1, text, sizeof(text));
    is_str(text, "it was the cause 1 time, more often than restart.maxPerNode", "once");
    ok(exclusion_is_of_mpi(EXCLUSION_HANGS) && exclusion_is_of_mpi(EXCLUSION_FAILS) &&
           !exclusion_is_of_mpi(EXCLUSION_CAUSE) && !exclusion_is_of_mpi(EXCLUSION_NONE),
       "of two an MPI world is the end");
    return tap_done();
}
