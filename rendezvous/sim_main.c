/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_test [--schedules N] [--seed S]: runs the schedules of seeds S, S+1, ...
 * and prints the log of the first that breaks a promise; before that those that long
 * runs have found something with. Built with MUTANT_BUILD it expects each of the seeded
 * faults to be found instead.
 */
#include <config.h>

#include "base/str.h"
#include "rendezvous/mutant.h"
#include "rendezvous/sim.h"
#include "tests/lib/tap.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#ifdef MUTANT_BUILD
enum { SCHEDULES = 200000 }; /* some need a rare one */
int mutant_number;

static const char *const mutants[] = {
    [1] = "RUN does not wait for STOPPED of its generation",
    [2] = "one node that has not answered is not waited for",
    [3] = "orders do not get new serials",
    [4] = "a stop changes the verdict",
    [5] = "one restart more than the budget",
    [6] = "a worker that was killed by a stop is taken as the cause",
    [7] = "the lease never ends",
    [8] = "the first failure heard of is the cause",
    [9] = "older orders are followed",
    [10] = "STOPPED is reported with workers alive",
    [11] = "END waits for silent nodes for ever",
    [12] = "a message that lay in the socket renews a lease that is over",
    [13] = "the lease is a quarter of what it should be",
    [14] = "a word counts as new, however long it was on its way",
    [15] = "RUN does not wait for the lease of a lost node",
    [16] = "nor for what clocks differ, and for the kill",
    [17] = "a lost node that is heard of again is not waited for",
    [18] = "one that reads that it is lost lets its workers save",
    [19] = "one loss more than may be",
    [20] = "the run goes on with too few nodes",
    [21] = "a restart that no failure asked for is counted",
    [22] = "every lost node is taken for dead",
    [23] = "the store stays on a node that is lost",
    [24] = "a lost node is waited for",
    [25] = "a run that is well is stopped although nothing was saved",
    [26] = "or again and again",
    [27] = "a node that was excluded is used",
    [28] = "there are more nodes than a command wants",
};

/* The first seed of `n` with which mutant `k` is found out; 0 if none. */
static uint64_t find_out(uint64_t first, uint64_t n, char *why, size_t size)
{
    for (uint64_t seed = first; seed < first + n; seed++) {
        if (!sim_run(seed, why, size, NULL)) {
            return seed;
        }
    }
    return 0;
}

static void run_all(uint64_t first, uint64_t n)
{
    char why[512];

    for (size_t k = 1; k < ARRAY_SIZE(mutants); k++) {
        uint64_t seed;

        mutant_number = (int)k;
        seed = find_out(first, n, why, sizeof(why));
        ok(seed != 0, "mutant %zu is found: %s", k, mutants[k]);
        if (seed) {
            diag("seed %" PRIu64 ": %s", seed, why);
        }
    }
}
#else
enum { SCHEDULES = 10000 };

/* They have found something once, in long runs. */
static const uint64_t found[] = {802868, 20660065};

static void print_lines(const char *text)
{
    while (*text) {
        int len = (int)strcspn(text, "\n");

        diag("%.*s", len, text);
        text += len + (text[len] == '\n');
    }
}

static void run_some(uint64_t first, uint64_t n)
{
    _buf_ struct buf log = {0};
    char why[512];
    uint64_t seed = first;

    while (seed < first + n && sim_run(seed, why, sizeof(why), NULL)) {
        seed++;
    }
    if (ok(seed == first + n, "%" PRIu64 " schedules from seed %" PRIu64, n,
           first)) {
        return;
    }
    diag("seed %" PRIu64 ": %s", seed, why);
    diag("again with: sim_test --seed %" PRIu64 " --schedules 1", seed);
    (void)sim_run(seed, why, sizeof(why), &log);
    print_lines(buf_str(&log));
}

static void run_all(uint64_t first, uint64_t n)
{
    for (size_t i = 0; i < ARRAY_SIZE(found); i++) {
        run_some(found[i], 1);
    }
    run_some(first, n);
}
#endif

int main(int argc, char **argv)
{
    uint64_t n = SCHEDULES;
    uint64_t seed = 1;

    for (int i = 1; i + 1 < argc; i += 2) {
        uint64_t *to = !strcmp(argv[i], "--schedules") ? &n
                       : !strcmp(argv[i], "--seed")    ? &seed
                                                       : NULL;

        if (!to || str_to_u64(argv[i + 1], to) < 0) {
            bail_out("usage: %s [--schedules N] [--seed S]", argv[0]);
        }
    }
    run_all(seed, n);
    return tap_done();
}
