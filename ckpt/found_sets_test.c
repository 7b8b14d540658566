/* SPDX-License-Identifier: Apache-2.0 */
/* Which directories of ranks pass for unfinished by what lies beside them, and what tells
 * nothing of others: what is not whole itself, of another trainer, newer, or says how many
 * there are. */
#include <config.h>

#include "ckpt/found.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "ckpt/found_bed.h"
#include "ckpt/last_bed.h"
#include "tests/lib/tap.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* A file that is right for its name: a safetensors file, text, or a pickle. */
static void put(int dir, const char *in, const char *name)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", in, name);
    if (str_ends(name, ".safetensors")) {
        found_bed_put(dir, path, "\x02\0\0\0\0\0\0\0{}", 10);
    } else if (str_ends(name, ".json")) {
        found_bed_put(dir, path, "{\"global_step\":20}", 18);
    } else {
        found_bed_put(dir, path, "\x80\x02}.", 4);
    }
}

/* "name:2", as Accelerate saves it from so many ranks; "name:2!" has no model, so that it is
 * not whole; and "name:2t" is of transformers. */
static void put_ranks(int dir, const char *what)
{
    static const char *const trainer[] = {"model.safetensors", "optimizer.pt", "scheduler.pt",
                                          "training_args.bin", "trainer_state.json"};
    static const char *const accelerate[] = {"model.safetensors", "optimizer.bin",
                                             "scheduler.bin"};
    char name[32], rank[32], kind = '\0';
    unsigned n;

    if (sscanf(what, "%31[^:]:%u%c", name, &n, &kind) < 2) {
        bail_out("what is %s", what);
    }
    mkdirat(dir, name, 0700);
    for (unsigned i = 0; i < n; i++) {
        snprintf(rank, sizeof(rank), kind == 't' ? "rng_state_%u.pth" : "random_states_%u.pkl", i);
        put(dir, name, rank);
    }
    for (size_t i = 0; kind == 't' && i < ARRAY_SIZE(trainer); i++) {
        put(dir, name, trainer[i]);
    }
    for (size_t i = 0; kind == '\0' && i < ARRAY_SIZE(accelerate); i++) {
        put(dir, name, accelerate[i]);
    }
}

/* Of each, newest first, whether it is short: 1 or 0. */
static void find_short(int dir, char got[8])
{
    _free_ struct found_set *sets = NULL;
    _free_ struct found *all = NULL;
    _free_ size_t *series = NULL;
    size_t n = 0;

    if (found_list(io_system(), dir, &all, &n, NULL) == 0) {
        series = found_series(all, sizeof(*all), n);
        sets = found_sets_in(io_system(), dir, all, n, series);
    }
    memset(got, 0, 8);
    for (size_t i = 0; i < n && i < 7; i++) {
        got[i] = sets[i].is_short ? '1' : '0';
    }
}

static void test_beside(void)
{
    static const struct {
        const char *what, *names[4], *want;
    } cases[] = {
        {"one of fewer ranks than those before it",
         {"checkpoint-30:1", "checkpoint-20:2", "checkpoint-10:2"}, "100"},
        {"but where those are not whole",
         {"checkpoint-30:1", "checkpoint-20:2!", "checkpoint-10:2!"}, "000"},
        {"or only one of another trainer is",
         {"checkpoint-30:1", "checkpoint-20:3t", "checkpoint-10:2!"}, "000"},
        {"or one of fewer ranks",
         {"checkpoint-40:2", "checkpoint-30:1", "checkpoint-20:1", "checkpoint-10:3!"}, "0000"},
        {"or a newer one, of more",
         {"checkpoint-30:3", "checkpoint-20:1", "checkpoint-10:2!"}, "000"},
        {"one that is whole tells, behind one that is not",
         {"checkpoint-30:1", "checkpoint-20:2!", "checkpoint-10:3"}, "100"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char top[FOUND_BED_PATH_BYTES], got[8];
        int dir = found_bed_open(top);

        for (size_t k = 0; k < 4 && cases[i].names[k]; k++) {
            put_ranks(dir, cases[i].names[k]);
        }
        find_short(dir, got);
        is_str(got, cases[i].want, "%s", cases[i].what);
        found_bed_close(dir, top);
    }
}

/* One that has all that it says of itself may have more ranks than others need. */
static void test_says_itself(void)
{
    static const char *const dirs[] = {"iter_0000020", "iter_0000020/mp_rank_00", "iter_0000010",
                                       "iter_0000010/mp_rank_00", "iter_0000010/mp_rank_01"};
    char top[FOUND_BED_PATH_BYTES], got[8];
    int dir = found_bed_open(top);

    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
        mkdirat(dir, dirs[i], 0700);
        if (strchr(dirs[i], '/')) {
            put(dir, dirs[i], "model_optim_rng.pt");
        }
    }
    find_short(dir, got);
    is_str(got, "10", "one of fewer ranks");
    last_bed_put_dict(dir, "iter_0000010/mp_rank_00/model_optim_rng.pt",
                      "tensor_model_parallel_size=2 pipeline_model_parallel_size=1");
    find_short(dir, got);
    is_str(got, "00", "but where the one before says itself how many it has");
    found_bed_close(dir, top);
}

int main(void)
{
    test_beside();
    test_says_itself();
    return tap_done();
}
