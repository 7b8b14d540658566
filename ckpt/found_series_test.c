/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/found.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "ckpt/found_bed.h"
#include "tests/lib/tap.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* A file, with the directories that it is in; or one of muster. */
static void put(int dir, const char *name)
{
    char path[128];

    for (const char *at = name; (at = strchr(at, '/')); at++) {
        snprintf(path, sizeof(path), "%.*s", (int)(at - name), name);
        mkdirat(dir, path, 0700);
    }
    if (str_starts(name, "step-") && !strchr(name, '/')) {
        mkdirat(dir, name, 0700);
    } else if (*name) {
        found_bed_put(dir, name, "x", 1);
    }
}

/* The order of all, and of which series each is, by the place of its first. */
static void test_series(void)
{
#define TRAINED(step, rank) "checkpoint-" #step "/rng_state_" #rank ".pth "
#define SHARD(n) "shard-0000" #n "-model-00001-of-00001.safetensors"
    static const struct {
        const char *names, *order, *series; /* - of none */
        const char *sets; /* NULL: each is one by itself */
    } cases[] = {
        {"step_100.pt data_2024.pt step_200.pt last.pt",
         "data_2024.pt step_200.pt step_100.pt last.pt", "- 1 1 -", NULL},
        {"step_100.pt step-000000000007-00000001 iter_9.pt",
         "step_100.pt iter_9.pt step-000000000007-00000001", "0 0 0", NULL},
        {"net-1.pt net-2.pt other-2.pt net-10.pt best.pt",
         "net-10.pt other-2.pt net-2.pt net-1.pt best.pt", "0 1 0 0 -", NULL},
        {"epoch=1.pt epoch=2.pt", "epoch=2.pt epoch=1.pt", "0 0", NULL},
        {"epoch=1-step=7.pt epoch=9.pt", "epoch=9.pt epoch=1-step=7.pt", "- 1", NULL},
        {"model_step2.pt model_step1.pt optimizer_step2.pt optimizer_step1.pt",
         "optimizer_step2.pt model_step2.pt optimizer_step1.pt model_step1.pt", "- 1 - 1", NULL},
        {"step20_rank0.pt step20_rank1.pt step10_rank0.pt step10_rank1.pt",
         "step20_rank1.pt step20_rank0.pt step10_rank1.pt step10_rank0.pt", "0 0 0 0",
         "1 1 3 3"},
        {"step20_rank0.pt step10_rank0.pt step10_rank1.pt",
         "step20_rank0.pt step10_rank1.pt step10_rank0.pt", "0 0 0", "0s 2 2"},
        {"step30_rank0.pt step20_rank0.pt step10_rank0.pt step10_rank1.pt",
         "step30_rank0.pt step20_rank0.pt step10_rank1.pt step10_rank0.pt", "0 0 0 0",
         "0 0 3 3"},
        {"step30_rank1.pt step20_rank1.pt step10_rank0.pt step10_rank1.pt",
         "step30_rank1.pt step20_rank1.pt step10_rank1.pt step10_rank0.pt", "0 0 0 0",
         "0s 0s 3 3"},
        {"step30_rank0.pt step30_rank2.pt step20_rank0.pt step20_rank2.pt "
         "step10_rank0.pt step10_rank1.pt",
         "step30_rank2.pt step30_rank0.pt step20_rank2.pt step20_rank0.pt step10_rank1.pt "
         "step10_rank0.pt", "0 0 0 0 0 0", "1s 1s 3s 3s 5 5"},
        {"step20_rank8.pt step20_rank0.pt step10_rank8.pt step10_rank0.pt",
         "step20_rank8.pt step20_rank0.pt step10_rank8.pt step10_rank0.pt", "0 0 0 0",
         "1 1 3 3"},
        {"step40_rank0.pt step30_rank0.pt step30_rank1.pt step20_rank0.pt step10_rank0.pt "
         "step10_rank1.pt", "step40_rank0.pt step30_rank1.pt step30_rank0.pt step20_rank0.pt "
         "step10_rank1.pt step10_rank0.pt", "0 0 0 0 0 0", "0s 2 2 0s 5 5"},
        {"step20_part2.pt step20_part1.pt step10_part2.pt",
         "step20_part2.pt step20_part1.pt step10_part2.pt", "0 0 0", "1 1 0s"},
        {"a_step30_rank1.pt b_step20_rank0.pt a_step10_rank1.pt",
         "a_step30_rank1.pt b_step20_rank0.pt a_step10_rank1.pt", "0 0 0", NULL},
        {"step20_tp_rank1_pp_rank0.pt step10_tp_rank0_pp_rank1.pt",
         "step20_tp_rank1_pp_rank0.pt step10_tp_rank0_pp_rank1.pt", "0 0", NULL},
        {"net_step3.pt net_step2.pt ema_step3.pt",
         "net_step3.pt ema_step3.pt net_step2.pt", "0 0 0", "1 1 0"},
        {"net-20-shard0.pt net-20-shard1.pt net-10-shard0.pt",
         "net-20-shard1.pt net-20-shard0.pt net-10-shard0.pt", "0 0 0", "1 1 0"},
        {"net-1-20.pt net-2-20.pt", "net-2-20.pt net-1-20.pt", "0 0", NULL},
        /* Directories in which each rank has a file. */
        {TRAINED(30, 1) TRAINED(20, 1) TRAINED(20, 2) TRAINED(10, 1),
         "checkpoint-30 checkpoint-20 checkpoint-10", "0 0 0", "0s 0 0"},
        {TRAINED(40, 1) TRAINED(30, 1) TRAINED(20, 1) TRAINED(20, 2),
         "checkpoint-40 checkpoint-30 checkpoint-20", "0 0 0", NULL},
        {TRAINED(40, 1) TRAINED(30, 1) TRAINED(30, 2) TRAINED(20, 1) TRAINED(10, 1)
         TRAINED(10, 2), "checkpoint-40 checkpoint-30 checkpoint-20 checkpoint-10", "0 0 0 0",
         "0s 0 0s 0"},
        {"checkpoint-30/rng_state.pth " TRAINED(20, 1) TRAINED(20, 2),
         "checkpoint-30 checkpoint-20", "0 0", NULL},
        {"step_30.pt checkpoint-25/random_states_0.pkl " TRAINED(20, 1) TRAINED(20, 2),
         "step_30.pt checkpoint-25 checkpoint-20", "0 0 0", NULL},
        {"iter_3/mp_rank_00/x iter_2/mp_rank_00/x iter_2/mp_rank_01/x", "iter_3 iter_2", "0 0",
         "0s 0"},
        {"global_step3/mp_rank_00_model_states.pt global_step2/mp_rank_00_model_states.pt "
         "global_step2/zero_pp_rank_0_mp_rank_00_optim_states.pt", "global_step3 global_step2",
         "0 0", "0s 0"},
        {"step-3/__0.metadata step-2/__0.metadata step-2/__1.metadata", "step-3 step-2", "0 0",
         "0s 0"},
        {"step-3/__0_0.distcp step-3/.metadata step-2/__0_0.distcp step-2/__1_0.distcp "
         "step-2/.metadata", "step-3 step-2", "0 0", NULL},
        {"step-3/" SHARD(1) " step-2/" SHARD(1) " step-2/" SHARD(2), "step-3 step-2", "0 0",
         "0s 0"},
    };
#undef TRAINED
#undef SHARD

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _buf_ struct buf order = {0}, series = {0}, sets = {0};
        _free_ struct found *all = NULL;
        _free_ struct found_set *set_of = NULL;
        _free_ size_t *of = NULL;
        char text[512], *rest = text;
        char path[FOUND_BED_PATH_BYTES];
        int dir = found_bed_open(path);
        size_t n = 0;

        snprintf(text, sizeof(text), "%s", cases[i].names);
        for (char *name; (name = strsep(&rest, " "));) {
            put(dir, name);
        }
        is_int(found_list(io_system(), dir, &all, &n, NULL), 0, "a list");
        of = found_series(all, sizeof(*all), n);
        set_of = found_sets(all, sizeof(*all), n, of);
        for (size_t k = 0; k < n; k++) {
            buf_printf(&order, "%s%s", k ? " " : "", all[k].name);
            buf_puts(&series, k ? " " : "");
            if (of[k] == FOUND_NO_SERIES) {
                buf_putc(&series, '-');
            } else {
                buf_printf(&series, "%zu", of[k]);
            }
            buf_printf(&sets, "%s%zu%s", k ? " " : "", set_of[k].first,
                       set_of[k].is_short ? "s" : "");
        }
        is_str(buf_str(&order), cases[i].order, "the order of %s", cases[i].names);
        is_str(buf_str(&series), cases[i].series, "and their series");
        if (cases[i].sets) {
            is_str(buf_str(&sets), cases[i].sets, "and which are one");
        } else {
            ok(!strpbrk(buf_str(&sets), "123456789s"), "and each is one by itself");
        }
        found_bed_close(dir, path);
    }
}

int main(void)
{
    test_series();
    return tap_done();
}
