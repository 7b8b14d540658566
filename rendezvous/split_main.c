/* SPDX-License-Identifier: Apache-2.0 */
/*
 * split_test [--schedules N] [--seed S] [--case K]: runs the schedules of seeds S,
 * S+1, ... and prints the log of the first that breaks a promise; then those of the
 * named cases. Before that, those that long runs have found something with. Built with
 * MUTANT_BUILD it expects each of the seeded faults to be found instead, or that of
 * number K.
 */
#include <config.h>

#include "base/str.h"
#include "rendezvous/mutant.h"
#include "rendezvous/split.h"
#include "tests/lib/tap.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* They have found something once, in long runs. */
static const uint64_t found[] = {3697, 2706330, 2967315, 3004516, 3033302, 3167091,
                                 3168616, 3216978, 3394570, 3596972, 3597142, 3609123,
                                 3816510, 4039925, 4069441, 9964483, 9976926, 162625, 10552806,
                                 10960954, 30989871, 50500631};

#ifdef MUTANT_BUILD
enum { SCHEDULES = 20000, FEWER = 1, FIRST = 101 };
int mutant_number;

static const char *const mutants[] = {
    "RUN without a claim, though others could have claimed",
    "the side that is too small does not leave the others time to claim",
    "END without a claim",
    "who has promised not to obey is taken for a member",
    "a new lead does not wait for the leases of the others",
    "a generation is used again",
    NULL, NULL, NULL,
    "both halves of an even cut go on",
    "the word of the lead is new whatever is acknowledged",
    NULL, NULL,
    "a claim that was lost counts as won",
    "a claim that was not answered counts as won",
    NULL,
    "a new lead does not wait for PREPARE",
    "who ended while the lead was stopped cannot have gone on",
    "who was stopped waits no more for the answer to its claim",
    "what is saved between two orders is told to nobody",
    "who followed out of an older view is of the camp",
    "who was stopped between END and LEAVE sees to the end all the same",
    "who ended before another took the lead is on no other side",
    "who knows that an end was proposed ends the run with it",
    "who leads is in office, whatever is acknowledged",
    "office is looked at when a commit begins, not when it takes effect",
    "who followed before the arbiter told of a newer view is of the camp",
    "of a view that only the arbiter has told of nobody below is told",
    "a lead takes back who was bound to a newer view, and does not ask what that did",
    "with the end the word of the lead stays as good as it was",
    "who is found dead while a claim is not answered has not gone on from it",
    "who is lost to a lead after LEAVE is not silent",
    "who was stopped for longer than its lease claims with whom it finds first",
    "who has had no order leads by one of others that says so",
    "who is back is counted before it has said where it was",
    "who has found another parent has heard what that one had when it said so last",
    "the store of an older generation serves the next one",
    "who takes the lead takes the last RUN that it has heard of for the newest",
    "who ends when its lease may be over was bound to the end",
    "a view that was won is told to nobody before RUN, when that is to wait",
};

/* Every other one is anything: a majority decides there, and in one of the others. */
static enum split_case case_of(uint64_t seed)
{
    return seed % 2 ? (enum split_case)(seed / 2 % SPLIT_CASES) : SPLIT_ANY;
}

/* What those of long runs find is rare. */
static bool is_found_again(char *why, size_t size)
{
    for (size_t i = 0; i < ARRAY_SIZE(found); i++) {
        if (!split_run(found[i], SPLIT_ANY, why, size, NULL)) {
            return true;
        }
    }
    return false;
}

static void run_all(uint64_t first, uint64_t n, int which)
{
    char why[512] = "";

    for (size_t k = 0; k < ARRAY_SIZE(mutants); k++) {
        uint64_t seed = first;

        if (!mutants[k] || (which >= 0 && which != (int)k + FIRST)) {
            continue;
        }
        mutant_number = (int)k + FIRST;
        while (seed < first + n &&
               split_run(seed, case_of(seed), why, sizeof(why), NULL) &&
               !(seed == first && is_found_again(why, sizeof(why)))) {
            seed++;
        }
        ok(seed < first + n, "mutant %zu is found: %s", k + FIRST, mutants[k]);
        diag("seed %" PRIu64 ": %s", seed, why);
    }
}
#else
static const char *const cases[] = {
    [SPLIT_ANY] = "anything",
    [SPLIT_CREATE] = "who has created a view is killed before it knows",
    [SPLIT_EVEN] = "an even cut",
    [SPLIT_EEXIST] = "an arbiter whose answers get lost",
    [SPLIT_SILENT] = "the lead is cut off",
    [SPLIT_KILLED] = "the lead is killed, and then the next one",
    [SPLIT_PAUSED] = "the lead is stopped",
    [SPLIT_TURNS] = "the lead is stopped, and then the next one",
    [SPLIT_LATE] = "the lead is stopped until the others have ended",
    [SPLIT_MOVES] = "a follower goes to another lead",
    [SPLIT_RETURNS] = "who was killed comes again",
    [SPLIT_PROPOSED] = "who knows of an end is left by its followers",
    [SPLIT_LOST] = "who has lost a view is left by its followers",
    [SPLIT_UNTOLD] = "who has created a view is stopped before it knows",
    [SPLIT_MISSED] = "who takes the lead has missed the generation that ran last",
    [SPLIT_GROWN] = "a run that could lose no node at its start has more",
};

enum { SCHEDULES = 10000, FEWER = 5, A_CASE = 10 };

static void print_lines(const char *text)
{
    while (*text) {
        int len = (int)strcspn(text, "\n");

        diag("%.*s", len, text);
        text += len + (text[len] == '\n');
    }
}

static void run_case(uint64_t first, uint64_t n, int which)
{
    _buf_ struct buf log = {0};
    char why[512];
    uint64_t seed = first;

    while (seed < first + n &&
           split_run(seed, (enum split_case)which, why, sizeof(why), NULL)) {
        seed++;
    }
    if (ok(seed == first + n, "%" PRIu64 " schedules from seed %" PRIu64 ": %s",
           n, first, cases[which])) {
        return;
    }
    diag("seed %" PRIu64 ": %s", seed, why);
    diag("again with: split_test --seed %" PRIu64 " --schedules 1 --case %d",
         seed, which);
    (void)split_run(seed, (enum split_case)which, why, sizeof(why), &log);
    print_lines(buf_str(&log));
}

static void run_all(uint64_t first, uint64_t n, int which)
{
    if (which >= 0) {
        run_case(first, n, which < (int)ARRAY_SIZE(cases) ? which : SPLIT_ANY);
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(found); i++) {
        run_case(found[i], 1, SPLIT_ANY);
    }
    for (int k = 0; k < (int)ARRAY_SIZE(cases); k++) {
        run_case(first, k ? n / A_CASE : n, k);
    }
}
#endif

int main(int argc, char **argv)
{
    uint64_t n = SCHEDULES, seed = 1, which = UINT64_MAX;

    if (getenv("MUSTER_INSTRUMENTED")) { /* the same code, several times as slow */
        n /= FEWER;
    }

    for (int i = 1; i + 1 < argc; i += 2) {
        uint64_t *to = !strcmp(argv[i], "--schedules") ? &n
                       : !strcmp(argv[i], "--seed")    ? &seed
                       : !strcmp(argv[i], "--case")    ? &which
                                                       : NULL;

        if (!to || str_to_u64(argv[i + 1], to) < 0) {
            bail_out("usage: %s [--schedules N] [--seed S] [--case K]",
                     argv[0]);
        }
    }
    run_all(seed, n, which <= INT_MAX ? (int)which : -1);
    return tap_done();
}
